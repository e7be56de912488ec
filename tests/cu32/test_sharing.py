"""Memory on a GPU that is shared with other libraries: DLPack and CUDA's array interface, without a copy, in order."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import dlpack
from alpha.cu32.base import DeviceEngine
from alpha.engine import Engine
from alpha.errors import ArgumentError, DtypeError, GraphError
from alpha.functions import exchange

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "complex64")


@pytest.fixture
def gpu_arrays(cu32: DeviceEngine) -> Any:
    """Makes PyCUDA's arrays."""
    with cu32.device.context():
        from pycuda import gpuarray

    def make(array: np.ndarray[Any, Any]) -> Any:
        with cu32.device.context():
            return gpuarray.to_gpu(array)

    return make


def content(cu32: DeviceEngine, array: Any) -> np.ndarray[Any, Any]:
    cu32.synchronize()
    with cu32.device.context():
        found: np.ndarray[Any, Any] = array.get()
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("versioned", [False, True])
def test_a_capsule_has_the_memory_on_the_device(cu32: DeviceEngine, dtype: str, versioned: bool) -> None:
    x = alpha.tensor(np.arange(24).reshape(2, 3, 4) % 2, engine=cu32).to(getattr(alpha, dtype))
    turned = x.permute(2, 0, 1)[1:]
    assert turned.__dlpack_device__() == (2, 0)
    capsule = turned.__dlpack__(max_version=(1, 0) if versioned else None, stream=-1)
    assert ("versioned" in repr(capsule)) == versioned
    again = alpha.from_dlpack(capsule)
    assert again.engine is cu32 and again.address == turned.address and again.dtype == turned.dtype
    assert again.shape == turned.shape and again.tolist() == turned.tolist()
    assert all(a == b for a, b, n in zip(again.strides, turned.strides, turned.shape, strict=True) if n > 1)
    with pytest.raises(ArgumentError, match="from_dlpack"):
        alpha.from_dlpack(capsule)  # once is all


def test_both_see_what_is_written_and_the_memory_lives_as_long(cu32: DeviceEngine) -> None:
    x = alpha.ones(1000, engine=cu32)
    for take in (alpha.from_dlpack, alpha.asarray, alpha.as_tensor):

        class Foreign:
            """Takes part in DLPack as another library's tensor does."""

            def __init__(self, tensor: Any) -> None:
                self.tensor = tensor

            def __dlpack__(self, **options: Any) -> Any:
                assert options["stream"] == int(cu32.stream.handle)
                return self.tensor.__dlpack__(**options)

            def __dlpack_device__(self) -> tuple[int, int]:
                found: tuple[int, int] = self.tensor.__dlpack_device__()
                return found

        mine = take(Foreign(x))
        mine += 1
        assert mine.engine is cu32 and mine.storage is not x.storage and mine.address == x.address
    assert x.tolist() == [4] * 1000
    storage = weakref.ref(x.storage)
    del x, Foreign
    gc.collect()
    assert storage() is not None and mine.sum().item() == 4000
    del mine
    gc.collect()
    assert storage() is None


def test_what_becomes_of_a_tensor_of_shared_memory(cu32: DeviceEngine, gpu_arrays: Any) -> None:
    """Products, convolutions and gradients read it as their own."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((40, 36), (36, 20)))
    images, filters = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 9, 7, 16), (24, 3, 3, 16)))
    shared = [alpha.as_tensor(gpu_arrays(array)) for array in (a, b, images, filters)]
    plain = [alpha.tensor(array, engine=cu32) for array in (a, b, images, filters)]
    results = []
    for x, y, i, f in (shared, plain):
        x.requires_grad_()
        f.requires_grad_()
        total = (x @ y).square().sum() + alpha.conv2d(i, f, padding=1).relu().sum()
        total.backward()
        results.append([np.array(one) for one in (total.detach(), x.grad, f.grad)])
    for mine, right in zip(*results, strict=True):
        np.testing.assert_array_equal(mine, right)


@pytest.mark.parametrize("take", [alpha.as_tensor, alpha.asarray], ids=["as_tensor", "asarray"])
def test_a_gpu_array_becomes_a_tensor(cu32: DeviceEngine, gpu_arrays: Any, take: Any) -> None:
    theirs = gpu_arrays(np.arange(12, dtype=np.float32).reshape(3, 4))
    mine = take(theirs)
    assert mine.engine is cu32 and mine.address == int(theirs.gpudata)
    mine.mul_(2)
    np.testing.assert_array_equal(content(cu32, theirs), 2 * np.arange(12).reshape(3, 4))
    assert take(theirs, dtype=alpha.float64).dtype == alpha.float64
    assert take(theirs, device="cpu").engine.name == "cpu"
    capsule = mine.__dlpack__(stream=-1)
    assert take is not alpha.asarray or take(capsule).address == mine.address
    address = int(theirs.gpudata)
    del theirs, capsule
    gc.collect()
    assert mine.address == address and mine.sum().item() == 132
    assert take(gpu_arrays(np.zeros((0, 3), np.int32))).shape == (0, 3)


def test_copies(cu32: DeviceEngine, gpu_arrays: Any) -> None:
    theirs = gpu_arrays(np.ones(5, np.float32))
    copied = alpha.asarray(theirs, copy=True)
    assert copied.address != int(theirs.gpudata) and copied.tolist() == [1] * 5
    assert alpha.asarray(theirs, copy=False).address == int(theirs.gpudata)
    with pytest.raises(ArgumentError, match="allow a copy"):
        alpha.asarray(theirs, copy=False, device="cpu")
    x = alpha.ones(4, engine=cu32)
    clone = alpha.from_dlpack(x.__dlpack__(copy=True, stream=-1))
    assert clone.address != x.address and clone.tolist() == [1] * 4
    with pytest.raises(ArgumentError, match="allow a copy"):
        alpha.from_dlpack(x, device="cpu", copy=False)
    assert alpha.from_dlpack(x, device="cpu").engine.name == "cpu"


def test_to_the_host(cu32: DeviceEngine) -> None:
    x = alpha.tensor([[1.0, 2.0], [3.0, 4.0]], engine=cu32)
    found = alpha.from_dlpack(x.__dlpack__(dl_device=(1, 0), max_version=(1, 0)))
    assert found.engine.name == "cpu" and found.tolist() == x.tolist()
    with pytest.raises(BufferError, match="got False"):
        x.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match=r"expected dl_device=\(1, 0\) or \(2, 0\)"):
        x.__dlpack__(dl_device=(2, 7))
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(x)
    with pytest.raises(GraphError, match="requires grad"):
        x.requires_grad_().__dlpack__()


def test_streams_wait_for_each_other(cu32: DeviceEngine, gpu_arrays: Any) -> None:
    with cu32.device.context() as driver:
        other = driver.Stream(1)
    x = alpha.zeros(1 << 16, engine=cu32)
    x += 1
    x.__dlpack__(stream=int(other.handle))
    host = np.empty(1 << 16, np.float32)
    with cu32.device.context() as driver:
        driver.memcpy_dtoh_async(host, x.address, other)  # sees what the engine was given before
        other.synchronize()
    assert (host == 1).all()

    theirs = gpu_arrays(np.zeros(1 << 16, np.float32))
    with cu32.device.context() as driver:
        driver.memset_d32_async(theirs.gpudata, 0x40000000, 1 << 16, other)  # 2.0

    class Foreign:
        """Says in which stream its memory is written to."""

        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return {**theirs.__cuda_array_interface__, "stream": int(other.handle)}

    assert (alpha.as_tensor(Foreign()) * 3).sum().item() == 6 * (1 << 16)


def test_what_cannot_be_shared(cu32: DeviceEngine, gpu_arrays: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = gpu_arrays(np.arange(6, dtype=np.float32))

    class Foreign:
        """An array interface with some of it changed."""

        def __init__(self, **changed: Any) -> None:
            self.__cuda_array_interface__ = {**theirs.__cuda_array_interface__, "stream": None, **changed}

    with pytest.raises(DtypeError):
        alpha.as_tensor(Foreign(typestr="<u8", shape=(3,)))
    with pytest.raises(ArgumentError, match="negative strides"):
        alpha.as_tensor(Foreign(data=(int(theirs.gpudata) + 20, False), strides=(-4,)))
    with pytest.warns(UserWarning, match="read-only"):
        found = alpha.as_tensor(Foreign(data=(int(theirs.gpudata), True)))
    assert found.address != int(theirs.gpudata) and found.tolist() == list(range(6))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alpha.as_tensor(Foreign())

    @alpha.graph
    def step(x: Any) -> Any:
        return x + alpha.as_tensor(theirs)

    x = alpha.ones(6, engine=cu32)
    step(x)
    with pytest.raises(GraphError, match="another library's memory"):
        step(x)


def test_a_tensor_given_away_is_saved_as_it_is(cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may write to it unseen, so that it is not made again."""
    from alpha.autograd.kept import Remade
    from alpha.cu32 import normalisation

    monkeypatch.setattr(normalisation, "REMADE_FROM", 0)
    x = alpha.tensor(np.random.default_rng(0).standard_normal((6, 4, 4, 8)).astype(np.float32), engine=cu32)
    y: Any = alpha.batch_norm(x.requires_grad_(), None, None, training=True)
    y.detach().__dlpack__(stream=-1)
    z: Any = alpha.conv2d(y, alpha.ones(3, 1, 1, 8, engine=cu32).requires_grad_())
    assert not any(entry is not None and type(entry[0]) is Remade for entry in z._node._saved)


def test_nobody_reads_a_gpus_memory_on_the_host(cu32: DeviceEngine) -> None:
    """Who knows of the host alone gets NumPy's refusal, and not addresses that it would read."""
    x = alpha.ones(3, engine=cu32)
    with pytest.raises((BufferError, RuntimeError)):
        dlpack.array_of(dlpack.Capsule(x.__dlpack__(stream=-1)))
    with pytest.raises((BufferError, RuntimeError)):
        dlpack.array_of(dlpack.Capsule(x))


def test_objects_that_are_no_tensors_on_a_gpu(engine: Engine) -> None:
    assert exchange._of_gpu("as_tensor", [1, 2], None) is None
    assert exchange._of_gpu("as_tensor", np.ones(3), None) is None
    assert alpha.as_tensor([1, 2]).tolist() == [1, 2]
    assert alpha.ones(2).__dlpack_device__() == (dlpack.HOST, 0)

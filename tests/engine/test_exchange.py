"""Tensors in other libraries' memory: what is shared, for how long, what is copied instead and says so."""

from __future__ import annotations

import array as python_array
import functools
import gc
import mmap
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import foreign
from alpha.cpu.engine import CPUEngine
from alpha.engine import Engine
from alpha.errors import ArgumentError, DtypeError, ShapeError

DTYPES = ["float32", "float64", "uint8", "int32", "int64", "bool"]


def roomy(*shape: int, dtype: Any = np.float64) -> np.ndarray[Any, Any]:
    """Zeros with room behind them in their own array, wherever that ends."""
    count = int(np.prod(shape))
    return np.zeros(count + 256, dtype)[:count].reshape(shape)


def quietly(make: Callable[[], alpha.Tensor]) -> alpha.Tensor:
    """The tensor; fails where a warning says that it is a copy."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return make()


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_share_their_memory(engine: Engine, dtype: str) -> None:
    base = roomy(3, 4, 5, dtype=dtype)
    for x in (base, base.T, base[1:, ::2, 3], base[1, 2, 3:4].reshape(()), base[:, :0], base[..., None]):
        x[...] = 1
        t = quietly(lambda x=x: alpha.from_numpy(x, engine=engine))  # type: ignore[misc]
        assert t.shape == x.shape and t.dtype == x.dtype and np.array_equal(t, x)
        if not engine.memory.is_on_host:
            continue
        assert t.storage.exported and [s * x.itemsize for s in t.strides] == list(x.strides)
        x[...] = 0
        assert not t.any()
        t.fill_(True)
        assert x.all()
        assert x.size == 0 or np.shares_memory(t.numpy(), x)


def test_other_makers_share_too(cpu: CPUEngine) -> None:
    x = roomy(6, dtype=np.float32)
    buffer = bytearray(4096)
    for make in (
        lambda: alpha.as_tensor(x),
        lambda: alpha.asarray(x),
        lambda: alpha.asarray(x, copy=False),
        lambda: alpha.from_dlpack(x),
        lambda: alpha.utils.dlpack.from_dlpack(x.__dlpack__()),
        lambda: alpha.asarray(x.__dlpack__()),
    ):
        t = quietly(make)
        x[2] += 1
        assert t[2].item() == x[2] and t.dtype == alpha.float32
    t = quietly(lambda: alpha.frombuffer(buffer, dtype=alpha.int32, count=3, offset=8))
    t[1] = 258
    assert buffer[12:14] == b"\2\1" and t.shape == (3,)
    assert quietly(lambda: alpha.asarray(memoryview(buffer)[:64])).shape == (16,)
    assert alpha.frombuffer(python_array.array("d", [1.0, 2.0]), dtype="float64").tolist() == [1, 2]


def test_what_is_to_be_copied_is_copied(cpu: CPUEngine) -> None:
    x = roomy(4)
    for make in (
        lambda: alpha.tensor(x),
        lambda: alpha.as_tensor(x, alpha.float32),
        lambda: alpha.asarray(x, dtype="float32"),
        lambda: alpha.asarray(x, copy=True),
        lambda: alpha.from_dlpack(x, copy=True),
        lambda: alpha.as_tensor(x, device="numpy", dtype="int64"),
    ):
        assert not np.shares_memory(quietly(make).numpy(), x)
    t = alpha.ones(3, requires_grad=True)
    assert alpha.asarray(t) is t and alpha.as_tensor(t, alpha.float32) is t
    assert not alpha.asarray(t, requires_grad=False).requires_grad
    assert alpha.asarray(t, copy=True).storage is not t.storage
    assert alpha.asarray([1.0, 2], requires_grad=True).requires_grad and alpha.asarray(3).dtype == alpha.int64
    assert alpha.asarray(np.float64(0.5)).dtype == alpha.float64
    assert alpha.asarray(t * 2, requires_grad=True).requires_grad


def test_memory_lives_as_long_as_either(cpu: CPUEngine) -> None:
    x = roomy(1000)
    watched = weakref.ref(x)
    t = alpha.from_numpy(x)[10:]
    view = t.detach().numpy()
    del x
    gc.collect()
    assert watched() is not None
    del t
    gc.collect()
    view[:] = 3  # the array of the tensor keeps it too
    assert watched() is not None and view.sum() == 3 * 990
    del view
    gc.collect()
    assert watched() is None
    before = cpu.memory.in_use
    assert alpha.from_numpy(roomy(1000)).shape == (1000,) and cpu.memory.in_use == before  # no memory of the pool


def test_what_cannot_be_shared_is_copied_and_says_why(cpu: CPUEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = roomy(4)
    fixed.flags.writeable = False
    records = np.zeros(100, [("a", "u1"), ("b", "<f4")])
    for x, why in (
        (fixed, "is read-only"),
        (np.broadcast_to(roomy(1), (3,)), "is read-only"),
        (roomy(4)[::-1], "has negative strides"),
        (records["b"], "no multiples of their size"),
        (roomy(64, dtype=np.uint8)[1:9].view(np.float32), "no multiples of their size"),
    ):
        with pytest.warns(UserWarning, match=rf"^\[from_numpy\] expected .*got one that .*{why}.*the tensor is a copy"):
            t = alpha.from_numpy(x)
        assert np.array_equal(t, x) and not np.shares_memory(t.numpy(), x)
        with pytest.raises(ArgumentError, match=r"^\[asarray\] expected an object whose memory"):
            alpha.asarray(x, copy=False)
        assert np.array_equal(alpha.as_tensor(x), x)  # which may copy, and does so quietly
    with pytest.warns(UserWarning, match=r"^\[frombuffer\]"):
        assert alpha.frombuffer(b"\1\2", dtype=alpha.uint8).tolist() == [1, 2]


def test_kernels_read_beyond_no_foreign_memory(cpu: CPUEngine, rng: np.random.Generator) -> None:
    """An array that ends with its page is copied: what lies behind may not be readable, and products read it."""
    with mmap.mmap(-1, mmap.PAGESIZE) as memory:
        whole = np.frombuffer(memory, np.float32)
        whole[:] = rng.standard_normal(whole.size)
        with pytest.warns(UserWarning, match="ends less than 128 bytes before memory that may not be read"):
            t = alpha.from_numpy(whole[-15:].reshape(3, 5))
        assert not np.shares_memory(t.numpy(), whole) and (t @ t.T).shape == (3, 3)
        first = whole[:15].reshape(3, 5)
        inner = quietly(functools.partial(alpha.from_numpy, first))
        assert np.shares_memory(inner.numpy(), whole)
        del whole, first, t, inner
        gc.collect()
    assert foreign.obstacle(cpu, np.zeros(7)) == ""  # from the heap


def test_autograd_and_layers_compute_in_shared_memory(cpu: CPUEngine, rng: np.random.Generator) -> None:
    x = roomy(5, 7, dtype=np.float32)
    x[...] = rng.standard_normal(x.shape)
    w = alpha.from_numpy(x).requires_grad_()
    (w @ w.T).sum().backward()
    assert w.grad is not None
    expected = np.broadcast_to(2 * x.sum(0), x.shape)
    np.testing.assert_allclose(w.grad.numpy(), expected, rtol=1e-5, atol=1e-5)
    parameter = alpha.nn.Parameter(alpha.from_numpy(x))
    parameter.grad = alpha.ones(5, 7)
    before = x.copy()
    alpha.optim.SGD([parameter], lr=0.5).step()
    np.testing.assert_allclose(x, before - 0.5, rtol=1e-6)


@pytest.mark.needs("torch")
def test_memory_is_shared_with_pytorch_both_ways(cpu: CPUEngine) -> None:
    import torch

    from alpha.utils import dlpack

    theirs = torch.zeros(300)[:200].reshape(10, 20).T
    for ours in (
        alpha.from_dlpack(theirs),
        dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(theirs)),
        alpha.asarray(theirs),
    ):
        ours[3, 4] += 1
        assert theirs[3, 4] == ours[3, 4].item() and ours.shape == (20, 10) and ours.stride() == (1, 20)
    mine = alpha.zeros(4, 5)
    for other in (torch.from_dlpack(mine), torch.utils.dlpack.from_dlpack(dlpack.to_dlpack(mine.T)).T):
        other[1, 2] += 1
    assert mine[1, 2].item() == 2
    del mine
    gc.collect()
    assert other[1, 2] == 2
    assert alpha.from_dlpack(torch.tensor([True, False])).dtype == alpha.bool_
    with pytest.raises(DtypeError, match="uint64"):
        alpha.from_dlpack(torch.zeros(2, dtype=torch.uint64))
    with pytest.raises(ArgumentError, match=r"^\[from_dlpack\] expected a tensor in the host's memory"):
        alpha.from_dlpack(torch.zeros(2, requires_grad=True))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: alpha.from_dlpack([1, 2]), ArgumentError),
        (lambda: alpha.from_numpy([1]), DtypeError),
        (lambda: alpha.from_numpy(np.zeros(2, ">f4")), DtypeError),
        (lambda: alpha.from_numpy(np.array(["a"])), DtypeError),
        (lambda: alpha.frombuffer(b"abc", dtype="int32"), ArgumentError),
        (lambda: alpha.frombuffer(3, dtype="int32"), ArgumentError),
        (lambda: alpha.frombuffer(bytearray(8), dtype="int32", offset=9), ArgumentError),
        (lambda: alpha.frombuffer(bytearray(8), dtype="int32", count=3), ArgumentError),
        (lambda: alpha.frombuffer(bytearray(8), dtype="int32", count=1.5), ArgumentError),  # type: ignore[arg-type]
        (lambda: alpha.frombuffer(bytearray(b"\2"), dtype="bool"), ArgumentError),
        (lambda: alpha.asarray(b"abc"), ArgumentError),
        (lambda: alpha.asarray([1], copy=False), ArgumentError),
        (lambda: alpha.asarray([1], copy=np.ones(2)), ArgumentError),  # type: ignore[arg-type]
        (lambda: alpha.utils.dlpack.to_dlpack(np.ones(2)), ArgumentError),  # type: ignore[arg-type]
        (lambda: alpha.asarray([[1], [2, 3]]), (ArgumentError, ShapeError)),
    ],
)
def test_bad_input_says_so(call: Callable[[], Any], error: Any) -> None:
    with pytest.raises(error, match=r"^\[\w+\] expected "):
        call()


def test_safetensors_under_its_own_names(engine: Engine, tmp_path: Any) -> None:
    import safetensors.numpy

    from alpha.utils import safetensors as ours

    tensors = {"b": alpha.arange(6.0, engine=engine).reshape(2, 3).T, "a": alpha.ones(2, dtype="bool", engine=engine)}
    ours.save_file(tensors, tmp_path / "f", {"by": "us"})
    assert np.array_equal(safetensors.numpy.load_file(tmp_path / "f")["b"], tensors["b"])
    found = ours.load_file(tmp_path / "f", device=engine.name)
    assert list(found) == ["b", "a"] and found["b"].engine is engine and np.array_equal(found["b"], tensors["b"])
    assert np.array_equal(ours.load(ours.save(tensors))["b"], tensors["b"])
    assert np.array_equal(safetensors.numpy.load(ours.save(tensors, {"by": "us"}))["a"], tensors["a"])
    for call in (lambda: ours.save_file({"a": 1}, tmp_path / "g"), lambda: ours.load("f"), lambda: ours.save([])):  # type: ignore
        with pytest.raises(ArgumentError, match=r"^\[\w+\] expected "):
            call()

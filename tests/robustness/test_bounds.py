"""No index reaches memory unchecked: not one changed after forward checked it, nor one that a thread is changing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import Tensor
from alpha.engine import Engine, RangeCheck
from alpha.errors import AlphaError, DtypeError, IndexingError, ShapeError

FAR = (2**62, -(2**62), 2**32 + 1, -(2**31) - 1, 1 << 40, -1, 5)
"""Indices that no axis here has, some of which are in range once cut to 32 bits or to their sign."""


@pytest.fixture(autouse=True)
def switches(engine: Engine) -> Iterator[None]:
    """Errors that a device notes are read, and the switches are as they were, whatever a test does."""
    yield
    engine.check(True)


def table(engine: Engine, *shape: int, grad: bool = True) -> Tensor:
    """1, 2, 3, ... as float64."""
    values = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
    return alpha.tensor(values, dtype=alpha.float64, engine=engine, requires_grad=grad)


def integers(engine: Engine, *values: int, shape: tuple[int, ...] = (-1,)) -> Tensor:
    return engine.from_numpy(np.array(values, np.int64).reshape(shape))


def overwrite(index: Tensor, value: Any) -> None:
    """Writes to the memory as an array that shares it does, where there is one; else in place, unseen by a guard."""
    version = index.version
    array = index.numpy()
    if np.shares_memory(array, index.numpy()):
        array[...] = value
    else:
        index.fill_(value)
        index.storage.version = version


Make = Callable[[Engine], tuple[Tensor, Tensor, Tensor]]
"""(parameter, index, result) of a function of an index."""


def _cross_entropy(engine: Engine, **options: Any) -> tuple[Tensor, Tensor, Tensor]:
    x, labels = table(engine, 3, 5), integers(engine, 4, 0, 2)
    return x, labels, F.cross_entropy(x, labels, **options)


def _weighted(engine: Engine, **options: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _cross_entropy(engine, weight=table(engine, 5, grad=False), **options)


def _nll(engine: Engine) -> tuple[Tensor, Tensor, Tensor]:
    x, labels = table(engine, 3, 5), integers(engine, 4, 0, 2)
    return x, labels, F.nll_loss(x, labels, reduction="none")


def _embedding(engine: Engine) -> tuple[Tensor, Tensor, Tensor]:
    x, index = table(engine, 5, 3), integers(engine, 4, 0, 4, 1)
    return x, index, F.embedding(index, x, padding_idx=1)


def _read(key: Callable[[Tensor], Any], *values: int, shape: tuple[int, ...] = (-1,)) -> Make:
    def make(engine: Engine) -> tuple[Tensor, Tensor, Tensor]:
        x, index = table(engine, 5, 3), integers(engine, *values, shape=shape)
        return x, index, x[key(index)]

    return make


def _gather(engine: Engine) -> tuple[Tensor, Tensor, Tensor]:
    x, index = table(engine, 5, 3), integers(engine, 4, -1, 0, 1, 0, 2, shape=(2, 3))
    return x, index, alpha.gather(x, 0, index)


def _take_along_dim(engine: Engine) -> tuple[Tensor, Tensor, Tensor]:
    x, index = table(engine, 5, 3), integers(engine, 4, 1, shape=(2, 1))
    return x, index, alpha.take_along_dim(x, index, 0)


def _index_select(engine: Engine) -> tuple[Tensor, Tensor, Tensor]:
    x, index = table(engine, 3, 5), integers(engine, 4, 1)
    return x, index, alpha.index_select(x, 1, index)


def _assign(engine: Engine) -> tuple[Tensor, Tensor, Tensor]:
    x, index = table(engine, 5, 3), integers(engine, 4, 1)
    y = x * 1
    y[index] = table(engine, 2, 3)
    return x, index, y


MAKERS: dict[str, Make] = {
    "cross_entropy": _cross_entropy,
    "cross_entropy smoothed": lambda engine: _cross_entropy(engine, label_smoothing=0.1),
    "cross_entropy weighted": _weighted,
    "cross_entropy weighted and smoothed": lambda engine: _weighted(engine, label_smoothing=0.1),
    "cross_entropy ignoring": lambda engine: _cross_entropy(engine, ignore_index=0),
    "nll_loss": _nll,
    "embedding": _embedding,
    "x[i]": _read(lambda i: i, 4, 0, -1),
    "x[i, :2]": _read(lambda i: (i, slice(2)), 4, 0),
    "x[:, i]": _read(lambda i: (slice(None), i), 2, 0),
    "x[i, j]": _read(lambda i: (i, i), 2, 0, 2),
    "x[i, 1]": _read(lambda i: (i, 1), 2, 0, 2),
    "x[i.T]": _read(lambda i: i.T, 2, 0, 2, 1, shape=(2, 2)),
    "gather": _gather,
    "take_along_dim": _take_along_dim,
    "index_select": _index_select,
    "x[i] = y": _assign,
}


@pytest.mark.parametrize("name", MAKERS)
def test_indices_changed_after_forward_do_not_change_backward(name: str, engine: Engine) -> None:
    """What forward checked is what backward follows: the gradient is that of the forward that took place."""
    x, _, y = MAKERS[name](engine)
    y.sum().backward()
    assert x.grad is not None
    expected = x.grad.tolist()
    for far in FAR:
        x, index, y = MAKERS[name](engine)
        overwrite(index, far)
        y.sum().backward()
        assert x.grad is not None and x.grad.tolist() == expected
    engine.synchronize()


@pytest.mark.parametrize("value", [True, False])
def test_masks_changed_after_forward_do_not_change_backward(value: bool, engine: Engine) -> None:
    held = np.array([True, False, True, False, False])
    for key in (lambda m: m, lambda m: (m, slice(1, 3)), lambda m: (m, 1)):
        for assign in (False, True):
            x, mask = table(engine, 5, 3), engine.from_numpy(held)
            y = x * 1
            if assign:
                y[key(mask)] = 0.0
            else:
                y = y[key(mask)]
            overwrite(mask, value)
            y.sum().backward()
            expected = np.ones((5, 3)) if assign else np.zeros((5, 3))
            expected[key(held)] = 0 if assign else 1
            assert x.grad is not None and x.grad.tolist() == expected.tolist()


@pytest.mark.parametrize("far", FAR)
@pytest.mark.parametrize("function", ["sort", "sort descending", "max", "min keepdim"])
def test_indices_that_a_function_returned_are_checked_again(function: str, far: int, cpu: Engine) -> None:
    """The caller holds the memory that backward follows, on the engine that shares it with arrays."""
    x = table(cpu, 3, 4)
    values, index = {
        "sort": lambda: alpha.sort(x, 0),
        "sort descending": lambda: alpha.sort(x, 1, descending=True),
        "max": lambda: alpha.max(x, 1),
        "min keepdim": lambda: alpha.min(x, 0, True),
    }[function]()
    places = np.array(index)
    index.numpy()[0] = far
    values.sum().backward()  # it follows a copy of its own
    axis = 0 if function in ("sort", "min keepdim") else 1
    expected = np.zeros((3, 4), np.float32)
    np.put_along_axis(expected, places if places.ndim == 2 else places[:, None], 1, axis)
    np.testing.assert_array_equal(np.asarray(x.grad), expected)


def test_every_function_refuses_indices_out_of_range(engine: Engine) -> None:
    x, rows = table(engine, 5, 3), table(engine, 3, 5)
    for far in FAR[:5]:
        index = integers(engine, 0, far, 1)
        column = integers(engine, 0, far, 1, shape=(3, 1))
        calls: tuple[Callable[[], Any], ...] = (
            lambda index=index: F.cross_entropy(rows, index),
            lambda index=index: F.nll_loss(rows, index),
            lambda index=index: F.embedding(index, x),
            lambda index=index: x[index],
            lambda index=index: x[:, index],
            lambda index=index: x[index, index],
            lambda index=index: x.detach().__setitem__(index, 1.0),
            lambda column=column: alpha.gather(x, 0, column),
            lambda column=column: alpha.take_along_dim(x, column, 0),
            lambda index=index: alpha.index_select(x, 1, index),
            lambda index=index: alpha.one_hot(index, 5),
        )
        for call in calls:
            with pytest.raises(AlphaError, match="expected"):
                call()
                engine.synchronize()
        for key in (far, [far], np.array([far]), (slice(None), far), np.int64(far)):
            with pytest.raises(IndexingError):
                x[key]
                engine.synchronize()


def test_unchecked_indices_still_stay_within_the_tensor(engine: Engine) -> None:
    """``check(False)`` gives up the error, and nothing else: wrong indices mean an element of the tensor."""
    engine.check(False)
    for name, make in MAKERS.items():
        for far in FAR:
            x, index, _ = make(engine)
            overwrite(index, far)
            if "cross" in name or "nll" in name:
                y = F.cross_entropy(x, index)
            elif "embedding" in name:
                y = F.embedding(index, x)
            else:
                y = x[index]
            y.sum().backward()
            assert set(y.reshape(-1).tolist()) <= set(x.reshape(-1).tolist()) or "cross" in name or "nll" in name
    engine.synchronize()


def test_the_engines_kernels_follow_no_label_out_of_range(engine: Engine) -> None:
    logits, scale = engine.from_numpy(np.ones((3, 4))), engine.from_numpy(np.ones(3))
    for far in (2**62, -(2**62), -1, 4, 2**32 + 1):
        labels = integers(engine, 1, far, 2)
        losses, p = engine.cross_entropy(logits, labels, 0.1)
        assert np.isnan(losses.numpy()).tolist() == [False, True, False]
        grad = engine.cross_entropy_grad(p, labels, scale, 0.0).numpy()
        np.testing.assert_allclose(grad.sum(1), [0, 1, 0], atol=1e-12)


def test_an_index_is_read_once(cpu: Engine) -> None:
    """A thread writes to indices, labels and a mask all the while: results are of what was checked."""
    x, rows = table(cpu, 300, 40), table(cpu, 4096, 7)
    index, labels = integers(cpu, *([0] * 20000)), integers(cpu, *([0] * 4096))
    mask = cpu.from_numpy(np.zeros(300, np.bool_))
    arrays, stop = (index.numpy(), labels.numpy(), mask.numpy()), threading.Event()

    def disturb() -> None:
        while not stop.is_set():
            for array in arrays:
                array[...] = 2**62 if array.dtype != bool else True
                array[...] = 0

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for _ in range(30):
            for call in (
                lambda: x[index],
                lambda: x[index, index],
                lambda: x[mask],
                lambda: F.embedding(index, x),
                lambda: F.cross_entropy(rows, labels),
                lambda: F.nll_loss(rows, labels),
            ):
                try:
                    call().sum().backward()
                except AlphaError:
                    continue
    finally:
        stop.set()
        thread.join()
    assert x.grad is not None and np.isfinite(x.grad.numpy()).all()


def test_what_check_range_gives_is_nobody_elses(engine: Engine) -> None:
    for values in ((0, 1), (-1, 1)):
        index = integers(engine, *values)
        found = engine.check_range(index, -2, 2, RangeCheck(IndexingError, "{value}"))
        overwrite(index, 7)
        assert found.tolist() == [value % 2 for value in values]


KINDS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)


def test_numpy_integers_of_every_kind_index(engine: Engine) -> None:
    x = table(engine, 4, 3, grad=False)
    for kind in KINDS:
        assert x[kind(2)].tolist() == x[2].tolist()
        assert x[: kind(2)].tolist() == x[:2].tolist()


def test_keys_that_are_none(engine: Engine) -> None:
    """Whatever is no index is told as such; sizes and slices are read once."""
    x = table(engine, 4, 3, grad=False)
    endless: list[Any] = []
    endless.append(endless)
    keys: tuple[Any, ...] = (
        1.0, "a", np.True_, b"a", {}, set(), object(), 1j, float("nan"), np.float32(1), [1.0], ["a"], [None],
        [[0], [1, 2]], np.array([1.5]), np.array([object()]), np.array(["a"]), np.array([1], "datetime64[s]"),
        np.array([(1, 2)], "i4,i4"), slice("a"), slice(1.5), slice(None, None, 0), slice(0, x), slice(0, [1]),
        (0, 0, 0), (..., ...), (("a",),), endless, 10**5000, -(10**30), ((1.5,),), lambda: 0, x,
        x > 100.0, [True], [[1j]],
    )  # fmt: skip
    for key in keys:
        if key is keys[-3] and isinstance(key, Tensor):
            continue
        with pytest.raises(AlphaError):
            x[key]
        with pytest.raises(AlphaError):
            x[key] = 0.0


def test_a_slice_of_tensors_is_read_once(engine: Engine) -> None:
    x, stop = table(engine, 4, 3), integers(engine, 2, shape=(1,))
    y = x[:stop]
    overwrite(stop, 4)
    y.sum().backward()
    assert y.shape == (2, 3) and x.grad is not None and x.grad.sum().item() == 6


def test_arrays_of_every_layout(engine: Engine) -> None:
    """Values come over whatever the array's strides, order, flags and class are."""
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    read_only = base.copy()
    read_only.flags.writeable = False
    buffer = np.zeros(4 * 4 + 1, np.uint8)
    buffer[1:] = np.arange(4, dtype=np.float32).view(np.uint8)
    for array in (
        base[::-1], base[:, ::-2], base.T, base[1:1], base[::2, 1:1], base[0, 0], np.broadcast_to(base[0], (3, 6)),
        read_only, buffer[1:].view(np.float32), np.ma.masked_array(base), np.ones(3).view(np.recarray),
        np.float64(3), np.zeros((0, 3, 0)), np.zeros(()),
    ):  # fmt: skip
        x = alpha.tensor(array, engine=engine)
        assert type(x.numpy()) is np.ndarray
        np.testing.assert_array_equal(x.numpy(), np.asarray(array))
        assert (x + np.asarray(array).astype(x.dtype)).shape == array.shape


def test_arrays_of_other_kinds_are_refused(engine: Engine) -> None:
    for array in (
        np.array([object()]), np.array(["a"]), np.array([b"a"]), np.zeros(2, "i4,f4"),
        np.zeros(2, "datetime64[s]"), np.zeros(2, "timedelta64[s]"), np.zeros(2, ">f4"), np.zeros(2, ">i8"),
        np.zeros(2, np.longdouble), np.zeros(2, "V8"), np.zeros(2, np.uint64),
    ):  # fmt: skip
        for call in (lambda a=array: alpha.tensor(a, engine=engine), lambda a=array: engine.from_numpy(a)):
            with pytest.raises(DtypeError, match="expected"):
                call()


def test_views_stay_within_their_memory(engine: Engine) -> None:
    x = table(engine, 4, 3, grad=False)
    for geometry in (
        (10**9, (4,), (1,)), (-1, (4,), (1,)), (0, (13,), (1,)), (0, (4, 3), (4, 1)), (2, (2,), (-3,)),
        (0, (2**62, 2**62), (1, 1)), (0, (4,), (2**61,)), (12, (1,), (1,)), (0, (-1,), (1,)), (0, (2,), (1, 1)),
        (0, 3, 4), (0, ("a",), (1,)), (None, (1,), (1,)),
    ):  # fmt: skip
        with pytest.raises(ShapeError):
            x.strided(*geometry)
    assert x.strided(11, (2,), (-11,)).tolist() == [12.0, 1.0]
    assert x.strided(12, (0,), (1,)).tolist() == []

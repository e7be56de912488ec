"""Conversions between all real dtypes, point-wise functions of floats of 16 bits, ranges: kernels, never the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.cu32.base import DeviceEngine
from alpha.cu32.driver import Device
from alpha.dtypes import TABLE, is_complex, is_float
from alpha.engine import Engine
from alpha.nn import functional as F

Array = np.ndarray[Any, Any]
REAL = [dtype for dtype in TABLE if not is_complex(dtype)]
HALVES = [dtype for dtype in REAL if is_float(dtype) and dtype.itemsize == 2]


@pytest.fixture
def on_device(cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Any]:
    """What a function returns; it fails where it copies anything between host and device.

    It is called twice: the first time its kernels are compiled, and checked by the host.
    """

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("expected a function that stays on the device, got one that copies from it or to it")

    def called(function: Callable[[], Any]) -> Any:
        function()
        with monkeypatch.context() as patch:
            patch.setattr(Device, "upload", refused)
            patch.setattr(Device, "download", refused)
            return function()

    return called


def values(dtype: Any) -> Array:
    """All floats of 16 bits; of others numbers of every size, ties of roundings, what is beyond, and special ones."""
    rng = np.random.default_rng(0)
    if is_float(dtype) and dtype.itemsize == 2:
        return np.arange(1 << 16, dtype=np.uint16).view(dtype)
    if not is_float(dtype):
        return np.concatenate([rng.integers(-130, 130, 99), [0, 127, -128, 255, 32767, 65535, 2**31 - 1]]).astype(dtype)
    ties = [1 + k * 2.0**-n for n in (8, 11, 24, 40) for k in (1, 3)]
    least = [s * 2.0**-n for n in (14, 24, 25, 126, 133, 134, 149) for s in (1, 1 + 2**-40, 1.5)]
    most = [65504, 65519.99, 65520, 3.4e38, (2 - 2.0**-9) * 2.0**127, 1e300, np.inf, np.nan, 0.0]
    numbers = rng.standard_normal(200) * 10.0 ** rng.integers(-50, 50, 200)
    with np.errstate(over="ignore"):
        return np.concatenate([numbers, ties, least, most, np.negative(ties + least + most)]).astype(dtype)


def fits(x: Array, dtype: Any) -> Array:
    """The numbers that C++ and NumPy convert to a dtype in one way: within an integer's bounds."""
    if is_float(dtype) or dtype == np.bool_ or not is_float(x.dtype):
        return x
    bounds, wide = np.iinfo(dtype), x.astype(np.float64)
    return x[(wide > bounds.min - 1.0) & (wide < min(bounds.max + 1.0, 2.0**62))]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("source", REAL, ids=str)
def test_every_conversion_is_numpys(cu32: Engine, on_device: Any, source: Any) -> None:
    """The numbers and their signs in vectors, and to one of the dtypes one by one."""
    given = {target: fits(values(source), target) for target in REAL if target != source}
    tensors = {target: alpha.tensor(array, engine=cu32) for target, array in given.items()}
    one = REAL[REAL.index(source) - 1]
    found = on_device(
        lambda: [*((target, 1, x.to(target)) for target, x in tensors.items()), (one, 3, tensors[one][1::3].to(one))]
    )
    for target, step, ours in found:
        right = np.asarray(alpha.tensor(given[target], engine="numpy").to(target))[step // 2 :: step]
        wide, wanted = np.asarray(ours).astype(np.float64), right.astype(np.float64)
        np.testing.assert_array_equal(wide, wanted)
        numbers = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(wide[numbers]), np.signbit(wanted[numbers]))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_functions_of_halves_read_and_write_them(cu32: Engine, on_device: Any, dtype: Any) -> None:
    """One launch each, computed in float32 and rounded once, beside float32 and numbers, however tensors lie."""
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal((7, 24)).astype(dtype), rng.standard_normal((7, 24)).astype(dtype)]
    wide = rng.standard_normal((7, 24)).astype(np.float32)
    x, y, z = (alpha.tensor(a, engine=cu32) for a in (*arrays, wide))
    a, b = (array.astype(np.float32) for array in arrays)
    cases = {
        "add": (lambda: x + y, (a + b).astype(dtype)),
        "number": (lambda: x * 3, (a * 3).astype(dtype)),
        "beside float32": (lambda: x + z, a + wide),
        "strided": (lambda: x[:, 1::2] - y[:, ::2], (a[:, 1::2] - b[:, ::2]).astype(dtype)),
        "turned": (lambda: x.T * y.T, (a * b).T.astype(dtype)),
        "rows": (lambda: x / y[3], (a / b[3]).astype(dtype)),
        "comparison": (lambda: x < y, a < b),
        "relu": (lambda: F.relu(x), np.maximum(a, 0).astype(dtype)),
        "maximum": (lambda: alpha.maximum(x, y), np.maximum(a, b).astype(dtype)),
    }
    device: Any = cu32.device  # type: ignore[attr-defined]
    for name, (run, right) in cases.items():
        launches: list[int] = []

        def counted(run: Any = run, launches: list[int] = launches) -> Any:
            launches.append(device.launches)
            return run()

        ours = on_device(counted)
        assert device.launches - launches[1] == 1 + (name == "beside float32"), name  # which converts first
        ours = np.asarray(ours)
        assert ours.dtype == right.dtype
        np.testing.assert_array_equal(ours.astype(np.float64), right.astype(np.float64), err_msg=name)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_halves_are_moved_and_filled(cu32: Engine, on_device: Any, dtype: Any) -> None:
    array = np.random.default_rng(2).standard_normal((6, 37, 16)).astype(dtype)
    x, index = alpha.tensor(array, engine=cu32), alpha.tensor([3, 0, 3], engine=cu32)
    turned, filled, picked = on_device(
        lambda: (x.transpose(0, 2).contiguous(), cu32.full((3, 5), 1.5, dtype), x[index])
    )
    on_device(lambda: x[1:3, ::2].fill_(2.5))
    np.testing.assert_array_equal(np.asarray(turned), array.transpose(2, 1, 0))
    np.testing.assert_array_equal(np.asarray(filled).astype(np.float64), np.full((3, 5), 1.5))
    np.testing.assert_array_equal(np.asarray(picked), array[[3, 0, 3]])
    array[1:3, ::2] = 2.5
    np.testing.assert_array_equal(np.asarray(x), array)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_ranges_are_made_on_the_device(cu32: Engine, on_device: Any, dtype: Any) -> None:
    cases: list[tuple[Any, Any, int]] = [
        (first, step, n) for first, step in ((0, 1), (-3, 7), (2**62, 3)) for n in (0, 1, 2, 1025)
    ]
    if is_float(dtype):
        cases += [(first, step, n) for first, step in ((0.1, 0.1), (-1.5, 0.3), (3.3, -0.7)) for n in (1, 2, 3, 1000)]
    found = on_device(lambda: [cu32.progression(*case, dtype) for case in cases])
    for case, ours in zip(cases, found, strict=True):
        right = alpha.engine("cpu").progression(*case, dtype)
        assert ours.dtype == dtype
        np.testing.assert_array_equal(np.asarray(ours).astype(np.float64), np.asarray(right).astype(np.float64))


def test_a_step_in_lower_precision_stays_on_the_device(cu32: Engine, on_device: Any) -> None:
    """``alpha.autocast`` around a forward pass, its backward, and an update of float32 weights."""
    from alpha import nn, optim

    alpha.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(64, 5)).to(cu32)
    optimizer = optim.AdamW(net.parameters())
    x = alpha.tensor(np.random.default_rng(3).standard_normal((2, 6, 6, 3)).astype(np.float32), engine=cu32)

    def step() -> Any:
        with alpha.autocast("bfloat16"):
            loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    losses = [on_device(step) for _ in range(4)]
    assert losses[-1].item() < losses[0].item()

"""Dtypes that are stored as they are and computed in another: small integers, half precision."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import dtypes, nn, optim
from alpha.engine import Engine
from alpha.errors import DtypeError

INTEGERS = ("int8", "int16", "uint16", "uint32")
HALVES = ("float16", "bfloat16")
STORED = (*INTEGERS, *HALVES)


def _values(dtype: str, shape: tuple[int, ...] = (3, 5), seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    kind = dtypes.as_dtype(dtype)
    if dtypes.is_float(kind):
        return rng.uniform(-2, 2, shape).astype(kind)
    least, most = dtypes.limits(kind)
    return rng.integers(int(least), int(most), shape, endpoint=True).astype(kind)


@pytest.mark.needs("torch")
def test_pairs_meet_as_in_pytorch() -> None:
    """PyTorch refuses the unsigned ones beside other integers; there the next dtype that holds both is taken."""
    import torch

    for first, second in itertools.product(dtypes.TABLE, dtypes.TABLE):
        try:
            wanted = torch.promote_types(getattr(torch, str(first)), getattr(torch, str(second)))
        except RuntimeError:
            wanted = None
        found = dtypes.promote(first, second)
        assert found == dtypes.promote(second, first)
        assert wanted is None or str(found) == str(wanted).removeprefix("torch."), (first, second)
        if wanted is None and not dtypes.is_complex(found):
            assert found == np.promote_types(first, second)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap_around(dtype: str, engine: Engine) -> None:
    kind = dtypes.as_dtype(dtype)
    x, y = _values(dtype), _values(dtype, seed=1)
    y[y == 0] = 1
    a, b = alpha.tensor(x, engine=engine), alpha.tensor(y, engine=engine)
    with np.errstate(over="ignore"):
        for found, expected in (
            (a + b, x + y), (a - b, x - y), (a * b, x * y), (a // b, x // y), (a % b, x % y), (~a, ~x), (a & b, x & y),
            (a | b, x | y), (a ^ b, x ^ y), (a >> 2, x >> 2), (a << 2, x << 2), (a * 3, (x * 3).astype(kind)),
            (-a, -x), (a.maximum(b), np.maximum(x, y)), (a.sort(1).values, np.sort(x, 1)), (a[1:, ::2], x[1:, ::2]),
            (a.flip(0), x[::-1]), (a[alpha.tensor([2, 0], engine=engine)], x[[2, 0]]), (a.T.contiguous(), x.T),
        ):  # fmt: skip
            assert found.dtype == kind
            np.testing.assert_array_equal(found.numpy(), expected)
    for answer, truth in ((a < b, x < y), (a == b, x == y), (a >= 3, x >= 3)):
        np.testing.assert_array_equal(answer.numpy(), truth)
    assert a.sum().dtype == alpha.int64 and a.sum().item() == x.sum(dtype=np.int64)
    assert (a / b).dtype == alpha.float32
    assert a.sum(dtype=dtype).dtype == a.cumsum(0, dtype=dtype).dtype == a.prod(dtype=dtype).dtype == kind
    a += b
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(a.numpy(), x + y)
    a[0] = 7
    assert a[0].tolist() == [7] * 5


@pytest.mark.parametrize("dtype", HALVES)
def test_halves_are_rounded_once(dtype: str, engine: Engine) -> None:
    """Results are computed in float32: so there is one rounding, to the nearest."""
    x, y = _values(dtype), _values(dtype, seed=1)
    a, b = alpha.tensor(x, engine=engine), alpha.tensor(y, engine=engine)
    wide, other = alpha.tensor(x.astype(np.float32), engine=engine), alpha.tensor(y.astype(np.float32), engine=engine)
    for function in (
        lambda u, v: u + v, lambda u, v: u * v - 0.5, lambda u, v: u / v, lambda u, v: u @ v.T, lambda u, v: u.exp(),
        lambda u, v: F.gelu(u), lambda u, v: u.mean(1), lambda u, v: u.softmax(1), lambda u, v: u.var(0),
        lambda u, v: F.layer_norm(u, (5,), v[0]), F.linear, lambda u, v: alpha.cat([u, v]),
    ):  # fmt: skip
        found, exact = function(a, b), function(wide, other)
        assert found.dtype == a.dtype
        rtol, atol = dtypes.info(a.dtype).tolerance
        np.testing.assert_allclose(found.float().numpy(), exact.numpy(), rtol=rtol, atol=atol)
    assert (a + b).tolist() == (wide + other).astype(dtype).tolist()


@pytest.mark.parametrize("dtype", HALVES)
def test_a_network_of_halves_is_trained(dtype: str, engine: Engine) -> None:
    """Convolution, norm in training, pooling, loss, optimizer; near float32's, from the same numbers."""
    losses = []
    for kind in (dtype, "float32"):
        alpha.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)
        )
        net = net.to(engine).to(dtypes.as_dtype(dtype)).to(dtypes.as_dtype(kind))
        optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        x = alpha.tensor(_values(dtype, (6, 4, 4, 2)), engine=engine).astype(kind)
        labels = alpha.tensor([0, 1, 2, 2, 1, 0], engine=engine)
        found = []
        for _ in range(4):
            loss = F.cross_entropy(net(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        assert all(str(p.dtype) == kind and str(p.grad.dtype) == kind for p in net.parameters())  # type: ignore[union-attr]
        assert str(net[1].running_mean.dtype) == kind and net[1].running_mean.float().abs().sum().item() > 0
        losses.append(found)
    assert losses[0][-1] < losses[0][0]
    np.testing.assert_allclose(*losses, rtol=20 * 2.0 ** -dtypes.info(dtypes.as_dtype(dtype)).digits)


@pytest.mark.parametrize("dtype", (*STORED, "complex64", "complex128"))
def test_they_are_copied_and_saved(dtype: str, tmp_path: Path) -> None:
    x = alpha.tensor(_values(dtype) if dtype in STORED else (np.arange(6).reshape(2, 3) * (1 + 2j)).astype(dtype))
    if dtype == "complex128":
        with pytest.raises(alpha.errors.ArgumentError, match="complex128"):
            alpha.save({"x": x}, tmp_path / "x.safetensors")
        return
    saved = [copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.clone(), alpha.tensor(x.numpy()), x.to("cpu")]
    file = io.BytesIO()
    alpha.save({"x": x, "step": 3}, file)
    file.seek(0)
    saved.append(alpha.load(file)["x"])
    alpha.save({"x": x}, tmp_path / "x.safetensors")
    saved.append(alpha.load(tmp_path / "x.safetensors")["x"])
    for found in saved:
        assert found.dtype == x.dtype and found.numpy().tobytes() == x.numpy().tobytes()
    assert str(x.dtype) in repr(x)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("dtype", (*STORED, "complex64", "complex128"))
def test_they_come_from_pytorch_and_go_there(dtype: str, tmp_path: Path) -> None:
    import torch

    theirs = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
    ours = alpha.tensor(theirs)
    assert str(ours.dtype) == dtype and ours.tolist() == theirs.tolist()
    torch.save({"x": theirs}, tmp_path / "x.pt")
    assert alpha.load(tmp_path / "x.pt")["x"].numpy().tobytes() == ours.numpy().tobytes()
    back = torch.from_dlpack(ours)
    assert str(back.dtype) == f"torch.{dtype}" and back.tolist() == theirs.tolist()
    again = alpha.from_dlpack(theirs)
    assert str(again.dtype) == dtype and again.tolist() == theirs.tolist()


def test_the_default_dtype() -> None:
    assert alpha.get_default_dtype() == alpha.float32
    alpha.set_default_dtype(alpha.float64)
    try:
        made = (
            alpha.tensor([1.0]), alpha.zeros(2), alpha.rand(2), alpha.full((2,), 1.5), alpha.arange(2.0), alpha.eye(2),
            alpha.tensor([1, 2]) / 2, alpha.where(alpha.tensor([True]), 1.0, 0.0), alpha.tensor([1]).exp(),
            nn.Linear(2, 3).weight, alpha.linspace(0, 1, 3), alpha.randn(3), alpha.ones(2), alpha.empty(2),
        )  # fmt: skip
        assert {str(x.dtype) for x in made} == {"float64"}
        assert alpha.tensor([1j]).dtype == alpha.complex128
        assert alpha.finfo().bits == 64
    finally:
        alpha.set_default_dtype(alpha.float32)
    assert alpha.where(alpha.tensor([True]), 1.0, 0.0).dtype == alpha.zeros(2).dtype == alpha.float32
    with pytest.raises(DtypeError, match=r"^\[set_default_dtype\] expected float32 or float64, got int64"):
        alpha.set_default_dtype(alpha.int64)


@pytest.mark.parametrize("dtype", HALVES)
def test_halves_are_drawn(dtype: str, engine: Engine) -> None:
    alpha.manual_seed(0)
    drawn, normal = alpha.rand(4000, dtype=dtype, engine=engine), alpha.randn(4000, dtype=dtype, engine=engine)
    values = drawn.float().numpy()
    assert drawn.dtype == normal.dtype == dtypes.as_dtype(dtype)
    assert values.min() >= 0 and values.max() < 1 and abs(values.mean() - 0.5) < 0.02
    assert abs(normal.float().std().item() - 1) < 0.05
    kept = F.dropout(alpha.ones(4000, dtype=dtype, engine=engine), 0.5)
    assert kept.dtype == drawn.dtype and set(kept.unique().tolist()) == {0.0, 2.0}


PLAIN = """
import alpha
from alpha import nn, optim
from alpha.composed.stored import _MARK

net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2))
optimizer = optim.Adam(net.parameters())
nn.functional.cross_entropy(net(alpha.rand(4, 4, 4, 2)), alpha.tensor([0, 1, 1, 0])).backward()
optimizer.step()
alpha.save(net.state_dict(), PATH + ".safetensors")
alpha.load(PATH + ".safetensors")
engine = type(alpha.default_engine())
print(hasattr(engine.ger, _MARK), hasattr(engine.optimizer_step, _MARK))
"""


@pytest.mark.parametrize(
    ("made", "total"),
    [
        ("alpha.tensor([1, 2], dtype='int8')", "3"), ("alpha.ones(3).half()", "3.0"), ("alpha.ones(3) * 1j", "3j"),
        ("alpha.load(PATH)", "6.0"), ("alpha.view_as_complex(alpha.ones(3, 2))", "(3+3j)"),
        ("alpha.ones(2, dtype='int32').view(alpha.int16)", "2"),
    ],
)  # fmt: skip
@pytest.mark.needs("torch")
def test_float32_pays_nothing_for_them(made: str, total: str, tmp_path: Path) -> None:
    """Operations look for stored dtypes from the first one on, whatever brings it, and not before."""
    import torch

    torch.save(torch.full((3,), 2.0, dtype=torch.bfloat16), tmp_path / "x.pt")
    code = f"PATH = {str(tmp_path / 'x.pt')!r}\n{PLAIN}print(({made}).sum().item(), hasattr(engine.ger, _MARK))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split("\n")[:2] == ["False False", f"{total} True"]

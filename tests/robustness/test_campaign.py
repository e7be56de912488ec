"""The campaign: a short run of it, that it finds what is planted, and that it leaves no public function out."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import pytest

import alpha
from tests.robustness.__main__ import main
from tests.robustness.campaign import Campaign
from tests.robustness.cases import Base, Case, Draw, Input, source
from tests.robustness.compare import POINTWISE, differing
from tests.robustness.record import Record
from tests.robustness.records import RECORDS
from tests.robustness.registry import EXCLUDED, missing, public
from tests.robustness.run import Runner
from tests.robustness.storms import STORMS

CALLS = 8000
"""Calls of the short run: the same number on every machine, so that its result is the same everywhere."""


def test_every_public_function_has_a_record_or_a_reason() -> None:
    assert not missing()
    assert not set(EXCLUDED) - public() - {f"alpha.Tensor.{n}" for n in ("__setstate__", "__copy__", "T", *dir(object))}
    for record in RECORDS:
        assert callable(record.function()), record.name


@pytest.mark.parametrize("torch", [False, True], ids=["NumPy alone", "PyTorch where installed"])
def test_short_run(torch: bool) -> None:
    report = Campaign(CALLS, seed=20, workers=2, torch=torch).run()
    assert report.calls == CALLS
    assert not report.found, str(report)


# -- planted faults ----------------------------------------------------------------------------------------------


def _one(d: Draw) -> Case:
    return Case([d.input((3,), "float32", views=0)])


def _many(d: Draw) -> Case:
    return Case([d.input(d.fit([40]), "float32", views=0)])


def _wrong(x: Any) -> Any:
    return x + 1e-3


def _abort(x: Any) -> Any:
    os.abort()


def _sleep(x: Any) -> Any:
    time.sleep(1000)


def _unclean(x: Any) -> Any:
    raise ValueError("planted")


def _formless(x: Any) -> Any:
    raise alpha.errors.ShapeError("planted, and not in the form of our errors")


def _overwrites(x: Any) -> Any:
    y = x.clone()
    x.detach().fill_(0)
    return y


class _Slope(alpha.Function):
    """The identity with a wrong gradient."""

    def forward(self, x: Any) -> Any:
        return x.clone()

    def backward(self, grad: Any) -> Any:
        return grad * 1.01


KEPT: list[Any] = []


def _leaks(x: Any) -> Any:
    KEPT.append(alpha.zeros(40_000))
    return x.clone()


PLANTED = {
    "value": _wrong,
    "crash": _abort,
    "hang": _sleep,
    "unclean": _unclean,
    "unclean form": _formless,
    "overwritten": _overwrites,
    "gradient": _Slope.apply,
}


WEIGHTS = {"crash": 0.1, "hang": 0.1, "gradient": 6.0}
"""Each of the first two costs a few processes; a gradient is compared with differences in one call of five."""


SEED = 2
"""With it the first 60 calls hold one crash, one hang, and some of all others."""


def plant(records: list[Record]) -> None:
    """Leaves a sound function, and puts one with each fault beside it; the crash and the hang are rare."""
    sound = [record for record in RECORDS if record.name == "alpha.reshape"]
    x = alpha.ones(3, requires_grad=True)  # what takes long the first time is done before deadlines count
    for call in (_wrong, _overwrites, _Slope.apply):
        call(x.clone()).backward(alpha.ones(3))
    identity = [
        Record(
            f"planted.{name}", _many if name == "crash" else _one, np.array, call=call, weight=WEIGHTS.get(name, 1.0)
        )
        for name, call in PLANTED.items()
    ]
    records[:] = [*sound, *identity]


def plant_leak(records: list[Record]) -> None:
    """One function that keeps memory at each call."""
    records[:] = [Record("planted.leak", _one, np.array, call=_leaks)]


def test_planted_faults_are_found_and_told_apart() -> None:
    report = Campaign(
        60, seed=SEED, workers=1, deadline=4.0, setup="tests.robustness.test_campaign:plant", torch=False
    ).run()
    assert report.calls == 60
    found = {(f.record, f.kind) for f in report.found.values()}
    assert found == {(f"planted.{name}", name.split()[0]) for name in PLANTED}, str(report)
    crash = report.of("crash")[0]
    assert crash.what == "SIGABRT" and "alpha.tensor(np.array([" in crash.text
    assert crash.text.count(",") < 8, "of 40 elements, a call with a few must have been found"
    assert "planted.crash" in str(report) and "--only" in str(report)
    assert "not when it is made alone" not in crash.detail


def test_memory_that_is_kept_is_found() -> None:
    report = Campaign(
        400, seed=3, workers=1, setup="tests.robustness.test_campaign:plant_leak", torch=False, gather=100
    ).run()
    assert "memory" in {f.kind for f in report.found.values()}, str(report)


# -- from the command line ---------------------------------------------------------------------------------------


def storm(count: int, seed: int) -> dict[str, int]:
    """Falls at every seed above 0."""
    return {"attempts": count, "fallen": seed}


def test_storms_run_by_name_and_fail_where_one_fell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(STORMS, "planted", "tests.robustness.test_campaign:storm")
    for seed in (0, 3):
        monkeypatch.setattr("sys.argv", ["robustness", "--storm", "planted", "--count", "7", "--seed", str(seed)])
        assert main() == (seed > 0)
        assert f"planted: 7 attempts, {seed} fallen" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["robustness", "--storm", "unknown"])
    with pytest.raises(SystemExit):
        main()


def test_one_call_alone_is_made_in_this_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["robustness", "--only", "5", "--record", "alpha.reshape", "--no-torch"])
    assert main() == 0
    said = capsys.readouterr().out
    assert said.startswith("# alpha.reshape\nb0 = alpha.tensor(") and said.endswith("right\n")


# -- its parts ---------------------------------------------------------------------------------------------------


def test_a_call_follows_from_its_number() -> None:
    for index in range(200):
        (first, one, _), (second, other, _) = Runner(RECORDS, 5).case(index), Runner(RECORDS, 5).case(index)
        assert first is second and source(first.name, one) == source(second.name, other)


def test_reproducers_make_the_same_arguments() -> None:
    d = Draw(1, 2)
    for _ in range(100):
        value = d.input(d.shape(), d.dtype("fib"))
        if value.base.array.size > 60:
            continue
        *lines, call = source("keep", Case([value])).splitlines()
        names: dict[str, Any] = {"alpha": alpha, "np": np, "keep": lambda x: x}
        exec("\n".join([*lines, f"made = {call}"]), names)
        made = names["made"].detach().numpy()
        assert np.array_equal(made, value.numpy(), equal_nan=value.dtype.kind == "f") and made.dtype == value.dtype


def test_views_mean_the_same_to_numpy_and_to_tensors() -> None:
    d = Draw(4, 1)
    for _ in range(300):
        value = d.input(d.shape(), "float32", views=1.0)
        tensor = value.follow(alpha.tensor(value.base.array))
        assert np.array_equal(tensor.numpy(), value.numpy(), equal_nan=True)


@pytest.mark.parametrize(("off", "found"), [(1e-7, False), (1e-4, True), (np.nan, True)])
def test_differing(off: float, found: bool) -> None:
    want = np.array([1.0, -2.0, np.nan, np.inf])
    got = want.astype(np.float32)
    got[1] += np.float32(off)
    assert (differing(got, want, POINTWISE) is not None) == found


def test_a_view_of_one_base_is_one_leaf() -> None:
    base = Base(np.arange(4.0), True)
    case = Case([Input(base, (("index", (slice(1, None),)),)), Input(base, (("index", (slice(0, 3),)),))])
    assert case.bases() == [base] and len(case.inputs()) == 2

"""optim's schedulers: the definition of each, PyTorch step by step, saving and loading."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import optim
from alpha.errors import ArgumentError, CheckpointError

Make = Callable[[Any, Any], Any]

# Each takes our module or PyTorch's, and an optimizer of two groups.
SCHEDULES: dict[str, Make] = {
    "step": lambda m, o: m.StepLR(o, 7, gamma=0.3),
    "multistep": lambda m, o: m.MultiStepLR(o, [30, 4, 4, 17], gamma=0.5),
    "exponential": lambda m, o: m.ExponentialLR(o, 0.93),
    "cosine": lambda m, o: m.CosineAnnealingLR(o, 13, eta_min=1e-4),
    "cosine to the end": lambda m, o: m.CosineAnnealingLR(o, 40),
    "linear": lambda m, o: m.LinearLR(o),
    "warm-up": lambda m, o: m.LinearLR(o, start_factor=0.01, total_iters=12),
    "linear decay": lambda m, o: m.LinearLR(o, start_factor=1.0, end_factor=0.0, total_iters=30),
    "lambda": lambda m, o: m.LambdaLR(o, lambda step: 1 / (1 + step)),
    "lambdas": lambda m, o: m.LambdaLR(o, [lambda step: 0.9**step, float]),
    "warm-up, then cosine": lambda m, o: m.SequentialLR(
        o, [m.LinearLR(o, 0.1, total_iters=5), m.CosineAnnealingLR(o, 30)], [5]
    ),
    "three in sequence": lambda m, o: m.SequentialLR(
        o, [m.LinearLR(o, 0.5, total_iters=4), m.StepLR(o, 3), m.ExponentialLR(o, 0.9)], [6, 15]
    ),
    "one cycle": lambda m, o: m.OneCycleLR(o, 0.5, total_steps=41),
    "one cycle of two groups": lambda m, o: m.OneCycleLR(
        o, [0.5, 0.1], epochs=4, steps_per_epoch=11, pct_start=0.43, anneal_strategy="linear", final_div_factor=50
    ),
    "one cycle in three phases": lambda m, o: m.OneCycleLR(
        o, 0.5, total_steps=50, three_phase=True, pct_start=0.35, base_momentum=0.5, max_momentum=[0.9, 0.7]
    ),
    "constant": lambda m, o: m.ConstantLR(o, 0.25, total_iters=7),
    "polynomial": lambda m, o: m.PolynomialLR(o, total_iters=30, power=2.5),
    "multiplicative": lambda m, o: m.MultiplicativeLR(o, [lambda step: 0.9, lambda step: 1 / (1 + step)]),
    "restarts": lambda m, o: m.CosineAnnealingWarmRestarts(o, 4, eta_min=1e-3),
    "longer restarts": lambda m, o: m.CosineAnnealingWarmRestarts(o, 3, T_mult=2),
    "triangles": lambda m, o: m.CyclicLR(o, 0.01, 0.1, step_size_up=5),
    "lower triangles": lambda m, o: m.CyclicLR(
        o, [0.01, 0.02], [0.1, 0.2], step_size_up=3, step_size_down=8, mode="triangular2", base_momentum=0.7
    ),
    "exponential triangles": lambda m, o: m.CyclicLR(
        o, 0.01, 0.1, step_size_up=4, mode="exp_range", gamma=0.97, cycle_momentum=False
    ),
    "triangles of one's own": lambda m, o: m.CyclicLR(
        o, 0.01, 0.1, step_size_up=4, scale_fn=lambda step: 1 / (1 + step), scale_mode="iterations"
    ),
    "chained": lambda m, o: m.ChainedScheduler(
        [m.ConstantLR(o, 0.1, total_iters=5), m.ExponentialLR(o, 0.9), m.MultiStepLR(o, [7, 20], 0.5)]
    ),
    "a chain with a cosine": lambda m, o: m.ChainedScheduler([m.LinearLR(o, 0.5), m.CosineAnnealingLR(o, 11, 1e-3)], o),
    "a sequence of all kinds": lambda m, o: m.SequentialLR(
        o,
        [
            m.ConstantLR(o, 0.5, 3),
            m.PolynomialLR(o, 4),
            m.MultiplicativeLR(o, lambda step: 1.1),
            m.CosineAnnealingWarmRestarts(o, 3),
        ],
        [4, 9, 15],
    ),
    "one's own": lambda m, o: _inverse(m)(o, 0.05),
    "a cosine after a warm-up of one's own": lambda m, o: _warm(m)(o, 20),
    "annealed to an average": lambda m, o: _swa(m)(o, [0.05, 0.1], anneal_epochs=6),
    "annealed on a line": lambda m, o: _swa(m)(o, 0.05, anneal_epochs=4, anneal_strategy="linear"),
    "annealed at once": lambda m, o: _swa(m)(o, 0.05, anneal_epochs=0),
    "one cycle of rates alone": lambda m, o: m.OneCycleLR(o, 0.5, total_steps=41, cycle_momentum=False),
}


def _inverse(m: Any) -> Any:
    """A scheduler as users of PyTorch write them."""

    class InverseLR(m.LRScheduler):  # type: ignore[misc]
        def __init__(self, optimizer: Any, decay: float, last_epoch: int = -1) -> None:
            self.decay = decay
            self.calls = 0
            super().__init__(optimizer, last_epoch)

        def get_lr(self) -> list[float]:
            self.calls += 1
            return [base / (1 + self.decay * self.last_epoch + self.calls) for base in self.base_lrs]

    return InverseLR


def _warm(m: Any) -> Any:
    class WarmCosineLR(m.CosineAnnealingLR):  # type: ignore[misc]
        def get_lr(self) -> list[float]:
            if self.last_epoch < 4:
                return [base * (self._step_count + 1) / 5 for base in self.base_lrs]
            found: list[float] = super().get_lr()
            return found

    return WarmCosineLR


def _swa(m: Any) -> Any:
    if m is optim.lr_scheduler:
        return optim.swa_utils.SWALR
    from torch.optim.swa_utils import SWALR

    return SWALR


def our_optimizer(kind: str = "SGD", **options: Any) -> optim.Optimizer:
    params = [alpha.zeros(3).requires_grad_() for _ in range(3)]
    groups = [{"params": params[:2]}, {"params": params[2:], "lr": 0.02}]
    made: optim.Optimizer = getattr(optim, kind)(groups, lr=0.3, **options)
    return made


def options_of(optimizer: Any) -> list[float]:
    """Rates, momenta and first betas of all groups."""
    names = ("lr", "momentum")
    values = [group[name] for group in optimizer.param_groups for name in names if name in group]
    return values + [group["betas"][0] for group in optimizer.param_groups if "betas" in group]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_step_is_pytorchs(schedule: str, kind: str) -> None:
    import torch

    options = {"momentum": 0.9} if kind == "SGD" else {}
    params = [torch.nn.Parameter(torch.zeros(3)) for _ in range(3)]
    theirs = getattr(torch.optim, kind)([{"params": params[:2]}, {"params": params[2:], "lr": 0.02}], lr=0.3, **options)
    ours = our_optimizer(kind, **options)
    their_scheduler = SCHEDULES[schedule](torch.optim.lr_scheduler, theirs)
    our_scheduler = SCHEDULES[schedule](optim.lr_scheduler, ours)
    for step in range(40):
        # PyTorch multiplies rates step by step, ours come from a closed form: rounding of up to 40 products apart.
        np.testing.assert_allclose(options_of(ours), options_of(theirs), rtol=1e-12, atol=1e-15, err_msg=f"step {step}")
        np.testing.assert_allclose(our_scheduler.get_last_lr(), their_scheduler.get_last_lr(), rtol=1e-12, atol=1e-15)
        theirs.step()
        their_scheduler.step()
        assert our_scheduler.step() is our_scheduler


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("step", lambda t: 0.3 * 0.3 ** (t // 7)),
        ("multistep", lambda t: 0.3 * 0.5 ** sum(t >= m for m in (30, 4, 4, 17))),
        ("exponential", lambda t: 0.3 * 0.93**t),
        ("cosine", lambda t: 1e-4 + 0.5 * (0.3 - 1e-4) * (1 + math.cos(t / 13 * math.pi))),
        ("warm-up", lambda t: 0.3 * (0.01 + 0.99 * min(t, 12) / 12)),
        ("lambda", lambda t: 0.3 / (1 + t)),
        (
            "warm-up, then cosine",
            lambda t: 0.3 * (0.1 + 0.18 * t if t < 5 else (1 + math.cos((t - 5) / 30 * math.pi)) / 2),
        ),
    ],
)
def test_every_step_is_the_definitions(schedule: str, expected: Callable[[int], float]) -> None:
    scheduler = SCHEDULES[schedule](optim.lr_scheduler, our_optimizer())
    for step in range(50):
        assert scheduler.get_last_lr()[0] == pytest.approx(expected(step), rel=1e-12)
        scheduler.step()


def test_one_cycle_starts_peaks_and_ends_where_it_says() -> None:
    optimizer = our_optimizer("Adam")
    scheduler = optim.OneCycleLR(optimizer, 1.0, total_steps=101, pct_start=0.3, div_factor=10, final_div_factor=100)
    seen = []
    for _ in range(101):
        seen.append((optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["betas"][0]))
        scheduler.step()
    rates = [rate for rate, _ in seen]
    assert rates[0] == pytest.approx(0.1) and max(rates) == pytest.approx(1.0, rel=1e-3)
    assert rates[-1] == pytest.approx(0.001)
    assert max(range(101), key=rates.__getitem__) in (29, 30)
    assert seen[0][1] == pytest.approx(0.95) and min(m for _, m in seen) == pytest.approx(0.85, rel=1e-3)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.001)  # after the last step too
    with pytest.raises(ArgumentError, match=r"^\[OneCycleLR\] expected at most total_steps = 101 steps, got 102: "):
        scheduler.step()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_loaded_schedule_goes_on_as_the_saved_one(schedule: str) -> None:
    first, second = our_optimizer("Adam"), our_optimizer("Adam")
    saved, loaded = (SCHEDULES[schedule](optim.lr_scheduler, o) for o in (first, second))
    for _ in range(8):
        saved.step()
    loaded.load_state_dict(json.loads(json.dumps(saved.state_dict())))
    for _ in range(20):
        assert options_of(first) == options_of(second)
        saved.step()
        loaded.step()


def test_a_scheduler_changes_what_the_optimizer_does() -> None:
    param = alpha.tensor([1.0], requires_grad=True)
    optimizer = optim.SGD([param], lr=1.0)
    scheduler = optim.StepLR(optimizer, 1, gamma=0.5)
    for _ in range(3):
        param.grad = alpha.tensor([1.0])
        optimizer.step()
        scheduler.step()
    assert param.item() == 1 - (1 + 0.5 + 0.25)


def test_schedulers_share_the_initial_rates() -> None:
    optimizer = our_optimizer()
    optim.LinearLR(optimizer, 0.1)
    assert optim.ExponentialLR(optimizer, 0.5).base_lrs == [0.3, 0.02]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda o: optim.StepLR(o, 0), r"^\[StepLR\] expected step_size as an int >= 1, got 0"),
        (lambda o: optim.StepLR(None, 1), r"^\[StepLR\] expected an Optimizer, got NoneType"),
        (lambda o: optim.CosineAnnealingLR(o, 2.5), r"^\[CosineAnnealingLR\] expected T_max as an int >= 1, got 2.5"),
        (lambda o: optim.LinearLR(o, start_factor=0.0), r"^\[LinearLR\] expected 0 < start_factor"),
        (lambda o: optim.LinearLR(o, total_iters=0), r"^\[LinearLR\] expected total_iters"),
        (lambda o: optim.LambdaLR(o, [abs]), r"^\[LambdaLR\] expected 2 functions, one per group, got 1"),
        (lambda o: optim.OneCycleLR(o, 1.0), r"^\[OneCycleLR\] expected total_steps, or epochs and steps_per_epoch"),
        (lambda o: optim.OneCycleLR(o, 1.0, 10, pct_start=1.5), r"^\[OneCycleLR\] expected pct_start in 0..1, got 1.5"),
        (lambda o: optim.OneCycleLR(o, 1.0, 10, anneal_strategy="x"), r"^\[OneCycleLR\] expected anneal_strategy"),
        (lambda o: optim.OneCycleLR(o, [1.0], 10), r"^\[OneCycleLR\] expected max_lr as one number or 2"),
        (
            lambda o: optim.SequentialLR(o, [optim.StepLR(o, 1)], [3]),
            r"^\[SequentialLR\] expected ascending milestones",
        ),
        (
            lambda o: optim.SequentialLR(o, [optim.StepLR(our_optimizer(), 1)], []),
            r"^\[SequentialLR\] expected schedulers of the same optimizer",
        ),
    ],
)
def test_wrong_arguments_say_so(make: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message) as caught:
        make(our_optimizer())
    assert "\n" not in str(caught.value)


def test_groups_added_later_are_refused() -> None:
    optimizer = our_optimizer()
    scheduler = optim.StepLR(optimizer, 1)
    optimizer.add_param_group({"params": [alpha.zeros(1).requires_grad_()]})
    with pytest.raises(ArgumentError, match=r"^\[StepLR\] expected the 2 parameter groups .*, got 3: "):
        scheduler.step()


@pytest.mark.parametrize("state", [{}, None, {"scheduler": "StepLR", "last_epoch": 3, "base_lrs": [0.1]}])
def test_a_state_that_does_not_fit_changes_nothing(state: Any) -> None:
    optimizer = our_optimizer()
    scheduler = optim.StepLR(optimizer, 1).step()
    before = (options_of(optimizer), scheduler.state_dict())
    with pytest.raises(
        CheckpointError, match=r"^\[StepLR.load_state_dict\] expected the state of a StepLR of 2 groups"
    ):
        scheduler.load_state_dict(state)
    other = optim.ExponentialLR(our_optimizer(), 0.5).state_dict()
    with pytest.raises(CheckpointError, match="ExponentialLR"):
        scheduler.load_state_dict(other)
    assert (options_of(optimizer), scheduler.state_dict()) == before


def test_a_sequence_checks_its_members_before_it_changes_one() -> None:
    optimizer = our_optimizer()
    sequence = optim.SequentialLR(optimizer, [optim.LinearLR(optimizer), optim.StepLR(optimizer, 2)], [5])
    state = sequence.step().state_dict()
    fewer = {**state, "last_epoch": 9, "schedulers": state["schedulers"][:1]}
    swapped = {**state, "last_epoch": 9, "schedulers": state["schedulers"][::-1]}
    for wrong in (fewer, swapped):
        with pytest.raises(CheckpointError):
            sequence.load_state_dict(wrong)
        assert sequence.state_dict() == state


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    "make",
    [
        lambda m, o, last: m.StepLR(o, 3, last_epoch=last),
        lambda m, o, last: m.MultiStepLR(o, [4, 9], last_epoch=last),
        lambda m, o, last: m.ConstantLR(o, 0.5, 7, last_epoch=last),
        lambda m, o, last: m.LinearLR(o, 0.5, total_iters=9, last_epoch=last),
        lambda m, o, last: m.ExponentialLR(o, 0.9, last_epoch=last),
        lambda m, o, last: m.PolynomialLR(o, 12, last_epoch=last),
        lambda m, o, last: m.CosineAnnealingLR(o, 11, last_epoch=last),
        lambda m, o, last: m.LambdaLR(o, lambda step: 1 / (1 + step), last_epoch=last),
        lambda m, o, last: m.MultiplicativeLR(o, lambda step: 0.9, last_epoch=last),
        lambda m, o, last: m.CosineAnnealingWarmRestarts(o, 4, last_epoch=last),
        lambda m, o, last: m.CyclicLR(o, 0.3, 0.5, 4, last_epoch=last),
    ],
)
def test_a_schedule_starts_from_a_later_step_as_pytorchs(make: Any) -> None:
    import torch

    made = []
    for module, schedules in ((optim, optim.lr_scheduler), (torch.optim, torch.optim.lr_scheduler)):
        param = alpha.zeros(3).requires_grad_() if module is optim else torch.nn.Parameter(torch.zeros(3))
        groups = [{"params": [param], "lr": 0.2, "initial_lr": 0.3}]
        made.append(make(schedules, module.SGD(groups, lr=0.1, momentum=0.9), 5))
    ours, theirs = made
    for step in range(9):
        assert ours.last_epoch == theirs.last_epoch == 6 + step
        np.testing.assert_allclose(options_of(ours.optimizer), options_of(theirs.optimizer), rtol=1e-12)
        theirs.optimizer.step()
        ours.step()
        theirs.step()
    with pytest.raises(ArgumentError, match=r"expected groups with initial_lr for last_epoch 3, got none"):
        make(optim.lr_scheduler, our_optimizer(momentum=0.9), 3)


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    "options",
    [
        {"patience": 1, "cooldown": 2},
        {
            "mode": "max",
            "factor": 0.5,
            "patience": 0,
            "threshold": 0.05,
            "threshold_mode": "abs",
            "min_lr": [0.05, 0.0],
        },
        {"patience": 2, "threshold": 0.3, "eps": 0.02, "min_lr": 0.001},
        {"mode": "max", "patience": 1, "threshold": 0.1},
    ],
)
def test_a_plateau_is_pytorchs(options: dict[str, Any]) -> None:
    import torch

    params = [torch.nn.Parameter(torch.zeros(3)) for _ in range(2)]
    theirs = torch.optim.SGD([{"params": params[:1]}, {"params": params[1:], "lr": 0.02}], lr=0.3)
    ours = our_optimizer()
    expected = torch.optim.lr_scheduler.ReduceLROnPlateau(theirs, **options)
    scheduler = optim.ReduceLROnPlateau(ours, **options)
    rng = np.random.default_rng(5)
    for step in range(30):
        metric = float(rng.choice([1.0, 0.9, 0.95, 1.2, math.nan, 0.5]))
        scheduler.step(alpha.tensor(metric, dtype="float64") if step % 2 else metric)
        expected.step(metric)
        assert scheduler.get_last_lr() == expected.get_last_lr()
        assert (scheduler.num_bad_epochs, scheduler.best) == (expected.num_bad_epochs, expected.best)
        if step == 14:
            state = scheduler.state_dict()
            ours = our_optimizer()
            scheduler = optim.ReduceLROnPlateau(ours, **options).load_state_dict(state)
    assert scheduler.get_last_lr() != [0.3, 0.02]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("T_mult", [1, 2])
def test_restarts_take_parts_of_epochs_as_pytorchs(T_mult: int) -> None:
    import torch

    theirs = torch.optim.SGD([torch.nn.Parameter(torch.zeros(3))], lr=0.3)
    ours = optim.SGD([alpha.zeros(3).requires_grad_()], lr=0.3)
    expected = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(theirs, 3, T_mult)
    scheduler = optim.CosineAnnealingWarmRestarts(ours, 3, T_mult)
    for epoch in range(11):
        for batch in range(4):
            theirs.step()
            scheduler.step(epoch + batch / 4)
            expected.step(epoch + batch / 4)
            np.testing.assert_allclose(scheduler.get_last_lr(), expected.get_last_lr(), rtol=1e-12)
            assert scheduler.last_epoch == expected.last_epoch == epoch
            assert (scheduler.T_cur, scheduler.T_i) == pytest.approx((expected.T_cur, expected.T_i))


def test_schedulers_of_one_optimizer_multiply_each_other() -> None:
    optimizer = our_optimizer()
    first, second = optim.ExponentialLR(optimizer, 0.5), optim.StepLR(optimizer, 2, gamma=0.1)
    for _ in range(4):
        first.step()
        second.step()
    assert second.get_last_lr()[0] == pytest.approx(0.3 * 0.5**4 * 0.1**2)
    states = [one.state_dict() for one in (first, second)]
    other = our_optimizer()
    loaded = [optim.ExponentialLR(other, 0.5), optim.StepLR(other, 2, gamma=0.1)]
    for scheduler, state in reversed(list(zip(loaded, states, strict=True))):
        scheduler.load_state_dict(state)  # in any order
    for one in (first, second, *loaded):
        one.step()
    assert options_of(optimizer) == options_of(other)


def test_a_state_without_rates_is_taken() -> None:
    """States were saved before they held rates: these follow from the position."""
    saved = our_optimizer("Adam")
    scheduler = SCHEDULES["three in sequence"](optim.lr_scheduler, saved)
    for _ in range(9):
        scheduler.step()

    def older(state: dict[str, Any]) -> dict[str, Any]:
        kept = {key: value for key, value in state.items() if key not in ("rates", "_last_lr")}
        return kept | ({"schedulers": list(map(older, kept["schedulers"]))} if "schedulers" in kept else {})

    optimizer = our_optimizer("Adam")
    loaded = SCHEDULES["three in sequence"](optim.lr_scheduler, optimizer)
    loaded.load_state_dict(older(scheduler.state_dict()))
    for _ in range(12):
        np.testing.assert_allclose(options_of(optimizer), options_of(saved), rtol=1e-12)
        scheduler.step()
        loaded.step()

"""LRScheduler: what all schedules have in common."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from alpha import steps
from alpha.arguments import whole
from alpha.changes import Action, Changes, at_once, putting, setting, versions
from alpha.errors import AlphaError, ArgumentError, CheckpointError, described
from alpha.optim.arguments import finite, is_count, is_finite, is_number, plain, shown
from alpha.optim.optimizer import Optimizer
from alpha.optim.state import Group
from alpha.tensor import Tensor

FIRST, NEXT, JUMP = "first", "next", "jump"
"""How a schedule comes to a step: when it is made, by one step more, or from anywhere."""


class LRScheduler:
    """Base of the schedulers: sets every group's ``lr`` when made, and again at each ``step()``.

    Call ``step()`` after ``optimizer.step()``. A subclass writes ``rate``, a step's rate from the initial one, or as in
    PyTorch ``get_lr``, all groups' rates at ``last_epoch``. Where several schedulers of one optimizer are stepped one
    after another, each goes on from the rates that the others left, as far as its formula is one of factors.

    Args:
        optimizer: whose groups' rates are set; groups are not added afterwards.
        last_epoch: -1 to start; else the number of the step before the one that the groups, which then have their
            ``initial_lr``, are at.

    Attributes:
        last_epoch: how often ``step()`` was called.
        base_lrs: the groups' rates before any scheduler, which their ``initial_lr`` keeps.
    """

    replaces_initial: ClassVar[bool] = False
    """Whether the groups' ``initial_lr`` becomes ``base_lrs`` even where there is one."""
    takes_parts: ClassVar[bool] = False
    """Whether ``step(epoch)`` takes epochs that are no whole numbers."""
    state_numbers: ClassVar[tuple[str, ...]] = ()
    """Names of the attributes, all numbers, that a state holds beside the position and the rates."""

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        check_optimizer(self._name, optimizer)
        last_epoch = whole(self._name, "last_epoch", last_epoch, least=-1)
        self.optimizer = optimizer
        groups = optimizer.param_groups
        if last_epoch >= 0 and not all("initial_lr" in group for group in groups):
            raise ArgumentError(
                f"[{self._name}] expected groups with initial_lr for last_epoch {last_epoch}, got none: load the "
                "optimizer's state first, or leave last_epoch out"
            )
        self.base_lrs: list[float] = self.first_rates()
        noted = [
            putting(group, "initial_lr", rate)
            for group, rate in zip(groups, self.base_lrs, strict=True)
            if self.replaces_initial or "initial_lr" not in group
        ]
        self.last_epoch = last_epoch
        self._last_lr: list[float] = []
        rates, actions = self.plan(self.rates_now(), last_epoch + 1, FIRST)
        at_once([*noted, *actions, *self._putting(rates)])

    def first_rates(self) -> list[float]:
        """The groups' initial rates: those before any scheduler."""
        return [float(plain(group.get("initial_lr", group["lr"]))) for group in self.optimizer.param_groups]

    @property
    def _name(self) -> str:
        return type(self).__name__

    @property
    def _step_count(self) -> int:
        """PyTorch's count of steps, which the first, made by the constructor, belongs to."""
        return self.last_epoch + 1

    # -- the schedule ------------------------------------------------------------------------------------------------

    def rate(self, base: float, group: int, step: float) -> float:
        """A group's rate after so many steps, from its initial rate; subclasses override this."""
        raise NotImplementedError(f"[{self._name}] expected a subclass with rate or get_lr, got none: write one")

    def jumped(self, rates: Sequence[float], step: float) -> list[float]:
        """The rates at a step, wherever the schedule is."""
        return [self.rate(base, index, step) for index, base in enumerate(self.base_lrs)]

    def moved(self, rates: Sequence[float], step: float) -> list[float]:
        """The rates at a step, from those of the step before."""
        return self.jumped(rates, step)

    def begun(self, rates: Sequence[float], step: float) -> list[float]:
        """The rates at the step that a schedule is made for, from those that it finds."""
        return self.jumped(rates, step)

    def others(self, step: float, how: str) -> list[Action]:
        """The actions that set what a schedule sets beside the rates."""
        return []

    def get_lr(self) -> list[float]:
        """The rates at ``last_epoch``, from those of the step before, which the groups have; for subclasses."""
        move = self.begun if getattr(self, "_is_initial", False) else self.moved
        return move(self.rates_now(), self.last_epoch)

    def get_last_lr(self) -> list[float]:
        """The rates that this scheduler has set last."""
        return list(self._last_lr)

    # -- stepping ----------------------------------------------------------------------------------------------------

    def step(self, epoch: float | None = None) -> Self:
        """Goes one step further, or to a step. After an error or an interrupt all is as before, or as after."""
        if epoch is not None:
            name = f"{self._name}.step"
            epoch = finite(name, "epoch", epoch) if self.takes_parts else whole(name, "epoch", epoch)
            if epoch < 0:
                raise ArgumentError(f"[{name}] expected epoch >= 0, got {epoch}")
        steps.run_now_and_on_replay(partial(self._advance, epoch))
        return self

    def _advance(self, epoch: float | None = None) -> None:
        step, how = (self.last_epoch + 1, NEXT) if epoch is None else (epoch, JUMP)
        rates, actions = self.plan(self.rates_now(), step, how)
        at_once([*actions, *self._putting(rates)])

    def plan(self, rates: list[float], step: float, how: str) -> tuple[list[float], list[Action]]:
        """The rates of a step, from those before, and the actions to be done with setting them."""
        self.check_groups()
        if type(self).get_lr is LRScheduler.get_lr:
            found = {FIRST: self.begun, NEXT: self.moved, JUMP: self.jumped}[how](rates, step)
        else:
            found = self._by_get_lr(rates, step, how)
        noted = [setting(self, "last_epoch", math.floor(step)), setting(self, "_last_lr", found)]
        return found, [*self.others(step, how), *noted]

    def check_groups(self) -> None:
        """ArgumentError where groups were added."""
        groups = len(self.optimizer.param_groups)
        if groups != len(self.base_lrs):
            raise ArgumentError(
                f"[{self._name}] expected the {len(self.base_lrs)} parameter groups it was made with, got "
                f"{groups}: add groups before making the scheduler"
            )

    def _by_get_lr(self, rates: list[float], step: float, how: str) -> list[float]:
        """What a subclass's ``get_lr`` finds, to which the groups and ``last_epoch`` say where it is."""
        before, last_epoch = self.rates_now(), self.last_epoch
        self._is_initial = how == FIRST
        try:
            at_once([*self._putting(rates), setting(self, "last_epoch", math.floor(step))])
            closed_form = getattr(self, "_get_closed_form_lr", None) if how == JUMP else None
            found = self.get_lr() if closed_form is None else closed_form()
        except BaseException:
            at_once([*self._putting(before), setting(self, "last_epoch", last_epoch)])
            raise
        finally:
            self._is_initial = False
        fits = isinstance(found, list | tuple) and len(found) == len(rates)
        if not fits or not all(is_number(plain(rate)) for rate in found):
            raise ArgumentError(
                f"[{self._name}] expected get_lr to return {len(rates)} rates, one per group, got {described(found)}"
            )
        return [float(plain(rate)) for rate in found]

    def rates_now(self) -> list[float]:
        """The rates that the groups have."""
        return [float(plain(group["lr"])) for group in self.optimizer.param_groups]

    def _putting(self, rates: Sequence[float]) -> list[Action]:
        pairs = zip(self.optimizer.param_groups, rates, strict=True)
        return [action for group, rate in pairs for action in putting_rate(group, rate)]

    # -- state -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Position and rates, also those of the optimizer now; the schedule's numbers come from the constructor.

        A subclass with ``get_lr`` has its other attributes there too, if they are numbers, text, or lists of such.
        """
        position = {"scheduler": self._name, "last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs)}
        rates = {"_last_lr": list(self._last_lr), "rates": self.rates_now()}
        return {**position, **rates, **{name: getattr(self, name) for name in self._names_in_state()}}

    def _names_in_state(self) -> list[str]:
        if type(self).get_lr is LRScheduler.get_lr:
            return list(self.state_numbers)
        known = {"optimizer", "base_lrs", "last_epoch", "_last_lr", "_is_initial"}
        return [name for name, value in vars(self).items() if name not in known and _is_data(value)]

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Self:
        """Restores a state from ``state_dict`` and sets the rates; CheckpointError if it does not fit.

        An error or a KeyboardInterrupt finds all as before or all as after.
        """
        changes = Changes()
        self.stage_state(state_dict, changes)
        changes.make()
        return self

    def stage_state(self, state: Mapping[str, Any], changes: Changes) -> None:
        """Checks a state, and adds to the changes what ``load_state_dict`` does with it."""
        self.check_state(state)
        try:
            actions = [*self._putting(self.rates_in(state)), *self.others_in(state)]
        except (AlphaError, ArithmeticError) as error:
            raise CheckpointError(
                f"[{self._name}.load_state_dict] expected a state that this {self._name} can be in, got "
                f"{shown(state)}: {error}"
            ) from error
        self.adopt(state, changes)
        changes.add(*actions)

    def rates_in(self, state: Mapping[str, Any]) -> list[float]:
        """The rates that the groups had in a state, which older states do not tell."""
        if "rates" in state:
            return list(state["rates"])
        return [self.rate(base, index, state["last_epoch"]) for index, base in enumerate(state["base_lrs"])]

    def others_in(self, state: Mapping[str, Any]) -> list[Action]:
        """The actions that set what the schedule had set beside the rates in a state."""
        return self.others(state["last_epoch"], JUMP)

    def check_state(self, state: Mapping[str, Any]) -> None:
        """CheckpointError unless ``adopt`` may take the state."""
        keys = set(self.state_dict())
        fits = isinstance(state, Mapping) and set(state) in (keys, keys - {"_last_lr", "rates"})
        if not fits or state["scheduler"] != self._name or not self._is_position(state):
            raise CheckpointError(
                f"[{self._name}.load_state_dict] expected the state of a {self._name} of {len(self.base_lrs)} groups, "
                f"got {shown(state)}: make the scheduler that was saved"
            )

    def _is_position(self, state: Mapping[str, Any]) -> bool:
        for key in ("base_lrs", "_last_lr", "rates"):
            rates = state.get(key, self.base_lrs)
            if not isinstance(rates, list | tuple) or len(rates) != len(self.base_lrs):
                return False
            if not all(is_finite(rate) or (key != "base_lrs" and is_number(rate)) for rate in rates):
                return False
        numbers = all(is_number(state[name]) for name in self.state_numbers)
        return numbers and (is_count(state["last_epoch"]) or state["last_epoch"] == -1)

    def adopt(self, state: Mapping[str, Any], changes: Changes) -> None:
        """Adopts a state that was checked."""
        changes.set(self, "last_epoch", state["last_epoch"])
        changes.set(self, "base_lrs", list(state["base_lrs"]))
        changes.set(self, "_last_lr", list(state.get("_last_lr", self.rates_in(state))))
        for name in self._names_in_state():
            changes.set(self, name, state[name])


def putting_rate(group: Group, rate: float) -> list[Action]:
    """The actions that set a group's rate, in its tensor where it is one."""
    tensor = group["lr"]
    if not isinstance(tensor, Tensor):
        return [putting(group, "lr", rate)]
    values = np.full(tensor.shape, rate, tensor.dtype)
    stored = tensor.engine.storing(values, tensor)
    if stored is None:  # a device's memory takes more than one action
        return [putting(group, "lr", tensor.engine.from_numpy(values))]
    return [stored, *versions([tensor])]


def count(name: str, option: str, value: Any, least: int = 1) -> int:
    """A whole number of steps; ArgumentError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ArgumentError(f"[{name}] expected {option} as an int >= {least}, got {described(value)}")
    return whole(name, option, value)


def check_optimizer(name: str, value: Any) -> None:
    """ArgumentError unless a value is an optimizer."""
    if not isinstance(value, Optimizer):
        raise ArgumentError(f"[{name}] expected an Optimizer, got {type(value).__name__}")


def per_group(name: str, option: str, value: float | Sequence[float], groups: int) -> list[float]:
    """A number per group, from one or as many."""
    given = value if isinstance(value, tuple | list) else [plain(value)] * groups
    if len(given) != groups:
        raise ArgumentError(
            f"[{name}] expected {option} as one number or {groups}, one per group, got {described(value)}"
        )
    return [finite(name, option, n) for n in given]


def cosine(start: float, end: float, done: float) -> float:
    """From start to end along half a cosine, of which a share is done."""
    return end + (start - end) / 2 * (1 + math.cos(math.pi * done))


def _is_data(value: Any) -> bool:
    """Whether a value is a number, text or None, or a list of such."""
    if isinstance(value, list | tuple):
        return all(map(_is_data, value))
    return value is None or isinstance(value, bool | int | float | str)

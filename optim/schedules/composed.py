"""Schedules of schedules: one after another, or all at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from alpha.arguments import listed, whole
from alpha.changes import Action, Changes, at_once, setting
from alpha.errors import ArgumentError, CheckpointError, described
from alpha.optim.arguments import shown
from alpha.optim.optimizer import Optimizer
from alpha.optim.schedules.base import FIRST, JUMP, NEXT, LRScheduler
from alpha.optim.schedules.plateau import ReduceLROnPlateau


class ComposedLR(LRScheduler):
    """Base of the schedules that other schedules of the same optimizer make.

    Attributes:
        schedulers: the others.
    """

    schedulers: list[LRScheduler]

    def _check(self, optimizer: Any, schedulers: Any) -> list[LRScheduler]:
        """The schedulers as a list; ArgumentError where they do not fit."""
        found = listed(self._name, "schedulers", schedulers)
        if not found or not all(isinstance(scheduler, LRScheduler) for scheduler in found):
            raise ArgumentError(f"[{self._name}] expected schedulers, got {described(schedulers)}")
        if any(isinstance(scheduler, ReduceLROnPlateau) for scheduler in found):
            raise ArgumentError(
                f"[{self._name}] expected schedulers that step by themselves, got a ReduceLROnPlateau, which wants a "
                "metric: step it beside this one"
            )
        wanted = found[0].optimizer if optimizer is None else optimizer
        if any(scheduler.optimizer is not wanted for scheduler in found):
            raise ArgumentError(f"[{self._name}] expected schedulers of the same optimizer, got one of another")
        return found

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "schedulers": [scheduler.state_dict() for scheduler in self.schedulers]}

    def check_state(self, state: Mapping[str, Any]) -> None:
        super().check_state(state)
        if not isinstance(state["schedulers"], list | tuple) or len(state["schedulers"]) != len(self.schedulers):
            raise CheckpointError(
                f"[{self._name}.load_state_dict] expected the states of {len(self.schedulers)} schedulers, got "
                f"{shown(state['schedulers'])}: make the scheduler that was saved"
            )
        for scheduler, inner in zip(self.schedulers, state["schedulers"], strict=True):
            scheduler.check_state(inner)

    def adopt(self, state: Mapping[str, Any], changes: Changes) -> None:
        super().adopt(state, changes)
        for scheduler, inner in zip(self.schedulers, state["schedulers"], strict=True):
            scheduler.adopt(inner, changes)


class SequentialLR(ComposedLR):
    """One scheduler after another: the next begins, at its own step 0, at each milestone."""

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        self.schedulers = self._check(optimizer, schedulers)
        milestones = [whole("SequentialLR", "milestones", n) for n in listed("SequentialLR", "milestones", milestones)]
        if len(self.schedulers) != len(milestones) + 1 or list(milestones) != sorted(milestones):
            raise ArgumentError(
                "[SequentialLR] expected ascending milestones, one fewer than schedulers, got "
                f"{list(milestones)} for {len(self.schedulers)} schedulers"
            )
        self.milestones = list(milestones)
        super().__init__(optimizer, last_epoch)

    def plan(self, rates: list[float], step: float, how: str) -> tuple[list[float], list[Action]]:
        current = bisect_right(self.milestones, step)
        scheduler = self.schedulers[current]
        position = step - (self.milestones[current - 1] if current else 0)
        if how == FIRST:  # from the initial rates: what the members have set when they were made does not count
            found, actions = scheduler.plan(list(self.base_lrs), position, FIRST)
        elif how == NEXT and position > 0:
            found, actions = scheduler.plan(rates, scheduler.last_epoch + 1, NEXT)
        else:
            found, actions = scheduler.plan(rates, position, JUMP)
        return found, [*actions, setting(self, "last_epoch", int(step)), setting(self, "_last_lr", found)]

    def _member_in(self, state: Mapping[str, Any]) -> tuple[LRScheduler, Mapping[str, Any]]:
        """The member whose turn it is in a state, and the member's state."""
        current = bisect_right(self.milestones, state["last_epoch"])
        return self.schedulers[current], state["schedulers"][current]

    def rates_in(self, state: Mapping[str, Any]) -> list[float]:
        if "rates" in state:
            return list(state["rates"])
        scheduler, inner = self._member_in(state)
        return scheduler.rates_in(inner)

    def others_in(self, state: Mapping[str, Any]) -> list[Action]:
        scheduler, inner = self._member_in(state)
        return scheduler.others_in(inner)


class ChainedScheduler(ComposedLR):
    """All schedulers at once: each goes on from the rates that the one before it has set."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        self.schedulers = self._check(optimizer, schedulers)
        self.optimizer = self.schedulers[0].optimizer
        self.base_lrs = self.first_rates()
        at_once([setting(self, "last_epoch", 0), setting(self, "_last_lr", self.rates_now())])

    def plan(self, rates: list[float], step: float, how: str) -> tuple[list[float], list[Action]]:
        actions: list[Action] = []
        for scheduler in self.schedulers:
            position = scheduler.last_epoch + 1 if how == NEXT else step
            rates, others = scheduler.plan(rates, position, how)
            actions += others
        return rates, [*actions, setting(self, "last_epoch", int(step)), setting(self, "_last_lr", rates)]

    def others_in(self, state: Mapping[str, Any]) -> list[Action]:
        pairs = zip(self.schedulers, state["schedulers"], strict=True)
        return [action for scheduler, inner in pairs for action in scheduler.others_in(inner)]

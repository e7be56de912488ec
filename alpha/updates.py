"""What an optimizer's step checks and prepares before it launches, the same on every engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from alpha.changes import Action, at_once, finish, setting, versions
from alpha.dtypes import FLOATS, float_names, is_float
from alpha.errors import DtypeError, EngineError, GraphError, ShapeError
from alpha.tensor import Tensor, has_no_gaps

if TYPE_CHECKING:
    from alpha.engine import Engine
    from alpha.expressions.program import Program
    from alpha.update_rules import UpdateRule

Row = Sequence[Tensor]
"""A parameter, its gradient, and its states."""
Refresh = Callable[[], "UpdateRule"]
"""Gives the rule of a captured step's next replay."""


def check_rows(engine: Engine, rule: UpdateRule, rows: Sequence[Row]) -> list[bool]:
    """Errors unless each row has the rule's states, lives on the engine and agrees in shape and float dtype.

    Tells of each whether its tensors have the same strides.
    """
    length, alike = 2 + rule.states, []
    checked: np.dtype[Any] | None = None
    for row in rows:
        if len(row) != length:
            raise ShapeError(f"[optimizer_step] expected {length} tensors a row by {rule}, got {len(row)}")
        first = row[0]
        shape, dtype, strides = first.shape, first.dtype, first.strides
        if dtype is not checked and dtype not in FLOATS:
            _check(engine, row)
        checked, same = dtype, True
        for tensor in row:
            if tensor.storage.engine is not engine or tensor.shape != shape or tensor.dtype is not dtype:
                _check(engine, row)
            if tensor.strides != strides:
                same = False
        alike.append(same)
    return alike


def numbers_of_replay(rule: UpdateRule, captured: Program) -> tuple[float, ...]:
    """The numbers of a replay's rule; GraphError where its program is not the captured one."""
    program, numbers = rule.traced()
    if program is not captured:
        raise GraphError(
            f"[optimizer_step] expected a rule that decides as the captured one did, got {rule}: make the graph of "
            "the step anew, or decide by alpha.where"
        )
    return numbers


def written(row: Row) -> Row:
    """What a step writes to: the parameter and the states, not the gradient."""
    return row[0], *row[2:]


def _check(engine: Engine, row: Row) -> None:
    """Errors unless a row's tensors fit."""
    parameter = row[0]
    if not is_float(parameter.dtype):
        raise DtypeError(f"[optimizer_step] expected {float_names()} parameters, got {parameter.dtype}")
    for tensor in row:
        if tensor.storage.engine is not engine:
            raise EngineError(f"[optimizer_step] expected tensors on {engine.name}, got {tensor.engine.name}")
        if tensor.shape != parameter.shape:
            raise ShapeError(
                f"[optimizer_step] expected tensors shaped as their parameter {parameter.shape}, got {tensor.shape}"
            )
        if tensor.dtype != parameter.dtype:
            raise DtypeError(
                f"[optimizer_step] expected tensors of their parameter's dtype {parameter.dtype}, got {tensor.dtype}"
            )


class Batch(NamedTuple):
    """The rows of one dtype, which one launch updates.

    Attributes:
        dtype: of all their tensors.
        rows: as they were given.
        dense: the same rows with all tensors dense in their parameter's memory order, copies where they are not.
    """

    dtype: np.dtype[Any]
    rows: list[Row]
    dense: list[Row]

    def launch(self, run: Callable[[list[Action]], None]) -> Launch:
        """What updates the dense rows, and has copies go back to where they are from."""
        tensors: list[Tensor] = []
        back: list[tuple[Tensor, Tensor]] = []
        for row, copies in zip(self.rows, self.dense, strict=True):
            tensors += written(row)
            if copies is not row:
                pairs = zip(written(copies), written(row), strict=True)
                back += [(copy, tensor) for copy, tensor in pairs if copy is not tensor]
        return Launch(run, tensors, back, self.dense)


def batches(engine: Engine, rule: UpdateRule, rows: Sequence[Row]) -> list[Batch]:
    """The rows by dtype, for an engine's kernels; errors as ``check_rows``."""
    alike = check_rows(engine, rule, rows)
    found: dict[np.dtype[Any], Batch] = {}
    batch: Batch | None = None
    for row, same in zip(rows, alike, strict=True):
        param = row[0]
        if batch is None or batch.dtype is not param.dtype:
            batch = found.setdefault(param.dtype, Batch(param.dtype, [], []))
        batch.rows.append(row)
        batch.dense.append(row if same and has_no_gaps(param.shape, param.strides) else _aligned(engine, row))
    return list(found.values())


def _aligned(engine: Engine, row: Row) -> Row:
    """A row's tensors, or copies, dense in the parameter's order."""
    order = row[0].memory_order()
    return [tensor if tensor.is_contiguous(order) else _copied(engine, tensor, order) for tensor in row]


def _copied(engine: Engine, tensor: Tensor, order: Sequence[int]) -> Tensor:
    copy = engine.empty(tensor.shape, tensor.dtype, order)
    engine.copy(tensor, copy)
    return copy


# -- a step, prepared and then made ------------------------------------------------------------------------------------


class Launch:
    """One launch of a step, ready to run, and what is to be noted with it.

    Args:
        run: launches, and has the actions it is given done. An engine that can does both in one call of a C function
            (``at_once``): an interrupt finds the launch made and noted, or neither.
        tensors: those that the launch writes to.
        back: copies that the launch works on, and the tensors that they then go back to.
        kept: what the launch uses by its address, and so must stay.
    """

    __slots__ = ("_back", "_kept", "_run", "_tensors", "actions", "begun", "done")

    def __init__(
        self,
        run: Callable[[list[Action]], None],
        tensors: Sequence[Tensor],
        back: Sequence[tuple[Tensor, Tensor]],
        kept: Sequence[Row],
    ) -> None:
        self._run, self._tensors, self._back, self._kept = run, tensors, back, kept
        self.actions: list[Action] = []
        self.begun = self.done = False

    def run(self) -> None:
        """Launches, unless that was done; copies back and notes what is to be noted, which may be repeated."""
        last = [*versions(self._tensors), *self.actions, setting(self, "done", True)]
        if not self.begun:
            self._run([setting(self, "begun", True), *([] if self._back else last)])
        if not self.done:
            for copy, tensor in self._back:
                tensor.engine.copy(copy, tensor)
            at_once(last)


class Plan:
    """A step of an optimizer: all that it needs has been made and checked, and nothing has been updated yet."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        self.actions: list[Action] = []

    def make(self) -> None:
        """Runs the launches and then the actions. An interrupt finds nothing done, or has the rest done first."""
        if not self.launches:
            at_once(self.actions)
            return
        self.launches[-1].actions += self.actions
        try:
            self._run()
        except BaseException:
            if any(launch.begun for launch in self.launches):
                finish(self._run)
            raise

    def _run(self) -> None:
        for launch in self.launches:
            if not launch.done:
                launch.run()


def submit(launches: list[Launch], plan: Plan | None) -> None:
    """Adds launches to a plan; without one they are made."""
    step = plan or Plan()
    step.launches += launches
    if plan is None:
        step.make()

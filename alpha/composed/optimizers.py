"""An optimizer's step: the new values of all parameters are computed first, and then copied over the old ones.

The copies may be repeated, so an interrupt finds nothing changed, or has the rest of the step done (``alpha.updates``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from alpha import steps
from alpha.changes import at_once
from alpha.updates import Launch, check_rows, submit, written

if TYPE_CHECKING:
    from alpha.engine import Engine
    from alpha.tensor import Tensor
    from alpha.update_rules import UpdateRule
    from alpha.updates import Plan, Refresh, Row


def optimizer_step(
    engine: Engine, rows: Sequence[Row], rule: UpdateRule, refresh: Refresh | None, plan: Plan | None
) -> None:
    """The rule's program. A step that is captured has to bring a kernel: its numbers would not be refreshed here."""
    if refresh is not None:
        steps.refuse(engine, f"numbers of a {type(rule).__name__}", "step outside the graph")
    check_rows(engine, rule, rows)
    program, numbers = rule.traced()
    copies: list[tuple[Tensor, Tensor]] = []
    for row in rows:
        found = engine.pointwise("optimizer_step", program, row, numbers)
        copies += zip(found, written(row), strict=True)
    submit([Launch(at_once, [tensor for _, tensor in copies], copies, ())], plan)

"""Every algorithm of an engine's convolutions, forced on a suite's layers: times, predictions, and the choice."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import alpha
from alpha.conv.problem import OPERATORS as DIRECTIONS
from alpha.cpu.engine import CPUEngine
from alpha.engine import Engine
from alpha.explanation import Explanation
from benchmarks import common
from benchmarks.suites import BATCHES, EQUALISED, OPERATORS, SUITES, Layer, equal_batch

MODULE = "benchmarks.algorithms"

DESCRIPTION = """
Forces each algorithm of an engine on the layers of a suite, for each operator that it computes there, and prints what
its model predicts beside what it takes. A star marks the planner's choice; the last line says how often that is within
5 % of the best one.
"""

NEAR = 1.05
"""A choice that takes at most so many times the best algorithm's time is as good."""


class Tools(NamedTuple):
    """What an engine tells of its algorithms: its ``explain``, and its planner's module."""

    explain: Callable[..., Explanation]
    planner: Any


def tools(engine: Engine) -> Tools:
    """Those of an engine that has them, the CPU's or a GPU's."""
    if isinstance(engine, CPUEngine):
        return Tools(alpha.cpu.explain, alpha.cpu.planner)
    from alpha.cu32 import explain, planner

    return Tools(explain.explain, planner)


class Row(NamedTuple):
    """One algorithm on one layer."""

    layer: str
    operator: str
    algorithm: str
    predicted_ms: float
    measured_ms: float
    chosen: bool


def measure(engine: Engine, layer: Layer, batch: int) -> list[Row]:
    """All algorithms that serve a layer, operator by operator."""
    rows, names = [], tools(engine).planner.names()
    for operator, direction in zip(OPERATORS, DIRECTIONS, strict=True):
        if operator in layer.operators:
            chosen = _explained(engine, layer, batch, direction, None, timed=False).name
            forced = (_explained(engine, layer, batch, direction, name, timed=False) for name in names)
            for name in dict.fromkeys(told.name for told in forced):  # those that serve, and what stands in for others
                told = _explained(engine, layer, batch, direction, name, timed=True)
                assert told.measured_ms is not None
                rows.append(Row(layer.name, direction, str(name), told.predicted_ms, told.measured_ms, name == chosen))
    return rows


def _explained(engine: Engine, layer: Layer, batch: int, direction: str, name: str | None, timed: bool) -> Explanation:
    shape = layer.shape
    x_shape = (batch, *shape["input"])
    w_shape = (layer.out_channels, *shape["filter"], layer.in_channels // layer.groups)
    steps = layer.stride, layer.padding, layer.dilation, layer.groups
    told = tools(engine)
    with nullcontext() if name is None else told.planner.use(name):
        return told.explain(engine, direction, x_shape, w_shape, *steps, measure=timed)


def near(rows: Sequence[Row]) -> tuple[int, int]:
    """In how many problems the choice is within 5 % of the best algorithm, and how many problems there are."""
    problems: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        problems.setdefault((row.layer, row.operator), []).append(row)
    good = [
        min(row.measured_ms for row in found if row.chosen) <= NEAR * min(row.measured_ms for row in found)
        for found in problems.values()
    ]
    return sum(good), len(good)


def report(rows: Sequence[Row]) -> None:
    """Prints a table, and how good the choices are."""
    titles = ("layer", "operator", "algorithm", "", "predicted ms", "measured ms")
    cells = [
        (r.layer, r.operator, r.algorithm, "*" if r.chosen else "", f"{r.predicted_ms:.3f}", f"{r.measured_ms:.3f}")
        for r in rows
    ]
    common.print_table(titles, cells)
    good, count = near(rows)
    print(f"\nwithin 5 % of the best: {good} of {count} choices")


def make_parser() -> common.Parser:
    """The options."""
    parser = common.Parser(prog=f"python -m {MODULE}", description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--engine", default="cpu", type=common.engine_name, help="cpu, cu32 or cu32:1 (%(default)s)")
    parser.add_argument("--suite", default="resnet18", choices=tuple(SUITES), help="what is measured (%(default)s)")
    parser.add_argument("--batch-size", type=common.whole(1), metavar="N", help="images (the operator benchmark's)")
    parser.add_argument("--threads", type=common.whole(1), metavar="N", help="of the CPU engine (all that may be used)")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    args = make_parser().parse_args(arguments)
    threads = {"threads": args.threads or common.available_threads()} if args.engine == "cpu" else {}
    engine = alpha.engine(args.engine, **threads)
    batches = {layer: args.batch_size or _batch(args.suite, layer, args.engine) for layer in SUITES[args.suite]}
    report([row for layer, batch in batches.items() for row in measure(engine, layer, batch)])


def _batch(suite: str, layer: Layer, engine: str) -> int:
    """As the operator benchmark takes it."""
    kind = "cpu" if engine == "cpu" else "gpu"
    return equal_batch(layer, EQUALISED[suite][kind]) if suite in EQUALISED else BATCHES[suite][0]


if __name__ == "__main__":
    sys.exit(common.run_command(main))

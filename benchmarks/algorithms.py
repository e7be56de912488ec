"""Every algorithm of an engine's convolutions, forced on a suite's layers: times, predictions, and the choice."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

import alpha
from alpha.conv.problem import OPERATORS as DIRECTIONS
from alpha.cpu import explanations, figures
from alpha.cpu.conv.problem import dense_problem
from alpha.cpu.engine import CPUEngine
from alpha.cpu.isa import ISA
from alpha.engine import Engine
from alpha.errors import ArgumentError
from alpha.explanation import Explanation
from benchmarks import common, rounds
from benchmarks.suites import BATCHES, EQUALISED, OPERATORS, SUITES, Layer, equal_batch

MODULE = "benchmarks.algorithms"

DESCRIPTION = """
Forces each algorithm of an engine on the layers of a suite, for each operator that it computes there, and prints what
its model predicts beside what it takes. The algorithms of a problem take turns. A star marks the planner's choice;
the last line says how often that is within 5 % of the best one. With --json, problems that the file already has are not
measured again: a run that was cut goes on.
"""

NEAR = 1.05
"""A choice that takes at most so many times the best algorithm's time is as good."""

TURNS = 7
"""Timed calls of each algorithm, after one more."""

SLOW = 1.5
"""An algorithm that takes so many times the fastest one's time after two turns has no others."""


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
    times_ms: tuple[float, ...]
    chosen: bool

    @property
    def measured_ms(self) -> float:
        """The median."""
        return common.median(self.times_ms)


def measure(engine: Engine, layer: Layer, batch: int) -> list[Row]:
    """All algorithms that serve a layer, operator by operator."""
    found = [measure_operator(engine, layer, batch, operator) for operator in layer.operators]
    return [row for rows in found for row in rows]


def measure_operator(engine: Engine, layer: Layer, batch: int, operator: str) -> list[Row]:
    """All algorithms that serve a layer for one of ``OPERATORS``.

    Turns that other processes disturbed are taken again, up to ``rounds.ROUNDS`` times; the quietest ones count.
    """
    direction, planner = dict(zip(OPERATORS, DIRECTIONS, strict=True))[operator], tools(engine).planner
    chosen = _explained(engine, layer, batch, direction).name
    told = [_explained(engine, layer, batch, direction, name) for name in planner.names()]
    predicted = {str(one.name): one.predicted_ms for one in told}  # those that serve, and what stands in for others
    milliseconds = _timer(engine, layer, batch, direction)
    kept: rounds.Times | None = None
    for _ in range(1 + rounds.ROUNDS):
        times: rounds.Times = {name: [] for name in predicted}
        for turn in range(1 + TURNS):
            for name in _waiting(times):
                with planner.use(name):
                    taken = milliseconds()
                if turn:
                    times[name].append(taken)
        if kept is None or rounds.quietness(times.values()) < rounds.quietness(kept.values()):
            kept = times
        if not rounds.varied(kept):
            break
    assert kept is not None
    return [
        Row(layer.name, direction, name, predicted[name], tuple(turns), name == chosen) for name, turns in kept.items()
    ]


def _timer(engine: Engine, layer: Layer, batch: int, direction: str) -> Callable[[], float]:
    """What times a call, in milliseconds: on the CPU on the same numbers every time, on a GPU as ``explain`` does."""
    if not isinstance(engine, CPUEngine):
        return lambda: _explained(engine, layer, batch, direction, timed=True).measured_ms or 0.0
    channels = layer.in_channels, layer.out_channels, layer.groups
    call = explanations.call_of(engine, dense_problem(direction, layer.geometry, batch, *channels))

    def milliseconds() -> float:
        start = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - start)

    return milliseconds


def _waiting(times: rounds.Times) -> list[str]:
    """The algorithms that have another turn."""
    best = min((min(turns) for turns in times.values() if turns), default=0.0)
    return [name for name, turns in times.items() if len(turns) < 2 or min(turns) <= SLOW * best]


def _explained(
    engine: Engine, layer: Layer, batch: int, direction: str, name: str | None = None, timed: bool = False
) -> Explanation:
    shape = layer.shape
    x_shape = (batch, *shape["input"])
    w_shape = (layer.out_channels, *shape["filter"], layer.in_channels // layer.groups)
    steps = layer.stride, layer.padding, layer.dilation, layer.groups
    told = tools(engine)
    with nullcontext() if name is None else told.planner.use(name):
        return told.explain(engine, direction, x_shape, w_shape, *steps, measure=timed)


def problems_of(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each layer and operator."""
    problems: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        problems.setdefault((row.layer, row.operator), []).append(row)
    return list(problems.values())


def loss(rows: Sequence[Row]) -> float:
    """The time of a problem's choice over its best algorithm's."""
    return next(row.measured_ms for row in rows if row.chosen) / min(row.measured_ms for row in rows)


def near(rows: Sequence[Row]) -> tuple[int, int]:
    """In how many problems the choice is within 5 % of the best algorithm, and how many problems there are."""
    losses = [loss(found) for found in problems_of(rows)]
    return sum(one <= NEAR for one in losses), len(losses)


def table(rows: Sequence[Row]) -> tuple[Sequence[str], list[list[object]]]:
    """A line per algorithm and problem."""
    titles = ("layer", "operator", "algorithm", "", "predicted ms", "measured ms")
    return titles, [
        [r.layer, r.operator, r.algorithm, "*" if r.chosen else "", f"{r.predicted_ms:.3f}", f"{r.measured_ms:.3f}"]
        for r in rows
    ]


def choices(rows: Sequence[Row]) -> tuple[Sequence[str], list[list[object]]]:
    """A line per problem."""
    lines: list[list[object]] = []
    for found in problems_of(rows):
        chosen, best = next(row for row in found if row.chosen), min(found, key=lambda row: row.measured_ms)
        names = [chosen.layer, chosen.operator, chosen.algorithm, best.algorithm]
        lines.append([*names, f"{chosen.measured_ms:.2f}", f"{best.measured_ms:.2f}", f"{loss(found):.3f}"])
    return ("layer", "operator", "chosen", "best", "chosen ms", "best ms", "ratio"), lines


def summary(rows: Sequence[Row]) -> str:
    """How good the choices are."""
    good, count = near(rows)
    worst = max(map(loss, problems_of(rows)))
    return f"within 5 % of the best: {good} of {count} choices; the worst takes {worst:.3f} times the best one's time"


def report(rows: Sequence[Row]) -> None:
    """Prints a table, and how good the choices are."""
    common.print_table(*table(rows))
    print(f"\n{summary(rows)}")


# -- the command -----------------------------------------------------------------------------------------------------


def make_parser() -> common.Parser:
    """The options."""
    parser = common.Parser(prog=f"python -m {MODULE}", description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--engine", default="cpu", type=common.engine_name, help="cpu, cu32 or cu32:1 (%(default)s)")
    parser.add_argument("--suite", default="resnet18", choices=tuple(SUITES), help="what is measured (%(default)s)")
    parser.add_argument("--batch-size", type=common.whole(1), metavar="N", help="images (the operator benchmark's)")
    parser.add_argument("--threads", type=common.whole(1), metavar="N", help="of the CPU engine (all that may be used)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here, or go on with what is there")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and prints; writes what there is after each problem."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    args = make_parser().parse_args(given)
    common.check_writable(MODULE, args.json)
    threads = {"threads": args.threads or common.available_threads()} if args.engine == "cpu" else {}
    engine = alpha.engine(args.engine, **threads)
    settings = _settings(args, engine)
    result = {**common.description(MODULE, given), "settings": settings, "rows": _already(args.json, settings)}
    done = {(row["layer"], row["operator"]) for row in result["rows"]}
    waiting = [one for one in _problems(args) if (one[0].name, OPERATORS[one[2]]) not in done]
    for layer, batch, operator in tqdm(waiting, unit="problem", disable=None):
        rows = measure_operator(engine, layer, batch, operator)
        result["rows"].append(_as_json(layer, batch, operator, rows))
        if args.json:
            common.write_json(args.json, result)
    report(rows_of(result))


def _problems(args: argparse.Namespace) -> Iterator[tuple[Layer, int, str]]:
    """Layers with their batches and operators."""
    for layer in SUITES[args.suite]:
        for operator in layer.operators:
            yield layer, args.batch_size or _batch(args.suite, layer, args.engine), operator


def _batch(suite: str, layer: Layer, engine: str) -> int:
    """As the operator benchmark takes it."""
    kind = "cpu" if engine == "cpu" else "gpu"
    return equal_batch(layer, EQUALISED[suite][kind]) if suite in EQUALISED else BATCHES[suite][0]


def _settings(args: argparse.Namespace, engine: Engine) -> dict[str, Any]:
    """What the times depend on."""
    settings = {
        "suite": "algorithms",
        "layers": args.suite,
        "engine": args.engine,
        "threads": args.threads or common.available_threads(),
        "batch_size": args.batch_size,
        "turns": TURNS,
        "timing": "median of turns that the algorithms of a problem take one after the other",
        "disturbed": rounds.DISTURBED,
    }
    if isinstance(engine, CPUEngine):
        known = figures.known()
        settings |= {"path": ISA.name, "figures": known.core + ("" if known.matches else ", another processor's")}
    return settings


def _already(path: Path | None, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a file whose run was cut; ArgumentError where it is another run's."""
    if path is None or not path.exists():
        return []
    found = json.loads(path.read_text(encoding="utf-8"))
    if found.get("settings") != settings:
        raise ArgumentError(
            f"[{MODULE}] expected a file of a run with these options, got {str(path)!r}, which is another one: "
            "remove it or name another"
        )
    rows: list[dict[str, Any]] = found["rows"]
    return rows


def _as_json(layer: Layer, batch: int, operator: str, rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "layer": layer.name,
        "operator": OPERATORS[operator],
        "shape": layer.shape,
        "batch": batch,
        "chosen": next(row.algorithm for row in rows if row.chosen),
        "ratio": loss(rows),
        "predicted_ms": {row.algorithm: row.predicted_ms for row in rows},
        "times_ms": {row.algorithm: list(row.times_ms) for row in rows},
    }


def rows_of(result: dict[str, Any]) -> list[Row]:
    """The rows of a result file."""
    return [
        Row(one["layer"], one["operator"], name, one["predicted_ms"][name], tuple(times), name == one["chosen"])
        for one in result["rows"]
        for name, times in one["times_ms"].items()
    ]


if __name__ == "__main__":
    sys.exit(common.run_command(main))

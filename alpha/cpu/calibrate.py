"""``python -m alpha.cpu.calibrate``: measures this processor's figures, by which algorithms are chosen, and keeps them.

Every algorithm computes the layers of LAYERS that it serves, on one core and in turns; the fastest turn of each counts,
in CPU time where the system tells it finely, so that other programs disturb little. The figures are those by which the
cost models predict these times best.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, NoReturn, cast

import numba
import numpy as np
from tqdm import tqdm

import alpha
from alpha import cache
from alpha.conv.problem import FORWARD, INPUT_GRAD, WEIGHT_GRAD
from alpha.cpu import explanations, figures, fitting, planner
from alpha.cpu.conv.problem import Problem, dense_problem, flattened
from alpha.cpu.engine import CPUEngine
from alpha.cpu.figures import Figures, Known
from alpha.cpu.fitting import Sample
from alpha.cpu.isa import ISA
from alpha.cpu.kernels import filters as kernels
from alpha.errors import AlphaError, ArgumentError, EngineError
from alpha.geometry import Geometry
from alpha.tensor import Tensor

DESCRIPTION = """
Measures this processor's figures, by which the CPU engine chooses its algorithms for convolutions, and keeps them for
the programs of this user. ALPHA_CPU_ISA=avx2, or generic, in the environment measures another instruction path, whose
figures are its own; ALPHA_CACHE names the folder where figures and kernels are kept.
"""

Clock = Callable[[], float]

ROUNDS, TURNS = 3, 3
"""Visits to each problem, and turns of each algorithm during a visit."""

SECONDS = 40.0
"""After so many problems that have not been visited yet have one turn, and others none."""

SLOW = 2.5
"""An algorithm that takes so many times the fastest one's time has no second turn: it is not chosen in any case."""

TYPICAL_ERROR = 0.25
"""A larger error of the predictions, in the median, tells of a measurement that went wrong."""

L3_SHARE = 0.375
"""The part of the L3 cache that filters can have beside images and other programs."""


SMALL_BATCH = 16
"""Layers of fewer images are measured as in inference, too, whose calls do not pack their filters."""


class Case(NamedTuple):
    """A problem, and whether each call packs its filters."""

    problem: Problem
    packs: bool


class Layer(NamedTuple):
    """A convolution of square images with a square filter, and the operators that are measured there."""

    size: int
    in_channels: int
    out_channels: int
    filter: int
    stride: int
    padding: int
    images: int
    operators: tuple[str, ...] = (FORWARD, INPUT_GRAD, WEIGHT_GRAD)

    def cases(self) -> list[Case]:
        """What is measured."""
        sides = ((n, n) for n in (self.size, self.filter, self.stride, self.padding))
        geometry = Geometry.make(*sides).reached
        sizes = self.images, self.in_channels, self.out_channels, 1
        problems = [dense_problem(operator, geometry, *sizes) for operator in self.operators]
        cases = [Case(problem, True) for problem in problems]
        return cases + [
            Case(problem, False) for problem in problems if self.images < SMALL_BATCH and problem.operator in GATHERED
        ]


GATHERED = (FORWARD, INPUT_GRAD)

LAYERS = (
    Layer(32, 3, 64, 7, 2, 3, 64),
    Layer(32, 3, 64, 3, 1, 1, 16),
    Layer(16, 64, 64, 3, 1, 1, 48),
    Layer(16, 64, 128, 3, 2, 1, 48),
    Layer(8, 128, 128, 3, 1, 1, 64),
    Layer(8, 128, 256, 3, 2, 1, 64),
    Layer(4, 256, 256, 3, 1, 1, 64),
    Layer(4, 256, 512, 3, 2, 1, 64),
    Layer(2, 512, 512, 3, 1, 1, 64),
    Layer(64, 64, 64, 3, 1, 1, 4),
    Layer(64, 64, 64, 5, 2, 2, 4),
    Layer(32, 128, 128, 3, 2, 1, 8),
    Layer(32, 128, 128, 5, 1, 2, 2, GATHERED),
    Layer(16, 256, 256, 5, 2, 2, 4),
    Layer(16, 256, 256, 3, 1, 1, 8),
    Layer(8, 512, 512, 5, 2, 2, 4),
    Layer(4, 512, 512, 5, 1, 2, 12, GATHERED),
    Layer(7, 512, 512, 3, 1, 1, 1, GATHERED),
    Layer(14, 256, 256, 3, 1, 1, 1, GATHERED),
)
"""Typical layers, small enough that a turn of each takes about a hundredth of a second, together with every term of the
models: filters that the caches hold and that they do not, maps and channels large and small."""


# -- measuring -------------------------------------------------------------------------------------------------------


def clock() -> Clock:
    """Seconds: of CPU time where the system counts them finely, else of the wall's clock."""
    fine = time.get_clock_info("thread_time").resolution <= 1e-6
    return time.thread_time if fine else time.perf_counter


@numba.njit
def _chain(turns, number):  # type: ignore[no-untyped-def]
    """Six operations per turn that take a cycle on every processor, and of which each takes the last one's result."""
    for _ in range(turns):
        number ^= number << np.uint64(13)
        number ^= number >> np.uint64(7)
        number ^= number << np.uint64(17)
    return number


def seconds_per_cycle(clock: Clock, tries: int = 50, turns: int = 100_000) -> float:
    """The length of a cycle of the core's clock, by a chain of operations; the fastest of some tries."""
    seconds = []
    for _ in range(tries + 1):
        start = clock()
        _chain(turns, np.uint64(88172645463325252))
        seconds.append(clock() - start)
    return min(seconds[1:]) / (6 * turns)


def measure(
    layers: Sequence[Layer], clock: Clock, rounds: int = ROUNDS, turns: int = TURNS, seconds: float = SECONDS
) -> list[Sample]:
    """The samples of some layers; their turns are spread over the whole time, which other programs disturb in parts."""
    engine = cast(CPUEngine, alpha.engine("cpu", threads=1))
    cases = [case for layer in layers for case in layer.cases()]
    least: dict[Case, dict[str, float]] = {case: {} for case in cases}
    cycle, end = seconds_per_cycle(clock), time.perf_counter() + seconds
    visits = tqdm(cases * rounds, desc="measuring", unit="problem", leave=False, disable=None)
    for number, case in enumerate(visits):
        late = time.perf_counter() > end
        if number < len(cases) or not late:
            _visit(engine, case, clock, 1 if late else turns, least[case])
            cycle = min(cycle, seconds_per_cycle(clock, tries=3))
    return [
        Sample(algorithm, flattened(case.problem), case.packs, found[algorithm.name] / cycle)
        for case, found in least.items()
        for algorithm in planner.candidates(flattened(case.problem))
        if found[algorithm.name] <= SLOW * min(found.values())
    ]


def _visit(engine: CPUEngine, case: Case, clock: Clock, turns: int, least: dict[str, float]) -> None:
    """Turns of each algorithm that may be the cheapest, after one more of each; ``least`` are the fastest so far."""
    call = explanations.call_of(engine, case.problem)
    names = [algorithm.name for algorithm in planner.candidates(flattened(case.problem))]
    for turn in range(1 + turns):
        for name in names:
            if name in least and least[name] > SLOW * min(least.values()):
                continue
            with planner.use(name), alpha.no_grad():
                start = clock()
                if case.packs:
                    call()
                else:
                    _Inference.apply(call)
                taken = clock() - start
            if turn:
                least[name] = min(taken, least.get(name, taken))


class _Inference(alpha.Function):
    """A call outside of training: the filters that it packs are kept with theirs, which serve it again."""

    def forward(self, call: Callable[[], Tensor]) -> Tensor:
        return call()


def launch_cycles(cycle: float, tries: int = 300) -> float:
    """Cycles of all cores to begin and end a launch that has nothing to do; the fastest of some tries."""
    engine = cast(CPUEngine, alpha.engine("cpu"))
    parts, total = np.zeros((1, 1), np.float32), np.zeros(1, np.float32)
    seconds = []
    for _ in range(tries):
        start = time.perf_counter()
        engine.launch(kernels.add_parts, parts, total)
        seconds.append(time.perf_counter() - start)
    return min(seconds) * engine.threads / cycle


def cache_sizes(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> dict[str, float]:
    """``l2_bytes`` and ``l3_bytes`` where the system tells them."""
    found = {}
    for index in sorted(folder.glob("index*")):
        try:
            level, size = ((index / name).read_text(encoding="ascii").strip() for name in ("level", "size"))
            nbytes = float(size.removesuffix("K")) * 1024
        except (OSError, ValueError):
            continue
        if level == "2":
            found["l2_bytes"] = nbytes
        elif level == "3":
            found["l3_bytes"] = nbytes * L3_SHARE
    return found


def measured(
    start: Figures, layers: Sequence[Layer] = LAYERS, rounds: int = ROUNDS, turns: int = TURNS, seconds: float = SECONDS
) -> tuple[Figures, float]:
    """This processor's figures, and the error of their predictions in the median; ``start``: what is known so far.

    Raises:
        EngineError, ArgumentError: where what was measured cannot be a processor's.
    """
    ticks = clock()
    found = measure(layers, ticks, rounds, turns, seconds)
    sizes = cache_sizes()
    launch = launch_cycles(seconds_per_cycle(ticks))
    fitted = fitting.fit(found, replace(start, launch_cycles=launch, **sizes))
    fitted.check()
    error = float(np.median(np.abs(fitting.errors(found, fitted))))
    if not error <= TYPICAL_ERROR:
        raise EngineError(
            f"[calibrate] expected predictions within {TYPICAL_ERROR:.0%} of the times measured, got {error:.0%} in "
            "the median: run it again while less else runs on this machine"
        )
    return fitted, error


# -- the command -----------------------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line; exit status 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (--help lists the options)\n")


def make_parser() -> Parser:
    """The options."""
    parser = Parser(prog=figures.COMMAND, description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--dry-run", action="store_true", help="measure and print, but keep nothing")
    parser.add_argument(
        "--ship", action="store_true", help="keep the figures in the package, for all processors with such a core"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints, and keeps."""
    args = make_parser().parse_args(arguments)
    here, old = figures.processor(), figures.known()
    print(
        f"{here.model} ({here.core}), {ISA.name} path: about {SECONDS:.0f} s, and a minute more where kernels compile"
    )
    if not (args.dry_run or args.ship or cache.can_keep(figures.KIND)):
        raise ArgumentError(
            "[calibrate] expected a folder to keep figures in, got none that can be written to: set ALPHA_CACHE to "
            "one, or measure with --dry-run"
        )
    found, error = measured(figures.shipped(here.core, ISA.name).figures)
    print(table(old, found))
    print(f"\nThe models predict what was measured within {error:.0%} in the median.")
    if args.dry_run:
        print("Nothing was kept.")
        return
    file = ship(here.core, ISA.name, found) if args.ship else figures.keep(here, ISA.name, found, date=_today())
    print(f"Kept in {file}: programs that start from now on choose by them.")
    if not args.ship:
        print(
            "Where that takes other algorithms, results differ in their last bits. Without the file all is as before."
        )


def table(old: Known, new: Figures) -> str:
    """Old and new figures, side by side."""
    whose = "old" if old.matches else f"old ({old.core}'s)"
    rows = [("figure", whose, "new")]
    rows += [(f.name, _text(getattr(old.figures, f.name)), _text(getattr(new, f.name))) for f in fields(Figures)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (f"{name:<{widths[0]}}  {a:>{widths[1]}}  {b:>{widths[2]}}" for name, a, b in rows)
    return "\n".join(lines)


def _text(value: float, comma: str = ",") -> str:
    return f"{value:{comma}.0f}" if value >= 1000 else f"{value:.3g}"


def ship(core: str, path: str, found: Figures) -> Path:
    """Writes figures into the package's file, and returns it."""
    content = json.loads(figures.SHIPPED.read_bytes())
    content.setdefault(core, {})[path] = {name: float(_text(value, "")) for name, value in asdict(found).items()}
    cache.write_atomically(figures.SHIPPED, json.dumps(content, indent=1).encode() + b"\n")
    return figures.SHIPPED


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def run() -> int:
    """The command; its exit status, with errors told in one line."""
    try:
        main()
    except (AlphaError, OSError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: nothing was kept", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(run())

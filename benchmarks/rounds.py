"""Shared by suites whose contestants take turns: rounds until all timings are quiet, and the cells of rows."""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from tqdm import tqdm

from benchmarks import common
from benchmarks.common import Setup
from benchmarks.workers import PAUSE

ROUNDS = 2
"""How often rows that other processes disturbed are measured again."""

DISTURBED = f"rows whose turns vary are measured again, up to {ROUNDS} times; the quietest round counts"
"""The same number, in words, for the results' head."""

Times = dict[str, list[float]]
"""Milliseconds of each contestant's turns."""

Problem = TypeVar("Problem")
Key = TypeVar("Key")


def quietest(
    problems: Sequence[Problem], measure: Callable[[Problem], Iterable[tuple[Key, Times]]], title: str, unit: str
) -> dict[Key, Times]:
    """Each row's turns; ``measure`` takes them for the rows of a problem.

    Problems of which a row's turns vary are measured again; a row's quietest round counts.
    """
    kept: dict[Key, Times] = {}
    rows: dict[int, list[Key]] = {}
    waiting = list(range(len(problems)))
    for again in range(1 + ROUNDS):
        for index in tqdm(waiting, desc="again" if again else title, unit=unit, disable=None):
            rows[index] = []
            for key, times in measure(problems[index]):
                rows[index].append(key)
                old = kept.get(key)
                if old is None or quietness(times.values()) < quietness(old.values()):
                    kept[key] = times
        waiting = [index for index in waiting if any(varied(kept[key]) for key in rows[index])]
    return kept


def varied(times: Mapping[str, Sequence[float]]) -> bool:
    """Whether any contestant's timings vary more than a quiet machine's."""
    return max(map(common.spread, times.values())) > common.CALM


def quietness(times: Iterable[Sequence[float]]) -> float:
    """What tells the quieter of two rounds of several contestants' turns, whose medians count alike: the lower one."""
    return statistics.fmean(math.log(common.median(values)) for values in times)


def settings(suite: str, setup: Setup, args: argparse.Namespace) -> dict[str, Any]:
    """The settings that suites of rounds share."""
    return {
        "suite": suite,
        **asdict(setup),
        "against": args.against,
        "dtype": "float32",
        "seed": args.seed,
        "repeats": args.repeats,
        "pause_s": PAUSE,
        "timing": "median of turns, each the mean of the calls that fill it; one process per contestant",
        "disturbed": DISTURBED,
    }


def compared_with_torch(medians: Mapping[str, float]) -> dict[str, Any]:
    """A row's cells: our time, and PyTorch's with its best settings; ``medians`` by contestant, ours as alpha."""
    torch = [name for name in medians if name.startswith("torch")]
    best = min(torch, key=lambda name: medians[name]) if torch else None
    return {
        "alpha_ms": medians["alpha"],
        "torch_ms": medians[best] if best else None,
        "torch_settings": best.removeprefix("torch ") if best else None,
        "ratio": medians[best] / medians["alpha"] if best else None,
    }

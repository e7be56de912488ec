"""The planner: by which algorithm, kernel, tile and split a convolution or matrix product is computed, and why.

The algorithms predict what their plans cost (``cu32/costs.py``), and the cheapest plan is taken; an algorithm that is
``always`` taken comes first where it serves. Where ``alpha.set_search`` is on, what was timed decides. ``with
planner.use("tiles", tile=(64, 64), parts=2):`` overrides both; ``cu32/explain.py`` tells.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache

from alpha import search as setting
from alpha.conv.registry import Registry, within
from alpha.cu32 import products, search, selfcheck
from alpha.cu32.base import DeviceEngine
from alpha.cu32.conv.algorithm import Algorithm
from alpha.cu32.conv.algorithms import ALGORITHMS
from alpha.cu32.conv.problem import Problem
from alpha.cu32.costs import Chip, Job, Plan, TilePlan
from alpha.cu32.products import Product
from alpha.cu32.search import SearchKey
from alpha.errors import ArgumentError

Planned = Algorithm | products.Algorithm
"""What has plans: for convolutions or for products."""


@dataclass(frozen=True)
class Override:
    """What ``use`` fixes; None leaves it to the model."""

    algorithm: str | None = None
    tile: tuple[int, int] | None = None
    parts: int | None = None

    def among(self, plans: list[Plan]) -> list[Plan]:
        """Plans with the tile named; where none has it, that does not count."""
        if self.tile is None:
            return plans
        sized = [plan for plan in plans if isinstance(plan, TilePlan)]
        return [plan for plan in sized if (plan.tile.rows, plan.tile.columns) == self.tile] or plans


MOST_PLANS = 4096
"""Plans that are kept of each engine."""

_changes = itertools.count()
_list = next(_changes)
"""Another number whenever the list of algorithms has changed."""

_MODEL = Override()
_override: ContextVar[Override] = ContextVar("alpha_cu32_override", default=_MODEL)


def use(
    algorithm: str | None = None, *, tile: tuple[int, int] | None = None, parts: int | None = None
) -> AbstractContextManager[None]:
    """Within it convolutions and products take this algorithm, tile and number of parts, wherever there are such.

    Args:
        algorithm: one of ``names()``. "tiles": C-K-S, and products, by tiles of the result. "tensor_cores": so too, in
            TF32, which the precision must allow. "flat_tensor_cores": so too, convolutions that sum over few channels,
            and all their taps at once. "threefold": in float32 on the tensor cores, of three products each,
            where sums are long. Of convolutions alone "patches": in TF32 too, by tiles of positions that share pixels;
            "depthwise": a filter for each channel; "few_results": up to four channels of a result; "few_channels":
            filter gradients of up to seven channels on one side; "window" and "threefold_window": filter gradients as
            by "tensor_cores" and "threefold", several taps of a filter row at once.
        tile: rows and columns of a block's tile.
        parts: pieces that each sum is cut into.

    Raises:
        ArgumentError: for another algorithm, and for less than one part.
    """
    if algorithm is not None:
        _registry.check(algorithm)
    if parts is not None and parts < 1:
        raise ArgumentError(f"[planner.use] expected parts >= 1, got {parts}")
    return within(_override, Override(algorithm, tile, parts))


def choose(problem: Problem, engine: DeviceEngine) -> Algorithm:
    """The algorithm of a problem on an engine's device, as an operator would take it now."""
    return algorithm_of(foreseen(engine, problem)[0])


def algorithm_of(plan: Plan) -> Algorithm:
    """The algorithm that made a convolution's plan."""
    algorithm = named(plan.algorithm, plan.problem.operator)
    assert algorithm is not None  # a plan has the name of the algorithm that made it
    return algorithm


def chosen(engine: DeviceEngine, job: Job, run: Callable[[Plan], object]) -> Plan:
    """The plan that an operator launches: that of ``use``, else the fastest where a search is on, else the model's.

    ``run`` does the operator's work by a plan, onto memory that nobody reads.
    """
    override = _override.get()
    if override is not _MODEL and override != _MODEL:
        return _preferred(job, Chip.of(engine.device), override, engine)[0]
    if setting.get_search():
        chip = Chip.of(engine.device)
        key = _key(job, chip)
        return search.known(key) or search.fastest(engine, key, plans(job, chip, engine), run)
    # A choice holds as long as the list of algorithms, and what is known of the kernels that compute right.
    of_list, state = _list, engine.device.families.state
    known: dict[Job, tuple[Plan, object, int]] = engine.plans
    found = known.get(job)
    if found is None or found[1] is not state or found[2] != of_list:
        if len(known) >= MOST_PLANS:
            known.clear()
        found = known[job] = _preferred(job, Chip.of(engine.device), override, engine)[0], state, of_list
    return found[0]


def foreseen(engine: DeviceEngine, job: Job) -> tuple[Plan, float | None]:
    """The plan that an operator would launch now, and the milliseconds that a search has measured of it, if any."""
    chip, override = Chip.of(engine.device), _override.get()
    times = search.kept(_key(job, chip), plans(job, chip, engine))
    if times and setting.get_search() and override == _MODEL:
        best = min(times, key=times.__getitem__)
    else:
        best = _preferred(job, chip, override, engine)[0]
    return best, times.get(best)


def plan(job: Job, chip: Chip) -> Plan:
    """The plan that the model prefers, or that ``use`` names, on a device whose kernels all compute right."""
    return _preferred(job, chip, _override.get(), None)[0]


def plans(job: Job, chip: Chip, engine: DeviceEngine | None = None) -> tuple[Plan, ...]:
    """The plans of all algorithms that serve, those first that the model prefers; what an engine's search times.

    Without those whose kernels compute wrongly on the engine's device, if one is given.
    """
    first = _preferred(job, chip, _MODEL, engine)
    others = _plans(job, chip, _sound(engine, _serving(job)), _MODEL)
    return tuple(dict.fromkeys((*first, *others)))


def _key(job: Job, chip: Chip) -> SearchKey:
    """What a search finds is kept under; another list of algorithms is another search."""
    return SearchKey(chip, job, tuple(algorithm.name for algorithm in _serving(job)))


def _preferred(job: Job, chip: Chip, override: Override, engine: DeviceEngine | None) -> tuple[Plan, ...]:
    """The plans, the best first, of the algorithm that ``use`` names, else of one that is always taken, else of all."""
    for algorithm in _first(job, override):
        if _sound(engine, (algorithm,)):
            found = _plans(job, chip, (algorithm,), override)
            if found:
                return found
    serving = _serving(job)
    # Where all compute wrongly, the launch of the last one says so.
    return _plans(job, chip, _sound(engine, serving) or serving[-1:], override)


def _sound(engine: DeviceEngine | None, algorithms: tuple[Planned, ...]) -> tuple[Planned, ...]:
    """Those whose kernels compute right on an engine's device, where there is one."""
    if engine is None:
        return algorithms
    return tuple(one for one in algorithms if one.file is None or selfcheck.sound(engine, one.file))


@lru_cache(maxsize=4096)
def _serving(job: Job) -> tuple[Planned, ...]:
    """The algorithms that serve a problem, in order of preference."""
    if isinstance(job, Product):
        return tuple(algorithm for algorithm in products.ALGORITHMS if algorithm.serves(job))
    return tuple(_registry.candidates(job))


@lru_cache(maxsize=4096)
def _first(job: Job, override: Override) -> tuple[Planned, ...]:
    """Those among them that ``use`` names, and those that are always taken."""
    serving = _serving(job)
    named = [algorithm for algorithm in serving if algorithm.name == override.algorithm]
    return (*named, *(algorithm for algorithm in serving if algorithm.always))


@lru_cache(maxsize=512)
def _plans(job: Job, chip: Chip, algorithms: tuple[Planned, ...], override: Override) -> tuple[Plan, ...]:
    """The cheapest first, the memory for parts counted in; the first of equals."""
    found: list[Plan] = []
    for algorithm in algorithms:
        found += algorithm.plans(job, chip, override.parts)  # type: ignore[arg-type]  # it serves the job
    return tuple(override.among(sorted(found, key=lambda plan: plan.price)))


def forget() -> None:
    """Drops all choices, as after a change of the list."""
    global _list
    for cached in (_serving, _first, _plans):
        cached.cache_clear()
    _list = next(_changes)


_registry = Registry(ALGORITHMS, forget)
names, named, candidates = _registry.names, _registry.named, _registry.candidates
register, unregister = _registry.register, _registry.unregister

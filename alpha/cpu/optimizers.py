"""The CPU engine's optimizers: one loop, made of the rule's formula, updates a whole list of parameters in place."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from alpha import caches
from alpha.changes import Action, at_once
from alpha.cpu import pointwise, tapes, workers
from alpha.cpu.base import HostEngine
from alpha.cpu.isa import FUSED
from alpha.cpu.loops import machine, updates
from alpha.expressions.program import Program
from alpha.update_rules import UpdateRule
from alpha.updates import Launch, Plan, Refresh, Row, batches, numbers_of_replay, submit


class OptimizerOperations(HostEngine):
    """Fused updates: every parameter is read and written once per step."""

    def optimizer_step(
        self, rows: Sequence[Row], rule: UpdateRule, refresh: Refresh | None = None, plan: Plan | None = None
    ) -> None:
        launches: list[Launch] = []
        program, numbers = rule.traced()
        latest: list[tuple[float, ...]] = []  # numbers of a replay: one is one step, of all dtypes

        def refreshed(pack: Callable[..., bytes], is_first: bool) -> bytes:
            if is_first and refresh is not None:
                latest[:] = [numbers_of_replay(refresh(), program)]
            return pack(*latest[0])

        for batch in batches(self, rule, rows):
            item, dense = batch.dtype.itemsize, batch.dense
            work = _work(program, batch.dtype, tuple([math.prod(row[0].shape) for row in dense]))
            addresses = [tensor.storage.address + tensor.offset * item for row in dense for tensor in row]
            job, pack = work.pack(work.address, *numbers, *addresses), struct.Struct(f"{len(numbers)}d").pack
            is_live = refresh is not None and len(numbers) > 0
            live = tapes.Live(8, partial(refreshed, pack, not launches)) if is_live else None
            launches.append(batch.launch(partial(self._launch, work, job, live)))
        submit(launches, plan)

    def _launch(self, work: Work, job: bytes, live: tapes.Live | None, actions: list[Action]) -> None:
        """Runs a job and has the actions done, in one call of a C function."""
        threads = min(self.threads, work.threads)
        tape = tapes.tape()
        if tape is not None:
            if work.tasks:
                tape.keep(work)
                tape.run(work.loop, job, work.threads, threads, live)
            at_once(actions)
        elif not work.tasks:
            at_once(actions)
        elif threads == 1:
            at_once([(work.loop.alone, job), *actions])
        else:
            at_once([workers.WORKERS.sharing(work.loop.shared, job, threads), *actions])


class Work:
    """What a step of a program needs for parameters of these sizes, beside addresses and numbers.

    Attributes:
        loop: the compiled loop.
        tasks: into how many parts the step is divided, by the sizes alone.
        threads: to how many threads it is worth sharing out.
        pack: makes the record of a job: see ``alpha.cpu.loops.updates``.
        address: of the plan's own record.
    """

    def __init__(self, program: Program, dtype: np.dtype[Any], sizes: tuple[int, ...]) -> None:
        self.loop = _loop(program, 8 * dtype.itemsize)
        length = np.array(sizes, np.int64)
        pieces = -(-length // pointwise.TASK)
        self.tasks = int(pieces.sum())
        self.threads = self.tasks if sum(sizes) >= pointwise.FOUND else 1
        rows = np.repeat(np.arange(len(sizes)), pieces)
        first = (np.arange(self.tasks) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * pointwise.TASK
        tasks = np.stack([rows, first, np.minimum(first + pointwise.TASK, length[rows])], axis=1)
        self._record = np.concatenate([[self.tasks], tasks.ravel()]).astype(np.int64)
        self.address = self._record.ctypes.data
        self.pack = struct.Struct(f"q{program.count_of_numbers}d{program.tensors * len(sizes)}q").pack


@caches.kept
def _work(program: Program, dtype: np.dtype[Any], sizes: tuple[int, ...]) -> Work:
    return Work(program, dtype, sizes)


@caches.kept
def _loop(program: Program, bits: int) -> machine.Loop:
    """The loop of a program, for floats of so many bits."""
    return machine.loop(updates.ir_of(program, bits, FUSED))

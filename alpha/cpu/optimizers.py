"""The CPU engine's optimizers: one launch updates a whole list of parameters in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from alpha import caches
from alpha.changes import Action
from alpha.cpu.base import Array, HostEngine
from alpha.cpu.kernels import optimizers as kernels
from alpha.update_rules import AdamRule, RMSpropRule, SGDRule, UpdateRule
from alpha.updates import Plan, Refresh, Row, batches, submit, with_actions

CHUNK = 16384
"""Elements per task: 64 KiB of each float32 tensor. The split is fixed, whatever the number of threads."""


class OptimizerOperations(HostEngine):
    """Fused updates: every parameter is read and written once per step."""

    def optimizer_step(
        self, rows: Sequence[Row], rule: UpdateRule, refresh: Refresh | None = None, plan: Plan | None = None
    ) -> None:
        fused = _fused(rule)
        if fused is None:
            super().optimizer_step(rows, rule, refresh, plan)
            return
        kernel, numbers, flags = fused
        launches = []
        for batch in batches(self, rule, rows):
            dense = batch.dense
            owners, starts, lengths = _tasks(tuple(row[0].numel() for row in dense))
            # What is absent stays 0 and is never followed: the kernel's flags say so.
            addresses = np.zeros((kernels.ROWS, len(dense)), np.int64)
            for column, row in enumerate(dense):
                addresses[: len(row), column] = [tensor.address for tensor in row]
            arrays = owners, starts, lengths, addresses, np.asarray(numbers, batch.dtype)
            launches.append(batch.launch(partial(self._launch, kernel, (*arrays, *flags))))
        submit(launches, plan)

    def _launch(self, kernel: Callable[..., Any], arguments: tuple[Any, ...], actions: list[Action]) -> None:
        self.launch(with_actions(kernel, actions), *arguments, tasks=len(arguments[0]))


def _fused(rule: UpdateRule) -> tuple[Callable[..., Any], tuple[float, ...], tuple[bool, ...]] | None:
    """A rule's kernel, numbers and flags; None where it has no kernel."""
    # A rule derived from these has a formula of its own.
    if type(rule) is AdamRule:
        return kernels.adam, rule.numbers(), ()
    if type(rule) is SGDRule:
        return kernels.sgd, rule.numbers(), (rule.momentum != 0, rule.nesterov, rule.first)
    if type(rule) is RMSpropRule:
        return kernels.rmsprop, rule.numbers(), (rule.momentum != 0, rule.centered)
    return None


@caches.kept
def _tasks(sizes: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """(tensor, first element, number of elements) of each task."""
    length = np.array(sizes, np.int64)
    pieces = -(-length // CHUNK)
    owner = np.repeat(np.arange(len(sizes)), pieces)
    start = (np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * CHUNK
    return owner, start, np.minimum(CHUNK, length[owner] - start)

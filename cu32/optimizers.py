"""The CUDA engine's optimizers: one launch updates as many tensors as a table in its parameters holds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from alpha.changes import Action, at_once, deferred_interrupts
from alpha.cu32.base import DeviceEngine, c_type, of_reals
from alpha.cu32.compiler import Source
from alpha.tensor import Tensor
from alpha.update_rules import AdamRule, RMSpropRule, SGDRule, UpdateRule
from alpha.updates import Plan, Refresh, Row, batches, submit

SOURCES = of_reals("optimizers")
BLOCK = 256
CHUNK = 2048
"""Elements of one tensor that a block updates; as in the kernels."""
TABLE_BYTES = 3936
"""What a table may take of the 4096 bytes of a kernel's parameters; as in the kernels."""


class OptimizerOperations(DeviceEngine):
    """Fused updates: every parameter is read and written once per step, large and small ones in one grid."""

    def optimizer_step(
        self, rows: Sequence[Row], rule: UpdateRule, refresh: Refresh | None = None, plan: Plan | None = None
    ) -> None:
        kernel = _kernel(rule)
        if kernel is None:
            super().optimizer_step(rows, rule, refresh, plan)
            return
        launches = []
        found = batches(self, rule, rows)
        dtypes = [batch.dtype for batch in found]
        for batch, numbers in zip(found, self._live_numbers(dtypes, rule, refresh), strict=True):
            filled = [row for row in batch.dense if row[0].numel()]
            launches.append(batch.launch(partial(self._launch_noted, kernel, batch.dtype, filled, *numbers)))
        submit(launches, plan)

    def _launch_noted(
        self,
        kernel: str,
        dtype: np.dtype[Any],
        rows: Sequence[Row],
        given: bytes,
        live: Tensor | None,
        actions: list[Action],
    ) -> None:
        """Launches and has the actions done; Ctrl-C waits meanwhile."""
        if rows:
            self.device.kernel(Source("optimizers", REAL=c_type(dtype)), kernel)  # compiled where Ctrl-C is heard
        with deferred_interrupts():
            self._launch_table(kernel, dtype, rows, given, live)
            at_once(actions)

    def _live_numbers(
        self, dtypes: Sequence[np.dtype[Any]], rule: UpdateRule, refresh: Refresh | None
    ) -> list[tuple[bytes, Tensor | None]]:
        """For each dtype the rule's numbers, and while a graph is captured the memory that its replays rewrite."""
        given = [_packed(rule, dtype) for dtype in dtypes]
        if self.capture is None or refresh is None:
            return [(numbers, None) for numbers in given]
        latest: list[UpdateRule] = []

        def refreshed(first: bool, dtype: np.dtype[Any]) -> bytes:
            if first:  # one replay is one step, of all dtypes
                latest[:] = [refresh()]
            return _packed(latest[0], dtype)

        refreshes = [partial(refreshed, index == 0, dtype) for index, dtype in enumerate(dtypes)]
        return [(numbers, self.capture.live(numbers, one)) for numbers, one in zip(given, refreshes, strict=True)]

    def _launch_table(
        self, kernel: str, dtype: np.dtype[Any], rows: Sequence[Row], given: bytes, live: Tensor | None
    ) -> None:
        source = Source("optimizers", REAL=c_type(dtype))
        most = _most(len(rows[0])) if rows else 1
        for start in range(0, len(rows), most):
            part = rows[start : start + most]
            if self.capture is not None:
                self.capture.keep(*(tensor for row in part for tensor in row))
            sizes, firsts, blocks = _chunks(tuple(row[0].numel() for row in part), len(part[0]))
            table = np.zeros((len(part[0]), most), np.int64)
            table[:, : len(part)] = np.array([[tensor.address for tensor in row] for row in part], np.int64).T
            self.launch(source, kernel, blocks, BLOCK, table.tobytes() + sizes + firsts, given, live)


def _kernel(rule: UpdateRule) -> str | None:
    """The kernel for a rule, if there is one."""
    # A rule derived from these has a formula of its own.
    if type(rule) is AdamRule:
        return "adam"
    if type(rule) is SGDRule:
        return "sgd_momentum" if rule.states else "sgd"
    if type(rule) is RMSpropRule:
        return "rmsprop" + "_centered" * rule.centered + "_momentum" * (rule.momentum != 0)
    return None


def _packed(rule: Any, dtype: np.dtype[Any]) -> bytes:
    """The struct with a rule's numbers that its kernel takes."""
    numbers = rule.numbers()
    if type(rule) is SGDRule:
        numbers = (*numbers, rule.first, rule.nesterov)
    return np.array(numbers, dtype).tobytes()


def _most(rows: int) -> int:
    """Tensors that a table with so many addresses each has room for."""
    return TABLE_BYTES // (8 * rows + 12)


@lru_cache(maxsize=256)
def _chunks(sizes: tuple[int, ...], rows: int) -> tuple[bytes, bytes, int]:
    """A table's sizes, the first block of each tensor with the number of tensors behind, and the blocks in all."""
    most = _most(rows)
    last_chunks = np.cumsum([-(-size // CHUNK) for size in sizes])
    padded = np.zeros(most, np.int64)
    padded[: len(sizes)] = sizes
    firsts = np.zeros((most + 2) // 2 * 2, np.uint32)  # an even number of words: the struct is aligned to 8
    firsts[1 : len(sizes)] = last_chunks[:-1]
    firsts[most] = len(sizes)
    return padded.tobytes(), firsts.tobytes(), int(last_chunks[-1])

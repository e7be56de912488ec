"""The CUDA engine's optimizers: one launch updates as many tensors as a table in its parameters holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from alpha import updates
from alpha.changes import Action, at_once, deferred_interrupts
from alpha.cu32.base import DeviceEngine, c_type
from alpha.cu32.compiler import Source
from alpha.tensor import Tensor

SOURCES = (Source("optimizers", REAL="float"), Source("optimizers", REAL="double"))
BLOCK = 256
CHUNK = 2048
"""Elements of one tensor that a block updates; as in the kernels."""
TABLE_BYTES = 3936
"""What a table may take of the 4096 bytes of a kernel's parameters; as in the kernels."""

Scalars = Callable[..., tuple[float, ...]]


class OptimizerOperations(DeviceEngine):
    """Fused updates: every parameter is read and written once a step, large and small ones in one grid."""

    def adam_step(
        self,
        parameters: Sequence[Tensor],
        gradients: Sequence[Tensor],
        first: Sequence[Tensor],
        second: Sequence[Tensor],
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        decoupled: bool,
        step: int,
        refresh: updates.Refresh | None = None,
        plan: updates.Plan | None = None,
    ) -> None:
        def scalars(**numbers: Any) -> tuple[float, ...]:
            return updates.adam_scalars(decoupled=decoupled, **numbers)

        numbers = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "step": step}
        again = None if refresh is None else lambda: scalars(**refresh())
        lists = (parameters, gradients, first, second)
        self._update_tensors("adam_step", "adam", lists, scalars(**numbers), again, plan)

    def sgd_step(
        self,
        parameters: Sequence[Tensor],
        gradients: Sequence[Tensor],
        momenta: Sequence[Tensor] | None,
        lr: float,
        momentum: float,
        dampening: float,
        nesterov: bool,
        weight_decay: float,
        first: bool,
        refresh: updates.Refresh | None = None,
        plan: updates.Plan | None = None,
    ) -> None:
        def scalars(first: bool, **numbers: float) -> tuple[float, ...]:
            return *updates.sgd_scalars(**numbers), float(first), float(nesterov)

        numbers = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
        again = None if refresh is None else lambda: scalars(False, **refresh())
        kernel = "sgd" if momenta is None else "sgd_momentum"
        lists = (parameters, gradients, momenta)
        self._update_tensors("sgd_step", kernel, lists, scalars(first, **numbers), again, plan)

    def rmsprop_step(
        self,
        parameters: Sequence[Tensor],
        gradients: Sequence[Tensor],
        squares: Sequence[Tensor],
        momenta: Sequence[Tensor] | None,
        means: Sequence[Tensor] | None,
        lr: float,
        alpha: float,
        eps: float,
        weight_decay: float,
        momentum: float,
        refresh: updates.Refresh | None = None,
        plan: updates.Plan | None = None,
    ) -> None:
        scalars = updates.rmsprop_scalars(lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum)
        again = None if refresh is None else lambda: updates.rmsprop_scalars(**refresh())
        kernel = "rmsprop" + "_centered" * (means is not None) + "_momentum" * (momenta is not None)
        lists = (parameters, gradients, squares, momenta, means)
        self._update_tensors("rmsprop_step", kernel, lists, scalars, again, plan)

    def _update_tensors(
        self,
        function: str,
        kernel: str,
        lists: tuple[Sequence[Tensor] | None, ...],
        scalars: tuple[float, ...],
        again: Callable[[], tuple[float, ...]] | None,
        plan: updates.Plan | None,
    ) -> None:
        """Checks every tensor, then adds a launch of the kernel for each dtype; makes a plan of its own if none is
        given. ``again`` gives a replay's scalars."""
        own = plan or updates.Plan()
        rows = updates.rows(self, function, *lists)
        dtypes = list(dict.fromkeys(row[0].dtype for row in rows))
        for dtype, numbers in zip(dtypes, self._live_scalars(dtypes, scalars, again), strict=True):
            chosen = [row for row in rows if row[0].dtype == dtype]
            dense = [updates.aligned(self, row) for row in chosen]
            filled = [row for row in dense if row[0].numel()]
            tensors, back = updates.written(chosen, dense)
            run = partial(self._launch_noted, kernel, dtype, filled, *numbers)
            own.launches.append(updates.Launch(run, tensors, back, dense))
        if plan is None:
            own.make()

    def _launch_noted(
        self,
        kernel: str,
        dtype: np.dtype[Any],
        rows: Sequence[updates.Row],
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

    def _live_scalars(
        self,
        dtypes: Sequence[np.dtype[Any]],
        scalars: tuple[float, ...],
        again: Callable[[], tuple[float, ...]] | None,
    ) -> list[tuple[bytes, Tensor | None]]:
        """For each dtype the scalars by value, and while a graph is captured in memory that its replays rewrite."""
        given = [np.array(scalars, dtype).tobytes() for dtype in dtypes]
        if self.capture is None or again is None:
            return [(numbers, None) for numbers in given]
        latest: list[float] = []

        def refreshed(first: bool, dtype: np.dtype[Any]) -> bytes:
            if first:  # one replay is one step, of all dtypes
                latest[:] = again()
            return np.array(latest, dtype).tobytes()

        refreshes = [partial(refreshed, index == 0, dtype) for index, dtype in enumerate(dtypes)]
        return [(numbers, self.capture.live(numbers, one)) for numbers, one in zip(given, refreshes, strict=True)]

    def _launch_table(
        self, kernel: str, dtype: np.dtype[Any], rows: Sequence[updates.Row], given: bytes, live: Tensor | None
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


def _most(rows: int) -> int:
    """Tensors that a table with so many addresses each has room for."""
    return TABLE_BYTES // (8 * rows + 12)


@lru_cache(maxsize=256)
def _chunks(sizes: tuple[int, ...], rows: int) -> tuple[bytes, bytes, int]:
    """A table's sizes, the first block of each tensor with the number of tensors behind, and the blocks in all."""
    most = _most(rows)
    ends = np.cumsum([-(-size // CHUNK) for size in sizes])
    padded = np.zeros(most, np.int64)
    padded[: len(sizes)] = sizes
    firsts = np.zeros((most + 2) // 2 * 2, np.uint32)  # an even number of words: the struct is aligned to 8
    firsts[1 : len(sizes)] = ends[:-1]
    firsts[most] = len(sizes)
    return padded.tobytes(), firsts.tobytes(), int(ends[-1])

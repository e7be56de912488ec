"""The CUDA engine's optimizers: kernels made of rules' formulas, which update many tensors in one launch.

A launch updates as many tensors as a table in its parameters holds, large and small ones in one grid
(``kernels/optimizers.cuh``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from alpha.arguments import Shape
from alpha.changes import Action, at_once, deferred_interrupts
from alpha.cu32 import expressions
from alpha.cu32.base import DeviceEngine, c_type
from alpha.cu32.compiler import Source
from alpha.expressions.program import Program
from alpha.tensor import Tensor
from alpha.update_rules import UpdateRule
from alpha.updates import Plan, Refresh, Row, batches, numbers_of_replay, submit

BLOCK = 256
CHUNK = 2048
"""Elements of one tensor that a block updates; as in the kernels."""
PARAMETER_BYTES = 4096
"""What a kernel's parameters may take."""
LEAST_TENSORS = 8
"""Tensors of a table from which a kernel is worth it: rules of very many states and numbers have none."""


class OptimizerOperations(DeviceEngine):
    """Fused updates: every parameter is read and written once per step."""

    def optimizer_step(
        self, rows: Sequence[Row], rule: UpdateRule, refresh: Refresh | None = None, plan: Plan | None = None
    ) -> None:
        program, numbers = rule.traced()
        if most_tensors(program) < LEAST_TENSORS:
            super().optimizer_step(rows, rule, refresh, plan)
            return
        launches = []
        found = batches(self, rule, rows)
        dtypes = [batch.dtype for batch in found]
        for batch, given in zip(found, self._live_numbers(dtypes, program, numbers, refresh), strict=True):
            kernel = kernel_of(program, type(rule).__name__, c_type(batch.dtype))
            filled = [row for row in batch.dense if 0 not in row[0].shape]
            launches.append(batch.launch(partial(self._launch_noted, kernel, filled, *given)))
        submit(launches, plan)

    def _launch_noted(
        self, kernel: Kernel, rows: Sequence[Row], given: bytes, live: Tensor | None, actions: list[Action]
    ) -> None:
        """Launches and has the actions done; Ctrl-C waits meanwhile."""
        if rows:
            self.device.kernel(kernel.source, kernel.name)  # compiled where Ctrl-C is heard
        with deferred_interrupts():
            self._launch_table(kernel, rows, given, live)
            at_once(actions)

    def _live_numbers(
        self,
        dtypes: Sequence[np.dtype[Any]],
        program: Program,
        numbers: tuple[float, ...],
        refresh: Refresh | None,
    ) -> list[tuple[bytes, Tensor | None]]:
        """For each dtype the rule's numbers, and while a graph is captured the memory that its replays rewrite."""
        given = [_packed(numbers, dtype) for dtype in dtypes]
        if self.capture is None or refresh is None:
            return [(packed, None) for packed in given]
        latest: list[tuple[float, ...]] = []

        def refreshed(first: bool, dtype: np.dtype[Any]) -> bytes:
            if first:  # one replay is one step, of all dtypes
                latest[:] = [numbers_of_replay(refresh(), program)]
            return _packed(latest[0], dtype)

        refreshes = [partial(refreshed, index == 0, dtype) for index, dtype in enumerate(dtypes)]
        return [(packed, self.capture.live(packed, one)) for packed, one in zip(given, refreshes, strict=True)]

    def _launch_table(self, kernel: Kernel, rows: Sequence[Row], given: bytes, live: Tensor | None) -> None:
        most = kernel.most
        for start in range(0, len(rows), most):
            part = rows[start : start + most]
            if self.capture is not None:
                self.capture.keep(*(tensor for row in part for tensor in row))
            sizes, firsts, blocks = _chunks(tuple([row[0].shape for row in part]), most)
            columns = [[tensor.address for tensor in column] for column in zip(*part, strict=True)]
            table = b"".join([np.array(column, np.int64).tobytes().ljust(8 * most, b"\0") for column in columns])
            self.launch(kernel.source, kernel.name, blocks, BLOCK, table + sizes + firsts, given, live)


def _packed(numbers: tuple[float, ...], dtype: np.dtype[Any]) -> bytes:
    """The struct Numbers of a kernel."""
    return np.array(numbers or (0.0,), dtype).tobytes()


@lru_cache(maxsize=256)
def _chunks(shapes: tuple[Shape, ...], most: int) -> tuple[bytes, bytes, int]:
    """A table's sizes, the first block of each tensor with the number of tensors behind, and the blocks in all."""
    sizes = [math.prod(shape) for shape in shapes]
    last_chunks = np.cumsum([-(-size // CHUNK) for size in sizes])
    padded = np.zeros(most, np.int64)
    padded[: len(sizes)] = sizes
    firsts = np.zeros((most + 2) // 2 * 2, np.uint32)  # an even number of words: the struct is aligned to 8
    firsts[1 : len(sizes)] = last_chunks[:-1]
    firsts[most] = len(sizes)
    return padded.tobytes(), firsts.tobytes(), int(last_chunks[-1])


# -- a kernel --------------------------------------------------------------------------------------------------------


def most_tensors(program: Program) -> int:
    """Tensors that a table has room for beside the numbers, given and live, among a kernel's parameters."""
    given = 8 * max(1, program.count_of_numbers)
    pointer, count, padding = 8, 4, 4
    return max(0, (PARAMETER_BYTES - given - pointer - count - padding) // (8 * program.tensors + 12))


class Kernel(NamedTuple):
    """A rule's kernel for one float.

    Attributes:
        source, name: what is launched.
        most: tensors of a launch.
    """

    source: Source
    name: str
    most: int


@lru_cache(maxsize=256)
def kernel_of(program: Program, rule: str, real: str) -> Kernel:
    """The kernel of a rule's program, known by the rule's name and a digest of the program.

    Its arguments are a table, the numbers, and where those lie that count instead, if there are such.
    """
    name, most = f"{re.sub('[^0-9A-Za-z_]', '_', rule)}_{expressions.digest(program)}", most_tensors(program)
    body, _ = expressions.statements(program, real)
    rows = program.tensors
    numbers = [f"n{k}" for k in range(program.count_of_numbers)]
    lines = [f"const T x{k} = row[{k}];" for k in range(rows)]
    lines += [f"const T {n} = numbers.{n};" for n in numbers]
    lines += [f"T& r{k} = row[{place}];" for k, place in enumerate((0, *range(2, rows)))]
    text = _KERNEL.format(
        headers=expressions.headers(body),
        rows=rows,
        most=most,
        fields=", ".join(numbers or ["none"]),
        body=expressions.indented(8, [*lines, *body]),
        name=name,
    )
    return Kernel(Source("optimizers", text=text, REAL=real), name, most)


_KERNEL = """\
// An optimizer's step, written by cu32/optimizers.py. REAL: the float that it computes in.
#include "optimizers.cuh"
{headers}
typedef REAL T;

constexpr int ROWS = {rows}, MOST = {most};

struct alignas(8) Numbers {{
    T {fields};
}};

// A row's values of one element: the gradient's stays, the others become the new ones.
struct Step {{
    Numbers numbers;

    __device__ __forceinline__ void operator()(T (&row)[ROWS]) const {{
{body}
    }}
}};

// The numbers come by value, or from memory that a captured graph rewrites before each replay.
extern "C" __global__ void __launch_bounds__(BLOCK)
{name}(const __grid_constant__ Table<T, ROWS, MOST> table, Numbers given, const Numbers* live) {{
    update(table, Step{{live ? *live : given}});
}}
"""

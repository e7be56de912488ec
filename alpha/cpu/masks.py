"""The CPU engine's indexing by a mask: numbers that it selects, taken, overwritten, or added to."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from alpha.cpu import tapes
from alpha.cpu.base import Array
from alpha.cpu.jobs import JobKernel
from alpha.cpu.kernels import masks as kernels
from alpha.cpu.launches import call_of, constant, learn, of_tensor
from alpha.cpu.lookups import LookupOperations
from alpha.dtypes import bool_, is_bool, is_float
from alpha.engine import Index, Operand
from alpha.launches import PUT_SELECTED
from alpha.tensor import Tensor

BLOCK = 1 << 15
"""Numbers per task, about."""

SIZES = (4, 8)
"""Bytes of the numbers that the kernels know."""


class MaskOperations(LookupOperations):
    """Masks over the first axes, or all, of dense tensors of numbers of 4 or 8 bytes."""

    def take_selected(self, x: Tensor, index: Index) -> Tensor | None:
        """``x[mask]``, if that is what the index means and a kernel serves."""
        mask = _mask_of(x, index)
        if mask is None or not x.is_contiguous():
            return None
        mask = self._mask_copy(mask)
        block, starts = self._blocks(x, mask)
        rest = x.shape[mask.ndim :]
        out = self.empty((int(starts[-1]), *rest), x.dtype)
        self._select(kernels.take, x, mask, (out.address, block, starts))
        return out

    def put_selected(self, out: Tensor, index: Index, values: Operand, accumulate: bool) -> bool:
        """``out[mask] = values``, or ``+=``, if that is what the index means and a kernel serves; whether it did."""
        mask = _mask_of(out, index)
        if mask is None:
            return False
        single = not isinstance(values, Tensor) or values.numel() == 1
        if single and not accumulate:
            return self._fill_selected(out, mask, values)
        if not isinstance(values, Tensor) or values.dtype != out.dtype or not out.is_contiguous():
            return False
        if accumulate and not is_float(out.dtype):
            return False
        mask = self._mask_copy(mask)
        block, starts = self._blocks(out, mask)
        if values.shape != (int(starts[-1]), *out.shape[mask.ndim :]):
            return False
        values = self.dense(values, range(values.ndim))
        self._select(kernels.add if accumulate else kernels.put, out, mask, (values.address, block, starts))
        return True

    def _fill_selected(self, out: Tensor, mask: Tensor, value: Operand) -> bool:
        """Writes one number wherever the mask holds, if both lie in the same order without gaps."""
        if isinstance(value, Tensor):
            if value.dtype != out.dtype:
                return False
            if PUT_SELECTED.launch(out, mask, value) is not None:
                return True
            address, kept = value.address, None
        else:
            with np.errstate(all="ignore"):
                kept = np.asarray(value).astype(out.dtype)
            address = kept.ctypes.data
        alike = mask.ndim == out.ndim and mask.strides == out.strides and out.is_contiguous(out.memory_order())
        if not alike and not (mask.is_contiguous() and out.is_contiguous()):
            return False
        numbers = math.prod(out.shape[mask.ndim :])
        block = max(1, BLOCK // numbers)
        nothing = np.zeros(1, np.int64)
        tapes.kept(kept, nothing)
        self._select(kernels.fill, out, mask, (address, block, nothing))
        tasks = -(-mask.numel() // block)
        if isinstance(value, Tensor) and value.storage is not out.storage:
            kernel = kernels.fill[out.dtype.itemsize]
            words = kernels.Selection(0, 0, 0, 0, mask.numel(), block, numbers, tasks)
            job = (of_tensor(1), of_tensor(0), of_tensor(2), *[constant(word) for word in words[3:]])
            learn(
                PUT_SELECTED, self, lambda: call_of(kernel, job, (), out.numel(), tasks, None),
                out, mask, value,
            )  # fmt: skip
        return True

    def _mask_copy(self, mask: Tensor) -> Tensor:
        """A dense copy of the mask: it is read twice, and may change in between."""
        copied = self.empty(mask.shape, bool_)
        self.copy(mask, copied)
        return copied

    def _blocks(self, x: Tensor, mask: Tensor) -> tuple[int, Array]:
        """Elements of the mask per task, and how many rows are selected before each task, and in all."""
        flat = self.array(mask).reshape(-1)
        block = max(1, BLOCK // max(1, math.prod(x.shape[mask.ndim :])))
        if self.threads == 1 or flat.size <= block:
            return max(1, flat.size), np.array([0, np.count_nonzero(flat)])
        counts = [int(np.count_nonzero(flat[first : first + block])) for first in range(0, flat.size, block)]
        return block, np.cumsum([0, *counts])

    def _select(self, kernel: dict[int, JobKernel], x: Tensor, mask: Tensor, taken: tuple[int, int, Array]) -> None:
        """``taken``: the address of what is taken or put, elements per task, and what is selected before each."""
        address, block, starts = taken
        if not x.numel():
            return
        tasks = -(-mask.numel() // block)
        numbers = math.prod(x.shape[mask.ndim :])
        words = kernels.Selection(
            mask.address, x.address, address, starts.ctypes.data, mask.numel(), block, numbers, tasks
        )
        kernel[x.dtype.itemsize].run(_JOB(*words), tasks, self.threads)


_JOB = struct.Struct(f"{len(kernels.WORD)}q").pack


def _mask_of(x: Tensor, index: Index) -> Tensor | None:
    """The mask over x's first axes, if the index is one and otherwise whole axes; of numbers that kernels know."""
    mask: Any = index[0] if index else None
    if not isinstance(mask, Tensor) or not is_bool(mask.dtype) or x.dtype.itemsize not in SIZES:
        return None
    whole = all(isinstance(entry, slice) and entry == slice(None) for entry in index[1:])
    return mask if whole and mask.ndim and 0 not in x.shape else None

"""Checks of indices that do not make the host wait: kernels note what is wrong, the next wait raises it."""

from __future__ import annotations

import numpy as np

from alpha.composed import arrays
from alpha.cu32.base import DeviceEngine
from alpha.cu32.compiler import Source
from alpha.dtypes import int64
from alpha.engine import RangeCheck
from alpha.errors import IndexingError
from alpha.tensor import Tensor

SOURCES = (Source("checks"),)

FLAGS = 512
"""Different errors that can be told apart between two waits; what goes beyond shares the last flag and its message."""

_CLEAR = 0xFFFFFFFFFFFFFFFF
_SHARED = RangeCheck(IndexingError, "[index] expected indices and labels in range, got {value} at position {position}")


class CheckOperations(DeviceEngine):
    """Every error that a check may raise has a flag on the device, the same in each step."""

    _flags: Tensor | None = None
    _flag_of: dict[RangeCheck, int]
    _lasting: set[RangeCheck]  # those whose flags captured graphs write to
    _unread = False  # whether a kernel that may set a flag was launched since they were read

    def check_range(self, index: Tensor, low: int, high: int, check: RangeCheck, ignore: int | None = None) -> Tensor:
        count = index.numel()
        if count and high <= 0:
            raise check.error("an index", 0)  # into nothing: any is wrong
        out = self.empty(index.shape, int64)
        if count:
            source = self.dense(index, tuple(range(index.ndim)))
            flag = self.flag(check)
            grid = self.blocks(count, 256)
            bounds = (count, low, high, ignore or 0, ignore is not None)
            self.launch(SOURCES[0], "check_range", grid, 256, source, out, *bounds, flag)
        return out

    def check_none(self, count: Tensor, check: RangeCheck) -> None:
        arrays.check_none_later(self, count, check)

    def flag(self, check: RangeCheck) -> Tensor | None:
        """The flag of an error, as a tensor of one element; None where nothing is checked."""
        if not self.checking:
            return None
        if self._flags is None:
            self._flag_of, self._lasting = {}, set()
            self._flags = self.empty((FLAGS,), int64)
            self.fill(self._flags, -1)
        number = self._flag_of.get(check)
        if number is None:
            taken = set(self._flag_of.values())
            free = (number for number in range(FLAGS - 1) if number not in taken)
            number = self._flag_of[check] = next(free, FLAGS - 1)
        if self.capture is not None:
            self._lasting.add(check)
        self._unread = True
        return self._flags.strided(number, (1,), (1,))

    def graph_launched(self) -> None:
        """Called when captured work was launched, which may hold checks."""
        self._unread = self._flags is not None
        if self.synchronous:
            self.synchronize()

    def raise_failed_checks(self) -> None:
        """Raises the error of a check that failed, the host having waited for the device."""
        if not self._unread or self._flags is None:
            return
        self._unread = False
        flags = np.empty(FLAGS, np.uint64)
        self.device.download(flags, self._flags.address)
        wrong = np.flatnonzero(flags != _CLEAR)
        if not len(wrong):
            self._forget()
            return
        self.fill(self._flags, -1)
        number = int(wrong[0])
        errors = [check for check, flag in self._flag_of.items() if flag == number]
        check = errors[0] if len(errors) == 1 else _SHARED
        self._forget()
        word = int(flags[number])
        raise check.error(_limited(word & 0xFFFFFFFF), word >> 32)

    def _forget(self) -> None:
        """Makes room for other errors: only flags in captured graphs must stay whose they are."""
        if len(self._flag_of) <= FLAGS // 2:
            return
        self._flag_of = {check: number for check, number in self._flag_of.items() if check in self._lasting}


def _limited(bits: int) -> str:
    """The value in a flag: exact within 32 bits, at their ends one beyond."""
    value = bits - (1 << 32) if bits >> 31 else bits
    if value == 2**31 - 1:
        return f"{value} or more"
    return f"{value} or less" if value == -(2**31) else str(value)

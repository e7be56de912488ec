"""What runs the tasks of a loop made of LLVM IR, and the plan's record that it reads."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from alpha.cpu import tapes, workers
from alpha.cpu.launches import Word, constant, of_number, of_result, of_tensor
from alpha.cpu.loops.machine import Loop
from alpha.tensor import Tensor


class Record:
    """A plan as loops read it: 8-byte fields, integers and floats, that stay where they are.

    Attributes:
        address: where that is.
        tasks: how many tasks there are: the first field.
    """

    def __init__(self, fields: Sequence[int | float]) -> None:
        packed = struct.pack("".join("d" if isinstance(field, float) else "q" for field in fields), *fields)
        self._kept = np.frombuffer(packed, np.uint8)
        self.address: int = self._kept.ctypes.data
        self.tasks = int(fields[0])


def address_of(x: Tensor | None) -> int:
    """The address of a tensor's first element; 0 where there is none."""
    return 0 if x is None else x.address


def words(record: Record, results: int, tensors: int, *numbers: int) -> tuple[Word, ...]:
    """The job of a loop as a launch makes it: plan, results, tensors, and numbers by their places."""
    others = [*[of_result(k) for k in range(results)], *[of_tensor(k) for k in range(tensors)]]
    return (constant(record.address), *others, *[of_number(place) for place in numbers])


def run(loop: Loop, job: bytes, tasks: int, threads: int, live: tapes.Live | None = None) -> None:
    """Runs a job of so many tasks on up to so many threads.

    ``live``: the part of the job that is new where a captured step is replayed.
    """
    tape = tapes.tape()
    if tape is not None:
        tape.run(loop, job, tasks, threads, live)
    elif tasks <= 1 or threads == 1:
        loop.alone(job)
    else:
        workers.WORKERS.share(loop.shared, job, min(threads, tasks))

"""Parts: how work is cut into the tasks that threads share, by its size alone.

On a core of Zen 4 it costs 0.3 us to share a job with a worker that looks for one, and 0.1 us to draw a task: a loop's
task, ``alpha.cpu.pointwise.TASK``, takes a microsecond at least.
"""

from __future__ import annotations


def equal_parts(length: int, most: int, unit: int = 1) -> int:
    """The length of equal parts, no longer than ``most``; several are whole units, but for the last one's end.

    There are two, four, eight parts and so on, so that two or four threads end together. Parts of whole units may be
    fewer, and a unit longer than ``most``.
    """
    count = -(-length // max(1, most))
    if count <= 1:
        return max(1, length)
    count = 1 << (count - 1).bit_length()
    return -(-length // (count * unit)) * unit

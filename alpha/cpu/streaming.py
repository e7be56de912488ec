"""When results are written past the caches, which would not keep them."""

from __future__ import annotations

STREAMED_BYTES = 50 << 20
"""Bytes written from which they go past the caches.

Measured on cores of Zen 4 with 32 MB of L3 cache each: on one thread either way takes as long at 40 MB where nothing is
read, at 12 MB for a copy, at 7 MB for a sum of two tensors; on two at 64, 22 and 10 MB. The limit lies between.
"""

READ_BYTES = 2.35
"""For how many bytes written a byte counts that is read: so the three agree."""


def streams(written: int, read: int = 0) -> bool:
    """Whether so many bytes of results go past the caches, where so many different bytes are read for them."""
    return written + READ_BYTES * read >= STREAMED_BYTES

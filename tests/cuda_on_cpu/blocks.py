"""Tells the test driver which parts of its memory the engine's pool has handed out, so that it can watch their ends."""

from __future__ import annotations

import os
from ctypes import CDLL

from alpha.mempool import SLACK, Block, MemoryPool


class Watch:
    """Watches every block that a pool hands out from now on.

    A block is poisoned when it is taken and when it is given back, so that a result that depends on memory nobody wrote
    is NaN; what lies behind its bytes must not be written to.
    """

    def __init__(self, pool: MemoryPool, library: CDLL) -> None:
        self._library = library
        self._take, self._give = pool.take, pool.give
        self._failures: list[str] = []
        # With deferred streams a block's last reader may still wait in its stream when the next owner gets it.
        if os.environ.get("ALPHA_EMULATOR_STREAMS") != "deferred":
            setattr(pool, "take", self.take)  # noqa: B010
            setattr(pool, "give", self.give)  # noqa: B010

    def take(self, nbytes: int) -> Block:
        block = self._take(nbytes)
        self._library.alpha_test_block_taken(block.address, nbytes, max(block.nbytes, nbytes + SLACK))
        return block

    def give(self, block: Block) -> None:
        if not self._library.alpha_test_block_returned(block.address):
            self._failures.append(self._library.alpha_test_last_error().decode())
        self._give(block)

    def failures(self) -> list[str]:
        """What was written where nothing may be written, since the last call."""
        found, self._failures = self._failures, []
        if not self._library.alpha_test_memory_intact():
            found.append(self._library.alpha_test_last_error().decode())
        return found

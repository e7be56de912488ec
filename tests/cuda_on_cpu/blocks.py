"""Tells the test driver which parts of its memory the engine's pool has handed out, so that it can watch their ends."""

from __future__ import annotations

import os
from ctypes import CDLL

from alpha.mempool import SLACK, Block, Loan, MemoryPool


class Watch:
    """Watches every block that a pool hands out from now on.

    A block is poisoned when it is taken and when it is given back, so that a result that depends on memory nobody wrote
    is NaN; what lies behind its bytes must not be written to.
    """

    def __init__(self, pool: MemoryPool, library: CDLL) -> None:
        self._pool, self._library = pool, library
        self._lend, self._put_back = pool.lend, pool._put_back
        self._failures: list[str] = []
        # With deferred streams a block's last reader may still wait in its stream when the next owner gets it.
        if os.environ.get("ALPHA_EMULATOR_STREAMS") != "deferred":
            setattr(pool, "lend", self.lend)  # noqa: B010
            setattr(pool, "_put_back", self.put_back)  # noqa: B010

    def lend(self, nbytes: int) -> tuple[Block, Loan]:
        self._pool.statistics()  # sorts in what was returned: the pool's shorter way passes put_back by
        block, loan = self._lend(nbytes)
        self._library.alpha_test_block_taken(block.address, nbytes, max(block.nbytes, nbytes + SLACK))
        return block, loan

    def put_back(self, block: Block) -> None:
        if not self._library.alpha_test_block_returned(block.address):
            self._failures.append(self._library.alpha_test_last_error().decode())
        self._put_back(block)

    def failures(self) -> list[str]:
        """What was written where nothing may be written, since the last call."""
        self._pool.statistics()
        found, self._failures = self._failures, []
        if not self._library.alpha_test_memory_intact():
            found.append(self._library.alpha_test_last_error().decode())
        return found

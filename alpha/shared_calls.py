"""SharedCall: a call that succeeds on all ranks of a distributed program or on none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from alpha.distributed.world import find
from alpha.errors import CheckpointError, DistributedError


class SharedCall:
    """``with SharedCall("save_checkpoint") as ranks:`` what fails in the block on one rank fails on all.

    All ranks enter it. At its end, or where the block calls ``reach``, they wait for each other. Those where all went
    well raise CheckpointError with the message of the first rank where it did not, an interrupted one included. Without
    ``dist.init()``, on one rank and in a forked child nobody is waited for.

    Attributes:
        writes: whether this rank writes the files of all.
    """

    def __init__(self, function: str) -> None:
        world = find()
        self._function = function
        self._world = world if world is not None and world.size > 1 else None
        self._reached = self._operating = False
        self.writes = self._world is None or self._world.rank == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Where an operation of all ranks was left unfinished, the next one would wait for as long as any may take.
        unfinished = isinstance(error, DistributedError) or (self._operating and not isinstance(error, Exception))
        if not self._reached and not unfinished:
            self.reach(error)

    @contextmanager
    def operations(self) -> Iterator[None]:
        """``with ranks.operations():`` there may be operations of all ranks in the block, which interrupts leave."""
        self._operating = True
        yield
        self._operating = False

    def reach(self, error: BaseException | None = None) -> None:
        """Waits for all ranks; CheckpointError where another one failed and this one, without an error, did not."""
        self._reached = True
        world = self._world
        if world is None:
            return
        failed = world.table([error is not None], "save")[:, 0].nonzero()[0]
        if not len(failed):
            return
        first = int(failed[0])
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        message = world.shared(text if world.rank == first else None, first, "save")
        if error is None:
            raise CheckpointError(
                f"[{self._function}] expected all ranks to succeed, got this on rank {first}: {message}"
            )

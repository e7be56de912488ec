"""Ranks on devices of their own, with NCCL played by this program: run by test_nccl.py, in a process of its own."""

from __future__ import annotations

import ctypes
import json
import queue
import sys
import threading
import types
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.cuda_on_cpu import preload

SENT: list[int] = []
"""Bytes of each message."""


class UniqueId:
    """What ranks share to find each other."""

    def __init__(self, value: bytes) -> None:
        self.value = value

    def __bytes__(self) -> bytes:
        return self.value

    from_bytes = classmethod(lambda cls, value: cls(value))


class Communicator:
    """Messages through queues. As with NCCL, a group begins all of its messages at once."""

    queues: defaultdict[tuple[bytes, int, int], queue.Queue[bytes]] = defaultdict(queue.Queue)
    groups = threading.local()

    def __init__(self, ranks: int, rank: int, unique: UniqueId) -> None:
        self.ranks, self.rank, self.unique = ranks, rank, bytes(unique)

    init = classmethod(lambda cls, ranks, rank, unique: cls(ranks, rank, unique))

    def send(self, memory: Any, peer: int, *, stream: int) -> None:
        """Notes a message to send."""
        self._begin(0, memory, peer, stream)

    def recv(self, memory: Any, peer: int, *, stream: int) -> None:
        """Notes a message to receive."""
        self._begin(1, memory, peer, stream)

    def _begin(self, kind: int, memory: Any, peer: int, stream: int) -> None:
        assert stream, "the default stream"
        self.groups.waiting.append((kind, self, memory.__cuda_array_interface__, peer))

    def run(self, kind: int, memory: dict[str, Any], peer: int) -> None:
        """Sends or receives. A device's memory is the host's here, and work is done when it is submitted."""
        address, (nbytes,) = memory["data"][0], memory["shape"]
        if kind == 0:
            SENT.append(nbytes)
            self.queues[self.unique, self.rank, peer].put(ctypes.string_at(address, nbytes))
        else:
            data = self.queues[self.unique, peer, self.rank].get(timeout=60)
            assert len(data) == nbytes
            ctypes.memmove(address, data, nbytes)

    def destroy(self) -> None:
        """Has nothing to give back."""


@contextmanager
def group() -> Iterator[None]:
    """All messages of the block, those to send first."""
    Communicator.groups.waiting = []
    yield
    for kind, communicator, memory, peer in sorted(Communicator.groups.waiting, key=lambda one: one[0]):
        communicator.run(kind, memory, peer)


def play_nccl() -> None:
    """Puts this module in the place of NCCL's package."""
    core = types.ModuleType("nccl.core")
    core.__dict__.update(
        UniqueId=UniqueId, Communicator=Communicator, group=group, get_unique_id=lambda: UniqueId(b"u" * 128)
    )
    package = types.ModuleType("nccl")
    package.__dict__["core"] = core
    sys.modules.update({"nccl": package, "nccl.core": core})


def main() -> None:
    """Trains on 1, 2, 3 and 4 devices; prints digests, and how much travelled by NCCL."""
    reason = preload.load()
    assert reason is None, reason
    play_nccl()
    import alpha
    from alpha import distributed as dist
    from alpha.distributed.world import current
    from tests import data_parallel

    def run(shards: int, sharded: bool) -> tuple[str, int]:
        current("run").backend = "nccl"
        engine = alpha.engine(f"cu32:{dist.rank()}")
        with alpha.device(engine.name):
            return data_parallel.train_on(engine, shards, sharded)

    found: dict[str, Any] = {}
    for ranks, shards in ((1, 4), (2, 4), (4, 4), (1, 6), (3, 6)):
        for sharded in (False, True):
            SENT.clear()
            results = dist.run_in_threads(run, ranks, shards, sharded, timeout=120)
            digests, nbytes = {digest for digest, _ in results}, results[0][1]
            found[f"{shards} {ranks} {sharded}"] = {"digests": sorted(digests), "sent": sum(SENT), "nbytes": nbytes}
    print(json.dumps(found))


if __name__ == "__main__":
    main()

"""Ranks on devices of their own, with NCCL played by this program: run by test_nccl.py, in a process of its own."""

from __future__ import annotations

import ctypes
import json
import queue
import sys
import threading
import types
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
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
        self.groups.waiting.append((kind, self, memory.__cuda_array_interface__, peer, stream))

    def run(self, kind: int, memory: dict[str, Any], peer: int) -> None:
        """Sends or receives. A device's memory is the host's here, and work is done when it is submitted."""
        address, (nbytes,) = memory["data"][0], memory["shape"]
        assert nbytes
        if kind == 0:
            SENT.append(nbytes)
            self.queues[self.unique, self.rank, peer].put(ctypes.string_at(address, nbytes))
        else:
            data = self.queues[self.unique, peer, self.rank].get(timeout=60)
            assert len(data) == nbytes
            ctypes.memmove(address, data, nbytes)

    def destroy(self) -> None:
        """Has nothing to give back."""


ROWS = {
    "everything": (12, 12, 12, 12, 11, 12, 11, 11, 11, 12, 12),
    "mlp": (9, 9, 9, 9, 10, 9, 10, 10, 10, 9, 10),
}
"""Lengths of global batches. On 4 ranks, 12 and 11 rows differ on one only; in 6 shards on 3, 9 and 10 rows are 3 rows
of the second rank both times, cut differently."""

_HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_KEPT: list[Any] = []
FAILED: list[str] = []
"""What went wrong in messages; an exception in a callback would be lost."""


@contextmanager
def group() -> Iterator[None]:
    """All messages of the block, those to send first: work in the order of a stream, which a capture records."""
    Communicator.groups.waiting = []
    yield
    messages = sorted(Communicator.groups.waiting, key=lambda one: one[0])

    def run(_: object) -> None:
        try:
            for kind, communicator, memory, peer, _stream in messages:
                communicator.run(kind, memory, peer)
        except BaseException as error:
            FAILED.append(repr(error))

    (stream,) = {message[4] for message in messages}
    callback = _HostFunction(run)
    _KEPT.append(callback)
    assert ctypes.CDLL("libcuda.so.1").cuLaunchHostFunc(ctypes.c_void_p(stream), callback, None) == 0


def play_nccl() -> None:
    """Puts this module in the place of NCCL's package."""
    core = types.ModuleType("nccl.core")
    core.__dict__.update(
        UniqueId=UniqueId, Communicator=Communicator, group=group, get_unique_id=lambda: UniqueId(b"u" * 128)
    )
    package = types.ModuleType("nccl")
    package.__dict__["core"] = core
    sys.modules.update({"nccl": package, "nccl.core": core})


def on_devices(ranks: int, function: Callable[[Any], Any], backend: str = "nccl") -> list[Any]:
    """A function of an engine on ranks that have a device each; how many bytes travelled is in ``SENT``."""
    import alpha
    from alpha import distributed as dist
    from alpha.distributed.world import current

    def run() -> Any:
        current("run").backend = backend
        engine = alpha.engine(f"cu32:{dist.rank()}")
        with alpha.device(engine.name):
            return function(engine)

    SENT.clear()
    results = dist.run_in_threads(run, ranks, timeout=120)
    assert not FAILED, FAILED
    return results


def plain() -> dict[str, Any]:
    """Trains on 1, 2, 3 and 4 devices: digests, and how much travelled."""
    from tests import data_parallel

    found: dict[str, Any] = {}
    for ranks, shards in ((1, 4), (2, 4), (4, 4), (1, 6), (3, 6)):
        for sharded in (False, True):
            results = on_devices(ranks, partial(data_parallel.train_on, shards=shards, sharded=sharded))
            digests, nbytes = {digest for digest, _ in results}, results[0][1]
            found[f"{shards} {ranks} {sharded}"] = {"digests": sorted(digests), "sent": sum(SENT), "nbytes": nbytes}
    results = on_devices(2, partial(data_parallel.train_on, shards=4, sharded=False), "mpi")
    found["through the host"] = {"digests": sorted({digest for digest, _ in results}), "sent": sum(SENT)}
    return found


def captured() -> dict[str, Any]:
    """Trains by ``alpha.graph`` and without, over batches of which some are uneven: digests, captures, losses."""
    from tests import data_parallel

    found: dict[str, Any] = {}
    for network, ranks, shards, sharded in (
        ("everything", 1, 4, False), ("everything", 2, 4, False), ("everything", 4, 4, False),
        ("mlp", 1, 6, False), ("mlp", 3, 6, False), ("mlp", 3, 6, True),
    ):  # fmt: skip
        for graphed in (False, True):
            step = partial(
                data_parallel.train_captured,
                network=network,
                shards=shards,
                rows=ROWS[network],
                graphed=graphed,
                sharded=sharded,
            )
            key = f"{network} {ranks} {sharded} {graphed}"
            found[key] = [result._asdict() for result in on_devices(ranks, step)]
    return found


def several() -> dict[str, Any]:
    """Steps over two networks, and over gradients added up, by ``alpha.graph`` and without."""
    from tests import data_parallel

    kinds = {"two networks": data_parallel.train_two, "added up": data_parallel.train_added_up}
    return {
        f"{name} {ranks} {graphed}": [one._asdict() for one in on_devices(ranks, partial(train, graphed=graphed))]
        for name, train in kinds.items()
        for ranks in (1, 2)
        for graphed in (False, True)
    }


def refused() -> list[str]:
    """What ranks say whose gradients go through the host, when their step is to be captured."""
    from alpha.errors import GraphError
    from tests import data_parallel

    def step(engine: Any) -> str:
        try:
            data_parallel.train_captured(engine, "mlp", 2, (4, 4, 4), True)
        except GraphError as error:
            return str(error)
        return "nothing"

    return on_devices(2, step, "mpi")


def main() -> None:
    """Runs the function that is named on the command line, and prints what it found as JSON."""
    reason = preload.load()
    assert reason is None, reason
    play_nccl()
    print(json.dumps({one.__name__: one for one in (plain, captured, several, refused)}[sys.argv[1]]()))


if __name__ == "__main__":
    main()

"""Ranks that hand each other tensors on GPUs through NCCL, beside a transport that carries everything else.

NCCL's own sums add in an order that depends on the number of ranks. So it only sends and receives here: the additions
are kernels of the engine, in the order of the tree. Sending, receiving and adding go to a stream of their own, and the
engine's stream waits where the sums are needed; the host waits nowhere.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from alpha.distributed.transport import Pending, Transport
from alpha.distributed.world import World
from alpha.errors import DistributedError
from alpha.tensor import Tensor


class NCCLTransport(Transport):
    """One rank's GPU among those of the others.

    Args:
        world: the ranks, which agree on NCCL's identifier through their own transport.
        engine: the GPU's.
    """

    name = "nccl"

    def __init__(self, world: World, engine: Any) -> None:
        self._nccl = nccl = load()
        self.rank, self.size, self.engine, self.device = world.rank, world.size, engine, engine.device
        identifier = list(bytes(nccl.get_unique_id())) if world.rank == 0 else None
        identifier = world.shared(identifier, 0, "start")
        with self.device.context():
            unique = nccl.UniqueId.from_bytes(bytes(identifier))
            self._communicator = nccl.Communicator.init(world.size, world.rank, unique)
        self.stream = self.device.new_stream()
        self._queued: list[tuple[Any, _Bytes, int]] = []
        self._held: list[Any] = []

    def send(self, array: Any, peer: int, tag: int) -> Pending:
        return self._queue(self._communicator.send, array, peer)

    def receive(self, array: Any, peer: int, tag: int) -> Pending:
        return self._queue(self._communicator.recv, array, peer)

    def _queue(self, call: Any, array: Any, peer: int) -> Pending:
        if array.nbytes:  # of nothing, nothing travels
            self._queued.append((call, _Bytes(array), peer))
        return _in_order

    def waiting_tag(self, peer: int) -> int | None:
        return None

    def flush(self) -> None:
        """Begins what was asked for since the last call, all at once: ranks that send to each other also receive."""
        queued, self._queued = self._queued, []
        if queued:
            with self.device.context(), self._nccl.group():
                for call, memory, peer in queued:
                    call(memory, peer, stream=self.stream.handle)

    def room(self, like: Any, shape: Sequence[int]) -> Any:
        made = self.engine.empty(tuple(shape), like.dtype)
        self._held.append(made)  # the pool would hand it out in the order of another stream
        return made

    @contextmanager
    def running(self) -> Iterator[None]:
        """What is computed in the block goes to the transport's stream, behind what the engine's has now."""
        with self.device.using(self.stream):
            yield

    def mark(self) -> Any:
        """A point in the transport's stream, and what memory is in use up to there."""
        held, self._held = self._held, []
        with self.device.using(self.stream, joins=False):
            return self.device.mark(), held

    def join(self, mark: Any) -> None:
        """Lets the engine's stream wait for a point in the transport's."""
        self.device.wait_for(mark[0])

    def close(self) -> None:
        self.device.synchronize()
        self._communicator.destroy()


class _Bytes:
    """A dense tensor's memory, as NCCL takes it."""

    def __init__(self, tensor: Tensor) -> None:
        if not tensor.is_contiguous():  # NCCL is given an address and a length alone
            raise DistributedError(f"[nccl] expected a dense tensor, got strides {tensor.strides} of {tensor.shape}")
        self.tensor = tensor  # whose memory is in use
        self.__cuda_array_interface__ = {
            "shape": (tensor.nbytes,),
            "typestr": "|u1",
            "data": (tensor.address, False),
            "version": 3,
        }


def _in_order() -> bool:
    """What follows in the stream finds it done."""
    return True


def load() -> Any:
    """NCCL's Python package; DistributedError where it, or the library, is missing."""
    try:
        return importlib.import_module("nccl.core")
    except ImportError as error:
        raise DistributedError(
            f"[init] expected nccl4py, by which GPUs reach each other, got {' '.join(str(error).split())}: pip install "
            '"dragon-alpha[nccl]", or leave out backend="nccl"'
        ) from error


def reach_gpus(world: World, engine: Any) -> None:
    """Lets ranks hand each other an engine's tensors through NCCL, where it is a GPU's and all ranks have it."""
    if world.size == 1 or not hasattr(engine, "device") or engine.name in world.carriers or world.backend == "mpi":
        return
    if world.backend != "nccl" and not world.table([find_spec("nccl") is not None], "start").all():
        return
    world.carriers[engine.name] = NCCLTransport(world, engine)

"""The functions of ``alpha.distributed``: how a program becomes one of several ranks, and what ranks do together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from alpha import engines, random
from alpha.arguments import number, whole
from alpha.distributed import lifeline, nccl
from alpha.distributed.mpi import MPITransport
from alpha.distributed.transport import Alone, Transport
from alpha.distributed.unlaunched import EndWatch
from alpha.distributed.world import Event, World, current, find, set_process_world
from alpha.dtypes import has_gradients
from alpha.errors import ArgumentError, DistributedError, DtypeError, described
from alpha.tensor import Tensor

REDUCTIONS: dict[str, Any] = {"sum": np.add, "max": np.maximum, "min": np.minimum, "product": np.multiply}
"""What ``all_reduce`` can compute, by name."""

_LAUNCHED = ("ALPHA_DISTRIBUTED", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID")
"""Variables of the environment that launchers of MPI programs set."""


_TIMEOUT = 1800.0


def init(backend: str | None = None, timeout: float | None = None) -> World:
    """Makes this process a rank among those that were started together; alone, rank 0 of 1.

    All ranks then draw the same random numbers as rank 0, and data loaders hand each rank its part of a batch. The CPU
    engine of each has its share of the processors, unless its number of threads was chosen before. An error that ends
    one rank ends all.

    Args:
        backend: ``"mpi"``, which needs mpi4py and an MPI library; ``"nccl"``, which beside these needs nccl4py, and has
            gradients on GPUs travel from one to the other, and not through the host; ``"alone"``. By default this is
            "alone" unless a launcher of MPI programs started this process, and NCCL is used where all ranks have it.
        timeout: seconds after which an operation that some rank did not take part in is an error; by default the
            launcher's --timeout, or 1800.

    Returns:
        the ranks, with ``rank`` and ``size``.
    """
    timeout = number("init", "timeout", _default_timeout() if timeout is None else timeout)
    if not timeout > 0:
        raise ArgumentError(f"[init] expected timeout > 0 seconds, got {timeout}")
    if backend not in (None, "mpi", "nccl", "alone"):
        raise ArgumentError(f'[init] expected backend as "mpi", "nccl", "alone" or None, got {described(backend)}')
    if find() is not None:
        raise DistributedError("[init] expected to be called once, got a second call: call dist.shutdown() between")
    if backend == "nccl":
        nccl.load()
    world = World(_transport(backend), timeout, backend)
    state = random.get_state()
    sequence = np.array([state["seed"], state["offset"]], np.uint64)
    world.broadcast(sequence, name="start").finish()
    random.set_state({"seed": int(sequence[0]), "offset": int(sequence[1])})
    set_process_world(world)
    if isinstance(world.transport, MPITransport):
        _set_threads(world.transport)
        if world.size > 1 and not lifeline.is_connected():
            _watch_ends(world.transport)
    return world


def _default_timeout() -> float:
    return float(os.environ.get(lifeline.TIMEOUT, _TIMEOUT)) if lifeline.is_connected() else _TIMEOUT


def _set_threads(transport: MPITransport) -> None:
    """Gives the CPU engine this rank's share of the processors, unless it has another number of threads already."""
    from alpha.cpu.base import available_threads

    cpu: Any = engines.engine("cpu")
    given = os.environ.get(lifeline.THREADS) if lifeline.is_connected() else None
    wanted = int(given) if given is not None else transport.threads()
    if cpu.threads == available_threads() != wanted:
        cpu.configure(threads=wanted)


_end_watch: EndWatch | None = None


def _watch_ends(transport: MPITransport) -> None:
    global _end_watch
    if _end_watch is None:  # else since an earlier init
        _end_watch = EndWatch(transport)


def _transport(backend: str | None) -> Transport:
    if backend == "alone" or (backend is None and not is_launched()):
        return Alone()
    return MPITransport()


def shutdown() -> None:
    """EndWatch what ``init`` began; without it nothing happens."""
    world = find()
    if world is not None:
        set_process_world(None)
        for carrier in world.carriers.values():
            carrier.close()
        world.transport.close()


def is_initialized() -> bool:
    """Whether ``init`` was called."""
    return find() is not None


def is_launched() -> bool:
    """Whether this process was started as one of several ranks, by ``alpha.distributed.run`` or a launcher of MPI's."""
    return any(name in os.environ for name in _LAUNCHED)


def restarts() -> int:
    """How often ``alpha.distributed.run --restarts`` has started this program again; then it should resume."""
    return int(os.environ.get(lifeline.RESTART, "0"))


def rank() -> int:
    """This rank's number, from 0."""
    return current("rank").rank


def world_size() -> int:
    """The number of ranks."""
    return current("world_size").size


def is_main() -> bool:
    """Whether this is rank 0, which prints and writes files."""
    return current("is_main").rank == 0


def barrier() -> None:
    """Waits until all ranks have come here."""
    world = current("barrier")
    world.sum(np.zeros((1, 1), np.int64), "barrier").finish()


def all_reduce(tensor: Tensor, op: str = "sum") -> Tensor:
    """Replaces a tensor by the sum of all ranks' tensors, in place; returns it.

    Ranks are added by one binary tree over their numbers, so the result does not depend on the MPI library.

    Args:
        tensor: of one shape and dtype on all ranks, outside the graph.
        op: ``"sum"``, ``"mean"``, ``"max"``, ``"min"`` or ``"product"``.
    """
    world = current("all_reduce")
    _check("all_reduce", tensor)
    if op != "mean" and op not in REDUCTIONS:
        raise ArgumentError(f"[all_reduce] expected op as one of mean, {', '.join(REDUCTIONS)}, got {described(op)}")
    if op == "mean" and not has_gradients(tensor.dtype):
        raise DtypeError(f'[all_reduce] expected floats for op="mean", got {tensor.dtype}: cast it')
    array = _dense(tensor)
    world.sum(array.reshape(1, -1), add=REDUCTIONS["sum" if op == "mean" else op]).finish()
    if op == "mean":
        np.divide(array, array.dtype.type(world.size), out=array)
    return _filled(tensor, array)


def broadcast(tensor: Tensor, source: int = 0) -> Tensor:
    """Replaces a tensor by that of one rank, in place; returns it."""
    world = current("broadcast")
    _check("broadcast", tensor)
    source = whole("broadcast", "source", source, 0, world.size - 1)
    array = _dense(tensor)
    world.broadcast(array.reshape(-1), source).finish()
    return _filled(tensor, array)


@contextmanager
def trace() -> Iterator[list[Event]]:
    """``with trace() as events:`` notes what this rank sends in the block, and when: see ``Event``."""
    world = current("trace")
    before, events = world.events, []  # type: tuple[list[Event] | None, list[Event]]
    try:
        world.events = events
        yield events
    finally:
        world.events = before


def _check(function: str, tensor: Any) -> None:
    if not isinstance(tensor, Tensor):
        raise DtypeError(f"[{function}] expected a Tensor, got {described(tensor)}")
    if tensor.requires_grad:
        raise ArgumentError(
            f"[{function}] expected a tensor outside the graph, got one that requires grad: use .detach()"
        )


def _dense(tensor: Tensor) -> np.ndarray[Any, Any]:
    """The values as an array of its own, in row-major order."""
    return np.array(tensor.engine.to_numpy(tensor), order="C", copy=True)


def _filled(tensor: Tensor, array: np.ndarray[Any, Any]) -> Tensor:
    return tensor.copy_(tensor.engine.from_numpy(array))

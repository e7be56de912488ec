"""Ranks that are processes of an MPI program, through mpi4py."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable
from typing import Any

from alpha.distributed import lifeline
from alpha.distributed.transport import Array, LengthError, Pending, Transport
from alpha.errors import DistributedError


class MPITransport(Transport):
    """This process among those of MPI's world, in a communicator of their own."""

    name = "mpi"

    def __init__(self) -> None:
        self._mpi = mpi = load()
        self._comm = mpi.COMM_WORLD.Dup()
        self.rank, self.size = int(self._comm.rank), int(self._comm.size)
        self.tags = int(self._comm.Get_attr(mpi.TAG_UB))
        self._last = mpi.COMM_WORLD.Dup()  # for this process's end, when the other communicator may be given back

    @property
    def library(self) -> str:
        """The MPI library's name and version."""
        return str(self._mpi.Get_library_version()).splitlines()[0].strip("\0 ")

    def send(self, array: Array, peer: int, tag: int) -> Pending:
        request = self._comm.Isend([array, self._mpi.BYTE], peer, tag)
        return lambda: bool(request.Test())

    def receive(self, array: Array, peer: int, tag: int) -> Pending:
        request, status = self._comm.Irecv([array, self._mpi.BYTE], peer, tag), self._mpi.Status()

        def through() -> bool:
            try:
                if not request.Test(status):
                    return False
            except self._mpi.Exception as error:
                raise LengthError(f"more than {array.nbytes} bytes ({error.error_string})") from error
            count = status.Get_count(self._mpi.BYTE)
            if count != array.nbytes:
                raise LengthError(f"{count} bytes and not {array.nbytes}")
            return True

        return _once(through)

    def waiting_tag(self, peer: int) -> int | None:
        status = self._mpi.Status()
        return int(status.tag) if self._comm.Iprobe(peer, self._mpi.ANY_TAG, status) else None

    def deserted(self, peers: Iterable[int]) -> list[int]:
        return lifeline.deserted(peers)

    def abort(self, status: int) -> None:
        self._mpi.COMM_WORLD.Abort(status)

    def is_finalized(self) -> bool:
        """Whether this process has taken its leave of MPI."""
        return bool(self._mpi.Is_finalized())

    def end_together(self) -> Callable[[], bool]:
        """Says that this process is at its end; returns what tells whether all are."""
        request = self._last.Ibarrier()
        return _once(lambda: bool(request.Test()))

    def threads(self) -> int:
        """This process's share of the processors that it may use, where all of its machine's ranks may use the same."""
        may_use: Any = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))
        processors = frozenset(may_use(0))
        local = self._comm.Split_type(self._mpi.COMM_TYPE_SHARED)
        rank, size, count = local.rank, local.size, len(processors)
        is_shared = all(others == processors for others in local.allgather(processors))
        local.Free()
        return max(1, (rank + 1) * count // size - rank * count // size) if is_shared else count

    def close(self) -> None:
        if not self._mpi.Is_finalized():
            self._comm.Free()


def _once(through: Pending) -> Pending:
    """A question that is not asked again once the answer was yes: MPI forgets requests that are through."""
    state = [False]

    def asked() -> bool:
        state[0] = state[0] or through()
        return state[0]

    return asked


def load() -> Any:
    """mpi4py's MPI; DistributedError where the package or an MPI library is missing."""
    try:
        return importlib.import_module("mpi4py.MPI")
    except ImportError as error:
        missing = "mpi4py" if isinstance(error, ModuleNotFoundError) else "an MPI library that mpi4py can load"
        raise DistributedError(
            f'[init] expected {missing}, got {" ".join(str(error).split())}: pip install "dragon-alpha[distributed]"'
        ) from error
    except RuntimeError as error:  # mpi4py's word for a library that it cannot load
        raise DistributedError(
            f"[init] expected an MPI library that mpi4py can load, got {' '.join(str(error).split())}: pip install "
            '"dragon-alpha[distributed]"'
        ) from error

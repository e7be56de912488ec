"""World: the ranks of a distributed program, and the operations in which all of them take part."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import numpy as np

from alpha.distributed import collectives
from alpha.distributed.transport import Array, LengthError, Pending, Transport
from alpha.errors import DistributedError

OPERATIONS = ("note", "all_reduce", "broadcast", "barrier", "gradients", "start", "statistics", "save", "weights")
"""What operations are for. Their place here is part of their messages' tags."""

_NOTE_SECONDS = 2.0  # in which ranks that wait too tell each other so, once one has waited too long


class Event(NamedTuple):
    """Something that happened, for ``dist.trace``.

    Attributes:
        name: "send" for what one round of an operation sends, "end" when an operation is through, and what else those
            who use the world note, such as "backward" when a backward ends.
        operation, number: the operation, and its number in the order in which this rank began them; -1 for none.
        nbytes: bytes that a round sends.
        seconds: when, by ``time.perf_counter``.
    """

    name: str
    operation: str
    number: int
    nbytes: int
    seconds: float


class World:
    """The ranks of a program as this rank sees them.

    Attributes:
        transport: what carries messages.
        timeout: seconds after which an operation that some rank did not take part in is an error.
        events: of ``dist.trace``, else None.
        begun: how many operations this rank has begun on the host.
        carried: how many between GPUs; a captured step repeats those without being begun again.
        backend: how gradients on GPUs travel: "nccl", "mpi" for through the host, None for the first where it is there.
    """

    def __init__(self, transport: Transport, timeout: float = 1800.0, backend: str | None = None) -> None:
        self.transport, self.timeout, self.backend = transport, timeout, backend
        self.rank, self.size = transport.rank, transport.size
        self.events: list[Event] | None = None
        self.begun = self.carried = 0
        self.process = os.getpid()
        self.open: Any = None  # a loop over shards that is under way
        self.carriers: dict[str, Transport] = {}  # of tensors on GPUs, by their engines' names

    # -- operations ----------------------------------------------------------------------------------------------

    def begin(
        self,
        name: str,
        array: Any,
        make: Callable[[Transport, int], collectives.Steps],
        transport: Transport | None = None,
    ) -> Operation:
        """Begins an operation; all ranks begin the same ones in the same order."""
        if os.getpid() != self.process:
            raise DistributedError(
                f"[{name}] expected the process that called dist.init(), got one that it forked: take part in "
                "operations of all ranks in the first alone"
            )
        if transport is None:
            number, self.begun = self.begun, self.begun + 1
        else:
            number, self.carried = self.carried, self.carried + 1
        tag = (number * len(OPERATIONS) + OPERATIONS.index(name)) % (self.transport.tags // 16 * 16)
        return Operation(self, name, number, tag, array.nbytes, make, transport or self.transport)

    def sum(self, array: Array, name: str = "all_reduce", shards: int | None = None, add: Any = np.add) -> Operation:
        """Begins a sum over all ranks, which replaces ``array`` (nodes, length): see ``collectives.all_reduce``."""
        return self.begin(
            name, array, lambda transport, tag: collectives.all_reduce(transport, array, tag, shards, add)
        )

    def broadcast(self, array: Array, source: int = 0, name: str = "broadcast") -> Operation:
        """Begins handing one rank's array, dense and of one axis, to all."""
        return self.begin(name, array, lambda transport, tag: collectives.broadcast(transport, array, source, tag))

    def table(self, row: list[int], name: str = "all_reduce") -> Array:
        """Each rank's row of int64 numbers, as (ranks, numbers)."""
        table = np.zeros((self.size, len(row)), np.int64)
        table[self.rank] = row
        self.sum(table.reshape(1, -1), name).finish()
        return table

    def shared(self, value: Any, source: int = 0, name: str = "broadcast") -> Any:
        """One rank's value, of what JSON can hold, on all ranks."""
        data = np.frombuffer(json.dumps(value).encode(), np.uint8).copy()
        length = np.array([len(data)], np.int64)
        self.broadcast(length, source, name).finish()
        if self.rank != source:
            data = np.empty(int(length[0]), np.uint8)
        self.broadcast(data, source, name).finish()
        return json.loads(data.tobytes())

    def note(self, name: str, operation: str = "", number: int = -1, nbytes: int = 0) -> None:
        """Notes an event, if there is a trace."""
        if self.events is not None:
            self.events.append(Event(name, operation, number, nbytes, time.perf_counter()))

    def __repr__(self) -> str:
        return f"World(rank {self.rank} of {self.size}, {self.transport.name})"


class Operation:
    """One operation of all ranks, which goes on whenever it is looked at.

    Attributes:
        done: whether it is through on this rank, or on a GPU will be in the order of a stream.
        is_joined: whether what comes next finds its result: ``finish`` was called.
    """

    def __init__(
        self,
        world: World,
        name: str,
        number: int,
        tag: int,
        nbytes: int,
        make: Callable[[Transport, int], collectives.Steps],
        transport: Transport,
    ) -> None:
        self.world, self.name, self.number, self.nbytes, self.tag = world, name, number, nbytes, tag
        self.done = self.is_joined = False
        self._waiting: dict[int, list[Pending]] = {}
        self._transport = transport
        self._steps = make(_Counting(world, self, transport), tag)
        self._mark: Any = None
        self.advance()

    def advance(self) -> bool:
        """Goes on as far as that goes without waiting; returns ``done``."""
        if not self.done:
            with self._transport.running():
                self._go_on()
            if self.done:
                self._mark = self._transport.mark()
        return self.done

    def _go_on(self) -> None:
        while not self.done:
            try:
                self._waiting = {
                    peer: left for peer, pending in self._waiting.items() if (left := [p for p in pending if not p()])
                }
            except LengthError as error:
                raise DistributedError(
                    f"[{self.name}] expected the same size on all ranks in operation {self.number}, got {self.nbytes} "
                    f"bytes here, and a message of {error}, from one of the ranks "
                    f"{', '.join(map(str, self._waiting))}: pass arrays of one shape and dtype"
                ) from error
            if self._waiting:
                return
            try:
                self._waiting = next(self._steps)
                self._transport.flush()
            except StopIteration:
                self.done = True
                self.world.note("end", self.name, self.number)

    def finish(self) -> Self:
        """Waits until it is through; DistributedError after the world's ``timeout``. Returns self.

        Of tensors on a GPU the engine's stream waits, and not the host.
        """
        looks, end = 0, time.monotonic() + self.world.timeout
        while not self.advance():
            self.world.transport.pause(looks)
            looks += 1
            if looks % 64 == 0:
                self._check_peers()
                if time.monotonic() > end:
                    raise DistributedError(self._missed())
        if not self.is_joined:
            self._transport.join(self._mark)
            self.is_joined, self._mark = True, None
        return self

    def _check_peers(self) -> None:
        """DistributedError where a rank that this one waits for has ended."""
        gone = self.world.transport.deserted(self._waiting)
        if gone:
            raise DistributedError(
                f"[{self.name}] expected rank{'s' * (len(gone) > 1)} {', '.join(map(str, gone))} to take part in "
                f"operation {self.number} ({self.name} of {self.nbytes} bytes), got their end before: call the same "
                "operations on all ranks"
            )

    def _missed(self) -> str:
        """Who did not take part, found by asking: ranks that wait answer, as this one does."""
        world, transport = self.world, self.world.transport
        others = [peer for peer in range(world.size) if peer != world.rank]
        mine = np.array([self.number, OPERATIONS.index(self.name), self.nbytes], np.int64)
        notes = {peer: np.empty(3, np.int64) for peer in others}
        pending = {peer: transport.receive(notes[peer], peer, transport.tags - 1) for peer in others}
        for peer in others:
            transport.send(mine, peer, transport.tags - 1)
        end = time.monotonic() + _NOTE_SECONDS
        answered: set[int] = set()
        while len(answered) < len(others) and time.monotonic() < end:
            answered |= {peer for peer in others if peer not in answered and pending[peer]()}
            transport.pause(1 << 20)
        found = [
            f"rank {peer} at operation {notes[peer][0]} ({OPERATIONS[notes[peer][1]]} of {notes[peer][2]} bytes)"
            for peer in sorted(answered)
            if notes[peer][0] != self.number or OPERATIONS[notes[peer][1]] != self.name
        ]
        absent = [f"{peer}" for peer in others if peer not in answered]
        if absent:
            found.append(f"rank{'s' * (len(absent) > 1)} {', '.join(absent)} in no operation")
        waiting = ", ".join(map(str, self._waiting))
        return (
            f"[{self.name}] expected all ranks to take part in operation {self.number} ({self.name} of {self.nbytes} "
            f"bytes) within {world.timeout:g} s, got {'; '.join(found) or 'all of them there'} (rank {world.rank} "
            f"waits for {waiting}): call the same operations in the same order on all ranks"
        )


class _Counting(Transport):
    """A transport that notes what an operation sends."""

    def __init__(self, world: World, operation: Operation, transport: Transport) -> None:
        self._world, self._operation, self._transport = world, operation, transport
        self.name, self.rank, self.size, self.tags = transport.name, world.rank, world.size, transport.tags

    def send(self, array: Array, peer: int, tag: int) -> Pending:
        self._world.note("send", self._operation.name, self._operation.number, array.nbytes)
        return self._transport.send(array, peer, tag)

    def receive(self, array: Array, peer: int, tag: int) -> Pending:
        return self._transport.receive(array, peer, tag)

    def waiting_tag(self, peer: int) -> int | None:
        return self._transport.waiting_tag(peer)

    def room(self, like: Any, shape: Sequence[int]) -> Any:
        return self._transport.room(like, shape)


# -- the world of a process, or of a thread --------------------------------------------------------------------------


class _Entered(threading.local):
    world: World | None = None


_entered = _Entered()
_process: World | None = None


def set_process_world(world: World | None) -> None:
    """Makes a world that of this process."""
    global _process
    _process = world


def find() -> World | None:
    """The world of this thread, or else of the process; None before ``dist.init()``, and in a forked child."""
    found = _entered.world or _process
    return found if found is None or found.process == os.getpid() else None


def current(function: str) -> World:
    """The world; DistributedError without one. A forked child gets its parent's, whose operations refuse it."""
    found = _entered.world or _process
    if found is None:
        raise DistributedError(f"[{function}] expected a program that has called dist.init(), got none: call it first")
    return found


@contextmanager
def entered(world: World) -> Iterator[World]:
    """``with entered(world):`` this thread is a rank of a world."""
    before = _entered.world
    try:
        _entered.world = world
        yield world
    finally:
        _entered.world = before


def part() -> tuple[int, int] | None:
    """This rank's number and the number of ranks; None before ``dist.init()``."""
    world = find()
    return None if world is None else (world.rank, world.size)

"""Uploader: host arrays to the device without waiting, through pinned buffers that are used again.

Large arrays travel on a stream of their own, beside the work that the engine's stream has still to do: to memory that
nothing else uses, from where the engine's stream, in its turn, moves them to their place.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from alpha.cu32.driver import Device, Event
from alpha.errors import OutOfMemoryError
from alpha.tensor import Storage

Array = np.ndarray[Any, Any]

CHUNK = 8 << 20
"""Most bytes that go through one pinned buffer."""

APART = 256 << 10
"""Bytes from which on an array travels beside the engine's work: the bus takes longer for it than the calls do."""

GRAIN = 64 << 10
"""Bytes that the room of such an array is a multiple of, so that batches of about one size share it."""

ROUNDS = 2
"""Arrays of a size that are on their way at once: one arrives while the one before is moved to its place."""

MOST, SHARE = 64 << 20, 32
"""What is kept for arrays on their way, at most: in bytes, and the engine's memory over it."""

BATCHES = 3
"""Arrays of a size with work between them after which more are expected: fewer may be weights."""


class _Room(NamedTuple):
    """Where an array is on its way: pinned memory of the host, memory of the device; passed once both are free."""

    host: Array
    memory: Storage
    passed: Event


class Uploader:
    """Copies arrays into pinned buffers and has the device fetch them; what it is given afterwards finds them there.

    The caller's array is free when ``upload`` returns. Buffers go round: one is taken again once the device has fetched
    what it held, and another is made while all of its size are under way.

    Args:
        device: where to.
        allocate: gives memory there.
        room: most bytes of it that are kept.
    """

    def __init__(self, device: Device, allocate: Callable[[int], Storage], room: Callable[[], int]) -> None:
        self._device, self._allocate, self._most = device, allocate, room
        self._lock = threading.RLock()  # a signal handler may upload in the midst of an upload
        self._buffers: dict[int, deque[tuple[Array, Event]]] = {}
        self._rooms: dict[int, deque[_Room]] = {}
        self._seen: dict[int, tuple[int, int]] = {}  # by size: the device's launches at the last one, and see BATCHES
        self._stream: Any = None

    def upload(self, address: int, array: Array) -> None:
        """Submits the copy of a C-contiguous array to device memory."""
        data = array.reshape(-1).view(np.uint8)
        with self._lock:
            for start in range(0, data.size, CHUNK):
                piece = data[start : start + CHUNK]
                room = self._room(piece.size) if piece.size >= APART else None
                if room is None:
                    self._upload_in_turn(address + start, piece)
                else:
                    self._upload_through(address + start, piece, room)

    def _upload_in_turn(self, address: int, piece: Array) -> None:
        """Behind all that the engine's stream has to do."""
        buffer, event = self._buffer(piece.size)
        buffer[: piece.size] = piece
        self._device.upload(address, buffer[: piece.size])
        self._buffers[buffer.size].append((buffer, event.record()))

    def _upload_through(self, address: int, piece: Array, room: _Room) -> None:
        """At once, to a room; and to its place behind all that the engine's stream has to do."""
        device = self._device
        room.host[: piece.size] = piece
        try:
            device.upload(room.memory.address, room.host[: piece.size], self._stream)
            device.wait_for(device.mark(self._stream))
        except BaseException:  # an interrupt: the room's memory becomes another's, which does not wait for its arrival
            self._stream.synchronize()
            raise
        device.copy(room.memory.address, address, piece.size)
        room.passed.record()
        self._rooms[room.host.size].append(room)

    def _buffer(self, nbytes: int) -> tuple[Array, Event]:
        """Pinned memory, in powers of two."""
        size = 1 << max(9, (nbytes - 1).bit_length())
        ring = self._buffers.setdefault(size, deque())
        if ring and ring[0][1].done():
            return ring.popleft()
        return self._device.pinned(size), self._device.event(timed=False)

    def _room(self, nbytes: int) -> _Room | None:
        """An empty one; None where all are under way or memory is short, and where no more are expected."""
        size, launches = -(-nbytes // GRAIN) * GRAIN, self._device.launches
        before, batches = self._seen.get(size, (launches, 0))
        batches = batches + 1 if before != launches else 0
        self._seen[size] = launches, batches
        ring = self._rooms.setdefault(size, deque())
        if ring and ring[0].passed.done():
            return ring.popleft()
        if batches < BATCHES or len(ring) >= ROUNDS or not self._makes_place(size):
            return None
        try:
            memory = self._allocate(size)
        except OutOfMemoryError:
            return None
        if self._stream is None:
            self._stream = self._device.new_stream()
        # Who had this memory before may still be at work in the engine's stream.
        self._device.wait_for(self._device.mark(), self._stream)
        return _Room(self._device.pinned(size), memory, self._device.event(timed=False))

    def _makes_place(self, size: int) -> bool:
        """Whether another room of a size may be kept, the rooms of all other sizes given back if need be.

        Who gets their memory writes behind the copies out of them.
        """
        most = self._most()
        if size + sum(other * len(ring) for other, ring in self._rooms.items()) > most:
            for other in self._rooms:
                if other != size:
                    self._rooms[other] = deque()
        return size * (1 + len(self._rooms[size])) <= most

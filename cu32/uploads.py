"""Uploader: host arrays to the device without waiting, through pinned buffers that are used again."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import numpy as np

from alpha.cu32.driver import Device, Event

CHUNK = 8 << 20
"""Most bytes that go through one pinned buffer."""


class Uploader:
    """Copies arrays into pinned buffers and has the device fetch them in stream order.

    The caller's array is free when ``upload`` returns. Buffers come in powers of two and go round: one is taken again
    once the device has fetched what it held, and another is made while all of its size are under way.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._lock = threading.RLock()  # a signal handler may upload in the midst of an upload
        self._buffers: dict[int, deque[tuple[np.ndarray[Any, Any], Event]]] = {}

    def upload(self, address: int, array: np.ndarray[Any, Any]) -> None:
        """Submits the copy of a C-contiguous array to device memory."""
        data = array.reshape(-1).view(np.uint8)
        with self._lock:
            for start in range(0, data.size, CHUNK):
                piece = data[start : start + CHUNK]
                buffer, event = self._take(piece.size)
                buffer[: piece.size] = piece
                self._device.upload(address + start, buffer[: piece.size])
                self._buffers[buffer.size].append((buffer, event.record()))

    def _take(self, nbytes: int) -> tuple[np.ndarray[Any, Any], Event]:
        size = 1 << max(9, (nbytes - 1).bit_length())
        ring = self._buffers.setdefault(size, deque())
        if ring and ring[0][1].done():
            return ring.popleft()
        return self._device.pinned(size), self._device.event(timed=False)

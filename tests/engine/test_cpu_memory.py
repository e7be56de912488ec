"""The CPU engine's memory: large blocks in one place that grows, given back in parts, and systems that reserve none."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import host
from alpha.cpu.engine import CPUEngine
from alpha.tensor import Tensor

MB = 1 << 20


def filled(engine: CPUEngine, megabytes: int, value: float) -> Tensor:
    return alpha.full((megabytes * MB // 4 - 64,), value, dtype=alpha.float32, engine=engine)


def reserves() -> bool:
    return host.reserve(MB) is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_with_several_reservations_forks() -> None:
    """The system puts them side by side, where they are more addresses together than the machine has memory."""
    reserved = [host.reserve(MB) for _ in range(4)]
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(reserved) == 4


def test_neighbours_that_fall_free_serve_a_larger_request() -> None:
    if not reserves():
        pytest.skip("this system reserves no addresses")
    engine = CPUEngine()
    tensors: list[Tensor | None] = [filled(engine, 8, i) for i in range(4)]
    held = engine.memory.held
    tensors[1] = tensors[2] = None
    larger = filled(engine, 16, 9)
    assert engine.memory.held == held
    for tensor, value in ((tensors[0], 0), (tensors[3], 3), (larger, 9)):
        assert tensor is not None and (tensor.numpy() == value).all()


def test_near_the_cap_free_parts_go_back_to_the_system() -> None:
    engine = CPUEngine(memory="200MB")
    tensors: list[Tensor | None] = [filled(engine, 24, i) for i in range(8)]
    tensors[1] = tensors[4] = tensors[6] = None
    before = _resident()
    larger = filled(engine, 64, 9)  # no free part is as large
    assert engine.memory.held <= engine.memory.cap
    if before is not None:
        after = _resident()
        assert after is not None and after - before < 8 * MB
    for index, tensor in enumerate(tensors):
        assert tensor is None or (tensor.numpy() == index).all()
    assert (larger.numpy() == 9).all()
    del tensor, tensors, larger
    engine.memory.release_cached()
    assert engine.memory.held == engine.memory.in_use == 0


def test_where_no_addresses_are_reserved_blocks_come_singly(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> mmap.mmap:
        raise OSError("no")

    monkeypatch.setattr(host.mmap, "mmap", refuse)
    engine = CPUEngine(memory="64MB")
    tensors = [filled(engine, 8, i) for i in range(3)]
    total = sum(float(np.asarray(tensor).sum(dtype=np.float64)) for tensor in tensors)
    assert total == 3 * tensors[0].numel()
    assert len({id(tensor.storage._block.segment) for tensor in tensors}) == 3


def _resident() -> int | None:
    """Bytes of this process that are in memory, where the system tells."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * mmap.PAGESIZE if statm.exists() else None

"""KeyboardInterrupt at every place of the pool, the graph, the modes and the threads that compute."""

from __future__ import annotations

import contextlib
import gc
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from itertools import pairwise
from types import FrameType

import numpy as np
import pytest

import alpha
from alpha import autograd
from alpha import functions as F
from alpha.cpu.workers import Workers
from alpha.mempool import MemoryPool
from tests.robustness.inject import Kind, inject

MB = 1 << 20
CORE = tuple(f"alpha/{name}.py" for name in ("autograd", "walk", "tensor", "scopes", "functions/inplace", "locks"))


class Backing:
    """Memory for a pool, in which every handle that is dropped gives its memory back."""

    def __init__(self, room: int) -> None:
        self.next, self.room = 1 << 30, room
        self.out: set[int] = set()

    def allocate(self, nbytes: int) -> tuple[int, object]:
        address, self.next = self.next, self.next + nbytes + 4096
        handle = Handle()
        self.out.add(address)
        weakref.finalize(handle, self.out.discard, address)
        return address, handle

    def reserve(self, nbytes: int) -> tuple[int, object, int] | None:
        return (*self.allocate(self.room), self.room) if nbytes <= self.room else None

    def pool(self) -> MemoryPool:
        return MemoryPool("64MB", self.allocate, lambda handle: None, self.reserve, lambda *_: None)


class Handle:
    """What keeps a segment's memory."""


@pytest.mark.parametrize("room", [0, 256 * MB])
@pytest.mark.parametrize(("kind", "stride"), [("line", 1), ("opcode", 13)])
def test_the_pool_is_whole_after_an_interrupt_anywhere(kind: Kind, stride: int, room: int) -> None:
    """Blocks in use stay, no two overlap, the figures are right, and all that is dropped can be had again."""
    at, reached = 0, True
    while reached:
        backing = Backing(room)
        pool = backing.pool()
        keep = [pool.lend(3 * MB), pool.lend(1000), pool.lend(1000)]
        dropped = [pool.lend(2 * MB), pool.lend(5 * MB), pool.lend(700)]

        def use(pool: MemoryPool = pool, dropped: list[object] = dropped) -> None:
            _first, second = pool.lend(600), pool.lend(5000)
            dropped.clear()
            _third, second = pool.lend(20 * MB), pool.lend(6 * MB)
            del second
            pool.release_cached()
            pool.statistics()
            pool.lend(30 * MB)

        reached = inject(use, ["alpha/mempool.py", "alpha/locks.py"], kind, at)
        dropped.clear()
        keep.append(pool.lend(9 * MB))
        keep.append(pool.lend(3000))
        spans = sorted((block.address, block.address + block.nbytes) for block, _ in keep)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans)), at
        assert pool.in_use == sum(block.nbytes for block, _ in keep) <= pool.held <= pool.cap, at
        keep.clear()
        assert pool.in_use == 0, at
        pool.release_cached()
        assert pool.held == 0 and not backing.out, at
        at += stride


@alpha.no_grad()
def _squares(w: alpha.Tensor) -> alpha.Tensor:
    return (w * w).sum()


def _leaves() -> tuple[alpha.Tensor, alpha.Tensor]:
    """Two leaves, one with a gradient that another is added to."""
    w = alpha.tensor(np.linspace(-1, 2, 8, dtype=np.float32).reshape(4, 2), requires_grad=True)
    b = alpha.tensor(np.ones(2, np.float32), requires_grad=True)
    w.grad = alpha.tensor(np.ones((4, 2), np.float32))
    return w, b


def _step(w: alpha.Tensor, b: alpha.Tensor) -> None:
    with alpha.no_grad(), alpha.enable_grad():
        h = w * b
    _squares(w)
    view = h[1:]
    view += 1.0
    (h.relu().sum() + (w * w).sum()).backward()


@pytest.mark.parametrize(("kind", "stride"), [("line", 3), ("opcode", 37)])
def test_the_graph_and_the_modes_are_whole_after_an_interrupt_anywhere(kind: Kind, stride: int) -> None:
    """Gradients are all as before or all as after, recording is on, and the next step is right."""
    w, b = _leaves()
    _step(w, b)
    assert w.grad is not None and b.grad is not None
    after_w, after_b = w.grad.numpy().copy(), b.grad.numpy().copy()
    before = np.ones((4, 2), np.float32)
    gc.collect()
    in_use = alpha.engine("cpu").memory.in_use
    at, reached = 0, True
    while reached:
        w, b = _leaves()
        reached = inject(lambda w=w, b=b: _step(w, b), CORE, kind, at)  # type: ignore[misc]
        assert alpha.is_grad_enabled() and not autograd.is_recorded() and not autograd.is_inference(), at
        assert w.grad is not None
        if b.grad is None:
            np.testing.assert_array_equal(w.grad.numpy(), before, str(at))
        else:
            np.testing.assert_array_equal(w.grad.numpy(), after_w, str(at))
            np.testing.assert_array_equal(b.grad.numpy(), after_b, str(at))
        at += stride
    w, b = _leaves()
    _step(w, b)
    np.testing.assert_array_equal(w.grad.numpy(), after_w)  # type: ignore[union-attr]
    gc.collect()
    assert alpha.engine("cpu").memory.in_use == in_use


def test_threads_that_compute_are_whole_after_an_interrupt_anywhere() -> None:
    """Other threads can launch after it, and large arrays are computed as before."""
    engine = alpha.engine("cpu")
    before = engine.threads  # type: ignore[attr-defined]
    engine.configure(threads=2)
    x = alpha.rand(2, 9, 9, 8)
    w = alpha.rand(16, 3, 3, 8)
    large = alpha.ones(1 << 18)
    expected = F.conv2d(x, w, padding=1).numpy().copy()

    def use() -> None:
        F.conv2d(x, w, padding=1)
        large + large

    try:
        at, reached = 0, True
        while reached:
            reached = inject(use, ["cpu/workers.py", "alpha/locks.py"], at=at)
            results: list[bool] = []
            other = threading.Thread(
                target=lambda results=results: results.append(
                    np.array_equal(F.conv2d(x, w, padding=1).numpy(), expected)
                    and bool(((large + large).numpy() == 2).all())
                ),
                daemon=True,
            )
            other.start()
            other.join(20)
            assert results == [True], at
            at += 1
    finally:
        engine.configure(threads=before)


def test_an_interrupt_while_workers_start_leaves_workers_that_work() -> None:
    from tests.engine.test_cpu_workers import mark  # a kernel that counts its tasks

    private_workers = Workers()
    private_workers.run(mark, 1, (np.zeros(4, np.int64), 0))
    at, reached = 0, True
    while reached:
        private_workers = Workers()
        reached = inject(
            lambda private_workers=private_workers: private_workers.run(mark, 3, (np.zeros(4, np.int64), 0)),
            ["cpu/workers.py"],
            at=at,
        )  # type: ignore[misc]
        marks = np.zeros(50, np.int64)
        assert private_workers.run(mark, 3, (marks, 0)) == 50 and (marks == 1).all(), at
        assert len(private_workers._threads) >= 2
        private_workers.stop()
        at += 1


@contextlib.contextmanager
def _storm(seconds: float, on: Callable[[], None]):  # type: ignore[no-untyped-def]
    """Raises KeyboardInterrupt in the main thread again and again, wherever it is inside of ``on``.

    One that comes in a finalizer can reach nobody: the interpreter reports it, and pytest would keep it, with the
    frames that it came from and their tensors. Here it is dropped.
    """

    def interrupt(_: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code is on.__code__:
                raise KeyboardInterrupt
            frame = frame.f_back

    def report(found: sys.UnraisableHookArgs) -> None:
        if not isinstance(found.exc_value, KeyboardInterrupt):
            hook(found)

    old, hook = signal.signal(signal.SIGALRM, interrupt), sys.unraisablehook
    sys.unraisablehook = report
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        sys.unraisablehook = hook


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs POSIX timers")
def test_a_storm_of_signals_leaves_no_trace() -> None:
    """As a user does who holds Ctrl-C: steps that are interrupted are repeated, and the gradients are the same."""
    engine = alpha.engine("cpu")
    w, b = _leaves()
    _step(w, b)
    assert w.grad is not None
    expected = w.grad.numpy().copy()
    del w, b
    gc.collect()
    in_use, interrupts, deadline = engine.memory.in_use, 0, time.monotonic() + 60

    def steps() -> None:
        while time.monotonic() < deadline:
            w, b = _leaves()
            _step(w, b)
            assert w.grad is not None and np.array_equal(w.grad.numpy(), expected)

    with _storm(0.0007, steps):
        while interrupts < 300 and time.monotonic() < deadline:
            try:
                steps()
            except KeyboardInterrupt:
                interrupts += 1
            assert alpha.is_grad_enabled()
    assert interrupts == 300
    gc.collect()
    assert engine.memory.in_use == in_use


def test_an_interrupted_process_ends_when_told() -> None:
    """Ctrl-C in the midst of launches on several threads: the process is gone, with the signal's status."""
    code = (
        "import alpha, alpha.functions as F, sys\n"
        "alpha.engine('cpu', threads=2)\n"
        "x, w = alpha.rand(2, 9, 9, 8), alpha.rand(16, 3, 3, 8)\n"
        "F.conv2d(x, w); large = alpha.ones(1 << 19); large + large\n"
        "print('ready', flush=True)\n"
        "while True: F.conv2d(x, w); large + large\n"
    )
    for delay in (0.05, 0.21):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            time.sleep(delay)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == -signal.SIGINT and b"KeyboardInterrupt" in errors


# -- what runs in the midst of a change ----------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs POSIX timers")
def test_a_signal_handler_may_use_alpha() -> None:
    """Wherever it comes: in the pool, in a launch, in a draw."""
    engine = alpha.engine("cpu")
    before = engine.threads  # type: ignore[attr-defined]
    engine.configure(threads=2)
    x, w = alpha.rand(2, 9, 9, 8), alpha.rand(16, 3, 3, 8)
    handled: list[float] = []

    def handler(*_: object) -> None:
        a = alpha.tensor([1.0, 2.0], requires_grad=True)
        with alpha.enable_grad():  # it may come in the midst of a function, where recording is off
            (a * a).sum().backward()
        with alpha.no_grad():
            F.conv2d(x, w)
        assert a.grad is not None
        handled.append(float(a.grad.sum().item()))
        alpha.rand(3)
        engine.memory.statistics()

    expected = F.conv2d(x, w).numpy().copy()
    old = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    try:
        deadline = time.monotonic() + 60
        while len(handled) < 100 and time.monotonic() < deadline:
            leaf = alpha.tensor(np.full(5, 3, np.float32), requires_grad=True)
            (leaf * leaf).sum().backward()
            assert leaf.grad is not None and (leaf.grad.numpy() == 6).all()
            np.testing.assert_array_equal(F.conv2d(x, w).numpy(), expected)
            alpha.rand(100)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        engine.configure(threads=before)
    assert handled == [6.0] * len(handled) and len(handled) >= 100


class _Cycle:
    """Garbage whose finalizer computes."""

    sums: list[float] = []

    def __init__(self, value: float) -> None:
        self.me, self.tensor = self, alpha.tensor([value, value])

    def __del__(self) -> None:
        self.sums.append(float((self.tensor * 2).sum().item()))
        alpha.rand(100_000)


def test_a_finalizer_may_use_alpha_during_a_collection() -> None:
    """Its tensors are still its own, though the collector takes them apart with it."""
    _Cycle.sums.clear()
    thresholds = gc.get_threshold()
    gc.set_threshold(3, 2, 2)  # collections in the midst of everything
    try:
        for value in range(60):
            _Cycle(value)
            alpha.rand(50)
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    assert sorted(_Cycle.sums) == [4.0 * value for value in range(60)]


def test_a_request_in_the_midst_of_a_change_keeps_to_the_cap_and_is_counted_later() -> None:
    backing = Backing(0)
    pool = backing.pool()
    lent: list[object] = []
    allocate: Callable[[int], tuple[int, object]] = pool._allocate

    def nested(nbytes: int) -> tuple[int, object]:
        if not lent:
            lent.append(None)
            lent[0] = pool.lend(3 * MB)
        return allocate(nbytes)

    pool._allocate = nested
    mine = pool.lend(8 * MB)
    assert pool.in_use >= 11 * MB and pool.held == pool.in_use
    lent.clear()
    assert pool.in_use == mine[0].nbytes


def test_a_choice_of_algorithm_ends_with_its_block() -> None:
    from alpha.cpu import planner

    x, w = alpha.rand(1, 5, 5, 4), alpha.rand(4, 3, 3, 4)
    expected = F.conv2d(x, w).numpy().copy()

    def use() -> None:
        with planner.use("positions"):
            F.conv2d(x, w)

    at, reached = 0, True
    while reached:
        reached = inject(use, ["alpha/cpu/planner.py", "alpha/conv/registry.py"], at=at)
        gc.collect()
        assert planner._wanted.get() is None, at
        at += 1
    np.testing.assert_array_equal(F.conv2d(x, w).numpy(), expected)

"""Threads that share leaves and modes; children of processes whose other threads compute; a system without threads."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

import alpha
from alpha import functions as F
from alpha.locks import RobustLock
from alpha.random import reserve


def _together(count: int, work: object) -> None:
    """Runs a function of a thread's number on so many threads at once; their first error is raised."""
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            start.wait(20)
            work(number)  # type: ignore[operator]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns as often as the interpreter lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("shape", [(3,), (300, 400)])
def test_a_leaf_that_threads_share_gets_every_gradient(hasty: None, shape: tuple[int, ...]) -> None:
    leaf = alpha.tensor(np.ones(shape, np.float32), requires_grad=True)
    rounds = 40
    _together(4, lambda number: [(leaf * float(number + 1)).sum().backward() for _ in range(rounds)])
    assert leaf.grad is not None
    assert (leaf.grad.numpy() == rounds * (1 + 2 + 3 + 4)).all()


def test_one_no_grad_in_many_threads(hasty: None) -> None:
    shared = alpha.no_grad()

    def work(number: int) -> None:
        for _ in range(200):
            with shared:
                assert not alpha.is_grad_enabled()
                with alpha.enable_grad():
                    assert alpha.is_grad_enabled()
                with shared:
                    assert not alpha.is_grad_enabled()
                assert not alpha.is_grad_enabled()
            assert alpha.is_grad_enabled()

    _together(4, work)
    assert alpha.is_grad_enabled()


def test_modes_entered_by_hand_and_by_an_exit_stack() -> None:
    mode = alpha.no_grad()
    mode.__enter__()
    mode.__enter__()
    assert not alpha.is_grad_enabled()
    mode.__exit__(None, None, None)
    assert not alpha.is_grad_enabled()
    mode.__exit__(None, None, None)
    assert alpha.is_grad_enabled()
    with contextlib.ExitStack() as stack:
        stack.enter_context(alpha.no_grad())
        stack.enter_context(alpha.set_grad_enabled(True))
        stack.enter_context(alpha.no_grad())
        assert not alpha.is_grad_enabled()
    assert alpha.is_grad_enabled()


def test_no_grad_around_a_generator_holds_while_it_runs() -> None:
    seen: list[bool] = []

    @alpha.no_grad()
    def count(most: int) -> Iterator[int]:
        """Numbers."""
        try:
            for number in range(most):
                seen.append(alpha.is_grad_enabled())
                got = yield number
                seen.append(bool(got) or alpha.is_grad_enabled())
        except KeyError:
            seen.append(alpha.is_grad_enabled())
            yield -1
        finally:
            seen.append(alpha.is_grad_enabled())
        return "done"

    numbers = count(3)
    for expected in range(3):
        assert next(numbers) == expected
        assert alpha.is_grad_enabled()
    with pytest.raises(StopIteration, match="done"):
        next(numbers)
    assert seen == [False] * 7
    assert count.__doc__ == "Numbers."
    seen.clear()
    numbers = count(3)
    assert next(numbers) == 0
    assert numbers.throw(KeyError()) == -1  # type: ignore[attr-defined]
    numbers.close()  # type: ignore[attr-defined]
    assert seen == [False] * 3 and alpha.is_grad_enabled()
    seen.clear()
    numbers = count(3)
    next(numbers)
    assert numbers.send(True) == 1 and seen == [False, True, False]  # type: ignore[attr-defined]


def test_draws_in_many_threads_never_overlap(hasty: None) -> None:
    found: list[list[int]] = [[] for _ in range(4)]
    _together(4, lambda number: [found[number].append(reserve(4)[1]) for _ in range(500)])
    offsets = [offset for offsets in found for offset in offsets]
    assert len(set(offsets)) == len(offsets) == 2000
    assert max(offsets) - min(offsets) == 1999


def test_a_lock_whose_holder_vanished_is_had_again() -> None:
    class Guarded:
        def __init__(self) -> None:
            self._lock = RobustLock(Guarded.enter)
            self.inside = 0

        def enter(self, leave: bool) -> bool:
            lock = self._lock
            while not (mutex := lock.mutex).acquire(False):
                if lock.wait(mutex):
                    return False
            self.inside += 1
            assert self.inside == 1
            time.sleep(0.001)
            self.inside -= 1
            if leave:  # as an interrupt does that comes before the release
                return True
            mutex.release()
            return True

    guarded = Guarded()
    for _ in range(3):
        assert guarded.enter(leave=True)
        _together(6, lambda number: [guarded.enter(leave=False) for _ in range(5)])


# -- forks ---------------------------------------------------------------------------------------------------------

FORKS = """
import faulthandler, os, sys, threading, time
import numpy as np, alpha, alpha.functions as F
engine = alpha.engine("cpu", threads=2)
x, w = alpha.rand(2, 9, 9, 8), alpha.rand(16, 3, 3, 8)
large = alpha.ones(1 << 18)
expected = F.conv2d(x, w).numpy().copy()
stop = False

def work():
    while not stop:
        kept = [alpha.rand(n * 97 % 5000 + 1) for n in range(1, 30)]
        leaf = alpha.tensor(np.ones(9, np.float32), requires_grad=True)
        (leaf * leaf).sum().backward()
        F.conv2d(x, w)
        large + large

threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
time.sleep(0.3)
for _ in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(40, exit=True)
        leaf = alpha.tensor(np.ones(5, np.float32), requires_grad=True)
        (leaf * leaf).sum().backward()
        alpha.manual_seed(3)
        right = np.array_equal(F.conv2d(x, w).numpy(), expected) and ((large + large).numpy() == 2).all()
        engine.memory.release_cached()
        os._exit(0 if right and (leaf.grad.numpy() == 2).all() and alpha.rand(9).isfinite().all() else 3)
    assert os.waitpid(child, 0)[1] == 0
stop = True
for thread in threads: thread.join()
print("ended")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_children_of_a_process_whose_threads_compute() -> None:
    """A child finds locks held by threads that it does not have, and computes all the same; so does its parent."""
    done = subprocess.run([sys.executable, "-c", FORKS, "15"], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and done.stdout == "ended\n", done.stderr


# -- a system that gives no threads --------------------------------------------------------------------------------

_NO_THREADS = """
import threading, _thread
import numpy as np, alpha, alpha.functions as F
def refuse(*arguments, **options):
    raise RuntimeError("can't start new thread")
threading._start_new_thread = _thread.start_new_thread = refuse
alpha.engine("cpu", threads=4)
x, w = alpha.rand(2, 9, 9, 8), alpha.rand(16, 3, 3, 8)
for _ in range(3):
    y = F.conv2d(x, w)
large = alpha.ones(1 << 18)
assert ((large + large).numpy() == 2).all()
print("computed")
"""


def test_without_threads_the_calling_one_computes() -> None:
    """With a warning that says so, once."""
    done = subprocess.run([sys.executable, "-c", _NO_THREADS], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and done.stdout == "computed\n", done.stderr
    assert done.stderr.count("expected 4 threads to compute with, got 1") == 1


def test_a_worker_without_memory_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    from alpha.cpu import workers
    from tests.engine.test_cpu_workers import mark  # a kernel that counts its tasks

    made = workers.Workers()
    allocate = workers._aligned_zeros

    def refuse(nbytes: int) -> object:
        if threading.current_thread() is not threading.main_thread():
            raise MemoryError
        return allocate(nbytes)

    monkeypatch.setattr(workers, "_aligned_zeros", refuse)
    marks = np.zeros(20, np.int64)
    assert made.run(mark, 3, (marks, 0)) == 20 and (marks == 1).all()
    assert made._threads == []


# -- what users' functions and hooks return ------------------------------------------------------------------------


class _Returns(alpha.Function):
    def forward(self, x: alpha.Tensor, result: object, gradient: object) -> object:
        self.gradient = gradient
        return x * 2 if result is None else result

    def backward(self, grad: alpha.Tensor) -> object:
        return self.gradient(grad) if callable(self.gradient) else self.gradient


@pytest.mark.parametrize("result", [1.5, "tensor", (1, 2), [], np.ones(3)])
def test_a_function_that_returns_no_tensor(result: object) -> None:
    x = alpha.ones(3).requires_grad_()
    for argument in (x, x.detach()):
        with pytest.raises(alpha.errors.ArgumentError, match=r"\[_Returns.forward\] expected a tensor or a tuple"):
            _Returns.apply(argument, result, None)


@pytest.mark.parametrize("gradient", [1.5, "gradient", np.ones(3)])
def test_a_backward_that_returns_no_tensor(gradient: object) -> None:
    x = alpha.ones(3).requires_grad_()
    y = _Returns.apply(x, None, gradient)
    with pytest.raises(alpha.errors.ArgumentError, match=r"\[_Returns.backward\] expected tensors or None"):
        y.sum().backward()
    assert x.grad is None


def test_a_gradient_of_another_float_type_is_cast() -> None:
    """As PyTorch does."""
    x = alpha.ones(3).requires_grad_()
    _Returns.apply(x, None, lambda grad: grad.double()).sum().backward()
    assert x.grad is not None and x.grad.dtype == np.float32
    y = x * 1.0
    _Returns.apply(y, None, lambda grad: grad.double()).sum().backward()
    assert x.grad.dtype == np.float32 and (x.grad.numpy() == 2).all()


@pytest.mark.parametrize("leaf", [True, False])
@pytest.mark.parametrize(
    ("hook", "error"),
    [
        (lambda grad: grad.double(), alpha.errors.DtypeError),
        (lambda grad: grad[1:], alpha.errors.ShapeError),
        (lambda grad: grad.reshape(3, 1), alpha.errors.ShapeError),
        (lambda grad: 1.5, alpha.errors.ArgumentError),
        (lambda grad: grad.numpy(), alpha.errors.ArgumentError),
    ],
)
def test_a_hook_keeps_shape_and_type(leaf: bool, hook: object, error: type[Exception]) -> None:
    x = alpha.ones(3).requires_grad_()
    y = x * 2
    (x if leaf else y).register_hook(hook)  # type: ignore[arg-type]
    with pytest.raises(error, match=r"\[register_hook\] expected a hook that returns"):
        y.sum().backward()
    assert x.grad is None


def test_a_leaf_whose_gradient_was_set_to_another_shape() -> None:
    x = alpha.ones(3).requires_grad_()
    x.grad = alpha.ones(2)
    with pytest.raises(alpha.errors.ShapeError, match=r"\[backward\] expected a leaf's .grad of shape \(3,\)"):
        (x * 2).sum().backward()


def test_an_error_on_the_way_leaves_every_gradient_as_it_was() -> None:
    x, y = (alpha.ones(3).requires_grad_() for _ in range(2))
    (x * y).sum().backward()
    z = _Returns.apply(x, None, "nothing")
    with pytest.raises(alpha.errors.ArgumentError):
        (z * y).sum().backward()
    for leaf in (x, y):
        assert leaf.grad is not None and (leaf.grad.numpy() == 1).all()
    del z
    gc.collect()
    (F.mul(x, y)).sum().backward()
    assert x.grad is not None and (x.grad.numpy() == 2).all()


_FORKS_WHILE_COMPILING = """
import os, threading, time
import alpha
from alpha.cpu import compile
from numba.core.compiler_lock import global_compiler_lock

alpha.engine("cpu")
begun = threading.Event()

def compiles():
    with compile._compiling:
        begun.set()
        time.sleep(0.5)
        with global_compiler_lock:
            print("compiled", flush=True)

thread = threading.Thread(target=compiles)
thread.start()
begun.wait()
child = os.fork()
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
thread.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_fork_beside_a_thread_that_compiles_takes_locks_in_its_order() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FORKS_WHILE_COMPILING], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "compiled\n"), done.stderr


_SAME_LOOP = """
import gc, sys, threading
import numpy as np
import alpha
from alpha.cpu.loops import machine

made = []
loaded = machine.Loop.__init__

def counted(self, code):
    made.append(code)
    loaded(self, code)

machine.Loop.__init__ = counted
x = alpha.tensor(np.ones((4, 3, 3, 8)))
running = [alpha.zeros(8, dtype=alpha.float64), alpha.ones(8, dtype=alpha.float64)]
start = threading.Barrier(8)

def run():
    start.wait()
    alpha.nn.functional.batch_norm(x, running[0].clone(), running[1].clone(), training=True)

threads = [threading.Thread(target=run) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
assert len(made) == len(set(made)) > 0, len(made)
"""


def test_threads_that_need_a_loop_at_once_get_the_same() -> None:
    """Each would run its own, of which all but one are freed while they run."""
    done = subprocess.run([sys.executable, "-c", _SAME_LOOP], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr

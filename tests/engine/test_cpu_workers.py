"""The CPU engine's native workers: shared launches, late and absent workers, many Python threads, forks, failures."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import functions as F
from alpha.cpu import products, sleep, tasks, workers
from alpha.cpu.atomics import take_task
from alpha.cpu.compile import compiled
from alpha.cpu.engine import CPUEngine
from alpha.cpu.job_slot import JOB_SLOT, MAX_SHARES, SHARE, draw_task
from alpha.cpu.sharing import divide
from alpha.cpu.workers import Workers


@compiled
def mark(share, marks, work):  # type: ignore[no-untyped-def]
    """marks[task] += 1 after some work; how many this thread marked."""
    done = 0
    while True:
        task = draw_task(share, len(marks))
        if task >= len(marks):
            break
        value = 1.0
        for _ in range(work):
            value = value * 0.5 + 0.5
        marks[task] += int(value)
        done += 1
    return done


@compiled
def count(_share, expected_and_come):  # type: ignore[no-untyped-def]
    """How many threads take part until ``expected_and_come[0]`` of them have come, or a while has passed."""
    come, turns_of_all = expected_and_come[1:].ctypes.data, expected_and_come[2:].ctypes.data
    take_task(come)
    turns = 0
    while expected_and_come[1] < expected_and_come[0] and turns < 2_000_000:
        turns += take_task(turns_of_all) >= 0
    return 1


@compiled
def allocate(_share, size):  # type: ignore[no-untyped-def]
    """Asks for memory."""
    return len(np.empty(size))


@pytest.fixture
def private_workers() -> Any:
    """Workers that only one test uses."""
    made = Workers()
    yield made
    made.stop()


def flag(workers: Workers, worker: int) -> Any:
    """Whether a worker sleeps: a view of one int64 in its ``Sleeper``."""
    memory, sleeper = workers._sleepers[worker]
    start = sleeper + sleep.SLEEPER.asleep - memory.ctypes.data
    return memory[start : start + 8].view(np.int64)


def asleep(workers: Workers) -> bool:
    """Whether all workers sleep."""
    return all(flag(workers, worker)[0] for worker in range(len(workers._sleepers)))


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_every_task_is_done_once(private_workers: Workers, threads: int) -> None:
    for number, work in ((1, 0), (3, 10), (1000, 1), (64, 10_000)):
        for _ in range(50):
            marks = np.zeros(number, np.int64)
            assert private_workers.run(mark, threads, (marks, work)) == number
            assert (marks == 1).all()


def draw(share: int, tasks: int) -> int:
    """The next task, as kernels draw it that get a share's address."""
    task: int = workers._DRAW.call(share, tasks)
    return task


@pytest.mark.parametrize("threads", [1, 2, 3, MAX_SHARES + 3])
@pytest.mark.parametrize("tasks", [1, 2, 7, 1000])
def test_every_task_of_a_share_is_done_once(private_workers: Workers, tasks: int, threads: int) -> None:
    marks = np.zeros(tasks, np.int64)

    def work(share: int, _job: int) -> None:
        while (task := draw(share, tasks)) < tasks:
            marks[task] += 1

    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(work)
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    for times in range(1, 11):
        private_workers.share(address, b"", threads)
        assert (marks == times).all()


def test_a_thread_draws_its_share_and_then_what_others_leave(private_workers: Workers) -> None:
    slot = private_workers._thread_slot.prepare()
    shares = [slot + JOB_SLOT.shares + k * SHARE.nbytes for k in range(3)]
    divide(slot, 3)
    assert [draw(shares[1], 10) for _ in range(3)] == [3, 4, 5]
    assert [draw(shares[2], 10), draw(shares[0], 10)] == [6, 0]
    assert [draw(shares[1], 10) for _ in range(6)] == [7, 8, 9, 1, 2, 10]
    assert [draw(share, 10) for share in shares] == [10] * 3


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_as_many_threads_as_asked_take_part(private_workers: Workers, threads: int) -> None:
    private_workers.run(mark, 4, (np.zeros(10, np.int64), 0))  # more of them exist than are asked
    most = 0
    for _ in range(20):  # one that the system does not let run in time is not waited for
        joined = private_workers.run(count, threads, (np.array([threads, 0, 0]),))
        assert 1 <= joined <= threads
        most = max(most, joined)
    assert most == threads


def test_a_sleeping_worker_is_woken(private_workers: Workers) -> None:
    for _ in range(5):
        assert private_workers.run(mark, 2, (np.zeros(10, np.int64), 0)) == 10
        while not asleep(private_workers):
            threading.Event().wait(0.01)
    assert max(private_workers.run(count, 2, (np.array([2, 0, 0]),)) for _ in range(20)) == 2


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")
def test_a_sleeping_worker_may_use_every_processor(private_workers: Workers) -> None:
    """While it is awake it is kept off one."""
    for _ in range(5):
        assert max(private_workers.run(count, 3, (np.array([3, 0, 0]),)) for _ in range(20)) == 3
        while not asleep(private_workers):
            threading.Event().wait(0.01)
        assert [os.sched_getaffinity(thread.native_id or 0) for thread in private_workers._threads] == [
            os.sched_getaffinity(0)
        ] * 2


def test_a_worker_that_never_comes_holds_up_nobody(private_workers: Workers) -> None:
    """As one whose core another process has: nothing is ever released for it."""
    private_workers.run(mark, 2, (np.zeros(10, np.int64), 0))
    while not asleep(private_workers):
        threading.Event().wait(0.01)
    flag(private_workers, 0)[0] = 0  # no launch wakes it now
    for _ in range(100):
        marks = np.zeros(100, np.int64)
        assert private_workers.run(mark, 2, (marks, 100)) == 100
        assert (marks == 1).all()
    flag(private_workers, 0)[0] = 1


def test_a_job_without_tasks_leaves_the_workers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers.WORKERS, "share", None)
    loop = products._outer_loop(32, False)
    record = tasks.Record((0, 0, 1, 3, 0))
    tasks.run(loop, struct.pack("4qd", record.address, 0, 0, 0, 1.0), record.tasks, 2)


def test_launches_from_many_threads(cpu: CPUEngine) -> None:
    rng = np.random.default_rng(0)
    x, w = (alpha.tensor(rng.standard_normal(shape), engine=cpu) for shape in ((3, 9, 9, 8), (16, 3, 3, 8)))
    expected = F.conv2d(x, w, padding=1).numpy()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(50):
                np.testing.assert_array_equal(F.conv2d(x, w, padding=1).numpy(), expected)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_process_has_workers_of_its_own(cpu: CPUEngine) -> None:
    rng = np.random.default_rng(0)
    x, w = (alpha.tensor(rng.standard_normal(shape), engine=cpu) for shape in ((3, 9, 9, 8), (16, 3, 3, 8)))
    expected = F.conv2d(x, w, padding=1).numpy()
    large = alpha.ones(1 << 18, engine=cpu)
    for _ in range(2):
        large + large
    busy = ctypes.c_int64.from_address(workers.WORKERS._slot + JOB_SLOT.busy)
    with workers.WORKERS._lock:  # as where another thread is in the middle of a launch, or starts workers
        busy.value = 1
        child = os.fork()
        if child == 0:
            same = np.array_equal(F.conv2d(x, w, padding=1).numpy(), expected)
            for _ in range(2):
                same = same and bool(((large + large).numpy() == 2).all())
            os._exit(0 if same else 1)
        busy.value = 0
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(F.conv2d(x, w, padding=1).numpy(), expected)


def test_a_kernel_without_memory_raises_and_the_workers_go_on(private_workers: Workers) -> None:
    with pytest.raises(MemoryError):
        private_workers.run(allocate, 2, (1 << 58,))
    marks = np.zeros(100, np.int64)
    assert private_workers.run(mark, 2, (marks, 10)) == 100


@pytest.mark.slow
def test_an_interpreter_ends_with_workers_awake() -> None:
    program = "import alpha; x = alpha.ones((64, 8, 8, 16)); print(alpha.nn.functional.leaky_relu(x).sum().item())"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, str(64.0 * 8 * 8 * 16)), run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.slow
def test_compiling_says_so_once(tmp_path: Any) -> None:
    """On standard error, by the logger of alpha.cpu.compile; and not where the kernels are kept already."""
    program = "import alpha; x = alpha.ones(2, 3, 3, 1); alpha.nn.functional.conv2d(x, x, padding=1)"
    said = []
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"ALPHA_CACHE": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        said.append(run.stderr.count("compiling the CPU engine's kernels"))
    assert said == [1, 0]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="processes end by signals on POSIX")
@pytest.mark.parametrize("started", [0, 1])
def test_an_interrupted_process_ends_as_one(started: int) -> None:
    """Whoever waits for it, as a shell's loop does, is told of the interrupt: the workers' end does not hide it."""
    script = (
        "import alpha\n"
        f"alpha.set_default_engine(alpha.engine('cpu', threads={started + 1}))\n"
        "x, w = alpha.zeros(64, 14, 14, 64), alpha.zeros(64, 3, 3, 64)\n"
        "alpha.functions.conv2d(x, w, padding=1)\n"
        "from alpha.cpu.workers import WORKERS\n"
        f"assert len(WORKERS._threads) == {started}\n"
        "raise KeyboardInterrupt"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(alpha.__file__).parent.parent)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True, env=environment, timeout=180)
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")
    assert done.returncode == -signal.SIGINT

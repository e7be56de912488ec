"""DataLoader under faults: interrupts at every step, forks, threads, signal handlers and finalizers, dying workers.

Whatever happens, the position is that of the batches handed out, an iteration goes on with the next one, nothing is
left behind, and nothing hangs: every test has a deadline, after which the process ends with all threads' stacks.
"""

from __future__ import annotations

import copy
import errno
import faulthandler
import gc
import multiprocessing
import multiprocessing.context
import multiprocessing.util
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import datasets, errors
from alpha.atomic import AtomicReference
from alpha.datasets import ArrayDataset, DataLoader, transforms
from alpha.datasets import prefetch as prefetching

LIMIT = 150.0  # seconds for a test; a busy machine stays far below
ROOT = Path(alpha.__file__).parent.parent
SOURCES = os.path.dirname(datasets.__file__)

posix = pytest.mark.skipif(os.name != "posix", reason="forks and signals are POSIX's")
KINDS = [(0, 0), (0, 2), (2, 1)]
"""Values of (workers, prefetch)."""


class Numbers:
    """``count`` samples, each of which is its index, ``side`` pixels wide and high, made in ``delay`` seconds."""

    def __init__(self, count: int = 10, delay: float = 0.0, side: int = 2) -> None:
        self.count, self.delay, self.side = count, delay, side

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if self.delay:
            time.sleep(self.delay)
        return np.full((self.side, self.side, 1), index, np.float32), index


def make(count: int = 10, workers: int = 0, prefetch: int = 0, delay: float = 0.0, side: int = 2) -> DataLoader:
    return DataLoader(Numbers(count, delay, side), 3, shuffle=True, seed=4, workers=workers, prefetch=prefetch)


def labels(batches: Any) -> list[list[int]]:
    return [y.numpy().tolist() for _, y in batches]


def epochs(count: int, number: int) -> list[list[list[int]]]:
    """The first epochs of ``make(count)``."""
    loader = make(count)
    return [labels(loader) for _ in range(number)]


def own_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "alpha-prefetch"]


def nothing_is_left(seconds: float = 5.0) -> bool:
    """Whether all threads and processes of loaders end, soon."""
    deadline = time.monotonic() + seconds
    while own_threads() or multiprocessing.active_children():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


@pytest.fixture(autouse=True)
def deadline() -> Iterator[None]:
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    gc.collect()
    assert nothing_is_left()


def run_script(folder: Path, script: str, *arguments: str) -> str:
    """What a script prints that must end by itself, with exit code 0."""
    path = folder / "script.py"
    path.write_text(script)
    process = subprocess.run(
        [sys.executable, str(path), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


# -- interrupts ------------------------------------------------------------------------------------------------------


class Injector:
    """Raises KeyboardInterrupt at the ``at``-th event of the main thread in the code of datasets/."""

    def __init__(self, at: int, opcodes: bool) -> None:
        self.at, self.opcodes, self.count = at, opcodes, 0
        self.place = "nowhere"

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(SOURCES):
            return None
        frame.f_trace_opcodes = self.opcodes
        return self.look(frame, event, argument)

    def look(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.count += 1
        if self.count == self.at:
            name = os.path.basename(frame.f_code.co_filename)
            self.place = f"{event} {self.at}, {name}:{frame.f_lineno}, {frame.f_code.co_name}"
            raise KeyboardInterrupt
        return self.look

    @property
    def hit(self) -> bool:
        return self.count >= self.at


class Interrupted:
    """One epoch with one interrupt, and what came of it."""

    def __init__(self, loader: DataLoader, injector: Injector) -> None:
        self.loader, self.injector = loader, injector
        self.got: list[list[int]] = []
        self.iteration: Any = None
        self.raised = False
        before = sys.gettrace()
        sys.settrace(injector)
        try:
            self.iteration = iter(loader)
            while True:
                try:
                    batch = next(self.iteration)
                except StopIteration:
                    break
                self.got.append(batch[1].numpy().tolist())
                del batch
            loader.state_dict()
        except KeyboardInterrupt:
            self.raised = True
        finally:
            sys.settrace(before)

    def check(self, expected: list[list[list[int]]]) -> None:
        """The interrupt came through; the position, the rest of this epoch and the next epoch are right."""
        place, loader = self.injector.place, self.loader
        assert self.raised == self.injector.hit, place
        state = loader.state_dict()
        assert state["batch"] + len(loader) * state["epoch"] == len(self.got), place
        if self.iteration is not None:
            self.got += labels(self.iteration)
            assert self.got == expected[0], place
        self.iteration = None
        assert nothing_is_left(), place
        # Before the first batch the epoch counts as started or not, as if the call had ended or not begun.
        assert labels(loader) in expected[1 if self.got else 0 :], place


@pytest.mark.parametrize(("prefetch", "opcodes", "stride"), [(0, False, 1), (2, False, 2), (0, True, 7), (2, True, 17)])
def test_an_interrupt_at_any_step_leaves_the_position_of_what_was_handed_out(
    prefetch: int, opcodes: bool, stride: int
) -> None:
    expected = epochs(7, 2)
    Interrupted(make(7, 0, prefetch), Injector(10**9, False))  # all modules imported
    at, files = 1, open_files()
    while True:
        run = Interrupted(make(7, 0, prefetch), Injector(at, opcodes))
        run.check(expected)
        if not run.injector.hit:
            break
        at += stride
    assert at > 200 and open_files() == files


def test_an_interrupt_while_workers_start_or_work_leaves_none() -> None:
    expected = epochs(7, 2)
    for at in (3, 60, 95, 140, 185, 230):
        loader = make(7, 2, 1)
        run = Interrupted(loader, Injector(at, False))
        assert run.raised, run.injector.place
        loader.workers = 0  # to go on is faster without
        run.iteration = None
        assert nothing_is_left(), run.injector.place
        state = loader.state_dict()
        assert state["batch"] == len(run.got), run.injector.place
        loader.load_state_dict(state)
        assert run.got + labels(loader) == expected[0], run.injector.place


@posix
@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_storm_of_signals(prefetch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda failure: None)  # of an interrupt in a finalizer
    expected = epochs(30, 1)[0]
    loader, draw, files = make(30, 0, prefetch), random.Random(prefetch), open_files()
    whole = interrupted = 0

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        end = time.monotonic() + 1
        while time.monotonic() < end or not (whole and interrupted):
            loader.epoch, got = 0, []
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-4, 6e-3), 5e-4)
                    for _, y in loader:
                        got.append(y)
                    whole += 1
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupted += 1
            done = [y.numpy().tolist() for y in got]
            assert done == expected[: len(done)]
            state = loader.state_dict()
            # The last batch may have been handed out and the signal came before the list had it.
            assert 0 <= state["batch"] + len(loader) * state["epoch"] - len(done) <= 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    loader.epoch = 0
    assert labels(loader) == expected
    gc.collect()
    assert nothing_is_left() and open_files() == files


@posix
def test_a_storm_of_signals_on_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda failure: None)  # of an interrupt in a finalizer
    loader = make(30, 2, 1)
    list(loader)
    files = open_files()

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for delay in (0.002, 0.01, 0.03, 0.1, 0.3):
            with pytest.raises(KeyboardInterrupt):
                try:
                    signal.setitimer(signal.ITIMER_REAL, delay, 0.05)
                    while True:
                        list(loader)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            assert nothing_is_left()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    loader.epoch = 0
    assert labels(loader) == epochs(30, 1)[0] and open_files() == files


@posix
def test_an_interrupt_while_a_dropped_iteration_waits_for_its_thread_is_not_lost() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for _ in range(3):
            timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                for _ in make(30, 0, 1, delay=0.1):
                    timer.start()
                    break  # waits for the batch in preparation: 0.3 s
                for _ in range(100):
                    time.sleep(0.01)
            timer.join()
            assert nothing_is_left()
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupted_iteration_goes_on_whoever_raised_the_interrupt() -> None:
    class Stops(Numbers):
        armed = True

        def __getitem__(self, index: int) -> tuple[Any, Any]:
            if index == 7 and self.armed:
                self.armed = False
                raise KeyboardInterrupt
            return super().__getitem__(index)

    for prefetch in (0, 2):
        loader = DataLoader(Stops(12), 3, prefetch=prefetch)
        iteration, got = iter(loader), []
        with pytest.raises(KeyboardInterrupt):
            for _, y in iteration:
                got.append(y.numpy().tolist())
        assert own_threads() == [] and loader.epoch == 1 and loader.state_dict()["batch"] == 2
        got += labels(iteration)
        assert got == labels(DataLoader(Numbers(12), 3)) and loader.epoch == 1


def test_who_keeps_an_interrupts_traceback_keeps_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(batches: Any) -> None:
        raise KeyboardInterrupt

    iteration = iter(make(24, 0, 2))
    got = [next(iteration)[1].numpy().tolist()]
    with monkeypatch.context() as patch:
        patch.setattr("alpha.datasets.iteration._Batches._refuse_own_thread", interrupt)
        with pytest.raises(KeyboardInterrupt) as kept:
            next(iteration)
    assert own_threads() == [] and kept.value.__traceback__ is not None
    assert got + labels(iteration) == epochs(24, 1)[0]


def test_a_batch_whose_way_was_interrupted_is_freed_with_its_iteration() -> None:
    loader = make(7)
    batches = loader.__iter__()._batches  # type: ignore[attr-defined]
    next(batches)  # finished, and not taken
    assert loader.state_dict()["batch"] == 0
    del batches
    gc.collect()
    state = loader.state_dict()
    assert state["batch"] == 0 and loader._place.get().progress.offer.box == {}  # type: ignore[union-attr]


@posix
def test_a_signal_stops_no_step_of_an_example_whose_terminal_has_gone(tmp_path: Path) -> None:
    script = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from resuming import Interrupts

interrupts = Interrupts()
interrupts.deferred = True
os.close(2)
signal.raise_signal(signal.SIGTERM)
print(interrupts.received == signal.SIGTERM)
"""
    assert run_script(tmp_path, script, str(ROOT / "examples")) == "True\n"


# -- signal handlers and finalizers that use the loader --------------------------------------------------------------


@posix
@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("action", ["next", "for", "close", "state", "epoch", "load"])
def test_a_signal_handler_that_uses_the_loader_does_not_hang(action: str, prefetch: int) -> None:
    loader = make(30, 0, prefetch, delay=0.001)
    iteration, state = iter(loader), loader.state_dict()
    results: list[Any] = []
    actions: dict[str, Callable[[], Any]] = {
        "next": lambda: next(iteration, None),
        "for": lambda: next(iter(loader)),
        "close": iteration.close,  # type: ignore[attr-defined]
        "state": loader.state_dict,
        "epoch": lambda: setattr(loader, "epoch", 5),
        "load": lambda: loader.load_state_dict(state),
    }

    def handler(number: int, frame: FrameType | None) -> None:
        try:
            results.append(actions[action]())
        except errors.DataError as error:
            results.append(error)
        if len(results) < 3:
            signal.setitimer(signal.ITIMER_REAL, 0.005)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002)
        got = labels(iteration)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert results
    refused = [result for result in results if isinstance(result, errors.DataError)]
    if action == "next":
        got += [result[1].numpy().tolist() for result in results if isinstance(result, tuple)]
        assert all("expected to be asked for one batch at a time" in str(error) for error in refused)
    else:
        assert not refused
    expected = epochs(30, 1)[0]
    assert got == expected[: len(got)] if action == "close" else sorted(got) == sorted(expected)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_finalizer_during_a_collection_that_uses_the_loader_does_not_hang(prefetch: int) -> None:
    results: list[Any] = []

    class Cycle:
        def __init__(self, iteration: Any) -> None:
            self.iteration, self.me = iteration, self

        def __del__(self) -> None:
            try:
                results.append(next(self.iteration))
            except errors.DataError as error:
                results.append(error)
            results.append(loader.state_dict())
            results.append(labels(make(7, 0, prefetch)))

    class Collecting(Numbers):
        def __getitem__(self, index: int) -> tuple[Any, Any]:
            if index == 4:
                ready.wait(LIMIT)
                Cycle(kept[0])
                gc.collect()
            return super().__getitem__(index)

    loader = DataLoader(Collecting(9), 3, prefetch=prefetch)
    kept: list[Any] = []
    ready = threading.Event()
    iteration = iter(loader)
    kept.append(iteration)
    ready.set()
    assert labels(iteration) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert len(results) == 3 and isinstance(results[0], errors.DataError)
    kept.clear()


def test_a_data_set_that_iterates_over_its_own_iteration_is_told() -> None:
    kept: list[Any] = []
    ready = threading.Event()

    class Iterating(Numbers):
        def __getitem__(self, index: int) -> tuple[Any, Any]:
            ready.wait(LIMIT)
            return super().__getitem__(len(next(kept[0])))

    for prefetch in (0, 2):
        ready.clear()
        kept[:] = [iter(DataLoader(Iterating(9), 3, prefetch=prefetch))]
        ready.set()
        with pytest.raises(errors.DataError, match="expected to be asked for one batch at a time, got a call from the"):
            next(kept[0])
        kept.clear()


# -- forks -----------------------------------------------------------------------------------------------------------


def in_child(work: Callable[[], Any]) -> int:
    """The exit code of a forked child that does ``work``: 0 if it succeeds, and it leaves as a script does."""
    child = os.fork()
    if child == 0:
        signal.alarm(int(LIMIT / 2))
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            multiprocessing.util._exit_function()  # at the end of Python this would end daemonic processes
            prefetching._end_all()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@posix
@pytest.mark.parametrize(("workers", "prefetch"), KINDS)
def test_a_child_goes_on_where_its_parent_was_and_leaves_the_parent_alone(workers: int, prefetch: int) -> None:
    expected = epochs(36, 2)
    loader = make(36, workers, prefetch, side=128)  # batches larger than a pipe holds, so that the workers wait
    iteration = iter(loader)
    got = [next(iteration)[1].numpy().tolist() for _ in range(3)]
    children = {process.pid for process in multiprocessing.active_children()}

    def drop() -> None:
        nonlocal iteration
        del iteration
        gc.collect()
        assert multiprocessing.active_children() == []

    def go_on() -> None:
        assert labels(iteration) == expected[0][3:]
        loader.workers = 0
        assert labels(loader) == expected[1]

    assert in_child(drop) == 0 and in_child(go_on) == 0 and in_child(lambda: None) == 0
    assert {process.pid for process in multiprocessing.active_children()} == children
    assert got + labels(iteration) == expected[0]
    loader.workers = 0
    assert labels(loader) == expected[1]


def iterate(loader: DataLoader, iteration: Any, rest: list[list[int]]) -> None:
    assert labels(iteration) == rest and len(labels(loader)) == len(loader)


@posix
def test_a_child_of_multiprocessing_goes_on_too() -> None:
    expected = epochs(24, 1)[0]
    for workers in (0, 1):
        loader = make(24, workers, 2)
        iteration = iter(loader)
        got = [next(iteration)[1].numpy().tolist()]
        loader.workers = 0
        child = multiprocessing.get_context("fork").Process(target=iterate, args=(loader, iteration, expected[1:]))
        child.start()
        child.join(LIMIT / 2)
        assert child.exitcode == 0
        assert got + labels(iteration) == expected


@posix
def test_forks_beside_threads_that_iterate() -> None:
    stop, failures = threading.Event(), []

    def work() -> None:
        while not stop.is_set():
            try:
                assert len(labels(make(30, 0, 2))) == 10
            except BaseException as error:
                failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    shared = iter(make(300_000, 0, 2))
    consumer = threading.Thread(target=lambda: labels(shared))
    consumer.start()

    def child() -> None:
        assert len(labels(make(30, 0, 2))) == 10
        next(shared)  # which another thread of the parent was in the middle of

    try:
        codes = [in_child(child) for _ in range(25)]
    finally:
        stop.set()
        shared.close()  # type: ignore[attr-defined]
        for thread in (*threads, consumer):
            thread.join(LIMIT / 2)
    assert codes == [0] * 25 and failures == []


@posix
def test_a_child_that_exits_as_a_script_does_leaves_its_parents_workers(tmp_path: Path) -> None:
    script = """
import os, sys
import numpy as np
from alpha.datasets import DataLoader

class Numbers:
    def __len__(self): return 40
    def __getitem__(self, index): return np.zeros((2, 2, 1), np.uint8), index

if __name__ == "__main__":
    kept = iter(DataLoader(Numbers(), 4, workers=1))
    next(kept)
    if os.fork() == 0:
        sys.exit(0)
    assert os.wait()[1] == 0
    print(len(list(kept)))
"""
    assert run_script(tmp_path, script) == "9\n"


# -- threads ---------------------------------------------------------------------------------------------------------


def in_threads(work: Callable[[], None]) -> None:
    """Three threads do ``work``; raises what they raise."""
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT / 2)
            assert not thread.is_alive()
    finally:
        sys.setswitchinterval(interval)
    if failures:
        raise failures[0]


@pytest.mark.parametrize(("workers", "prefetch"), KINDS)
def test_threads_that_share_an_iteration_get_each_batch_once(workers: int, prefetch: int) -> None:
    expected = epochs(60, 1)[0]
    for _ in range(1 if workers else 8):
        loader = make(60, workers, prefetch)
        iteration, got = iter(loader), []
        in_threads(lambda iteration=iteration, got=got: got.extend(labels(iteration)))  # type: ignore[misc]
        assert sorted(got) == sorted(expected)
        assert loader.state_dict() == {**make(60).state_dict(), "epoch": 1} and list(iteration) == []


@pytest.mark.parametrize(("workers", "prefetch"), KINDS)
def test_threads_that_share_a_loader_get_an_epoch_each(workers: int, prefetch: int) -> None:
    expected = epochs(30, 3)
    for _ in range(1 if workers else 8):
        loader = make(30, workers, prefetch)
        got: list[list[list[int]]] = []
        in_threads(lambda loader=loader, got=got: got.append(labels(loader)))  # type: ignore[misc]
        assert sorted(got) == sorted(expected) and loader.epoch == 3


def test_a_thread_that_has_the_identifier_of_an_ended_one_is_not_taken_for_it() -> None:
    class Last(Numbers):
        """Ends its thread after the first batch."""

        def __getitem__(self, index: int) -> tuple[Any, Any]:
            if index == 3:
                raise ZeroDivisionError
            return super().__getitem__(index)

    failures = []
    for _ in range(5):
        iteration = iter(DataLoader(Last(24), 3, prefetch=10**9))  # no more than there are batches
        while own_threads():
            time.sleep(0.001)
        try:
            in_threads(lambda iteration=iteration: labels(iteration))  # type: ignore[misc]
        except ZeroDivisionError as error:
            failures.append(error)
    assert len(failures) == 5


def test_an_error_ends_the_iteration_for_all_threads() -> None:
    class Broken(Numbers):
        def __getitem__(self, index: int) -> tuple[Any, Any]:
            if index == 20:
                raise ZeroDivisionError
            return super().__getitem__(index)

    for prefetch in (0, 2):
        iteration = iter(DataLoader(Broken(60), 2, prefetch=prefetch))
        with pytest.raises(ZeroDivisionError):
            in_threads(lambda iteration=iteration: labels(iteration))  # type: ignore[misc]


def test_compare_and_set_loses_no_update() -> None:
    reference = AtomicReference(0)

    def count() -> None:
        for _ in range(500):
            reference.update(lambda value: value + 1)

    in_threads(count)
    assert reference.get() == 1500
    value = reference.get()
    assert not reference.replace(-1, 5) and reference.get() == value


# -- workers and threads that die or cannot start --------------------------------------------------------------------


class TwoFaced(Exception):
    """Comes back from a pickle as something else."""

    def __reduce__(self) -> Any:
        return dict, ()


class Speechless(Exception):
    """Cannot be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Unpicklable(Exception):
    """Cannot be pickled, and says nothing."""

    def __reduce__(self) -> Any:
        raise RuntimeError("no pickle")


class Failing(Numbers):
    """Sample 5 raises ``error`` or ends the process."""

    def __init__(self, error: str) -> None:
        super().__init__(12)
        self.error = error

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if index == 5 and self.error == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if index == 5 and self.error == "exit":
            os._exit(3)
        if index == 5:
            found: Any = globals().get(self.error) or getattr(__builtins__, self.error, None) or MemoryError
            raise found()
        return super().__getitem__(index)


class Unreadable(Numbers):
    """Pickles, but does not come back."""

    def __setstate__(self, state: Any) -> None:
        raise ValueError("another version")


@pytest.mark.parametrize(
    ("data", "expected", "message"),
    [
        (Failing("MemoryError"), errors.OutOfMemoryError, r"expected memory for batch 2 of 6, got MemoryError"),
        (Failing("TwoFaced"), errors.DataError, "expected a batch from a worker process, got TwoFaced: see"),
        (Failing("Unpicklable"), errors.DataError, "expected a batch from a worker process, got Unpicklable: see"),
        (Failing("Speechless"), Speechless, None),
        (Unreadable(12), errors.ArgumentError, "that a worker process can unpickle, got ValueError: another version"),
        pytest.param(Failing("exit"), errors.DataError, r"worker process 0, got its end \(exit code 3\)", marks=posix),
        pytest.param(Failing("kill"), errors.DataError, r"got its end \(exit code -9\)", marks=posix),
    ],
    ids=["memory", "two-faced", "unpicklable", "speechless", "unreadable", "exit", "kill"],
)
def test_a_failure_in_a_worker_is_told(data: Any, expected: type[BaseException], message: str | None) -> None:
    loader = DataLoader(data, 2, workers=1)
    with pytest.raises(expected) as caught:
        list(loader)
    if message is not None:
        caught.match(message)
    assert multiprocessing.active_children() == [] and own_threads() == []


@posix
def test_the_end_of_a_worker_is_seen_where_a_forked_child_holds_its_pipe_open(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[int] = []
    original = multiprocessing.context.BaseContext.Pipe

    def pipe(self: Any, duplex: bool = True) -> Any:
        connections = original(self, duplex)
        copies.append(os.dup(connections[1].fileno()))  # as a fork at this moment does
        return connections

    try:
        with monkeypatch.context() as patch:
            patch.setattr(multiprocessing.context.BaseContext, "Pipe", pipe)
            with pytest.raises(errors.DataError, match=r"got its end \(exit code 3\)"):
                list(DataLoader(Failing("exit"), 2, workers=1))
        assert copies
    finally:
        for copied in copies:
            os.close(copied)


def test_a_lack_of_memory_is_told_without_workers_too() -> None:
    for prefetch in (0, 2):
        loader = DataLoader(Failing("MemoryError"), 2, prefetch=prefetch)
        with pytest.raises(errors.OutOfMemoryError, match="expected memory for batch 2 of 6, got MemoryError"):
            list(loader)
        assert loader.state_dict()["batch"] == 2


def test_a_process_that_cannot_be_started_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = make(30, 3, 2)
    starts, files = iter(range(2)), open_files()
    original = multiprocessing.util.spawnv_passfds

    def spawn(*arguments: Any) -> int:
        if next(starts, None) is None:  # the third
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        return original(*arguments)

    resource_tracker.ensure_running()
    with monkeypatch.context() as patch:
        patch.setattr(multiprocessing.util, "spawnv_passfds", spawn)
        with pytest.raises(errors.DataError, match="expected to start worker process 2 of 3, got BlockingIOError: "):
            iter(loader)
    assert nothing_is_left() and loader.epoch == 0 and (not files or open_files() <= files + 1)


def start_workers(outcome: Any) -> None:
    try:
        iter(make(30, 2, 2))
    except errors.DataError as error:
        outcome.send(str(error))


@posix
def test_workers_of_a_daemonic_process_are_told() -> None:
    ours, theirs = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=start_workers, args=(theirs,), daemon=True)
    child.start()
    assert ours.poll(LIMIT / 2) and "daemonic processes are not allowed to have children: use" in ours.recv()
    child.join()


@pytest.mark.parametrize("where", ["prefetch._thread.start_new_thread", "threading._start_new_thread"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_thread_that_cannot_be_started_is_told(monkeypatch: pytest.MonkeyPatch, where: str, workers: int) -> None:
    def fail(*arguments: Any) -> int:
        raise RuntimeError("can't start new thread")

    start = prefetching._thread.start_new_thread
    loader = make(30, workers, 2)
    with monkeypatch.context() as patch:
        if where.startswith("threading"):
            patch.setattr(threading, "_start_new_thread", fail)
        else:
            patch.setattr(
                "alpha.datasets.prefetch._thread", type("Fails", (), {"start_new_thread": staticmethod(fail)})
            )
        with pytest.raises(errors.DataError, match="expected to start a thread that prepares batches, got"):
            iter(loader)
    assert prefetching._thread.start_new_thread is start and nothing_is_left()
    assert loader.epoch == 0 and (workers or len(labels(loader)) == 10)


def test_a_thread_that_ends_without_a_word_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetching, "_CHECK", 0.05)
    monkeypatch.setattr(prefetching, "_serve", lambda channel, open_source: channel.outcomes.put(None))
    with pytest.raises(errors.DataError, match="expected a batch from the background thread, got its end"):
        next(iter(make(30, 0, 2)))


@posix
def test_workers_end_with_a_killed_parent_in_the_middle_of_a_sample(tmp_path: Path) -> None:
    script = """
import os, sys, time
import numpy as np
from alpha.datasets import DataLoader

class Slow:
    def __len__(self): return 40
    def __getitem__(self, index):
        open(os.path.join(sys.argv[1], str(os.getpid())), "w").close()
        time.sleep(3600)

if __name__ == "__main__":
    next(iter(DataLoader(Slow(), 4, workers=1)))
"""
    path, pids = tmp_path / "script.py", tmp_path / "pids"
    path.write_text(script)
    pids.mkdir()
    process = subprocess.Popen([sys.executable, str(path), str(pids)], env={**os.environ, "PYTHONPATH": str(ROOT)})
    while not list(pids.iterdir()):
        time.sleep(0.02)
    process.kill()
    process.wait()
    (worker,) = (int(file.name) for file in pids.iterdir())
    while True:
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            break
        time.sleep(0.02)


# -- what a data set returns -----------------------------------------------------------------------------------------

IMAGE = np.zeros((2, 2, 1), np.uint8)


class Odd:
    """An array that fails to be one."""

    def __array__(self, *arguments: Any, **options: Any) -> Any:
        raise RuntimeError("no array")


class Constant(Numbers):
    """Every sample is the same."""

    def __init__(self, sample: Any) -> None:
        super().__init__(4)
        self.sample = sample

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.sample  # type: ignore[no-any-return]


class ConstantBatch(Constant):
    """Every batch is the same."""

    def batch(self, indices: Any, rng: Any) -> Any:
        return self.sample


@pytest.mark.parametrize(
    "sample",
    [
        None,
        (None, 1),
        (Odd(), 1),
        (IMAGE.astype(object), 1),
        (np.array(["1"]), 1),
        (IMAGE, None),
        (IMAGE, Odd()),
        (IMAGE, 2**63),
        (IMAGE, 2**70),
        (IMAGE, np.array(2**63, np.uint64)),
    ],
    ids=range(10),
)
def test_a_sample_that_is_none_is_told(sample: Any) -> None:
    with pytest.raises(errors.AlphaError, match=r"^\[(DataLoader|default_collate|tensor)\] expected .*, got .*"):
        next(iter(DataLoader(Constant(sample), 2, prefetch=0)))


@pytest.mark.parametrize(
    "samples", [[(IMAGE, 1), (IMAGE, 1.0)], [(IMAGE, 1), (IMAGE[:1], 1)], [(IMAGE, 1), (IMAGE,)]], ids=range(3)
)
def test_a_sample_unlike_the_first_is_told(samples: Any) -> None:
    class Changing(Numbers):
        def __getitem__(self, index: int) -> Any:
            return samples[index]

    with pytest.raises(errors.AlphaError, match=r"^\[DataLoader\] expected .*, got .*: "):
        next(iter(DataLoader(Changing(2), 2, prefetch=0)))


@pytest.mark.parametrize(
    "batch",
    [
        None,
        5,
        (np.stack([IMAGE] * 2),),
        ([IMAGE, IMAGE[0]], [0, 1]),
        (np.stack([IMAGE] * 3), [0, 1, 2]),
        (np.stack([IMAGE] * 2), [0, 1, 2]),
        (np.stack([IMAGE] * 2), ["a", "b"]),
        (np.stack([IMAGE] * 2), np.array([0, 2**63], np.uint64)),
        (np.stack([IMAGE] * 2).astype(object), [0, 1]),
        (iter(()), [0, 1]),
    ],
    ids=range(10),
)
def test_a_batch_that_is_none_is_told(batch: Any) -> None:
    with pytest.raises(errors.AlphaError, match=r"^\[DataLoader\] expected .*, got .*: "):
        next(iter(DataLoader(ConstantBatch(batch), 2, prefetch=0)))


def test_other_arguments_that_make_no_sense_are_told() -> None:
    data = ArrayDataset(np.zeros((4, 2, 2, 1), np.uint8), [0] * 4)
    faults: list[Callable[[], Any]] = [
        lambda: DataLoader(ArrayDataset),  # type: ignore[arg-type]
        lambda: DataLoader(data).load_state_dict(None),  # type: ignore[arg-type]
        lambda: DataLoader(data).load_state_dict({**DataLoader(data).state_dict(), "length": np.zeros(3)}),
        lambda: data["first"],  # type: ignore[index]
        lambda: data[1:2],  # type: ignore[index]
        lambda: data[4],
        lambda: transforms.Compose(None),  # type: ignore[arg-type]
        lambda: transforms.RandomCrop(2.5),  # type: ignore[arg-type]
        lambda: transforms.RandomCrop("22"),  # type: ignore[arg-type]
        lambda: transforms.RandomCrop(2, "1"),
        lambda: transforms.Normalize("grey", 1),  # type: ignore[arg-type]
        lambda: transforms.RandomHorizontalFlip("often"),  # type: ignore[arg-type]
        lambda: transforms.ToUnitRange()([[1]], np.random.default_rng()),  # type: ignore[arg-type]
    ]
    for fault in faults:
        with pytest.raises(errors.AlphaError, match=r"^\[[\w.]+\] expected .*, got "):
            fault()


def test_a_data_set_that_grows_or_shrinks_meanwhile_keeps_the_epoch_that_was_started() -> None:
    data = Numbers(9)
    for prefetch in (0, 2):
        data.count = 9
        iteration = iter(DataLoader(data, 3, prefetch=prefetch))
        data.count = 90
        assert len(list(iteration)) == 3


def test_a_batch_size_as_the_data_sets_attribute_is_not_taken_for_its_method() -> None:
    class Named(Numbers):
        batch = 32

    assert len(list(DataLoader(Named(9), 3))) == 3


# -- copies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])
def test_a_copy_goes_on_at_the_same_position(duplicate: Callable[[DataLoader], DataLoader]) -> None:
    expected = epochs(24, 2)
    loader = DataLoader(Numbers(24), 3, shuffle=True, seed=4, engine=alpha.engine("cpu"))
    assert labels(duplicate(loader)) == expected[0]
    iteration = iter(loader)
    next(iteration)
    again = duplicate(loader)
    assert again.state_dict() == loader.state_dict()
    assert labels(again) == expected[0][1:] and labels(again) == expected[1]
    assert labels(iteration) == expected[0][1:] and loader.epoch == 1
    assert labels(duplicate(loader)) == expected[1]


def test_a_copy_of_an_iteration_is_refused() -> None:
    for prefetch in (0, 2):
        iteration = iter(make(24, 0, prefetch))
        for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(errors.ArgumentError, match=r"expected a loader to copy or pickle, got an iteration"):
                duplicate(iteration)

"""Worker processes, one for each contestant: own memory, own threads, idle while another is measured.

A worker reads requests from its standard input and answers on its standard output, one JSON object per line. It
ends when its input ends, so it never outlives the benchmark.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tqdm import tqdm

from alpha.errors import AlphaError, EngineError
from benchmarks.common import MIB, ROOT

PAUSE = 0.04
"""Pause before each turn, in which the last contestant's threads stop spinning."""

LIMIT = 900.0
"""Most seconds for an answer: far more than the longest takes (a first call that compiles, PyTorch's trials)."""

_SPIN = {"OPENBLAS_THREAD_TIMEOUT": "26"}
"""OpenBLAS's threads spin 2**28 cycles of the clock after each product unless told otherwise: a tenth of a second, in
which they take a core from whoever has the next turn. These are 26 ms at 2.6 GHz: longer than a turn's gaps, and less
than the pause."""

# glibc's malloc gives large blocks back to the system when they are freed, and takes them, page by page, anew: a large
# part of PyTorch's time. These keep all memory for reuse; the last also backs it with huge pages where there are any,
# as NumPy's allocator, which the CPU engine's pool stands on, does by itself.
KEPT_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 40),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(256 * MIB),
}
ALLOCATORS: dict[str, dict[str, str]] = {
    "kept": KEPT_MEMORY,
    "kept, huge pages": {**KEPT_MEMORY, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
}


class Worker:
    """A process that runs one side of a benchmark.

    Args:
        module: the module to run, whose main part calls ``serve``.
        side: which of the module's sides.
        options: the side's arguments.
        threads: threads its linear algebra may use.
        environment: variables to set besides.
        limit: seconds that an answer may take; a process that takes longer is ended, as a kernel may never return.
    """

    def __init__(
        self,
        module: str,
        side: str,
        options: Mapping[str, Any],
        threads: int,
        environment: Mapping[str, str] | None = None,
        limit: float = LIMIT,
    ) -> None:
        self.side, self.limit = side, limit
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=_environment(threads, environment or {}),
            text=True,
        )
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._receive, name=f"answers of {side}", daemon=True).start()
        try:
            self._request({"side": side, "options": dict(options)})
        except BaseException:
            self._process.kill()
            self.close()
            raise

    def call(self, method: str, **arguments: Any) -> Any:
        """Calls a method of the side in the process, and waits for what it returns."""
        return self._request({"call": method, "arguments": arguments})

    def turn(self, method: str, **arguments: Any) -> Any:
        """Does what ``call`` does, after a pause in which the other workers' threads go to sleep."""
        time.sleep(PAUSE)
        return self.call(method, **arguments)

    def _receive(self) -> None:
        """Reads answers in a separate thread, so that waiting for one can time out; an empty answer is the end."""
        assert self._process.stdout is not None
        with self._process.stdout as answers:
            for line in answers:
                self._answers.put(line)
        self._answers.put("")

    def _request(self, message: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
            line = self._answers.get(timeout=self.limit)
        except BrokenPipeError:
            line = ""
        except queue.Empty:
            self._process.kill()
            raise EngineError(
                f"[benchmarks] expected an answer from the {self.side} process within {self.limit:.0f} s, got none: it "
                "was ended; a kernel may hang, or the machine be busy"
            ) from None
        if not line:
            raise EngineError(
                f"[benchmarks] expected an answer from the {self.side} process, got its end with status "
                f"{self._process.wait()}: see above; -9 means that memory ran out"
            )
        answer = json.loads(line)
        if "error" in answer:
            raise EngineError(answer["error"])
        return answer["value"]

    def close(self) -> None:
        """Ends the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.kill()
        self.close()


def take_turns(
    workers: Mapping[str, Worker], repeats: int, title: str | None = None, **arguments: Any
) -> dict[str, list[float]]:
    """Milliseconds of each one's ``time``, one per turn; who begins changes from turn to turn. A title shows a bar."""
    names = list(workers)
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in tqdm(range(repeats), desc=title, unit="turn", disable=None if title else True):
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            times[name].append(1e3 * workers[name].turn("time", **arguments))
    return times


def _environment(threads: int, more: Mapping[str, str]) -> dict[str, str]:
    """The environment for workers: the number of threads for every library, and no preset OpenBLAS processor."""
    inherited = {key: value for key, value in os.environ.items() if key != "OPENBLAS_CORETYPE"}
    pools = {f"{library}_NUM_THREADS": str(threads) for library in ("OMP", "MKL", "OPENBLAS", "NUMBA")}
    return {**inherited, **pools, **_SPIN, **more}


def serve(sides: Mapping[str, Callable[..., Any]]) -> None:
    """A worker's main loop: makes the side that the first request names, then calls its methods."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the benchmark ends its workers
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not mix with the answers
    side: Any = None
    for line in sys.stdin:
        message = json.loads(line)
        try:
            if side is None:
                side, value = sides[message["side"]](**message["options"]), None
            else:
                value = getattr(side, message["call"])(**message["arguments"])
            answer = {"value": value}
        except (AlphaError, ImportError, MemoryError, RuntimeError) as error:
            answer = {"error": str(error) or type(error).__name__}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


class Memory:
    """The growth of this process's resident memory since this object was made."""

    def __init__(self) -> None:
        self._start = resident("VmRSS")

    def peak_mib(self) -> float:
        """MiB of the largest resident set so far over the one at the start."""
        return (resident("VmHWM") - self._start) / MIB


def start_peak() -> bool:
    """Resets the system's record of the largest resident set; returns whether it could."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def resident(field: str) -> int:
    """Bytes of a field of Linux's process status; elsewhere the largest resident set so far.

    Not ``ru_maxrss`` where it can be avoided: a new process inherits that of the one it was started from.
    """
    try:
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith(field):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    import resource

    unit = 1 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def page_faults() -> int:
    """Pages that the system has brought in for this process so far."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

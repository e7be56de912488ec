"""Processes that use one small kernel of the CPU engine, each in circumstances of its own.

``python -m tests.robustness.kernel_processes`` loads the engine once, without compiling anything of it, reads lists of
cases, one per line, from standard input, and forks one process per case; it prints a line of results for each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Outcome:
    """How a process ended: its exit status, what it printed as an error, kernels found kept and compiled."""

    status: int
    errors: str
    hits: int = -1
    misses: int = -1


class Processes:
    """A parent of such processes, of the package at a root."""

    def __init__(self, root: Path = ROOT) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "tests.robustness.kernel_processes"],
            env={**os.environ, "PYTHONPATH": str(root)},
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self._parent.communicate(timeout=60)

    def run(self, *cases: dict[str, Any], together: bool = False) -> list[Outcome]:
        """Runs cases one after the other, or all at once.

        A case has ``environment``, variables that are set, or with None removed; and may have ``uid``, a user to
        become, ``file_bytes``, the size that files may have, and ``die``, a function of ``os`` that kills the process
        instead.
        """
        assert self._parent.stdin is not None and self._parent.stdout is not None
        print(json.dumps({"cases": cases, "together": together}), file=self._parent.stdin, flush=True)
        return [Outcome(**found) for found in json.loads(self._parent.stdout.readline())]


def _main() -> None:
    from numba import njit
    from numba.core.registry import cpu_target

    from alpha.cpu import workers

    cpu_target.target_context.refresh()
    njit(lambda a, b: a + b)(1, 2)  # what Numba prepares once, it prepares here
    for line in sys.stdin:
        given = json.loads(line)
        outcomes, running = [], []
        for case in given["cases"]:
            running.append(_start(case, workers))
            if not given["together"]:
                outcomes.append(_outcome(*running.pop()))
        print(json.dumps(outcomes + [_outcome(*one) for one in running]), flush=True)


def _start(case: dict[str, Any], workers: Any) -> tuple[int, int]:
    """A process, and where what it prints comes out."""
    output, end = os.pipe()  # which a limit on files leaves alone
    child = os.fork()
    if child == 0:
        os.dup2(end, 2)
        _child(case, workers)
    os.close(end)
    return child, output


def _outcome(child: int, output: int) -> dict[str, Any]:
    with os.fdopen(output) as file:
        errors, _, counts = file.read().partition("counts: ")
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {"status": status, "errors": errors, **(json.loads(counts) if counts else {})}


def _child(case: dict[str, Any], workers: Any) -> None:
    """The life of one process."""
    import numpy as np

    status = 1
    try:
        _prepare(case)
        memory = np.zeros(1, np.int64)
        for value in (7, 8):
            workers._write(memory.ctypes.data, value)
            assert memory[0] == value
        stats = workers._write.stats
        counts = {"hits": sum(stats.cache_hits.values()), "misses": sum(stats.cache_misses.values())}
        print(f"counts: {json.dumps(counts)}", file=sys.stderr, flush=True)
        status = 0
    except BaseException:  # a child never returns into its parent's code
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)


def _prepare(case: dict[str, Any]) -> None:
    for name, value in case["environment"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if "die" in case:
        setattr(os, case["die"], lambda *_: os.kill(os.getpid(), 9))
    if "file_bytes" in case:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (case["file_bytes"], case["file_bytes"]))
    if "uid" in case:
        os.setgid(case["uid"])
        os.setuid(case["uid"])


if __name__ == "__main__":
    _main()

"""A Ctrl-C that comes inside a finalizer, where Python drops errors, still ends programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.scripts import EXAMPLES, environment

_FINALIZERS = {
    "weak reference": "kept = weakref.ref(thing, lambda _: interrupt())",
    "__del__": "Thing.__del__ = lambda self: interrupt()",
    "finalize": "weakref.finalize(thing, interrupt)",
    "generator": "started = sleeper(); next(started); thing.started = started; del started",
}

_PROGRAM = """
import os, signal, sys, time, weakref

class Thing:
    pass

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1_000):
        pass

def sleeper():
    try:
        yield
    finally:
        interrupt()

def main():
    thing = Thing()
    {finalizer}
    del thing
    print("dropped", flush=True)
    time.sleep(30)
    return 0
"""


def _ended(program: str, arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "program.py"
    # A shell that runs tests in the background has them ignore SIGINT, which processes inherit.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    file.write_text(heard + program)
    path = f"{EXAMPLES}:{environment()['PYTHONPATH']}"
    command = [sys.executable, *arguments, str(file)]
    return subprocess.run(
        command, check=False, env=environment(PYTHONPATH=path), capture_output=True, text=True, timeout=25
    )


@pytest.mark.parametrize("finalizer", _FINALIZERS.values(), ids=_FINALIZERS.keys())
def test_an_example_stops(finalizer: str, tmp_path: Path) -> None:
    program = _PROGRAM.format(finalizer=finalizer) + "import common\ncommon.run(main)\n"
    process = _ended(program, [], tmp_path)
    assert process.stdout == "dropped\n", "the first one has to be dropped, or the test shows nothing"
    assert process.returncode == 130
    assert process.stderr == "program: stopped\n"


def test_other_errors_are_shown_as_before(tmp_path: Path) -> None:
    program = _PROGRAM.format(finalizer="Thing.__del__ = lambda self: 1 / 0").replace("time.sleep(30)", "pass")
    process = _ended(program + "import common\ncommon.run(main)\n", [], tmp_path)
    assert process.returncode == 0
    assert "ZeroDivisionError" in process.stderr


@pytest.mark.needs("mpi4py")
def test_a_rank_stops(tmp_path: Path) -> None:
    program = _PROGRAM.format(finalizer=_FINALIZERS["weak reference"]) + "main()\n"
    process = _ended(program, ["-m", "alpha.distributed.run", "-n", "2", "--grace", "5"], tmp_path)
    assert "dropped" in process.stdout
    assert process.returncode == 130, process.stderr
    assert "KeyboardInterrupt" in process.stderr

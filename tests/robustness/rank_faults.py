"""Faults of ranks: what happens when one of them fails, tried as a user would see it.

``python -m tests.robustness.rank_faults --trials 20 [--python PATH]`` repeats all of them, with the MPI library of an
interpreter, and prints how often all was as it must be, and how long the end took.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from alpha.distributed import processes
from tests.system.scripts import environment

PROGRAM = Path(__file__).with_name("rank_program.py")
END_SECONDS = 5.0
"""Within how long all must have ended, on a machine that does nothing else."""
COMPILING = "compiling the CPU engine's kernels"
"""How what a program says begins whose kernels are not kept from an earlier one."""
_START_SECONDS = 90.0


@dataclass(frozen=True)
class Fault:
    """A fault, and what must follow.

    Attributes:
        line: a pattern of the first line on stderr; RANK is the rank's number.
        status: the launcher's; 0 for any other.
        by: sends the fault's signal, where another process does: gets the launcher, and the rank's process.
        saves: seconds that ranks take to save what they have before they end.
    """

    line: str
    status: int
    by: Callable[[subprocess.Popen[str], int], None] | None = None
    saves: float = 0.0


FAULTS = {
    "kill": Fault(r"rank RANK: killed by signal 9 \(SIGKILL\)", 137),
    "error": Fault("rank RANK: ValueError: bad value", 1),
    "exit": Fault("rank RANK: SystemExit: 3", 3),
    "early-end": Fault(r"rank \d+: DistributedError: \[.*\] expected rank RANK to take part in operation .*", 1),
    "pool": Fault(r"rank RANK: OutOfMemoryError: \[.*\] .*", 1),
    "worker-error": Fault("rank RANK: ValueError: a bad sample", 1),
    "worker-kill": Fault(r"rank RANK: DataError: \[DataLoader\] .*\(exit code -9\).*", 1),
    "interrupt": Fault("rank RANK: KeyboardInterrupt", 130, lambda run, pid: os.kill(pid, signal.SIGINT)),
    "stopped": Fault("rank RANK: ValueError: bad value", 1),
    "launcher-interrupt": Fault(
        r"\[run\] interrupted: .*", 130, lambda run, pid: os.killpg(run.pid, signal.SIGINT), saves=1.0
    ),
    "launcher-terminate": Fault(r"\[run\] got SIGTERM: .*", 143, lambda run, pid: run.terminate(), saves=1.0),
    "mpiexec-kill": Fault(r"rank \d+: .*|\[run\] mpiexec: .*", 0, lambda run, pid: _kill_mpiexec(run.pid)),
    "launcher-kill": Fault("", -9, lambda run, pid: run.kill()),
}


def _kill_mpiexec(launcher: int) -> None:
    """Kills the launcher's child."""
    for pid in processes.descendants(launcher):
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] == str(launcher):
            os.kill(pid, signal.SIGKILL)
            return


@dataclass
class Trial:
    """What came of a trial.

    Attributes:
        seconds: from the fault to the end of the last process.
        problems: what was not as it must be.
    """

    seconds: float
    problems: list[str]


def run(name: str, rank: int, ranks: int, python: str, folder: Path, within: float = END_SECONDS) -> Trial:
    """Runs the program with a fault on one rank; all must have ended within the seconds, and what ranks save takes."""
    fault, notes, temporary = FAULTS[name], folder / "notes", folder / "tmp"
    notes.mkdir()
    temporary.mkdir()
    since = time.time()
    with subprocess.Popen(
        [python, "-m", "alpha.distributed.run", "-n", str(ranks), str(PROGRAM), name, str(rank), str(notes)],
        env=environment(TMPDIR=str(temporary), ALPHA_COMPILE_AHEAD="0"),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as launcher:
        try:
            began, family = _cause(fault, name, rank, ranks, launcher, notes)
            try:
                _, errors = launcher.communicate(timeout=30.0)
            except subprocess.TimeoutExpired:
                launcher.kill()
                return Trial(30.0, [f"the launcher did not end: {launcher.communicate()[1]}"])
        finally:
            launcher.kill()
    family |= {int(path.name[4:]) for path in notes.glob("pid-*")}
    began = float((notes / "fault").read_text()) if (notes / "fault").exists() else began
    while (left := [pid for pid in family if _is_alive(pid)]) and time.time() < began + within + fault.saves + 10.0:
        time.sleep(0.02)
    seconds = time.time() - began
    problems = [f"processes {left} are left"] if left else []
    if seconds > within + fault.saves:
        problems.append(f"it took {seconds:.1f} s")
    if launcher.returncode != fault.status and (fault.status or not launcher.returncode):
        problems.append(f"status {launcher.returncode}")
    said = [line for line in errors.splitlines() if not line.startswith(COMPILING)]
    if not re.fullmatch(fault.line.replace("RANK", str(rank)), said[0] if said else ""):
        problems.append(f"stderr: {errors}")
    if fault.saves and len(list(notes.glob("saved-*"))) != ranks:
        problems.append("not all ranks saved")
    files = sorted(path.name for path in temporary.iterdir())
    if files:
        problems.append(f"files are left: {files}")
    segments = processes.unused_segments(since)
    if segments:  # another launcher may be about to remove them
        time.sleep(2.0)
        segments &= processes.unused_segments(since)
    if segments:
        problems.append(f"shared memory is left: {segments}")
    return Trial(seconds, problems)


def _cause(
    fault: Fault, name: str, rank: int, ranks: int, launcher: subprocess.Popen[str], notes: Path
) -> tuple[float, set[int]]:
    """Waits until the fault is there, or causes it; when that was, and the processes that there were before."""
    family: set[int] = set()
    end = time.time() + _START_SECONDS
    while time.time() < end and launcher.poll() is None and not (notes / "fault").exists():
        family |= set(processes.descendants(launcher.pid))
        if fault.by is not None and len(list(notes.glob("ready-*"))) == ranks:
            pid = int(next(notes.glob(f"rank-{rank}-*")).name.rpartition("-")[2])
            began = time.time()
            fault.by(launcher, pid)
            return began, family
        if name == "stopped" and not (notes / "stopped").exists() and len(list(notes.glob("ready-*"))) == ranks:
            other = next(notes.glob(f"rank-{(rank + 1) % ranks}-*"))
            os.kill(int(other.name.rpartition("-")[2]), signal.SIGSTOP)
            (notes / "stopped").touch()
        time.sleep(0.02)
    return time.time(), family


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def main() -> int:
    """Repeats all faults, and prints a table; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.robustness.rank_faults", description=__doc__)
    parser.add_argument("--trials", type=int, default=20, help="how often each is tried, by turns on each end's rank")
    parser.add_argument("--ranks", type=int, default=3, help="the number of ranks")
    parser.add_argument(
        "--python", type=os.path.abspath, default=sys.executable, help="the interpreter, beside which mpiexec is"
    )
    parser.add_argument("--fault", action="append", choices=tuple(FAULTS), help="try this one alone; may be repeated")
    given = parser.parse_args()
    fallen = 0
    for name in given.fault or FAULTS:
        trials = []
        for number in range(given.trials):
            with tempfile.TemporaryDirectory() as folder:
                trials.append(run(name, (number % 2) * (given.ranks - 1), given.ranks, given.python, Path(folder)))
        good = sum(not trial.problems for trial in trials)
        fallen += len(trials) - good
        seconds = sorted(trial.seconds for trial in trials)
        print(
            f"{name}: {good} of {len(trials)}, ended within {seconds[len(seconds) // 2]:.2f} s in the median, "
            f"{seconds[-1]:.2f} s at most",
            flush=True,
        )
        for trial in trials:
            for problem in trial.problems:
                print(f"    {problem}", flush=True)
    return 1 if fallen else 0


if __name__ == "__main__":
    sys.exit(main())

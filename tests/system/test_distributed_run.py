"""``python -m alpha.distributed.run`` as a user runs it: arguments, cores, output, signals, restarts, errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from alpha.distributed import mpiexec, run
from alpha.distributed.launched import share
from alpha.errors import DistributedError
from tests.robustness.rank_faults import COMPILING
from tests.system.scripts import environment


def launch(folder: Path, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the launcher to its end."""
    process = subprocess.run(
        [sys.executable, "-m", "alpha.distributed.run", *map(str, arguments)],
        cwd=folder,
        env=environment(ALPHA_COMPILE_AHEAD="0", **variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = process.stderr.splitlines(keepends=True)
    process.stderr = "".join(line for line in said if not line.startswith(COMPILING))
    return process


def script(folder: Path, text: str, name: str = "program.py") -> Path:
    """Writes a program."""
    path = folder / name
    path.write_text(text)
    return path


def wait_for(path: Path) -> None:
    """Waits until a program has made a file."""
    end = time.monotonic() + 60.0
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.02)


# -- without MPI -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["-n", "0", "x.py"], "argument -n: expected an integer >= 1, got '0'"),
        (["-n", "two", "x.py"], "argument -n: expected an integer >= 1, got 'two'"),
        (["-n", "2", "--bad", "x.py"], "unrecognized arguments: --bad"),
        (["x.py"], "the following arguments are required: -n"),
        (["-n", "2", "--timeout", "0", "x.py"], "argument --timeout: expected a number of seconds > 0, got '0'"),
        (["-n", "2", "--threads", "0", "x.py"], "argument --threads: expected an integer >= 1, got '0'"),
        (["-n", "2", "--restarts", "-1", "x.py"], "argument --restarts: expected"),
    ],
)
def test_wrong_options_are_one_line(arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run.main(arguments)
    shown = capsys.readouterr().err
    assert ended.value.code == 2 and error in shown and shown.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["-n", "2"], "[run] expected a script to run, got none"),
        (["-n", "2", "-m"], "[run] expected a module after -m, got none"),
        (["-n", "2", "missing.py"], "[run] expected a script, got 'missing.py', where there is no file"),
        (["-n", "2", "--min-ranks", "3", "x.py"], "[run] expected --min-ranks <= -n, got 3 and 2"),
    ],
)
def test_nothing_to_run(arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(arguments) == 2
    assert capsys.readouterr().err.startswith(error)


def test_no_mpiexec_and_no_mpi4py(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = str(script(tmp_path, ""))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DistributedError, match=r"\[run\] expected mpiexec in .*: install MPI"):
        mpiexec.find()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert run.main(["-n", "2", program]) == 1
    assert capsys.readouterr().err.startswith("[run] expected mpi4py, got none")


def test_the_mpiexec_beside_the_interpreter_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, text in (("near", "HYDRA build details:"), ("far", "mpiexec (Open MPI) 5.0.11"), ("own", "slurm")):
        (tmp_path / folder).mkdir()
        made = script(tmp_path / folder, f"#!/bin/sh\necho '{text}'\n", "mpiexec")
        made.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'far'}:{os.environ['PATH']}")
    found = {}
    for folder in ("near", "own", "nowhere"):
        monkeypatch.setattr(sys, "executable", str(tmp_path / folder / "python"))
        found[folder] = mpiexec.find()
    assert [(Path(one.path).parent.name, one.library) for one in found.values()] == [
        ("near", "mpich"),
        ("own", ""),
        ("far", "openmpi"),
    ]
    command = found["nowhere"].command(2, ["python", "x.py"], ["A"], None)
    assert command[-4:] == ["-n", "2", "python", "x.py"] and "--oversubscribe" in command
    assert command[1:3] == ["--bind-to", "none"] and command[command.index("-x") + 1] == "A"
    assert found["near"].command(2, ["x"], ["A"], "a,b")[1:] == [
        "-disable-auto-cleanup",
        "-hosts",
        "a,b",
        "-n",
        "2",
        "x",
    ]


def test_cores_are_shared_out() -> None:
    assert [share([0, 1, 4, 5, 6], local, 2) for local in range(2)] == [[0, 1], [4, 5, 6]]
    assert [share([0, 1, 2, 3], local, 4) for local in range(4)] == [[0], [1], [2], [3]]
    assert [share([3, 5], local, 3) for local in range(3)] == [[3], [5], [3]]


# -- with MPI --------------------------------------------------------------------------------------------------------

FACTS = """
import json, os, pickle, sys, threading
import alpha
from alpha import distributed as dist
class Pickled: pass
world = dist.init()
facts = {"argv": sys.argv, "name": __name__, "first": sys.path[0], "file": __file__, "rank": dist.rank(),
         "cores": sorted(os.sched_getaffinity(0)), "threads": alpha.get_num_threads(), "timeout": world.timeout,
         "spec": __spec__ and __spec__.name, "main": sys.modules["__main__"].Pickled is Pickled,
         "token": "ALPHA_DISTRIBUTED_TOKEN" in os.environ, "restart": os.environ.get("ALPHA_DISTRIBUTED_RESTART")}
pickle.dumps(Pickled())
print(json.dumps(facts))
"""


def facts(process: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """What ranks told, in their order."""
    assert process.returncode == 0 and not process.stderr, process.stderr
    return sorted((json.loads(line) for line in process.stdout.splitlines()), key=lambda told: int(told["rank"]))


@pytest.mark.needs("mpi4py")
@pytest.mark.slow
def test_a_script_runs_as_it_would_by_itself(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    script(tmp_path / "inner", FACTS)
    told = facts(launch(tmp_path, "-n", 2, "--timeout", "7.5", "inner/program.py", "--a", "b c", "-n", "--"))
    cores = sorted(os.sched_getaffinity(0))
    for rank in range(2):
        assert told[rank] == {
            "argv": ["inner/program.py", "--a", "b c", "-n", "--"],
            "name": "__main__",
            "first": str(tmp_path / "inner"),
            "file": str(tmp_path / "inner" / "program.py"),
            "rank": rank,
            "cores": share(cores, rank, 2),
            "threads": len(share(cores, rank, 2)),
            "timeout": 7.5,
            "spec": None,
            "main": True,
            "token": False,
            "restart": "0",
        }


@pytest.mark.needs("mpi4py")
@pytest.mark.slow
def test_a_module_runs_as_it_would_by_itself(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    path = script(tmp_path / "inner", FACTS)
    told = facts(launch(tmp_path, "-n", 2, "--threads", 3, "-m", "inner.program", "-m", "x"))
    for one in told:
        assert (one["argv"], one["name"], one["first"]) == ([str(path), "-m", "x"], "__main__", str(tmp_path))
        assert (one["spec"], one["threads"], one["timeout"]) == ("inner.program", 3, 1800.0)
        assert one["cores"] == sorted(os.sched_getaffinity(0))


@pytest.mark.needs("mpi4py")
@pytest.mark.slow
def test_output_comes_as_it_is_written(tmp_path: Path) -> None:
    """Whole lines, and a progress bar's at once, from all ranks; stdin is empty."""
    script(
        tmp_path,
        "import os, sys, time\n"
        "assert sys.stdin.read() == ''\n"
        "rank = os.environ['PMI_RANK'] if 'PMI_RANK' in os.environ else os.environ['OMPI_COMM_WORLD_RANK']\n"
        "for i in range(200): print('line', i, 'of', rank)\n"
        "if rank == '0':\n"
        "    print('\\r50 %', end='', file=sys.stderr, flush=True)\n"
        "    while not os.path.exists('seen'): time.sleep(0.01)\n"
        "    print('\\r100 %', file=sys.stderr)\n",
    )
    with subprocess.Popen(
        [sys.executable, "-m", "alpha.distributed.run", "-n", "2", "program.py"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.read(5) == b"\r50 %"
        (tmp_path / "seen").touch()
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and errors == b"\r100 %\n"
    lines = out.decode().splitlines()
    assert sorted(lines) == sorted(f"line {i} of {rank}" for i in range(200) for rank in range(2))


@pytest.mark.needs("mpi4py")
@pytest.mark.slow
def test_an_error_comes_first_and_alone(tmp_path: Path) -> None:
    """Behind a progress bar it has a line of its own; a hook of the program's is called after it."""
    script(
        tmp_path,
        "import sys, time\n"
        "from alpha import distributed as dist\n"
        "dist.init()\n"
        "sys.excepthook = lambda kind, error, trace: print('hook:', kind.__name__, error, file=sys.stderr)\n"
        "print('\\r50 %', end='', file=sys.stderr, flush=True)\n"
        "dist.barrier()\n"
        "if dist.rank() == 1:\n"
        "    time.sleep(0.2)\n"
        "    raise KeyError('a\\nb')\n"
        "dist.barrier()\n",
    )
    process = launch(tmp_path, "-n", 2, "program.py")
    assert process.returncode == 1
    assert process.stderr.splitlines() == ["", "50 %", "50 %", "rank 1: KeyError: 'a\\nb'", "hook: KeyError 'a\\nb'"]


@pytest.mark.needs("mpi4py")
@pytest.mark.slow
def test_it_starts_again_with_the_ranks_that_are_left(tmp_path: Path) -> None:
    """Three are left, which do not divide four shards; two do, and one of them is killed; then one ends."""
    script(
        tmp_path,
        "import os, signal\n"
        "from alpha import distributed as dist\n"
        "from alpha.distributed import lifeline\n"
        "dist.init()\n"
        "lifeline.tell(shards=4)\n"
        "restart = os.environ['ALPHA_DISTRIBUTED_RESTART']\n"
        "print(restart, dist.rank(), dist.world_size())\n"
        "dist.barrier()\n"
        "if dist.rank() == 1 and restart == '0': raise ValueError('bad')\n"
        "if dist.rank() == 0 and restart == '1': os.kill(os.getpid(), signal.SIGKILL)\n"
        "dist.barrier()\n",
    )
    process = launch(tmp_path, "-n", 4, "--restarts", 3, "program.py")
    assert process.returncode == 0
    said = [line for line in process.stderr.splitlines() if line.startswith("[run]")]
    assert said == [
        "[run] rank 1: ValueError: bad; starting again with 2 ranks (restart 1 of 3)",
        "[run] rank 0: killed by signal 9 (SIGKILL); starting again with 1 rank (restart 2 of 3)",
    ]
    assert sorted(process.stdout.split("\n"))[1:] == ["0 0 4", "0 1 4", "0 2 4", "0 3 4", "1 0 2", "1 1 2", "2 0 1"]


@pytest.mark.needs("mpi4py")
@pytest.mark.slow
def test_it_does_not_start_again_below_the_fewest_ranks_or_after_ctrl_c(tmp_path: Path) -> None:
    script(tmp_path, "import os, sys, time\nopen('ready', 'w').close()\ntime.sleep(float(sys.argv[1]))\nsys.exit(7)\n")
    process = launch(tmp_path, "-n", 2, "--restarts", 3, "--min-ranks", 2, "program.py", 0)
    assert process.returncode == 7
    assert process.stderr.splitlines()[-1] == (
        "[run] rank 0: SystemExit: 7; not starting again: no number of ranks from --min-ranks 2 to 1"
    ).replace("rank 0", process.stderr[:6])
    (tmp_path / "ready").unlink()
    with subprocess.Popen(
        [sys.executable, "-m", "alpha.distributed.run", "-n", "1", "--restarts", "3", "program.py", "60"],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    ) as launcher:
        wait_for(tmp_path / "ready")
        launcher.send_signal(signal.SIGINT)
        _, errors = launcher.communicate(timeout=60)
    assert launcher.returncode == 130
    assert errors == "[run] interrupted: ranks have 30 s to end; once more ends them at once\n"


@pytest.mark.needs("mpi4py")
@pytest.mark.slow
@pytest.mark.parametrize("way", ["again", "grace"])
def test_ranks_that_go_on_after_ctrl_c_are_killed(way: str, tmp_path: Path) -> None:
    script(
        tmp_path,
        "import signal, time\n"
        "signal.signal(signal.SIGINT, lambda number, frame: open('got', 'w').close())\n"
        "open('ready', 'w').close()\n"
        "while True: time.sleep(1)\n",
    )
    grace = 60 if way == "again" else 0.5
    with subprocess.Popen(
        [sys.executable, "-m", "alpha.distributed.run", "-n", "2", "--grace", str(grace), "program.py"],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    ) as launcher:
        wait_for(tmp_path / "ready")
        launcher.send_signal(signal.SIGTERM)
        if way == "again":
            wait_for(tmp_path / "got")
            launcher.send_signal(signal.SIGTERM)
        began = time.monotonic()
        _, errors = launcher.communicate(timeout=60)
        assert time.monotonic() - began < 8.0
    assert launcher.returncode == 143
    last = "[run] got SIGTERM again: ending all ranks at once" if way == "again" else "did not end within 0.5 s: killed"
    assert errors.startswith("[run] got SIGTERM: ranks have") and last in errors


@pytest.mark.needs("mpi4py")
@pytest.mark.slow
@pytest.mark.parametrize("end", ["raise ValueError('bad value')", "sys.exit(3)", "sys.exit('no more')"])
def test_a_plain_mpiexec_ends_all_ranks_too(end: str, tmp_path: Path) -> None:
    """Each rank has its share of the threads."""
    script(
        tmp_path,
        "import os, sys\n"
        "import alpha\n"
        "from alpha import distributed as dist\n"
        "dist.init()\n"
        "assert alpha.get_num_threads() == max(1, len(os.sched_getaffinity(0)) // 2), alpha.get_num_threads()\n"
        f"if dist.rank() == 1: {end}\n"
        "dist.barrier()\n",
    )
    found = mpiexec.find()
    process = subprocess.run(
        found.command(2, [sys.executable, "program.py"], [], None),
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.returncode != 0
    first = {"r": "rank 1: ValueError: bad value", "3": "rank 1: SystemExit: 3", "'": "rank 1: SystemExit: 1"}
    key = "r" if end.startswith("raise") else "3" if "3" in end else "'"
    said = [line for line in process.stderr.splitlines() if not line.startswith(COMPILING)]
    assert first[key] in said[: 2 if key == "'" else 1]

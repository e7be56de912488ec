"""A run of the standard's conformance suite, which is a project of its own: data-apis/array-api-tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.array_api.exceptions import ABSENT_DTYPES, EXCEPTIONS

ROOT = Path(__file__).resolve().parents[2]


def counts(suite: Path, max_examples: int, only: list[str]) -> tuple[int, dict[str, int]]:
    """Runs the suite with our exceptions: its exit status, and how many tests passed, failed, and so on.

    Tests that are excepted run too: ``xfailed`` are those that fail as told, ``xpassed`` those that no longer do.
    """
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "exceptions.txt"
        listed.write_text("".join(f"{name}\n" for name in EXCEPTIONS))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--disable-deadline"]
        command += [f"--max-examples={max_examples}", f"--xfails-file={listed}", "-rfEX", "--tb=short"]
        done = subprocess.run(
            [*command, *(only or ["array_api_tests"])],
            cwd=suite,
            env={**os.environ, **_variables()},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    print(done.stdout)
    found = re.findall(
        r"(\d+) (passed|failed|errors?|skipped|xfailed|xpassed)", done.stdout.strip().rpartition("\n")[2]
    )
    return done.returncode, {kind: int(count) for count, kind in found}


def _variables() -> dict[str, str]:
    """What tells the suite which namespace to test, and which of the standard's dtypes that has not."""
    before = os.environ.get("PYTHONPATH")
    return {
        "ARRAY_API_TESTS_MODULE": "alpha.array_api",
        "ARRAY_API_TESTS_SKIP_DTYPES": ",".join(ABSENT_DTYPES),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *([before] if before else [])]),
    }

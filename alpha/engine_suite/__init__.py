"""What every engine must pass: each operation of the contract checked on it, and whole trainings.

With pytest each check is a test of its own:

    @pytest.mark.parametrize("check", engine_suite.CHECKS, ids=str)
    def test_my_engine(check):
        check(alpha.engine("mine"))

``engine_suite.check(alpha.engine("mine"))`` runs all, and raises CheckError with what failed. The core is compared with
NumPy's own functions, what can be written through the core with the definitions that ``alpha/composed`` gives, run on
the reference engine ``alpha.engine("numpy")``.
"""

from __future__ import annotations

from alpha.engine import Engine
from alpha.engine_suite import core, empty, indices, operations, training
from alpha.engine_suite.checks import Check
from alpha.errors import CheckError

__all__ = ["CHECKS", "Check", "check"]

CHECKS: tuple[Check, ...] = (*core.CHECKS, *empty.CHECKS, *indices.CHECKS, *operations.CHECKS, *training.CHECKS)
"""All checks: functions of an engine that raise CheckError, and name themselves as strings."""


def check(engine: Engine) -> int:
    """Runs all checks on an engine and returns their number; CheckError lists those that fail, with the reasons."""
    failures = []
    for one in CHECKS:
        try:
            one(engine)
        except Exception as error:  # whatever an unfinished engine raises
            failures.append(f"{one}: {type(error).__name__}: {error}")
    if failures:
        raise CheckError(
            f"[engine_suite] expected {engine.name} to pass {len(CHECKS)} checks, got {len(failures)} failures:\n"
            + "\n".join(failures)
        )
    return len(CHECKS)

"""``python -m tests.array_api --suite DIR``: the array API standard's conformance suite, from a checkout of it.

The checkout has its submodule: ``git clone --recurse-submodules https://github.com/data-apis/array-api-tests``, and
``pip install -r requirements.txt`` there. ``exceptions.py`` lists the tests that fail, and why.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.array_api.exceptions import EXCEPTIONS
from tests.array_api.suite import counts


def main() -> int:
    """Reads the arguments and runs the suite; 0 where nothing failed that is not among the exceptions."""
    parser = argparse.ArgumentParser(prog="python -m tests.array_api", description=__doc__)
    parser.add_argument("--suite", type=Path, required=True, help="a checkout of data-apis/array-api-tests")
    parser.add_argument("--max-examples", type=int, default=20, help="examples that Hypothesis tries per test")
    parser.add_argument("only", nargs="*", help="tests of the suite to run, by file or pytest's names")
    given = parser.parse_args()
    if not (given.suite / "array_api_tests").is_dir():
        parser.error(f"expected a checkout of array-api-tests, got {given.suite}, which has no folder array_api_tests")
    status, found = counts(given.suite, given.max_examples, given.only)
    print(", ".join(f"{count} {kind}" for kind, count in found.items()), f"({len(EXCEPTIONS)} exceptions are listed)")
    return status


if __name__ == "__main__":
    raise SystemExit(main())

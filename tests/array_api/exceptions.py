"""What of the array API standard does not hold, and why: tests of its conformance suite that are expected to fail."""

from __future__ import annotations

ABSENT_DTYPES = ("uint64",)
"""The standard's dtypes that Tensor has not: see docs/dtypes.md."""

EXCEPTIONS: dict[str, str] = {}
"""Tests of the suite, by pytest's names without what differs in each run, and why they fail."""

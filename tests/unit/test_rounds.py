"""Rounds of the benchmarks' suites: what is measured again, which round counts, and which of PyTorch's settings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks import rounds

QUIET = [1.0] * 8
NOISY = [1.0, 5.0] * 4


def test_what_varies_is_measured_again_and_its_quietest_round_counts() -> None:
    """Problem "b" has a second row that varies in the first round, less in the second, and no more in the third."""
    turns = {"a": [[QUIET, QUIET]], "b": [[QUIET, NOISY], [[2.0] * 8, [0.9, 4.0] * 4], [QUIET, [1.5] * 8]]}
    asked: list[str] = []

    def measure(problem: str) -> Iterator[tuple[tuple[str, int], rounds.Times]]:
        found = turns[problem][asked.count(problem)]
        asked.append(problem)
        for row, times in enumerate(found):
            yield (problem, row), {"alpha": times}

    kept = rounds.quietest(["a", "b"], measure, "title", "unit")
    assert rounds.varied({"alpha": NOISY}) and not rounds.varied({"alpha": QUIET})
    assert asked == ["a", "b", "b", "b"] and rounds.ROUNDS == 2
    assert list(kept) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert kept["b", 0]["alpha"] == QUIET  # not the slower second round
    assert kept["b", 1]["alpha"] == [1.5] * 8


def test_only_what_varies_is_measured_again() -> None:
    asked: list[int] = []

    def measure(problem: int) -> Iterator[tuple[int, rounds.Times]]:
        asked.append(problem)
        yield problem, {"alpha": NOISY if problem == 1 and asked.count(1) < 2 else QUIET}

    assert rounds.quietest([0, 1, 2], measure, "title", "unit") == {problem: {"alpha": QUIET} for problem in range(3)}
    assert asked == [0, 1, 2, 1]


def test_pytorchs_best_settings_count() -> None:
    medians = {"alpha": 2.0, "baseline": 1.0, "torch contiguous, kept": 5.0, "torch channels_last, kept": 3.0}
    comparison = rounds.compared_with_torch(medians)
    assert comparison == {
        "alpha_ms": 2.0,
        "torch_ms": 3.0,
        "torch_settings": "channels_last, kept",
        "ratio": pytest.approx(1.5),
    }
    assert rounds.compared_with_torch({"alpha": 2.0, "baseline": 1.0})["ratio"] is None

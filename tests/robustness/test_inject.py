"""Injected interrupts reach every line and opcode, and no other file."""

from __future__ import annotations

import sys

import pytest

from tests.robustness.inject import InjectedInterrupt, count_events, inject

HERE = ("tests/robustness/test_inject.py",)


class Steps:
    """Three lines that note how far they came."""

    def __init__(self) -> None:
        self.done = 0

    def __call__(self) -> None:
        self.done = 1
        self.done = 2
        self.done = 3


def test_every_line_is_reached_once() -> None:
    reached = []
    for at in range(10):
        steps = Steps()
        if not inject(steps, HERE, "line", at):
            break
        reached.append(steps.done)
    assert reached == [0, 1, 2] and steps.done == 3
    assert count_events(Steps(), HERE, "line") == 3


def test_opcodes_are_finer_than_lines() -> None:
    count = count_events(Steps(), HERE, "opcode")
    assert count > 6
    assert all(inject(Steps(), HERE, "opcode", at) for at in range(count))
    assert not inject(Steps(), HERE, "opcode", count)


def test_other_files_are_left_alone() -> None:
    assert not inject(Steps(), ("alpha/mempool.py",), "line", 0)


def test_the_calls_own_errors_pass_on_and_tracing_is_restored() -> None:
    before = sys.gettrace()

    def fails() -> None:
        raise KeyError("its own")

    with pytest.raises(KeyError):
        inject(fails, HERE, "line", 100)

    def hides() -> None:
        try:
            Steps()()
        except InjectedInterrupt:
            return

    assert inject(hides, HERE, "line", 3)
    assert sys.gettrace() is before

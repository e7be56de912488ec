"""What a start of a program on several ranks is given, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Options:
    """How a program is to be run.

    Attributes:
        program: the script and its arguments, or ``-m``, the module and its arguments.
        grace: seconds that ranks have to end after a Ctrl-C.
        threads, timeout: what ranks are given as --threads and --timeout; None for what they do by themselves.
        hosts: where ranks run, as mpiexec takes it; None for this machine, or what a job scheduler gives.
    """

    program: Sequence[str]
    grace: float = 30.0
    threads: int | None = None
    timeout: float | None = None
    hosts: str | None = None


@dataclass
class Outcome:
    """How a start ended.

    Attributes:
        status: for the shell; 0 if all went well.
        reason: rank and error, where it did not.
        can_restart: whether it failed after all ranks had started, and nobody asked it to end.
        facts: what ranks told.
    """

    status: int = 0
    reason: str = ""
    can_restart: bool = False
    facts: dict[str, Any] = field(default_factory=dict)

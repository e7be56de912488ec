"""Starts a program on several ranks: ``python -m alpha.distributed.run -n N script.py args...``.

It runs mpiexec, the one beside this interpreter or else the one on the PATH, gives each rank its share of the cores,
and passes on what ranks write. Once one rank fails, however that is, all end within seconds. The first line on stderr
about it says rank and error, and the status is not zero: that of ``sys.exit``, 128 and the number of a signal, or 1.

Ctrl-C raises a KeyboardInterrupt on all ranks, which then have ``--grace`` seconds to save what they have; the status
is 130. SIGTERM does the same with 143. Programs read nothing from stdin. On several machines, give ``--hosts``, or
start it within a job of Slurm's.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

from alpha.distributed import mpiexec, processes
from alpha.distributed.passing import Writer
from alpha.distributed.starts import Options, Outcome
from alpha.distributed.supervisor import Supervisor
from alpha.errors import AlphaError, ArgumentError, DistributedError


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line; exit status 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (--help lists the options)\n")


def whole(least: int) -> Callable[[str], int]:
    """The argparse type of integers that are large enough."""

    def integer(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected an integer >= {least}, got {text!r}")
        return int(text)

    return integer


def seconds(text: str) -> float:
    """The argparse type of times."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of seconds > 0, got {text!r}")
    return value


def make_parser() -> Parser:
    """The command line."""
    parser = Parser(
        prog="python -m alpha.distributed.run",
        description="Starts a program on several ranks, and ends all of them when one fails.",
        usage="%(prog)s -n N [options] (script.py | -m module) [arguments...]",
        allow_abbrev=False,
    )
    parser.add_argument("-n", dest="ranks", metavar="N", type=whole(1), required=True, help="the number of ranks")
    parser.add_argument(
        "--restarts", metavar="K", type=whole(0), default=0, help="how often it starts again after a failure (0)"
    )
    parser.add_argument(
        "--min-ranks",
        metavar="M",
        type=whole(1),
        help="the fewest ranks that it starts again with, where failed ones are left out (1)",
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=seconds,
        help="seconds after which an operation that a rank took no part in is an error (1800)",
    )
    parser.add_argument(
        "--grace",
        metavar="S",
        type=seconds,
        default=30.0,
        help="seconds that ranks have to end after Ctrl-C or SIGTERM (30)",
    )
    parser.add_argument(
        "--threads", metavar="T", type=whole(1), help="threads of each rank, whose cores are then not chosen"
    )
    parser.add_argument("--hosts", metavar="HOST,...", help="machines, as mpiexec's -hosts or --host takes them")
    parser.add_argument(
        "-m", dest="module", metavar="...", nargs=argparse.REMAINDER, help="a module to run, and its arguments"
    )
    parser.add_argument("script", metavar="...", nargs=argparse.REMAINDER, help="a script to run, and its arguments")
    return parser


def _program(args: argparse.Namespace) -> list[str]:
    """What each rank runs; ArgumentError where there is nothing to run."""
    if args.module is not None:
        if not args.module:
            raise ArgumentError("[run] expected a module after -m, got none: name one")
        return ["-m", *args.module]
    program: list[str] = args.script[1:] if args.script[:1] == ["--"] else args.script
    if not program:
        raise ArgumentError("[run] expected a script to run, got none: end the command with script.py or -m module")
    if not os.path.exists(program[0]):
        raise ArgumentError(
            f"[run] expected a script, got {program[0]!r}, where there is no file: write the options of run before it"
        )
    return program


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a program on several ranks; returns the status."""
    args = make_parser().parse_args(arguments)
    try:
        if args.min_ranks is not None and args.min_ranks > args.ranks:
            raise ArgumentError(f"[run] expected --min-ranks <= -n, got {args.min_ranks} and {args.ranks}: lower it")
        options = Options(_program(args), args.grace, args.threads, args.timeout, args.hosts)
        if importlib.util.find_spec("mpi4py") is None:
            raise DistributedError(
                '[run] expected mpi4py, got none beside this interpreter: pip install "dragon-alpha[distributed]"'
            )
        found = mpiexec.find()
    except AlphaError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, ArgumentError) else 1
    return _Runs(found, options, args.restarts, args.min_ranks or 1).run(args.ranks)


class _Runs:
    """A program's start, and its starts again."""

    def __init__(self, found: mpiexec.Mpiexec, options: Options, restarts: int, fewest: int) -> None:
        self._mpiexec, self._options, self._restarts, self._fewest = found, options, restarts, fewest
        self._writer = Writer()
        self._signals: list[int] = []

    def run(self, ranks: int) -> int:
        processes.adopt()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._receive)
        restart = 0
        while True:
            supervisor = Supervisor(self._mpiexec, ranks, restart, self._options, self._writer)
            supervisor.signals = self._signals
            outcome = supervisor.run()
            wanted = self._next(outcome, ranks, restart)
            if wanted is None or self._signals:
                break
            ranks, restart = wanted, restart + 1
        self._writer.flush()
        return outcome.status

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)

    def _next(self, outcome: Outcome, ranks: int, restart: int) -> int | None:
        """With how many ranks it starts again; None where it does not. Says which."""
        if not outcome.can_restart or not self._restarts:
            return None
        count = f"restart {restart + 1} of {self._restarts}"
        if restart == self._restarts:
            self._writer.say(f"[run] {outcome.reason}; not starting again after {restart} restarts")
            return None
        shards = outcome.facts.get("shards")
        left = ranks - 1  # the one that failed is not counted again
        while left >= self._fewest and shards is not None and shards % left:
            left -= 1
        if left < self._fewest:
            divided = "" if shards is None else f" that divides {shards} shards"
            self._writer.say(
                f"[run] {outcome.reason}; not starting again: no number of ranks{divided} from --min-ranks "
                f"{self._fewest} to {ranks - 1}"
            )
            return None
        self._writer.say(f"[run] {outcome.reason}; starting again with {left} rank{'s' * (left > 1)} ({count})")
        return left


if __name__ == "__main__":
    status: Any = main()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    sys.exit(status)

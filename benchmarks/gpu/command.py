"""The command line of ``make gpu-tests``, ``make gpu-operators`` and ``make gpu-training``."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.gpu import rows, suite
from benchmarks.gpu.journal import JournalInUseError
from benchmarks.gpu.machine import environment, identify, install
from benchmarks.gpu.session import Missing, Session, Stop

BUDGET = 450.0
"""Seconds that a command takes at most, unless told otherwise."""

COMMANDS: dict[str, tuple[Callable[[Session], None], str]] = {
    "tests": (suite.run, "a smoke test, the CUDA engine's tests, compute-sanitizer"),
    "operators": (rows.run, "the device's own figures, then operators beside PyTorch"),
    "training": (rows.run, "ResNet18's training step beside PyTorch"),
}


def _engine(text: str) -> str:
    if re.fullmatch(r"cu32(:\d+)?", text) is None:
        raise argparse.ArgumentTypeError(f"expected cu32 or cu32:N, got {text!r}")
    return text


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"expected seconds > 0, got {text!r}")
    return value


def _folder(text: str) -> Path:
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"expected a folder, got {text!r}")
    return path


def make_parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description="Tests or measures on a GPU, within minutes; a second call goes on where the first one stopped.",
        allow_abbrev=False,
    )
    parser.add_argument("command", choices=tuple(COMMANDS), help="; ".join(f"{k}: {v[1]}" for k, v in COMMANDS.items()))
    parser.add_argument("--out", type=Path, metavar="DIR", help="for the three files (runs/gpu-COMMAND)")
    parser.add_argument("--wheels", type=_folder, metavar="DIR", help="install these packages first, beside the others")
    parser.add_argument("--cubins", type=_folder, metavar="DIR", help="kernels that were compiled ahead elsewhere")
    parser.add_argument("--engine", type=_engine, default="cu32", help="cu32 or cu32:N (%(default)s)")
    parser.add_argument(
        "--budget", type=_seconds, default=BUDGET, metavar="SECONDS", help="after which it ends (%(default).0f)"
    )
    parser.add_argument("--jobs", type=int, choices=range(1, 65), metavar="N", help="test processes (8 at most)")
    parser.add_argument("--limit", type=_seconds, default=60.0, metavar="SECONDS", help="of a test (%(default).0f)")
    parser.add_argument(
        "--shard-limit", type=_seconds, default=90.0, metavar="SECONDS", help="of a shard of tests (%(default).0f)"
    )
    parser.add_argument(
        "--build-limit", type=_seconds, default=120.0, metavar="SECONDS", help="of compiling ahead (%(default).0f)"
    )
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="files of tests instead of all of the engine's")
    parser.add_argument("--against", choices=("torch", "none"), help="the opponent (torch where it is installed)")
    parser.add_argument("--small", action="store_true", help="few tests, few rows, small sizes: to try the command")
    parser.add_argument("--again", action="store_true", help="repeat what failed or was late in earlier calls")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: 0 where all passed, 1 where something did not, 3 where nothing failed but not all was reached."""
    options = make_parser().parse_args(arguments)
    options.out = (options.out or Path("runs") / f"gpu-{options.command}").resolve()
    options.jobs = options.jobs or (2 if options.small else min(8, os.cpu_count() or 1))
    received: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: received.append(number))  # looked at where the session waits
    try:
        session = Session(options.command, options, environment(options), received)
    except (JournalInUseError, OSError) as error:
        print(f"make gpu-{options.command}: {error}", file=sys.stderr)
        return 1
    note = ""
    try:
        if options.wheels is not None:
            install(session, options.wheels)
        identify(session)
        COMMANDS[options.command][0](session)
    except Stop as reason:
        note = str(reason)
    except Missing as reason:
        session.exit_status, note = 1, str(reason)
    except Exception as error:
        session.exit_status, note = 1, f"{type(error).__name__}: {error}"
        raise
    finally:
        status = session.finish(note)
    return status

"""What the three commands share: options, the deadline, signals, child processes, and the three files left behind."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.gpu.children import Child, Message, wait
from benchmarks.gpu.journal import (
    FAILED,
    LATE,
    PASSED,
    ROOT,
    SKIPPED,
    Journal,
    JournalInUseError,
    Row,
    commit,
    revision,
)

PYTHON = sys.executable
PACKAGES = ROOT / "build" / "gpu"
"""Where the wheels' packages are put."""

BUDGET = 450.0
"""Seconds that a command takes at most, unless told otherwise."""

FINISH = 8.0
"""Seconds of them that are kept for the summary and the logs; of a short budget a fourth."""

NOTHING_FAILED_BUT_NOT_ALL_REACHED = 3

_WORDS = ("best", "torch_settings", "torch_layout", "opponent", "cost_model")
"""What is told of a result besides its numbers."""

_HEAD = "make gpu-"
"""How a command's part of the summary begins."""

_TICK = 0.25
"""Seconds after which a signal is noticed at the latest."""


class Stop(Exception):
    """The command is to end: its time is over, or somebody ended it."""


class Missing(Exception):
    """What the command cannot do without, and how to get it."""


class Session:
    """One call of a command.

    Args:
        command: which one.
        options: what the command line says.
        received: signals that are to end it, as they come.

    Attributes:
        journal: the results.
        logs: folder of the children's logs.
        environment: the children's variables.
        headline: what the summary says of all rows together.
    """

    def __init__(self, command: str, options: argparse.Namespace, received: Sequence[int] = ()) -> None:
        self.command, self.options, self._received = command, options, received
        self.start = time.monotonic()
        self.exit_status: int | None = None
        out: Path = options.out
        out.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(out, command, (FAILED, LATE) if options.again else ())
        self.journal.identity = replace(self.journal.identity, revision=revision())
        self.logs = out / "logs"
        _unpack(out / "logs.tar.gz", self.logs)
        self.logs.mkdir(exist_ok=True)
        self.environment = _environment(options)
        self.headline: Callable[[Sequence[Row]], list[str]] = lambda _: []
        self._planned: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
        self._children: list[Child] = []
        self._said: list[str] = []

    # -- time ----------------------------------------------------------------------------------------------------

    def left(self) -> float:
        """Seconds until the deadline, those for the summary left out."""
        budget = float(self.options.budget)
        return budget - min(FINISH, budget / 4) - (time.monotonic() - self.start)

    def check(self) -> None:
        """Stop where the command is to end."""
        if self._received:
            self.exit_status = 128 + self._received[0]
            raise Stop(f"ended by {signal.Signals(self._received[0]).name}")
        if self.left() <= 0:
            self.stop_for_time()

    def stop_for_time(self) -> None:
        """Stop: what is left of the time is not enough for more."""
        raise Stop(f"its {self.options.budget:.0f} s are over")

    # -- children ------------------------------------------------------------------------------------------------

    def child(self, name: str, command: Sequence[str], **variables: str) -> Child:
        """Starts a process, whose log has its name; with more environment variables."""
        self.check()
        child = Child(name, command, {**self.environment, **variables}, self.logs / f"{self.command}-{name}.txt")
        self._children.append(child)
        return child

    def module(self, name: str, module: str, *words: str, **variables: str) -> Child:
        """Starts one of our modules."""
        return self.child(name, self.python(module, *words), **variables)

    def python(self, module: str, *words: str) -> list[str]:
        """The command that runs one of our modules."""
        return [PYTHON, "-m", module, *words]

    def end(self, child: Child) -> None:
        """Ends a child, whatever it does."""
        child.kill()
        self._children.remove(child)

    def wait(self, children: Iterable[Child], until: float) -> list[Child]:
        """Children with something to read, or that have ended; none at a time of ``time.monotonic``. Stop as usual."""
        waiting = list(children)
        while True:
            self.check()
            now = time.monotonic()
            ready = wait(waiting, min(_TICK, max(0.0, until - now), max(0.0, self.left())))
            if ready or time.monotonic() >= until:
                return ready

    def answer(self, child: Child, seconds: float) -> Message | None:
        """A child's next answer: None where it ended or took longer; the answers behind it are kept for later."""
        until = time.monotonic() + seconds
        while not child.unread:
            if child.ended or not self.wait([child], until):
                return None
            child.unread += child.read()
        return child.unread.pop(0)

    def run(self, name: str, command: Sequence[str], limit: float) -> tuple[str, float, str]:
        """State, seconds and note of a process that is expected to succeed."""
        start = time.monotonic()
        child = self.child(name, command)
        while not child.ended:
            if not self.wait([child], start + limit):
                self.end(child)
                return LATE, time.monotonic() - start, f"limit {limit:.0f} s"
            child.read()
        status, text = child.status(), child.tail(5)
        self.end(child)
        note = "" if status == 0 else f"status {status}: {last_line(text)}"
        return FAILED if status else PASSED, time.monotonic() - start, note

    # -- results -------------------------------------------------------------------------------------------------

    def plan(self, what: str, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Notes what is to be done in all, for the summary."""
        self._planned[what] = list(rows)

    def add(self, *rows: Row) -> None:
        """Keeps results, and prints what did not pass."""
        self.journal.add(*rows)
        for row in rows:
            if row.state in (FAILED, LATE):
                print(f"{row.state}: {row.name}: {row.note}", flush=True)

    def show(self, row: Row) -> None:
        """Prints a row's figures; the summary has them from the journal."""
        print(f"{row.name}: {figures(row)}", flush=True)

    def say(self, text: str) -> None:
        """Prints a line that the summary repeats."""
        print(text, flush=True)
        self._said.append(text)

    # -- the end -------------------------------------------------------------------------------------------------

    def finish(self, note: str) -> int:
        """Ends the children, leaves the three files, and returns the command's exit status."""
        for child in self._children:
            child.signal()
        for child in list(self._children):
            self.end(child)
        text, status = self.summary(note)
        if note and status == 0:  # stopped before it knew all that there is to do
            status = NOTHING_FAILED_BUT_NOT_ALL_REACHED
        temporary = self.options.out / ".summary.txt"
        summary = self.options.out / "summary.txt"
        temporary.write_text(_beside(summary, self.command, text), encoding="utf-8")
        temporary.replace(summary)
        _pack(self.logs, self.options.out / "logs.tar.gz")
        self.journal.close()
        print(f"\n{text}results.jsonl, summary.txt and logs.tar.gz are in {self.options.out}", flush=True)
        return self.exit_status if self.exit_status is not None else status

    def summary(self, note: str) -> tuple[str, int]:
        """What passed, failed, was late, was not reached, of this call and of those before it; the exit status."""
        on = self.journal.identity
        lines = [
            f"{_HEAD}{self.command}: {note or 'done'} after {time.monotonic() - self.start:.0f} s",
            f"revision {on.revision} {commit()}; device {on.device or 'unknown'}; driver {on.driver or 'unknown'}",
            *self._said,
            "",
        ]
        bad: list[Row] = []
        unreached = 0
        for what, planned in self._planned.items():
            rows = [self.journal.finished(name, settings) for name, settings in planned]
            found = [row for row in rows if row is not None]
            counts = {state: sum(row.state == state for row in found) for state in (PASSED, FAILED, LATE, SKIPPED)}
            missing = [name for (name, _), row in zip(planned, rows, strict=True) if row is None]
            unreached += len(missing)
            told = ", ".join(f"{number} {state}" for state, number in counts.items() if number)
            lines.append(f"{what}: {told or 'none'}, {len(missing)} not reached, of {len(planned)}")
            lines += self.headline(found)
            lines += [f"  {row.name}: {figures(row)}" for row in found if row.result]
            lines += _names("  not reached: ", missing)
            bad += [row for row in found if row.state in (FAILED, LATE)]
        if bad:
            lines += ["", *(f"{row.state}: {row.name}: {row.note}" for row in bad)]
        status = 1 if bad or not self._planned else NOTHING_FAILED_BUT_NOT_ALL_REACHED if unreached else 0
        return "\n".join(lines) + "\n", status


def figures(row: Row) -> str:
    """A row's figures in a line, and the words that they need."""
    told = [f"{name} {value:.4g}" for name, value in row.result.items() if isinstance(value, float)]
    told += [f"{name} {row.result[name]}" for name in _WORDS if row.result.get(name)]
    return ", ".join(told) or row.state


def last_line(text: str) -> str:
    """The last line that says something."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else "no word"


def _names(head: str, names: Sequence[str], most: int = 12) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return [head + ", ".join(names[:most]) + more]


def _beside(summary: Path, command: str, text: str) -> str:
    """The text with those of other commands that were left in the same folder."""
    try:
        old = summary.read_text(encoding="utf-8")
    except OSError:
        return text
    parts = [_HEAD + part for part in old.split(_HEAD)[1:]]
    others = [part.rstrip("\n") + "\n" for part in parts if not part.startswith(f"{_HEAD}{command}:")]
    return "\n".join([*others, text])


# -- files -------------------------------------------------------------------------------------------------------------


def _unpack(archive: Path, folder: Path) -> None:
    """The logs of an earlier call, so that they are there when those of this one are packed.

    A call that was killed has left the folder itself, with all that came before in it.
    """
    if folder.is_dir() or not archive.is_file():
        return
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder.parent, filter="data")
    except (
        OSError,
        tarfile.TarError,
        EOFError,
    ) as error:
        print(f"the logs of earlier calls are lost, their results are not: {error}", flush=True)


def _pack(folder: Path, archive: Path) -> None:
    """Leaves the archive in place of the folder."""
    temporary = archive.with_name(f".{archive.name}")
    with tarfile.open(temporary, "w:gz", compresslevel=1) as tar:
        tar.add(folder, arcname=folder.name)
    temporary.replace(archive)
    shutil.rmtree(folder)


# -- the environment ---------------------------------------------------------------------------------------------------


def _environment(options: argparse.Namespace) -> dict[str, str]:
    """This process's, with the wheels' packages, and only the GPU that is asked for."""
    paths = [str(PACKAGES), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    found = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        "ALPHA_TEST_ENGINES": "cu32",
        "ALPHA_TEST_DRIVER": "real",
    }
    _, _, ordinal = options.engine.partition(":")
    if ordinal:  # whoever uses a GPU, tests and PyTorch too, then has it as the first one
        visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        found["CUDA_VISIBLE_DEVICES"] = visible[int(ordinal)] if int(ordinal) < len(visible) else ordinal
    if options.cubins is not None:
        found["ALPHA_CUBINS"] = str(options.cubins.resolve())
    return found


def install(session: Session, wheels: Path) -> None:
    """Puts a folder's wheels where the children find them; Missing where that cannot be."""
    files = [str(file) for file in sorted(wheels.glob("*.whl"))]
    if not files:
        raise Missing(f"expected wheels in {wheels}, got none: name their folder as WHEELS=DIR")
    pip = [PYTHON, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--upgrade", "--target", str(PACKAGES)]
    state, _, note = session.run("wheels", [*pip, *files], 60)
    if state != PASSED:
        raise Missing(f"expected wheels that can be installed in {wheels}, got {note}: see the log")


def build(session: Session) -> None:
    """Compiles ahead what is not compiled yet, for this device; nothing where small sizes are asked for."""
    if session.options.small:
        return
    state, seconds, note = session.run("build", [PYTHON, "-m", "cu32.build"], session.options.build_limit)
    session.say(f"kernels compiled ahead: {state} in {seconds:.0f} s{f' ({note})' if note else ''}")


def identify(session: Session) -> None:
    """Learns driver and device, which the results hold for; Missing where there is none."""
    child = session.module("device", "benchmarks.gpu.smoke", "--versions")
    message = session.answer(child, 60)
    if message is None or "device" not in message:
        raise Missing(f"expected a GPU that answers, got {last_line(child.tail()) if message is None else message}")
    session.end(child)
    session.journal.identity = replace(session.journal.identity, driver=message["driver"], device=message["device"])
    session.say(f"{message['device']}; {'; '.join(f'{key} {value}' for key, value in message['versions'].items())}")


# -- the command -------------------------------------------------------------------------------------------------------


def _commands() -> dict[str, tuple[Callable[[Session], None], str]]:
    from benchmarks.gpu import rows, suite

    return {
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
    commands = _commands()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description="Tests or measures on a GPU, within minutes; a second call goes on where the first one stopped.",
        allow_abbrev=False,
    )
    parser.add_argument("command", choices=tuple(commands), help="; ".join(f"{k}: {v[1]}" for k, v in commands.items()))
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
        session = Session(options.command, options, received)
    except (JournalInUseError, OSError) as error:
        print(f"make gpu-{options.command}: {error}", file=sys.stderr)
        return 1
    note = ""
    try:
        if options.wheels is not None:
            install(session, options.wheels)
        identify(session)
        _commands()[options.command][0](session)
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

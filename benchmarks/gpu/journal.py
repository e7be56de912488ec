"""results.jsonl: a line for each row and test, on disk before the next one starts; what an earlier call finished.

A line holds what was run (command, name, settings), on what (revision, driver, device), and what came of it. A call
skips what a line of the same command, name, settings, revision, driver and device tells of.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent

PASSED, FAILED, LATE, SKIPPED = "passed", "failed", "late", "skipped"
STATES = (PASSED, FAILED, LATE, SKIPPED)

_SOURCES = ("alpha", "nn", "optim", "models", "datasets", "cu32", "benchmarks", "tests")
_SUFFIXES = (".py", ".cu", ".cuh", ".h", ".cpp")


class JournalInUseError(Exception):
    """Another process writes to the same folder."""


@dataclass(frozen=True)
class Identity:
    """What results hold for.

    Attributes:
        revision: a digest of the sources' content, the same for a checkout and for a copy of it without git.
        driver: the versions of NVIDIA's driver and of the interface that it offers.
        device: the GPU's name.
    """

    revision: str
    driver: str = ""
    device: str = ""


@dataclass(frozen=True)
class Row:
    """One result.

    Attributes:
        name: the test or the row.
        state: one of ``STATES``.
        seconds: what it took.
        note: why it did not pass, in a line.
        settings: all besides the name that tells this row from others.
        result: figures.
    """

    name: str
    state: str
    seconds: float
    note: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)


def _key(command: str, name: str, settings: Mapping[str, Any], identity: Mapping[str, Any]) -> str:
    return json.dumps([command, name, settings, identity], sort_keys=True)


class Journal:
    """The file of a folder, for one process at a time.

    Args:
        folder: where it lies.
        command: whose rows are added.
        retry: states whose rows of earlier calls count as not finished.

    Errors: JournalInUseError where another process has it.
    """

    def __init__(self, folder: Path, command: str, retry: tuple[str, ...] = ()) -> None:
        self.path = folder / "results.jsonl"
        self.command = command
        self.identity = Identity("")
        self._retry = retry
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise JournalInUseError(
                f"another command writes to {folder}: wait for it, or choose another OUT"
            ) from error
        _drop_unfinished_line(self._file)
        self._finished: dict[str, Row] = {}
        for line in _lines(self.path):
            if line["state"] not in retry:
                self._finished[_key(line["command"], line["name"], line["settings"], line["on"])] = _row(line)
        self.added: list[Row] = []

    def finished(self, name: str, settings: Mapping[str, Any] | None = None) -> Row | None:
        """The row of an earlier call, or of this one, if there is one."""
        return self._finished.get(_key(self.command, name, settings or {}, asdict(self.identity)))

    def add(self, *rows: Row) -> None:
        """Keeps rows: they are on disk when this returns."""
        if not rows:
            return
        now, on = datetime.now(UTC).isoformat(timespec="seconds"), asdict(self.identity)
        text = "".join(
            json.dumps({"command": self.command, "time": now, "on": on, **asdict(row)}, allow_nan=True) + "\n"
            for row in rows
        )
        data = text.encode()
        while data:
            data = data[os.write(self._file, data) :]
        os.fsync(self._file)
        for row in rows:
            self._finished[_key(self.command, row.name, row.settings, on)] = row
            self.added.append(row)

    def close(self) -> None:
        """Lets another process have it."""
        os.close(self._file)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines that are ours; what is none (a file cut or written to by hand) is passed over."""
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
            _row(line)
            complete = isinstance(line["on"], dict) and isinstance(line["command"], str)
        except (ValueError, KeyError, TypeError):
            continue
        if complete and line["state"] in STATES:
            yield line


def _row(line: Mapping[str, Any]) -> Row:
    return Row(line["name"], line["state"], line["seconds"], line["note"], line["settings"], line["result"])


def _drop_unfinished_line(file: int) -> None:
    """Cuts off what a killed process was writing: the next line must not be glued to it."""
    end = os.lseek(file, 0, os.SEEK_END)
    position = end
    while position > 0:
        start = max(0, position - (1 << 16))
        block = os.pread(file, position - start, start)
        newline = block.rfind(b"\n")
        if newline >= 0:
            position = start + newline + 1
            break
        position = start
    if position != end:
        os.ftruncate(file, position)


def revision() -> str:
    """A digest of the content of all sources: paths and texts, in order."""
    digest = hashlib.sha256()
    files = [path for folder in _SOURCES for path in (ROOT / folder).rglob("*") if path.suffix in _SUFFIXES]
    for path in sorted(files):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def commit() -> str:
    """The checkout's commit for people to read; empty without git."""
    if not (ROOT / ".git").exists():
        return ""
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""

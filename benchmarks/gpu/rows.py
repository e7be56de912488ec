"""``make gpu-operators`` and ``make gpu-training``: rows in order of value, each kept as soon as it is measured."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.gpu.children import Child
from benchmarks.gpu.journal import FAILED, LATE, PASSED, Row
from benchmarks.gpu.machine import build
from benchmarks.gpu.session import Missing, Session, last_line

_LISTING = 60.0
"""Seconds until the child has listed its rows."""

_LEAST = 5.0
"""Seconds below which no row is begun any more."""


def run(session: Session) -> None:
    """The commands' body."""
    session.headline = headline
    build(session)
    child: Child | None
    child, planned = _start(session)
    session.plan("rows", [(row["name"], row["settings"]) for row in planned])
    for row in planned:
        done = session.journal.finished(row["name"], row["settings"])
        if done is not None:
            if child is not None and done.state == PASSED and done.result.get("cost_model") == "rewritten":
                child.send({"figures": dict(done.result)})  # the machine may be another one of the same kind
                session.answer(child, _LISTING)
            continue
        if session.left() < _LEAST:
            session.stop_for_time()
        if child is None:
            child, _ = _start(session)
        if not _measure(session, child, row):
            session.end(child)
            child = None
    if child is not None:
        session.end(child)


def headline(rows: Sequence[Row]) -> list[str]:
    """How many times as fast as PyTorch we are, in the geometric mean and how often, by what was measured."""
    ratios: dict[str, list[float]] = {}
    for row in rows:
        ratio, operator = row.result.get("ratio"), row.result.get("operator") or row.result.get("operation")
        if ratio is not None and operator is not None:
            precision = "TF32" if row.settings.get("precision") == "high" else "float32"
            ratios.setdefault(f"{row.name.split()[0]}, {precision}, {operator}", []).append(ratio)
    means = {what: math.exp(math.fsum(map(math.log, found)) / len(found)) for what, found in ratios.items()}
    return [
        f"  ratio of {what}: {means[what]:.2f}, ahead in {sum(ratio > 1 for ratio in found)} of {len(found)}"
        for what, found in ratios.items()
    ]


def _start(session: Session) -> tuple[Child, list[dict[str, Any]]]:
    """A process that measures, and its rows."""
    words = [session.command, *(["--small"] if session.options.small else [])]
    words += ["--against", session.options.against] if session.options.against else []
    child = session.module("measuring", "benchmarks.gpu.measuring", *words)
    message = session.answer(child, _LISTING)
    if message is None:
        raise Missing(f"expected rows to measure, got none: {last_line(child.tail())}")
    return child, message["rows"]


def _measure(session: Session, child: Child, row: dict[str, Any]) -> bool:
    """Measures a row and keeps it; whether the process is still of use."""
    name, settings, limit = row["name"], row["settings"], row["limit"]
    start = time.monotonic()
    child.send({"settings": settings})
    message = session.answer(child, limit)
    seconds = time.monotonic() - start
    if message is None:
        state = FAILED if child.ended else LATE
        note = f"its process died, see {child.log.name}" if child.ended else f"no end within {limit:.0f} s"
        session.add(Row(name, state, seconds, note, settings))
        return False
    if "error" in message:
        session.add(Row(name, FAILED, seconds, message["error"], settings))
        return True
    done = Row(name, PASSED, seconds, "", settings, message["result"])
    session.add(done)
    session.show(done)
    return True

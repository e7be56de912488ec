"""Kernels check themselves: on a device not met before, each family's first use is compared with a small reference.

A family is a kernel file, or the generated kernels of one kind; ``cu32/references.py`` has a problem and its right
answer for each. A verdict is kept beside what is compiled, by device (name, compute capability, driver), compiler, and
all files that it rests on. A family that fails is not used: operators ask ``sound`` where another can do its work, and
elsewhere its launch is an EngineError.

``$ALPHA_SELFCHECK``: 0 checks nothing, ``again`` takes no verdict from the disk.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alpha import cache as disk
from alpha import update_rules
from alpha.cu32 import compiler
from alpha.errors import ArgumentError, EngineError, OutOfMemoryError
from alpha.expressions import (
    arithmetic,
    coefficients,
    division,
    dropout,
    elementary,
    graph,
    integers,
    polygammas,
    program,
    rules,
    special,
    trigonometry,
    writers,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from alpha.cu32.driver import Device
    from alpha.engine import Engine

_log = logging.getLogger(__name__)

KIND = "selfchecks"
"""The folder in the cache."""


@dataclass(frozen=True)
class Verdict:
    """How far a family's results are from the reference, at worst, and how far they may be."""

    error: float
    allowed: float

    @property
    def sound(self) -> bool:
        """Whether the family may be used; not where an error is not a number."""
        return self.error <= self.allowed


class Record:
    """What is known of a device's families.

    Attributes:
        sound: families that may be used.
        failed: those that may not, and what is said where they would have to.
        lock: held during a check, and while a capture begins, which no check's work must become a part of.
        checking: families that the thread which holds the lock is checking.
        state: another object whenever more has become known, or another family is being checked.
    """

    def __init__(self) -> None:
        self.sound: set[str] = set()
        self.failed: dict[str, str] = {}
        self.lock = threading.RLock()
        self.checking: tuple[str, ...] = ()
        self.state = object()

    def check(self, families: tuple[str, ...]) -> None:
        """Notes which families are being checked."""
        self.checking = families
        self.state = object()

    def settle(self, family: str, failure: str | None = None) -> None:
        """Notes that a family may be used, or what is said where it may not be."""
        if failure is None:
            self.sound.add(family)
        else:
            self.failed[family] = failure
        self.state = object()


def sound(engine: Engine, family: str) -> bool:
    """Whether a family may be used on a device engine's device: checked now if it was not before."""
    device: Device = engine.device  # type: ignore[attr-defined]  # what has kernels has one
    return family in device.families.sound or _checked(device, family) is not False


def admit(device: Device, source: compiler.Source) -> bool:
    """Called before a kernel of a source is loaded: whether it need not be asked again.

    EngineError where the source's family computes wrongly on the device.
    """
    if source.name == compiler.USER:
        return True
    checked = _checked(device, source.name)
    if checked is False:
        raise EngineError(device.families.failed[source.name])
    return checked is True


def begin_capture(device: Device, begin: Callable[[], object]) -> None:
    """Begins a capture of the device's stream, when no check is using it."""
    with device.families.lock:
        try:
            device.capturing = True
            begin()
        except BaseException:
            device.capturing = False
            raise


def _checked(device: Device, family: str) -> bool | None:
    """Whether a family is sound; None where that is to be asked again, and until then it is used."""
    record = device.families
    if family in record.sound:
        return True
    if family in record.failed:
        return False
    if _switch() == "0":
        return True
    with record.lock:  # another thread may be checking it
        if family in record.sound or family in record.failed:
            return family in record.sound
        if family in record.checking or device.capturing:
            # A family is trusted within its own check, and by what that needs. What a capture needs was checked in
            # the rehearsal before it.
            return None
        outer = record.checking
        try:
            record.check((*outer, family))
            verdict = _verdict(device, family)
        except OutOfMemoryError as error:
            _log.info("[cu32] %s.cu is used unchecked for now: %s", family, error)
            return True
        finally:
            record.check(outer)
        if verdict is None or verdict.sound:
            record.settle(family)
            return True
        record.settle(family, _failure(device, family, verdict))
        disk.warn(f"{record.failed[family]}. Until then other kernels are used, where there are any")
        return False


def _switch() -> str:
    value = os.environ.get("ALPHA_SELFCHECK", "")
    if value not in ("", "0", "1", "again"):
        raise ArgumentError(f"[cu32] expected ALPHA_SELFCHECK to be 0, 1 or again, got {value!r}")
    return value


def _failure(device: Device, family: str, verdict: Verdict) -> str:
    version = ".".join(map(str, device.capability))
    return (
        f"[cu32] expected the kernels of {family}.cu to compute right on {device.name} (compute capability {version}, "
        f"driver {device.driver_version}), got results off by {verdict.error:.3g} where {verdict.allowed:.3g} is "
        "allowed: update the driver or this package; ALPHA_SELFCHECK=again checks again, ALPHA_SELFCHECK=0 uses them "
        "as they are"
    )


# -- a check ---------------------------------------------------------------------------------------------------------


def _verdict(device: Device, family: str) -> Verdict | None:
    """The verdict that was kept, or made now; None where none can be made on this device."""
    from alpha.cu32 import references  # which needs the engine, and that this module

    if family not in references.FAMILIES:
        return None
    description = _description(device, family)
    kept = None if _switch() == "again" else _read(_file(family, description), description)
    if kept is not None:
        return kept
    try:
        verdict = references.error(device, family)
    except EngineError as error:
        if compiler.can_compile():
            raise EngineError(f"[cu32] expected to check {family}.cu on {device.name}, got: {error}") from error
        # What was made ahead may have the kernels that a program launches, and not those of a check.
        _log.warning("[cu32] expected to check %s.cu, got: %s: it is used unchecked", family, error)
        return None
    if verdict is not None:
        numbers = {"error": str(verdict.error), "allowed": str(verdict.allowed)}  # as text: JSON has no infinity
        disk.keep(KIND, _file(family, description), json.dumps({**description, **numbers}, indent=1).encode())
    return verdict


def _description(device: Device, family: str) -> dict[str, Any]:
    """All that a verdict depends on."""
    return {
        "family": family,
        "device": device.name,
        "capability": list(device.capability),
        "driver": device.driver_version,
        "compiler": compiler.makers(),
        "options": list(compiler.OPTIONS),
        "sources": _sources(family),
    }


@cache
def _sources(family: str) -> str:
    """A digest of a family's file, if it has one, and of what is common."""
    file = compiler.KERNELS / f"{family}.cu"
    return hashlib.sha256(_common() + (file.read_bytes() if file.exists() else b"")).hexdigest()


_WRITING = (
    arithmetic,
    graph,
    program,
    elementary,
    trigonometry,
    special,
    writers,
    polygammas,
    division,
    integers,
    dropout,
    coefficients,
    rules,
    update_rules,
)
"""What stands outside the engine and decides what its kernels compute."""


@cache
def _common() -> bytes:
    """A digest of the headers, and of what writes kernels, launches and judges them."""
    digest = hashlib.sha256()
    written = [Path(module.__file__ or "") for module in _WRITING]
    for file in (*sorted(compiler.KERNELS.glob("*.cuh")), *sorted(Path(__file__).parent.rglob("*.py")), *written):
        digest.update(f"{file.name}\0".encode() + file.read_bytes() + b"\0")
    return digest.digest()


def _file(family: str, description: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()
    return f"{family}-{digest[:24]}.json"


def _read(name: str, description: dict[str, Any]) -> Verdict | None:
    """The verdict in a file; None where there is none, or none of this description."""
    content = disk.load(KIND, name)
    if content is None:
        return None
    try:
        found = json.loads(content)
        verdict = Verdict(float(found.pop("error")), float(found.pop("allowed")))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return verdict if found == description else None

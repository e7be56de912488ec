"""Processes of the launcher's machine: how one ended, which descend from the launcher, and how to end them all."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys
from contextlib import suppress
from pathlib import Path

from alpha.distributed.lifeline import SEGMENTS

_PR_SET_CHILD_SUBREAPER = 36
_PIDFD_GET_INFO = 0xC0000000 | 64 << 16 | 0xFF << 8 | 11
_PIDFD_INFO_EXIT = 1 << 3
_EXIT_CODE_OFFSET, _INFO_BYTES = 60, 64
"""Linux's ``struct pidfd_info``, which tells from version 6.15 on how a process ended."""

HAS_PROC = sys.platform == "linux"


def adopt() -> None:
    """Makes processes whose parents have ended children of this one, so that none of its descendants is lost."""
    if HAS_PROC:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def watch(pid: int) -> int | None:
    """A file descriptor that can be read once a process has ended; None where there is no such thing."""
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None


def wait_status(pid: int, watched: int | None) -> int | None:
    """How a watched process ended, as ``os.wait`` has it; None where that is not known, or not yet."""
    if watched is None:
        return None
    found = _of_zombie(pid)
    return found if found is not None else _of_reaped(watched)


def _of_zombie(pid: int) -> int | None:
    """How a process ended whose parent has not asked for it yet."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[-1]) if fields[0] == "Z" else None


def _of_reaped(watched: int) -> int | None:
    """How a process ended, from what Linux keeps for those who watch it."""
    try:
        import fcntl

        info = bytearray(struct.pack("Q", _PIDFD_INFO_EXIT) + bytes(_INFO_BYTES - 8))
        fcntl.ioctl(watched, _PIDFD_GET_INFO, info)
    except (OSError, ImportError):  # an older Linux
        return None
    known = struct.unpack_from("Q", info)[0] & _PIDFD_INFO_EXIT
    return int(struct.unpack_from("i", info, _EXIT_CODE_OFFSET)[0]) if known else None


def described(status: int) -> str:
    """What ``os.wait`` tells of a process's end, in words."""
    code = os.waitstatus_to_exitcode(status)
    return f"ended with status {code}" if code >= 0 else f"killed by signal {-code} ({signal_name(-code)})"


def signal_name(number: int) -> str:
    """A signal's name, such as SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "no known signal"


def exit_status(status: int) -> int:
    """The status that a shell would have for what ``os.wait`` tells."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def reap(but: int) -> None:
    """Takes leave of adopted children that have ended; the one that ``subprocess`` asks for itself is left to it."""
    with suppress(ChildProcessError, AttributeError):
        while True:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None or found.si_pid == but:
                return
            os.waitpid(found.si_pid, 0)


def descendants(of: int | None = None) -> list[int]:
    """The processes that descend from this one, or from another, and have not ended."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir() if HAS_PROC else ():
        if entry.name.isdecimal():
            with suppress(OSError, ValueError):
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    children.setdefault(int(parent), []).append(int(entry.name))
    found: list[int] = []
    waiting = [os.getpid() if of is None else of]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def kill(leaders: list[int]) -> None:
    """Kills what is left below this process; where that cannot be found, the groups of these processes."""
    for pid in descendants():
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    for leader in leaders if not HAS_PROC else ():
        with suppress(OSError):
            os.killpg(leader, signal.SIGKILL)


# -- MPI's shared memory ---------------------------------------------------------------------------------------------

_SHARED_MEMORY = Path("/dev/shm")


def unlink_unused_segments(since: float) -> None:
    """Removes MPI's files in /dev/shm that are this user's, were made after a time, and that no process has in use.

    MPI libraries remove them at their end, which processes that are killed do not come to.
    """
    for name in unused_segments(since):
        with suppress(OSError):
            (_SHARED_MEMORY / name).unlink()


def unused_segments(since: float) -> set[str]:
    """The names of these files."""
    names = _segments(since)
    return names - _used() if names and HAS_PROC else set()


def _segments(since: float) -> set[str]:
    found = set()
    with suppress(OSError):
        for entry in os.scandir(_SHARED_MEMORY):
            with suppress(OSError):
                facts = entry.stat(follow_symlinks=False)
                if entry.name.startswith(SEGMENTS) and facts.st_uid == os.geteuid() and facts.st_ctime >= since:
                    found.add(entry.name)
    return found


def _used() -> set[str]:
    """Names in /dev/shm that processes have in their memory or hold open."""
    found = set()
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        with suppress(OSError):
            for line in (process / "maps").read_text(errors="replace").splitlines():
                if "/dev/shm/" in line:
                    found.add(line.rpartition("/dev/shm/")[2].split()[0])
        with suppress(OSError):
            for number in (process / "fd").iterdir():
                with suppress(OSError):
                    place = os.readlink(number)
                    if place.startswith("/dev/shm/"):
                        found.add(place.removeprefix("/dev/shm/"))
    return found

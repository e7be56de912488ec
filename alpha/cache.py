"""The cache on disk for what this machine compiles or measures once: kernels and plans.

A cached file ends in a seal: a checksum of its bytes and of its name. A file that is cut, changed or renamed is not
used, and is made again. Where nothing can be kept (no home directory, a full disk, a folder that is not writable) a
process works as with an empty cache, and warns once.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import shutil
import stat
import struct
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path

_log = logging.getLogger(__name__)

_SEAL = struct.Struct("<8sQ16s")
"""Follows a file's content: a mark, the content's length, the checksum. Programs that read ELF or JSON from the file's
beginning do not notice it."""

_MARK = b"alpha\0\0\1"

IDLE_SECONDS = 30 * 86400.0
"""Kernels that no process has used for this long are removed: other sources, options or versions have replaced them."""

USED_SECONDS = 86400.0
"""A file that is used is marked as used now if its last mark is older than this."""

ABANDONED_SECONDS = 3600.0
"""A temporary file older than this was left by a process that was killed."""

PROBE_BYTES = 256 << 10
"""Size of the file that is written and removed to test whether a folder takes files: that of a large kernel."""

_KERNELS = (".kernel", ".cubin", ".usage", ".nbi", ".nbc")
"""Suffixes of kernels' files; the last two are those of Numba's own cache, which earlier versions used."""

_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.tmp")

_warned = threading.Lock()  # taken when the warning is given, and never released
_pruned: set[Path] = set()


class DamagedFile(Exception):
    """A file does not hold what was written under its name."""


def directory(kind: str) -> Path:
    """The folder of one kind of files: below ``$ALPHA_CACHE``, else below the user's cache directory.

    OSError where the user has no home directory.
    """
    named = os.environ.get("ALPHA_CACHE")
    if named:
        return Path(named) / kind
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else _home() / ".cache") / "alpha" / kind


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise FileNotFoundError(errno.ENOENT, "the user has no home directory", "~") from error


# -- reading and writing ---------------------------------------------------------------------------------------------


def load(kind: str, name: str) -> bytes | None:
    """The content kept under a name; None if there is none, or it is damaged."""
    try:
        path = directory(kind) / name
        content = read(path)
    except OSError:
        return None
    except DamagedFile as error:
        _log.info("%s: made anew", error)
        return None
    with suppress(OSError):
        if time.time() - path.stat().st_mtime > USED_SECONDS:
            os.utime(path)
    return content


def keep(kind: str, name: str, content: bytes) -> bool:
    """Keeps a file for later processes; returns whether it could. A process that cannot keep files warns once."""
    try:
        folder = directory(kind)
        write_atomically(folder / name, sealed(name, content))
    except OSError as error:
        if load(kind, name) is not None:
            # Another process was first, and Windows does not replace files that are being read.
            return True
        _warn_unkept(kind, error)
        return False
    if folder not in _pruned:
        _pruned.add(folder)
        prune(folder)
    return True


def can_keep(kind: str) -> bool:
    """Whether files of a kind can be kept now; a process that cannot keep them warns once."""
    try:
        os.unlink(_write_temporary(directory(kind), bytes(PROBE_BYTES)))
    except OSError as error:
        _warn_unkept(kind, error)
        return False
    return True


def read(path: Path) -> bytes:
    """The content of a sealed file; OSError if it cannot be read, DamagedFile if it is not as it was written."""
    with open(path, "rb", buffering=0, opener=_open_at_once) as file:
        status = os.fstat(file.fileno())
        length = status.st_size - _SEAL.size
        if not stat.S_ISREG(status.st_mode) or length < 0:
            raise DamagedFile(f"{path} is not a file of this cache")
        file.seek(length)
        mark, written, checksum = _SEAL.unpack(file.read(_SEAL.size).ljust(_SEAL.size))
        if mark != _MARK or written != length:  # checked before memory is allocated for the content
            raise DamagedFile(f"{path} is incomplete, or not a file of this cache")
        file.seek(0)
        content = file.read(length)
    if len(content) != length or checksum != _checksum(path.name, content):
        raise DamagedFile(f"{path} is not as it was written")
    return content


def sealed(name: str, content: bytes) -> bytes:
    """A file's bytes: its content, and the seal for that name."""
    return content + _SEAL.pack(_MARK, len(content), _checksum(name, content))


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file that other processes see complete or not at all; the last of several writers wins."""
    temporary = _write_temporary(path.parent, content)
    try:
        try:
            os.replace(temporary, path)
        except OSError:
            if not path.is_dir():
                raise
            shutil.rmtree(path)  # nobody else uses names in this cache
            os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _write_temporary(folder: Path, content: bytes) -> Path:
    """Writes a new file to a folder, which is created if missing. Its permissions follow the umask."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{os.urandom(8).hex()}.tmp"
    try:
        with open(temporary, "xb") as file:
            file.write(content)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    return temporary


def _open_at_once(path: str, flags: int) -> int:
    """Opens a file, without waiting for a writer if it is a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _checksum(name: str, content: bytes) -> bytes:
    digest = hashlib.blake2b(f"{name}\0".encode(), digest_size=16)
    digest.update(content)
    return digest.digest()


# -- what cannot be kept, and what is kept no longer -----------------------------------------------------------------


def warn(message: str) -> None:
    """Gives a RuntimeWarning; logs it instead where the program turns warnings into errors, since this is no error."""
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    except RuntimeWarning:
        _log.warning(message)


def warn_once(what: str, cause: str) -> None:
    """Warns, once per process, that something cannot be kept, and why."""
    if _warned.acquire(blocking=False):
        warn(
            f"[cache] expected to keep {what}, got: {cause}: kernels are compiled for this process alone, about a "
            "minute in all on the CPU; set ALPHA_CACHE to a folder that it may write to"
        )


def _warn_unkept(kind: str, error: OSError) -> None:
    try:
        folder = str(directory(kind))
    except OSError:
        folder = "~/.cache/alpha"
    warn_once(f"what is compiled or measured in {folder}", error.strerror or str(error))


def prune(folder: Path) -> None:
    """Removes kernels that no process has used for ``IDLE_SECONDS``, and files that killed processes left behind.

    The search's times stay: they take a few hundred bytes per problem, only a device can measure them again, and equal
    results in later runs depend on them.
    """
    now = time.time()
    for parent, _, names in os.walk(folder, topdown=False):
        removed = 0
        for name in names:
            limit = _limit(name)
            with suppress(OSError):
                if limit is not None and now - os.lstat(os.path.join(parent, name)).st_mtime > limit:
                    os.unlink(os.path.join(parent, name))
                    removed += 1
        if removed and Path(parent) != folder:
            with suppress(OSError):  # not empty yet
                os.rmdir(parent)


def _limit(name: str) -> float | None:
    """Seconds after which an unused file is removed; None if it stays."""
    if _TEMPORARY.fullmatch(name):
        return ABANDONED_SECONDS
    return IDLE_SECONDS if name.endswith(_KERNELS) else None

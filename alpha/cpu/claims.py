"""Claims: which process compiles which kernel, so that no two of them compile the same one at once.

A claim is the lock of one byte of a file in the cache, whose place follows from the kernel's name. The system releases
the locks of a process that ends, however it ends, so that nothing needs to be cleaned up after a killed one. Where
there are no such locks (Windows, some network drives, a folder that is not writable) every claim is granted: processes
then compile for themselves.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from alpha import cache

fcntl: Any
try:
    import fcntl
except ImportError:
    fcntl = None

_HELD_BY_ANOTHER = (BlockingIOError, PermissionError)
"""What the system answers, by its kind, where another process has the lock."""


class Claims:
    """The claims of this process, in the file of one kind of kernels. Threads share them: Numba compiles in one."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._file: tuple[Path, int] | None = None  # with its descriptor, which must stay open: closing it ends claims

    def take(self, name: str) -> bool:
        """Whether this process may go ahead with a name: it has the claim now, or there are no claims."""
        return self.lock(name) is not False

    def lock(self, name: str) -> bool | None:
        """Whether this process has the claim on a name now; None where there are no claims."""
        file = self._open()
        if file is None:
            return None
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(name))
        except _HELD_BY_ANOTHER:
            return False
        except OSError:  # the drive has no locks
            return None
        return True

    def release(self, name: str) -> None:
        """Gives a claim back, if this process has it."""
        if self._file is not None:
            with suppress(OSError):
                fcntl.lockf(self._file[1], fcntl.LOCK_UN, 1, _place(name))

    def _open(self) -> int | None:
        """The file's descriptor; None where there are no claims. ``$ALPHA_CACHE`` may name another folder meanwhile."""
        if fcntl is None:
            return None
        try:
            path = cache.directory("claims") / self._kind
            if self._file is None or self._file[0] != path:
                path.parent.mkdir(parents=True, exist_ok=True)
                opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
                before, self._file = self._file, (path, opened)
                if before is not None:
                    os.close(before[1])
        except OSError:
            return None
        return self._file[1]


def _place(name: str) -> int:
    """A place in the file, far behind its end, for each name."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") >> 2

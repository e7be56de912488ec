"""Where this machine keeps what is compiled or measured once: kernels, plans."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def directory(kind: str) -> Path:
    """The folder of one kind of files: below ``$ALPHA_CACHE``, else below the user's cache directory."""
    root = os.environ.get("ALPHA_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "alpha"
    return Path(root) / kind


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file that other processes see whole or not at all; the last of several writers wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise

"""Files: written whole or not at all, and read with an error that names the cause."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from alpha import dtypes, weights_file
from alpha.errors import AlphaError, ArgumentError, CheckpointError
from alpha.tensor import Tensor

Array = np.ndarray[Any, Any]
PathLike = str | os.PathLike[str]
FileLike = PathLike | BinaryIO

ELSE = "use an older checkpoint, or start again"
"""What to do about a checkpoint that is corrupt."""


# -- writing -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def replacing(function: str, path: PathLike) -> Iterator[Path]:
    """``with replacing(name, path) as temporary:`` puts the file written to ``temporary`` at ``path`` when complete.

    It is flushed to the disk and renamed at the end. An error, Ctrl-C included, leaves ``path`` as it was and no
    temporary file; CheckpointError, with the cause, where the operating system refused. What killed processes of this
    host left behind is removed.
    """
    target = _target(function, path)
    temporary = in_progress(target)
    try:
        _remove_stale(target)
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
        _flush_directory(target.parent)
    except OSError as error:
        raise CheckpointError(
            f"[{function}] expected to write {target}, got {cause(error)}: free space or choose another place; what "
            "was there before is unchanged"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write(function: str, arrays: dict[str, Array], target: FileLike, metadata: Mapping[str, str]) -> None:
    """Writes arrays and strings beside them to a file that is replaced at the end, or to an open one."""
    try:
        if not isinstance(target, str | os.PathLike) and hasattr(target, "write"):
            stream(arrays, metadata, target)
            return
        with replacing(function, cast(PathLike, target)) as temporary, open(temporary, "wb") as file:
            stream(arrays, metadata, file)
    except weights_file.FormatError as error:
        raise ArgumentError(
            f"[{function}] expected names and metadata for one header, got {error}: save less"
        ) from error
    except TypeError as error:
        raise ArgumentError(
            f'[{function}] expected a file that takes bytes, got {cause(error)}: open it with mode "wb"'
        ) from error
    except OSError as error:
        raise CheckpointError(
            f"[{function}] expected to write to the file given, got {cause(error)}: free space, or pass a path"
        ) from error


stream = weights_file.write


def host_array(function: str, name: str, value: Any) -> Array:
    """A tensor's values in row-major order on the host; errors where a name or a dtype has no place in a file."""
    if not isinstance(name, str):
        raise ArgumentError(f"[{function}] expected names that are strings, got {name!r}")
    if name == "__metadata__" or not is_text(name):
        raise ArgumentError(f"[{function}] expected names that safetensors can hold, got {name!r}: choose another")
    array = value.engine.to_numpy(value.detach()) if isinstance(value, Tensor) else value
    dtypes.as_dtype(array.dtype, function)
    return np.asarray(array, order="C")


def strings(function: str, metadata: Mapping[str, str] | None) -> dict[str, str]:
    """The strings to keep beside the arrays; ArgumentError where they are none."""
    notes = dict(metadata or {})
    if not all(isinstance(text, str) and is_text(text) for item in notes.items() for text in item):
        raise ArgumentError(
            f"[{function}] expected metadata of strings, got {notes!r}: use json.dumps for anything else"
        )
    return notes


def is_text(text: str) -> bool:
    """Whether a string can be written in UTF-8: half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _target(function: str, path: PathLike) -> Path:
    """The path of a file to write; ArgumentError for anything else."""
    try:
        target = Path(path)
    except TypeError:
        target = Path()
    if not target.name or "\0" in str(target):
        raise ArgumentError(f"[{function}] expected a file's path, got {repr(path)[:80]}: name the file")
    return target


def in_progress(target: Path) -> Path:
    """Where a file is written until it is complete: beside its place, under a name of this host, process and thread.

    Several hosts may share the disk, and each numbers its processes for itself.
    """
    return target.with_name(f".{target.name}.{_host()}-{os.getpid()}-{threading.get_ident()}.tmp")


_IN_PROGRESS = re.compile(r"(?:(?P<host>.+)-)?(?P<process>\d{1,9})-\d+\.tmp")
"""What follows the target's name. Older releases wrote no host."""

_HOST_LENGTH = 32


def _host() -> str:
    """This host's name, as a part of a file's name: where it is long or has other characters, by a digest."""
    name = socket.gethostname()
    safe = re.sub(r"[^A-Za-z0-9_.-]", "_", name) or "_"
    if safe == name and len(safe) <= _HOST_LENGTH:
        return safe
    digest = hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=6).hexdigest()
    return f"{safe[: _HOST_LENGTH - len(digest) - 1]}_{digest}"


def _remove_stale(target: Path) -> None:
    """Removes temporary files of the same target whose process ran on this host and is gone."""
    prefix = f".{target.name}."
    for other in target.parent.iterdir():
        found = _IN_PROGRESS.fullmatch(other.name, len(prefix)) if other.name.startswith(prefix) else None
        if found and found["host"] in (None, _host()) and not _alive(int(found["process"])):
            other.unlink(missing_ok=True)


def _alive(process: int) -> bool:
    if os.name != "posix":  # elsewhere signal 0 is no harmless probe
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it lives, but is not ours
        return True
    return True


def _flush_directory(folder: Path) -> None:
    """Makes a rename survive a power cut, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- reading -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def opened(function: str, source: FileLike) -> Iterator[BinaryIO]:
    """A file to read from a path, or the open file itself; what goes wrong within becomes a CheckpointError."""
    try:
        if isinstance(source, str | os.PathLike) or not hasattr(source, "read"):
            with open(cast(PathLike, source), "rb") as file:
                yield file
        elif hasattr(source, "seekable") and source.seekable():
            yield source
        else:
            yield io.BytesIO(source.read())
    except AlphaError:
        raise
    except weights_file.SealError as error:
        raise CheckpointError(
            f"[{function}] expected a whole checkpoint, got one whose checksum is wrong at {named(source)} ({error}): "
            f"{ELSE}"
        ) from error
    except weights_file.KindError as error:
        raise CheckpointError(
            f"[{function}] expected tensors of {dtypes.names()}, got {error} in {named(source)}: convert the file first"
        ) from error
    except weights_file.FormatError as error:
        raise CheckpointError(
            f"[{function}] expected a safetensors file, got a truncated, corrupt or other one at {named(source)} "
            f"({cause(error)}): write it again"
        ) from error
    except FileNotFoundError as error:
        raise CheckpointError(
            f"[{function}] expected a safetensors file, got nothing at {named(source)}: check it"
        ) from error
    except (OSError, TypeError, ValueError) as error:  # a path that is none, or holds a null character
        raise CheckpointError(f"[{function}] expected to read {named(source)}, got {cause(error)}: check it") from error
    except MemoryError as error:
        raise CheckpointError(f"[{function}] expected memory for {named(source)}, got too little: free some") from error


def read(function: str, source: FileLike) -> tuple[dict[str, Array], dict[str, str]]:
    """Reads all arrays and the metadata of a safetensors file, and checks its seal if it has one."""
    with opened(function, source) as file:
        return weights_file.read(file)


def named(source: Any) -> str:
    """How a message calls a file: its path, or the type of an open file."""
    return f"{source!s:.200}" if not hasattr(source, "read") else f"the {type(source).__name__} given"


def cause(error: Exception) -> str:
    """An error's message on one line."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__

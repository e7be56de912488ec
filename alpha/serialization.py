"""Files: tensors in safetensors, and training checkpoints, written so that a crash never loses the last good one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import numpy as np
import safetensors
from safetensors import SafetensorError

from alpha import dtypes, engines, random
from alpha.engine import Engine
from alpha.errors import AlphaError, ArgumentError, CheckpointError
from alpha.tensor import Tensor

Array = np.ndarray[Any, Any]
PathLike = str | os.PathLike[str]

FORMAT = "dragon-alpha checkpoint"
VERSION = 1
"""Of the checkpoint's layout; raised when an older reader would misread a newer file."""

_HEADER = "alpha"  # the metadata key whose value is the checkpoint's JSON
_PARTS = ("loader", "scheduler", "optimizer", "model")


class Stateful(Protocol):
    """What a checkpoint can hold: optimizers, schedulers, loaders, anything with these two methods."""

    def state_dict(self) -> dict[str, Any]:
        """All that must be kept, as nested dicts, lists, numbers, strings, tensors and arrays."""

    def load_state_dict(self, state: Any, /) -> Any:
        """Takes back what ``state_dict`` gave; raises, and changes nothing, where it does not fit."""


# -- weight files ------------------------------------------------------------------------------------------------------


def save(tensors: Mapping[str, Any], path: PathLike, metadata: Mapping[str, str] | None = None) -> None:
    """Writes named tensors (a ``state_dict()``) to a safetensors file, in row-major order.

    The file appears whole or not at all: a failed or interrupted write leaves what was there before.

    Args:
        tensors: name -> Tensor or array.
        metadata: strings to keep beside them.
    """
    if not isinstance(tensors, Mapping):
        raise ArgumentError(
            f"[save] expected a mapping of names to tensors, got {type(tensors).__name__}: pass module.state_dict()"
        )
    notes = dict(metadata or {})
    if not all(isinstance(text, str) for item in notes.items() for text in item):
        raise ArgumentError(f"[save] expected metadata of strings, got {notes!r}: use json.dumps for anything else")
    _write("save", {name: _host_array("save", name, value) for name, value in tensors.items()}, path, notes)


def load(path: PathLike, engine: Engine | str | None = None) -> dict[str, Tensor]:
    """Reads a safetensors file as name -> Tensor on an engine (by default the default engine).

    CheckpointError if the file is missing, truncated, of another format, or holds a dtype that Tensor has not.
    """
    target = engines.resolve(engine)
    arrays, _ = _read("load", path)
    return {name: target.from_numpy(array) for name, array in arrays.items()}


# -- checkpoints -------------------------------------------------------------------------------------------------------


def save_checkpoint(
    path: PathLike,
    *,
    model: Stateful | None = None,
    optimizer: Stateful | None = None,
    scheduler: Stateful | None = None,
    loader: Stateful | None = None,
    **extra: Any,
) -> None:
    """Writes all that a training run needs to go on, to the bit, into one safetensors file; no pickle.

    Holds the states of what is given, ``alpha.random``'s state, and ``extra``: numbers, strings, lists, dicts, arrays.
    """
    tensors: dict[str, Array] = {}
    parts: dict[str, Any] = {}
    objects = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}
    for name, part in objects.items():
        if part is not None:
            parts[name] = {"type": type(part).__name__, "state": _pack(part.state_dict(), name, tensors)}
    if model is not None:
        parts["model"]["fingerprint"] = _fingerprint(_signature(model.state_dict()))
    header = {
        "format": FORMAT,
        "version": VERSION,
        "parts": parts,
        "random": random.get_state(),
        "extra": _pack(extra, "extra", tensors),
        "crc32": _checksum(tensors),
    }
    _write("save_checkpoint", tensors, path, {_HEADER: json.dumps(header)})


def load_checkpoint(
    path: PathLike,
    *,
    model: Stateful | None = None,
    optimizer: Stateful | None = None,
    scheduler: Stateful | None = None,
    loader: Stateful | None = None,
) -> dict[str, Any]:
    """Puts a checkpoint's states into what is given and ``alpha.random``; returns the ``extra`` it was saved with.

    What is not given is skipped, the random state too unless something besides the model is given. CheckpointError,
    with everything as it was, if the file is missing, corrupt or no checkpoint, or does not fit what is given.
    """
    arrays, metadata = _read("load_checkpoint", path)
    header = _header(path, arrays, metadata)
    objects = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}
    given = {name: objects[name] for name in _PARTS if objects[name] is not None}
    states = {name: _state_of(path, name, part, header, arrays) for name, part in given.items()}
    if model is not None:
        _check_model(path, model, states["model"], header["parts"]["model"])
    _apply(path, cast(dict[str, Stateful], given), states)
    if given.keys() - {"model"}:
        random.set_state(header["random"])
    return cast(dict[str, Any], _unpack(header["extra"], arrays))


def _state_of(path: PathLike, name: str, part: Any, header: dict[str, Any], arrays: dict[str, Array]) -> Any:
    """One part's state out of a checkpoint; CheckpointError if it has none, or one of another type."""
    entry = header["parts"].get(name)
    if entry is None:
        raise CheckpointError(
            f"[load_checkpoint] expected a checkpoint that holds the {name}'s state, got {path} with "
            f"{', '.join(header['parts']) or 'none'}: leave {name}= out, or save it too"
        )
    kind = type(part).__name__
    if name != "model" and entry["type"] != kind:
        raise CheckpointError(
            f"[load_checkpoint] expected the state of {kind}, got {path} with that of {entry['type']}: make the {name} "
            "that was saved"
        )
    return _unpack(entry["state"], arrays)


def _check_model(path: PathLike, model: Stateful, state: dict[str, Any], entry: dict[str, Any]) -> None:
    """CheckpointError listing all of a checkpoint's model state that does not fit the model."""
    found, wanted = _signature(state), _signature(model.state_dict())
    missing = [name for name in wanted if name not in found]
    unexpected = [name for name in found if name not in wanted]
    differing = [
        f"{name}: {_describe(found[name])} instead of {_describe(wanted[name])}"
        for name in wanted
        if name in found and found[name] != wanted[name]
    ]
    problems = [
        f"{len(names)} {label} ({_shorten(names)})"
        for label, names in (("missing", missing), ("unexpected", unexpected), ("misshaped", differing))
        if names
    ]
    if problems:
        raise CheckpointError(
            f"[load_checkpoint] expected a checkpoint of this {type(model).__name__}, got {path} of {entry['type']} "
            f"with keys {', '.join(problems)}: build the model that was saved"
        )
    if entry["fingerprint"] != _fingerprint(found):
        raise CheckpointError(f"[load_checkpoint] expected a whole checkpoint, got a corrupt one at {path}: {_ELSE}")


def _apply(path: PathLike, objects: dict[str, Stateful], states: dict[str, Any]) -> None:
    """Loads every state, in the order of _PARTS; where one does not fit, those before it are put back."""
    undo: list[tuple[Stateful, Any]] = []
    try:
        for name, part in objects.items():
            # The optimizer and the model come last and check all before they change anything: their (large) states
            # need no copy to go back to.
            before = part.state_dict() if name in ("loader", "scheduler") else None
            part.load_state_dict(states[name])
            if before is not None:
                undo.append((part, before))
    except Exception as error:
        for part, before in reversed(undo):
            part.load_state_dict(before)
        if isinstance(error, AlphaError) and not isinstance(error, CheckpointError):
            raise CheckpointError(f"[load_checkpoint] expected a state that fits, got {path}: {error}") from error
        raise


_ELSE = "use an older checkpoint, or start again"


def _header(path: PathLike, arrays: dict[str, Array], metadata: dict[str, str]) -> dict[str, Any]:
    """A checkpoint's JSON, checked: ours, of a version we know, with the tensors it was written with."""
    try:
        header = json.loads(metadata[_HEADER])
        ours = header["format"] == FORMAT
    except (KeyError, TypeError, ValueError):
        ours = False
    if not ours:
        raise CheckpointError(
            f"[load_checkpoint] expected a checkpoint, got another safetensors file at {path}: read weights alone "
            "with alpha.load"
        )
    if header["version"] != VERSION:
        raise CheckpointError(
            f"[load_checkpoint] expected a checkpoint of format version {VERSION}, got version {header['version']} at "
            f"{path}: use the release that wrote it"
        )
    if header["crc32"] != _checksum(arrays):
        raise CheckpointError(
            f"[load_checkpoint] expected a whole checkpoint, got one whose checksum is wrong at {path}: {_ELSE}"
        )
    random.check_state("load_checkpoint", header["random"])
    return cast(dict[str, Any], header)


def _signature(state: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    return {name: (tuple(value.shape), str(value.dtype)) for name, value in state.items()}


def _fingerprint(signature: dict[str, tuple[tuple[int, ...], str]]) -> str:
    """A digest of a model's names, shapes and dtypes."""
    return hashlib.sha256(json.dumps(sorted(signature.items())).encode()).hexdigest()


def _checksum(arrays: Mapping[str, Array]) -> int:
    value = 0
    for name in sorted(arrays):
        value = zlib.crc32(arrays[name].reshape(-1).view(np.uint8).data, zlib.crc32(name.encode(), value))
    return value


def _describe(entry: tuple[tuple[int, ...], str]) -> str:
    return f"{entry[0]} {entry[1]}"


def _shorten(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f", and {len(names) - most} more" if len(names) > most else "")


# -- nested values as JSON ---------------------------------------------------------------------------------------------


def _pack(value: Any, path: str, tensors: dict[str, Array]) -> Any:
    """A nested value as what JSON can hold; tensors and arrays go to ``tensors`` under their path."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Tensor | np.ndarray):
        tensors[path] = _host_array("save_checkpoint", path, value)
        return {"$tensor": path}
    if isinstance(value, list | tuple):
        items = [_pack(item, f"{path}.{index}", tensors) for index, item in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    if isinstance(value, Mapping) and all(isinstance(key, str | int) for key in value):
        return {"$dict": [[key, _pack(item, f"{path}.{key}", tensors)] for key, item in value.items()]}
    raise ArgumentError(
        f"[save_checkpoint] expected numbers, strings, lists, dicts, tensors and arrays, got {type(value).__name__} at "
        f"{path}: convert it first"
    )


def _unpack(value: Any, tensors: Mapping[str, Array]) -> Any:
    """What ``_pack`` packed, with arrays for tensors."""
    if isinstance(value, list):
        return [_unpack(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    kind, content = next(iter(value.items()))
    if kind == "$tensor":
        return tensors[content]
    if kind == "$tuple":
        return tuple(_unpack(item, tensors) for item in content)
    return {key: _unpack(item, tensors) for key, item in content}


# -- reading and writing -----------------------------------------------------------------------------------------------


def _host_array(function: str, name: str, value: Any) -> Array:
    """A tensor's values in row-major order on the host."""
    if not isinstance(name, str):
        raise ArgumentError(f"[{function}] expected names that are strings, got {name!r}")
    if not isinstance(value, Tensor | np.ndarray):
        raise ArgumentError(f"[{function}] expected a Tensor or an array for {name!r}, got {type(value).__name__}")
    array = value.engine.to_numpy(value.detach()) if isinstance(value, Tensor) else value
    dtypes.as_dtype(array.dtype, function)
    return np.asarray(array, order="C")


def _write(function: str, arrays: dict[str, Array], path: PathLike, metadata: dict[str, str]) -> None:
    with replacing(function, path) as temporary, open(temporary, "wb") as file:
        _stream(arrays, metadata, file)


def _stream(arrays: dict[str, Array], metadata: dict[str, str], file: BinaryIO) -> None:
    """Writes the safetensors format: the header's length, a JSON header, the tensors' bytes.

    safetensors' own writer puts a temporary file of its own beside ours, which a killed process leaves behind, and
    makes it readable by its owner alone; or it holds the whole file in memory twice.
    """
    # Widest elements first, after a header of a multiple of 8 bytes, so that every tensor is aligned.
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    end = 0
    for name in names:
        array, start = arrays[name], end
        end += array.nbytes
        header[name] = {"dtype": _CODES[array.dtype], "shape": array.shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for name in names:
        little = arrays[name].astype(arrays[name].dtype.newbyteorder("<"), copy=False)
        file.write(little.reshape(-1).view(np.uint8).data)


_CODES = {
    dtypes.float32: "F32",
    dtypes.float64: "F64",
    dtypes.uint8: "U8",
    dtypes.int32: "I32",
    dtypes.int64: "I64",
    dtypes.bool_: "BOOL",
}


@contextlib.contextmanager
def replacing(function: str, path: PathLike) -> Iterator[Path]:
    """``with replacing(name, path) as temporary:`` has what is written to ``temporary`` appear whole at ``path``.

    It is flushed to the disk and renamed at the end. An error, Ctrl-C included, leaves ``path`` as it was and no
    temporary file; CheckpointError, with the cause, where the operating system refused. What killed processes left
    behind is removed.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        _remove_stale(target)
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
        _flush_directory(target.parent)
    except OSError as error:
        raise CheckpointError(
            f"[{function}] expected to write {target}, got {_cause(error)}: free space or choose another place; what "
            "was there before is unchanged"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _remove_stale(target: Path) -> None:
    """Removes temporary files of the same target whose process is gone."""
    prefix = f".{target.name}."
    for other in target.parent.iterdir():
        if other.name.startswith(prefix) and other.suffix == ".tmp":
            process = other.name[len(prefix) :].partition("-")[0]
            if process.isdigit() and not _alive(int(process)):
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
    """Makes a rename last through a power cut, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(function: str, path: PathLike) -> tuple[dict[str, Array], dict[str, str]]:
    """All arrays and the metadata of a safetensors file."""
    arrays: dict[str, Array] = {}
    try:
        with safetensors.safe_open(path, framework="np") as file:
            for name in file.keys():  # noqa: SIM118  (not a mapping)
                arrays[name] = file.get_tensor(name)
            metadata = dict(file.metadata() or {})
    except FileNotFoundError as error:
        raise CheckpointError(f"[{function}] expected a safetensors file, got nothing at {path}: check it") from error
    except OSError as error:
        raise CheckpointError(f"[{function}] expected to read {path}, got {_cause(error)}") from error
    except (SafetensorError, TypeError, AttributeError, ValueError) as error:
        raise CheckpointError(
            f"[{function}] expected a safetensors file, got a truncated, corrupt or other one at {path} "
            f"({_cause(error)}): write it again"
        ) from error
    for name, array in arrays.items():
        if array.dtype not in dtypes.ALL:
            raise CheckpointError(
                f"[{function}] expected tensors of {dtypes.names()}, got {array.dtype} for {name!r} in {path}: "
                "convert the file first"
            )
    return arrays, metadata


def _cause(error: Exception) -> str:
    """An error in a few words on one line."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__

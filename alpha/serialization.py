"""Files: tensors in safetensors, and training checkpoints, written so that a crash never loses the last good one.

Every file written here is sealed: a checksum in the white space after the header's first brace covers each of its bits
(``alpha.weights_file``). A file without a seal, from an older release or another program, is read without that check.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from alpha import dtypes, engines, random, weights_file
from alpha.changes import Changes, appending, at_once, finish, setting
from alpha.engine import Engine
from alpha.errors import AlphaError, ArgumentError, CheckpointError
from alpha.tensor import Tensor

Array = np.ndarray[Any, Any]
PathLike = str | os.PathLike[str]

FORMAT = "dragon-alpha checkpoint"
VERSION = 1
"""Version of the checkpoint's layout: raised when an older reader would misread a newer file."""

_HEADER = "alpha"  # the metadata key whose value is the checkpoint's JSON
_PARTS = ("loader", "scheduler", "optimizer", "model")
_DEPTH = 100
"""How deep lists and dicts in a checkpoint may be nested."""


class Stateful(Protocol):
    """What a checkpoint can hold: optimizers, schedulers, loaders, anything with these two methods."""

    def state_dict(self) -> dict[str, Any]:
        """The object's state as nested dicts, lists, numbers, strings, tensors and arrays."""

    def load_state_dict(self, state: Any, /) -> Any:
        """Restores a state from ``state_dict``; if it does not fit, raises an error and changes nothing."""


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
    if not all(isinstance(text, str) and _is_text(text) for item in notes.items() for text in item):
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
    """Writes all that a training run needs to continue exactly, to the bit, to one safetensors file, without pickle.

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
    try:
        text = json.dumps(header)
    except ValueError as error:  # an int of thousands of digits
        raise ArgumentError(
            f"[save_checkpoint] expected values that JSON can hold, got {error}: convert them"
        ) from error
    _write("save_checkpoint", tensors, path, {_HEADER: text})


def load_checkpoint(
    path: PathLike,
    *,
    model: Stateful | None = None,
    optimizer: Stateful | None = None,
    scheduler: Stateful | None = None,
    loader: Stateful | None = None,
) -> dict[str, Any]:
    """Restores a checkpoint's states into the given objects and ``alpha.random``; returns the ``extra`` saved with it.

    What is not given is skipped, the random state too unless something besides the model is given. CheckpointError,
    with everything as it was, if the file is missing, corrupt or no checkpoint, or does not fit what is given.

    The whole file is read and checked before anything changes, and then all changes or nothing: wherever a
    KeyboardInterrupt comes, model, optimizer, scheduler, loader and random state are all as before or all as after. An
    object that is not of this package is taken back by its own ``load_state_dict`` where another fails.
    """
    arrays, metadata = _read("load_checkpoint", path)
    header = _header(path, arrays, metadata)
    objects = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}
    given = {name: cast(Stateful, objects[name]) for name in _PARTS if objects[name] is not None}
    states = {name: _state_of(path, name, part, header, arrays) for name, part in given.items()}
    extra = cast(dict[str, Any], _copied(_unpack(header["extra"], arrays)))
    if model is not None:
        _check_model(path, model, states["model"], header["parts"]["model"])
    changes = Changes()
    if given.keys() - {"model"}:
        random.stage_state(header["random"], changes)
    _Loading(path, changes).load(given, states)
    return extra


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
    state = _unpack(entry["state"], arrays)
    return state if _stage_of(part) else _copied(state)


def _check_model(path: PathLike, model: Stateful, state: Any, entry: dict[str, Any]) -> None:
    """CheckpointError listing all of a checkpoint's model state that does not fit the model."""
    if not isinstance(state, dict) or not all(isinstance(value, np.ndarray) for value in state.values()):
        raise _corrupt(path, "a model's state that is no dict of tensors")
    found, wanted = _signature(state), _signature(model.state_dict())
    missing = [name for name in wanted if name not in found]
    unexpected = [str(name) for name in found if name not in wanted]
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


class _Loading:
    """Loads states into objects: into this package's all at once, into others one by one with a way back."""

    def __init__(self, path: PathLike, changes: Changes) -> None:
        self._path = path
        self._changes = changes
        self._ways_back: list[Callable[[], None]] = []
        self._made = False

    def load(self, objects: Mapping[str, Stateful], states: Mapping[str, Any]) -> None:
        """Loads all states in the order of _PARTS; if one does not fit, or an interrupt comes, none."""
        try:
            others = []
            for name, part in objects.items():
                stage = _stage_of(part)
                if stage is None:
                    others.append((part, states[name]))
                else:
                    stage(states[name], self._changes)
            for part, state in others:
                at_once([appending(self._ways_back, _way_back(part))])
                part.load_state_dict(state)
            self._changes.add(setting(self, "_made", True))
            self._changes.make()
        except BaseException as error:
            if not self._made:
                finish(self._go_back)
            if isinstance(error, CheckpointError) or not isinstance(error, Exception):
                raise
            raise CheckpointError(
                f"[load_checkpoint] expected a state that fits, got {self._path}: "
                f"{error if isinstance(error, AlphaError) else _cause(error)}"
            ) from error

    def _go_back(self) -> None:
        """Undoes what was loaded, the last first; if interrupted, it is run again from the start."""
        for way_back in reversed(self._ways_back):
            way_back()


def _stage_of(part: Any) -> Callable[[Any, Changes], object] | None:
    """The method by which a part checks a state and adds loading it to ``Changes``; None if it has none."""
    if "load_state_dict" in getattr(part, "__dict__", {}):
        return None
    for kind in type(part).__mro__:
        if "load_state_dict" in vars(kind):  # one of its own says nothing of what it inherits
            return part.stage_state if "stage_state" in vars(kind) else None
    return None


def _way_back(part: Stateful) -> Callable[[], None]:
    """A function that restores an object to its present state, whatever its ``load_state_dict`` did."""
    state, attributes = copy.deepcopy(part.state_dict()), dict(getattr(part, "__dict__", {}))

    def go() -> None:
        try:
            part.load_state_dict(copy.deepcopy(state))  # what was changed within its attributes
        except Exception as error:
            if not attributes:
                raise CheckpointError(
                    f"[load_checkpoint] expected {type(part).__name__} to take its own state back, got "
                    f"{_cause(error)}: make it anew"
                ) from error
        if attributes:
            current = vars(part)
            others = [(dict.pop, current, name, None) for name in current if name not in attributes]
            at_once([*others, (dict.update, current, attributes)])

    return go


_ELSE = "use an older checkpoint, or start again"


def _corrupt(path: PathLike, what: str) -> CheckpointError:
    return CheckpointError(f"[load_checkpoint] expected a whole checkpoint, got {what} at {path}: {_ELSE}")


def _header(path: PathLike, arrays: dict[str, Array], metadata: dict[str, str]) -> dict[str, Any]:
    """A checkpoint's JSON, after checking its format, its version and that all its tensors are there."""
    try:
        header = json.loads(metadata[_HEADER], object_pairs_hook=weights_file.unique)
        ours = header["format"] == FORMAT
    except (KeyError, TypeError, ValueError, RecursionError):
        ours = False
    if not ours:
        raise CheckpointError(
            f"[load_checkpoint] expected a checkpoint, got another safetensors file at {path}: read weights alone "
            "with alpha.load"
        )
    if type(header.get("version")) is not int or header["version"] != VERSION:
        raise CheckpointError(
            f"[load_checkpoint] expected a checkpoint of format version {VERSION}, got version "
            f"{repr(header.get('version'))[:40]} at {path}: use the release that wrote it"
        )
    if set(header) != {"format", "version", "parts", "random", "extra", "crc32"}:
        raise _corrupt(path, f"the entries {', '.join(map(repr, header))[:200]}")
    if type(header["crc32"]) is not int or header["crc32"] != _checksum(arrays):
        raise _corrupt(path, "one whose checksum is wrong")
    _check_parts(path, header["parts"], arrays)
    _check_packed(path, "extra", header["extra"], arrays)
    extra = header["extra"]
    if (
        not isinstance(extra, dict)
        or "$dict" not in extra
        or not all(isinstance(key, str) for key, _ in extra["$dict"])
    ):
        raise _corrupt(path, "an extra that is no dict")
    try:
        random.check_state("load_checkpoint", header["random"])
    except ArgumentError as error:
        raise _corrupt(path, f"a random state {header['random']!r:.80}") from error
    return cast(dict[str, Any], header)


def _check_parts(path: PathLike, parts: Any, arrays: Mapping[str, Array]) -> None:
    """Raises CheckpointError unless each part is known and has a type and a state."""
    if not isinstance(parts, dict) or not set(parts) <= set(_PARTS):
        raise _corrupt(path, f"the parts {parts!r:.80}")
    for name, part in parts.items():
        wanted = {"type", "state", "fingerprint"} if name == "model" else {"type", "state"}
        if not isinstance(part, dict) or set(part) != wanted:
            raise _corrupt(path, f"a part {name} without {', '.join(sorted(wanted))} alone")
        if not all(isinstance(part[key], str) for key in wanted - {"state"}):
            raise _corrupt(path, f"a part {name} whose {' or '.join(sorted(wanted - {'state'}))} is no text")
        _check_packed(path, name, part["state"], arrays)


def _check_packed(path: PathLike, place: str, value: Any, arrays: Mapping[str, Array], depth: int = 0) -> None:
    """Raises CheckpointError unless ``_unpack`` can read a value, and the file has its tensors."""
    if value is None or isinstance(value, bool | int | float | str):
        return
    if depth > _DEPTH:
        raise _corrupt(path, f"more than {_DEPTH} lists and dicts within each other in {place}")
    items: list[Any]
    if isinstance(value, list):
        items = value
    else:
        kind, content = next(iter(value.items())) if len(value) == 1 else (None, None)
        if kind == "$tensor" and isinstance(content, str) and content in arrays:
            return
        if kind == "$tuple" and isinstance(content, list):
            items = content
        elif kind == "$dict" and (pairs := _pairs(content)) is not None:
            items = [item for _, item in pairs]
        else:
            raise _corrupt(path, f"{str(value)[:80]!r} in {place}")
    for item in items:
        _check_packed(path, place, item, arrays, depth + 1)


def _pairs(content: Any) -> list[list[Any]] | None:
    """A dict's items, if the value is a list of pairs with different keys."""
    if not isinstance(content, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in content):
        return None
    keys = [key for key, _ in content]
    return content if all(type(key) in (str, int) for key in keys) and len(set(keys)) == len(keys) else None


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


def _pack(value: Any, path: str, tensors: dict[str, Array], depth: int = 0) -> Any:
    """Converts a nested value to what JSON can hold; puts tensors and arrays into ``tensors``, under their path."""
    if depth > _DEPTH:
        raise ArgumentError(
            f"[save_checkpoint] expected at most {_DEPTH} lists and dicts within each other, got more at "
            f"{path[:80]}...: flatten them"
        )
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Tensor | np.ndarray):
        if path in tensors:
            raise ArgumentError(f"[save_checkpoint] expected one tensor a name, got two called {path!r}: rename one")
        tensors[path] = _host_array("save_checkpoint", path, value)
        return {"$tensor": path}
    if isinstance(value, list | tuple):
        items = [_pack(item, f"{path}.{index}", tensors, depth + 1) for index, item in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    if isinstance(value, Mapping) and all(isinstance(key, str | int) for key in value):
        return {"$dict": [[key, _pack(item, f"{path}.{key}", tensors, depth + 1)] for key, item in value.items()]}
    raise ArgumentError(
        f"[save_checkpoint] expected numbers, strings, lists, dicts, tensors and arrays, got {type(value).__name__} at "
        f"{path}: convert it first"
    )


def _unpack(value: Any, tensors: Mapping[str, Array]) -> Any:
    """Restores a value from ``_pack``, with arrays for tensors."""
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


def _copied(value: Any) -> Any:
    """An unpacked value with copied arrays, so that one of them does not keep the file's memory."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list | tuple):
        return type(value)(_copied(item) for item in value)
    return {key: _copied(item) for key, item in value.items()} if isinstance(value, dict) else value


# -- reading and writing -----------------------------------------------------------------------------------------------


def _host_array(function: str, name: str, value: Any) -> Array:
    """A tensor's values in row-major order on the host."""
    if not isinstance(name, str):
        raise ArgumentError(f"[{function}] expected names that are strings, got {name!r}")
    if name == "__metadata__" or not _is_text(name):
        raise ArgumentError(f"[{function}] expected names that safetensors can hold, got {name!r}: choose another")
    if not isinstance(value, Tensor | np.ndarray):
        raise ArgumentError(f"[{function}] expected a Tensor or an array for {name!r}, got {type(value).__name__}")
    array = value.engine.to_numpy(value.detach()) if isinstance(value, Tensor) else value
    dtypes.as_dtype(array.dtype, function)
    return np.asarray(array, order="C")


def _is_text(text: str) -> bool:
    """Whether a string can be written in UTF-8: half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _write(function: str, arrays: dict[str, Array], path: PathLike, metadata: dict[str, str]) -> None:
    try:
        with replacing(function, path) as temporary, open(temporary, "wb") as file:
            _stream(arrays, metadata, file)
    except weights_file.FormatError as error:
        raise ArgumentError(
            f"[{function}] expected names and metadata for one header, got {error}: save less"
        ) from error


_stream = weights_file.write


@contextlib.contextmanager
def replacing(function: str, path: PathLike) -> Iterator[Path]:
    """``with replacing(name, path) as temporary:`` puts the file written to ``temporary`` at ``path`` when complete.

    It is flushed to the disk and renamed at the end. An error, Ctrl-C included, leaves ``path`` as it was and no
    temporary file; CheckpointError, with the cause, where the operating system refused. What killed processes left
    behind is removed.
    """
    target = _target(function, path)
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


def _target(function: str, path: PathLike) -> Path:
    """The path of a file to write; ArgumentError for anything else."""
    try:
        target = Path(path)
    except TypeError:
        target = Path()
    if not target.name or "\0" in str(target):
        raise ArgumentError(f"[{function}] expected a file's path, got {repr(path)[:80]}: name the file")
    return target


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
    """Makes a rename survive a power cut, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(function: str, path: PathLike) -> tuple[dict[str, Array], dict[str, str]]:
    """Reads all arrays and the metadata of a safetensors file, and checks its seal if it has one."""
    try:
        return weights_file.read(path)
    except weights_file.SealError as error:
        raise CheckpointError(
            f"[{function}] expected a whole checkpoint, got one whose checksum is wrong at {path} ({error}): {_ELSE}"
        ) from error
    except weights_file.KindError as error:
        raise CheckpointError(
            f"[{function}] expected tensors of {dtypes.names()}, got {error} in {path}: convert the file first"
        ) from error
    except weights_file.FormatError as error:
        raise CheckpointError(
            f"[{function}] expected a safetensors file, got a truncated, corrupt or other one at {path} "
            f"({_cause(error)}): write it again"
        ) from error
    except FileNotFoundError as error:
        raise CheckpointError(f"[{function}] expected a safetensors file, got nothing at {path}: check it") from error
    except (OSError, TypeError, ValueError) as error:  # a path that is none, or holds a null character
        raise CheckpointError(f"[{function}] expected to read {path!s:.200}, got {_cause(error)}: check it") from error
    except MemoryError as error:
        raise CheckpointError(f"[{function}] expected memory for {path}, got too little: free some") from error


def _cause(error: Exception) -> str:
    """An error's message on one line."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__

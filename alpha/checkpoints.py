"""Checkpoints: all that a training run needs to go on exactly, in one file that a crash never loses."""

from __future__ import annotations

import copy
import hashlib
import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

import numpy as np

from alpha import files, random, weights_file
from alpha.changes import Changes, appending, at_once, finish, setting
from alpha.errors import AlphaError, ArgumentError, CheckpointError, DistributedError
from alpha.files import ELSE, Array, PathLike, cause
from alpha.shared_calls import SharedCall
from alpha.structure import Packer, StructureError, Unpacker
from alpha.tensor import Tensor

FORMAT = "dragon-alpha checkpoint"
VERSION = 1
"""Version of the checkpoint's layout: raised when an older reader would misread a newer file."""

_HEADER = "alpha"  # the metadata key whose value is the checkpoint's JSON
_PARTS = ("loader", "scheduler", "optimizer", "model")


class Stateful(Protocol):
    """What a checkpoint can hold: optimizers, schedulers, loaders, anything with these two methods."""

    def state_dict(self) -> dict[str, Any]:
        """The object's state as nested dicts, lists, numbers, strings, tensors and arrays."""

    def load_state_dict(self, state: Any, /) -> Any:
        """Restores a state from ``state_dict``; if it does not fit, raises an error and changes nothing."""


class _StatePacker(Packer):
    """Packs states: tensors come back as arrays, and what is a kind of number, text or list as that."""

    def pack(self, value: Any, path: str, depth: int = 0) -> Any:
        if isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, list | tuple):
            value = list(value) if isinstance(value, list) else tuple(value)
        return super().pack(value, path, depth)

    def _tensor(self, tensor: Tensor, path: str) -> Any:
        return self._name(tensor.engine.to_numpy(tensor.detach()), path)


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

    On several ranks (``alpha.distributed``) all of them call it, and rank 0 writes what it was given; the states are
    asked for on all. All return once the file is in its place, or all raise: CheckpointError where rank 0 failed. The
    last checkpoint is whole then.
    """
    objects = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}
    with SharedCall("save_checkpoint") as ranks:
        with ranks.operations():  # all states first: to take one may be an operation of all ranks
            states = {name: part.state_dict() for name, part in objects.items() if part is not None}
        if ranks.writes:
            arrays, text = _packed(objects, states, extra)
            files.write("save_checkpoint", arrays, path, {_HEADER: text})


def _kind_of(part: Any) -> str:
    """What a part is, by the name of its class; of a wrapper whose state is that of what it wraps, by that."""
    return str(getattr(part, "state_of", None) or type(part).__name__)


def _packed(
    objects: Mapping[str, Stateful | None], states: Mapping[str, Any], extra: dict[str, Any]
) -> tuple[dict[str, Array], str]:
    """A checkpoint's tensors by name, and its JSON."""
    packer, parts = _StatePacker("save_checkpoint"), dict[str, Any]()
    for name, state in states.items():
        parts[name] = {"type": _kind_of(objects[name]), "state": packer.pack(state, name)}
    if "model" in states:
        parts["model"]["fingerprint"] = _fingerprint(_signature(states["model"]))
    header = {
        "format": FORMAT,
        "version": VERSION,
        "parts": parts,
        "random": random.get_state(),
        "extra": packer.pack(extra, "extra"),
        "crc32": _checksum(packer.arrays),
    }
    try:
        return packer.arrays, json.dumps(header)
    except ValueError as error:  # an int of thousands of digits
        raise ArgumentError(
            f"[save_checkpoint] expected values that JSON can hold, got {error}: convert them"
        ) from error


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

    On several ranks (``alpha.distributed``) all of them call it, and each reads the file, whatever their number was
    when it was written. All load it or none: CheckpointError also where another rank failed.
    """
    objects = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}
    given = {name: cast(Stateful, objects[name]) for name in _PARTS if objects[name] is not None}
    with SharedCall("load_checkpoint") as ranks:
        arrays, metadata = files.read("load_checkpoint", path)
        header = _header(path, arrays, metadata)
        states = {name: _state_of(path, name, part, header, arrays) for name, part in given.items()}
        extra = cast(dict[str, Any], _copied(Unpacker(arrays).unpack(header["extra"])))
        if model is not None:
            _check_model(path, model, states["model"], header["parts"]["model"])
        changes = Changes()
        if given.keys() - {"model"}:
            random.stage_state(header["random"], changes)
        _Loading(path, changes, ranks).load(given, states)
    return extra


def _state_of(path: PathLike, name: str, part: Any, header: dict[str, Any], arrays: dict[str, Array]) -> Any:
    """One part's state out of a checkpoint; CheckpointError if it has none, or one of another type."""
    entry = header["parts"].get(name)
    if entry is None:
        raise CheckpointError(
            f"[load_checkpoint] expected a checkpoint that holds the {name}'s state, got {path} with "
            f"{', '.join(header['parts']) or 'none'}: leave {name}= out, or save it too"
        )
    kind = _kind_of(part)
    if name != "model" and entry["type"] != kind:
        raise CheckpointError(
            f"[load_checkpoint] expected the state of {kind}, got {path} with that of {entry['type']}: make the {name} "
            "that was saved"
        )
    state = Unpacker(arrays).unpack(entry["state"])
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
        raise CheckpointError(f"[load_checkpoint] expected a whole checkpoint, got a corrupt one at {path}: {ELSE}")


class _Loading:
    """Loads states into objects: into this package's all at once, into others one by one with a way back."""

    def __init__(self, path: PathLike, changes: Changes, ranks: SharedCall) -> None:
        self._path = path
        self._changes = changes
        self._ranks = ranks
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
            with self._ranks.operations():
                for part, state in others:
                    at_once([appending(self._ways_back, _way_back(part))])
                    part.load_state_dict(state)
            self._ranks.reach()
            self._changes.add(setting(self, "_made", True))
            self._changes.make()
        except BaseException as error:
            if not self._made:
                finish(self._go_back)
            if isinstance(error, CheckpointError | DistributedError) or not isinstance(error, Exception):
                raise
            raise CheckpointError(
                f"[load_checkpoint] expected a state that fits, got {self._path}: "
                f"{error if isinstance(error, AlphaError) else cause(error)}"
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
                    f"{cause(error)}: make it anew"
                ) from error
        if attributes:
            current = vars(part)
            others = [(dict.pop, current, name, None) for name in current if name not in attributes]
            at_once([*others, (dict.update, current, attributes)])

    return go


def _corrupt(path: PathLike, what: str) -> CheckpointError:
    return CheckpointError(f"[load_checkpoint] expected a whole checkpoint, got {what} at {path}: {ELSE}")


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
    extra = _checked(path, "extra", header["extra"], arrays)
    if not isinstance(extra, dict) or not all(isinstance(key, str) for key in extra):
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
        _checked(path, name, part["state"], arrays)


def _checked(path: PathLike, place: str, value: Any, arrays: Mapping[str, Array]) -> Any:
    """A value out of a checkpoint; CheckpointError where it is none, or the file has not its tensors."""
    try:
        return Unpacker(arrays).unpack(value)
    except StructureError as error:
        raise _corrupt(path, f"{error} in {place}") from error


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


def _copied(value: Any) -> Any:
    """An unpacked value with copied arrays, so that one of them does not keep the file's memory."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list | tuple):
        return type(value)(_copied(item) for item in value)
    return {key: _copied(item) for key, item in value.items()} if isinstance(value, dict) else value

"""save and load: nested values with their tensors in one safetensors file, and PyTorch's files read without its code.

Every file written here is sealed: a checksum in the white space after the header's first brace covers each of its bits
(``alpha.weights_file``). A file without a seal, from an older release or another program, is read without that check.
Checkpoints of whole training runs are in ``alpha.checkpoints``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from alpha import dtypes, engines, files, structure, torch_file, weights_file
from alpha.checkpoints import FORMAT, VERSION, Stateful, load_checkpoint, save_checkpoint
from alpha.devices import device
from alpha.engine import Engine
from alpha.errors import ArgumentError, CheckpointError, described
from alpha.files import Array, FileLike, named, replacing
from alpha.tensor import Tensor

__all__ = ["FORMAT", "VERSION", "Stateful", "load", "load_checkpoint", "replacing", "save", "save_checkpoint"]

_HEADER = "alpha.structure"  # the metadata key whose value is the structure's JSON
_VERSION = 1
"""Version of the structure: raised when an older reader would misread a newer file."""


def save(obj: Any, f: FileLike, metadata: Mapping[str, str] | None = None) -> None:
    """Writes a value, such as a ``state_dict()``, to a safetensors file.

    A value is a number, string, bytes, None, tensor, array, dtype or device, or a list, tuple, dict (also of
    ``collections``) or set of values. Tensors that share memory share it again when they are read; all are written in
    row-major order, with ``requires_grad``, without their gradients. A dict of tensors by name is a safetensors file as
    other programs read it; what else there is stands in its metadata as JSON.

    A file named by a path appears whole or not at all: a failed or interrupted write leaves what was there before.

    Args:
        obj: the value; of a module or an optimizer its ``state_dict()``.
        f: a path, or a file open for writing bytes.
        metadata: strings to keep beside it.
    """
    notes = files.strings("save", metadata)
    packer = structure.Packer("save")
    value = packer.pack(obj, "")
    packer.finish()
    for name, array in packer.arrays.items():
        if not dtypes.info(array.dtype).safetensors:
            raise ArgumentError(
                f"[save] expected dtypes that safetensors has, got {array.dtype} for {name!r}: save its real and "
                "imaginary parts, as view_as_real gives them"
            )
    if not structure.is_plain(value, packer.arrays) or _HEADER in notes:
        header = {"version": _VERSION, "storages": packer.storages, "value": value}
        try:
            notes[_HEADER] = json.dumps(header)
        except ValueError as error:  # an int of thousands of digits
            raise ArgumentError(
                f"[save] expected values that JSON can hold, got {files.cause(error)}: convert them"
            ) from error
    files.write("save", packer.arrays, f, notes)


def load(
    f: FileLike,
    map_location: Any = None,
    *,
    weights_only: bool = True,
    engine: Engine | str | None = None,
) -> Any:
    """Reads what ``save`` wrote, any safetensors file (name -> Tensor), or a ``.pt`` or ``.pth`` file of PyTorch.

    No code that a file names is run or imported, whatever ``weights_only`` says: a file that holds more than values,
    such as a whole pickled module, is refused with the name of what it wanted to import.

    Args:
        f: a path, or a file open for reading bytes, which is read from where it stands.
        map_location: where tensors go: a device or an engine, or its name; a dict from PyTorch's names of the places in
            which they were; or a function of a storage (a tensor stands for it) and that name, which returns it moved
            to its place, a device, or None. By default, and where it says nothing, the default engine.
        weights_only: True and False are both read by the restricted reader.
        engine: the same as ``map_location``, where that is not given.

    CheckpointError if the file is missing, truncated, of another format, or holds a dtype that Tensor has not.
    """
    if not isinstance(weights_only, bool):
        raise ArgumentError(f"[load] expected weights_only as True or False, got {described(weights_only)}")
    if engine is not None and map_location is not None:
        raise ArgumentError("[load] expected one of map_location and engine, got both")
    place = _placement(engine if map_location is None else map_location)
    with files.opened("load", f) as file:
        start = file.tell()
        first = file.read(9)
        file.seek(start)
        try:
            if first.startswith(torch_file.ZIP_START):
                return torch_file.read_zip(file, place)
            if torch_file.is_pickle(first) and first[8:] != b"{":  # there the header of safetensors begins
                return torch_file.read_legacy(file, place)
        except torch_file.TorchFileError as error:
            raise CheckpointError(f"[load] {error.expected}, got {named(f)}, {error}") from error
        arrays, metadata = weights_file.read(file)
    return _of_arrays(arrays, metadata, place("cpu"), f)


def _of_arrays(arrays: dict[str, Array], metadata: Mapping[str, str], engine: Engine, f: FileLike) -> Any:
    """The value of a safetensors file."""
    text = metadata.get(_HEADER)
    if text is None:
        return {name: engine.from_numpy(array) for name, array in arrays.items()}
    try:
        header = json.loads(text, object_pairs_hook=weights_file.unique)
        version = header["version"]
        if type(version) is int and version > _VERSION:
            raise CheckpointError(
                f"[load] expected a file of format version {_VERSION}, got version {version} at {named(f)}: use the "
                "release that wrote it"
            )
        return structure.Unpacker(arrays, header["storages"], engine).unpack(header["value"])
    except (KeyError, TypeError, ValueError, RecursionError, structure.StructureError) as error:
        raise CheckpointError(
            f"[load] expected a whole file, got {files.cause(error)[:200]} at {named(f)}: write it again"
        ) from error


Placement = Callable[[str], Engine]
"""The engine for tensors that were in a place, by PyTorch's name for it."""


def _placement(map_location: Any) -> Placement:
    """What ``map_location`` means."""
    if isinstance(map_location, Mapping):
        return lambda location: engines.resolve(map_location.get(location))
    if map_location is None or isinstance(map_location, Engine | device | str | int):
        engine = engines.resolve(device(map_location) if type(map_location) is int else map_location)
        return lambda location: engine
    if not callable(map_location):
        raise ArgumentError(
            f"[load] expected map_location as a device, an engine, a dict or a function, got {described(map_location)}"
        )
    return lambda location: _answered(map_location(_token(), location))


def _token() -> Tensor:
    """What stands for a storage before a function that says where storages go."""
    return engines.engine("cpu").from_numpy(np.zeros(1, np.uint8))


def _answered(answer: Any) -> Engine:
    """The engine that such a function's answer means."""
    if isinstance(answer, Tensor):
        return answer.engine
    if answer is None or isinstance(answer, Engine | device | str):
        return engines.resolve(answer)
    raise ArgumentError(
        f"[load] expected map_location to return the storage, a device or None, got {described(answer)}"
    )

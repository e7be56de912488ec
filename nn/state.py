"""Moving, casting and loading a module's tensors: in place, and not recorded in a graph."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import byte_bounds

from alpha import Engine, Tensor, dtypes, places
from alpha.changes import Changes
from alpha.errors import ArgumentError, CheckpointError, DtypeError
from alpha.memory_formats import fits, memory_format, order_in
from alpha.nn.hooks import hooks_of

if TYPE_CHECKING:
    from alpha.nn.module import Module

Array = np.ndarray[Any, Any]
COUNTER = "num_batches_tracked"
"""The last part of the name of BatchNorm's count of batches."""
_LISTED = 20
"""Most keys of one kind that an error names; it only counts the rest."""


class Destination(NamedTuple):
    """What tensors become; None for what stays."""

    engine: Engine | None
    dtype: np.dtype[Any] | None
    format: memory_format | None


def destination(target: tuple[Any, ...], options: dict[str, Any]) -> Destination:
    """What the arguments of ``Module.to`` mean."""
    engine, dtype, _, format = places.destination("to", target, options)
    if dtype is not None and not dtypes.is_float(dtype):
        raise DtypeError(f"[to] expected {dtypes.float_names()} for a module, got {dtype}: parameters carry gradients")
    return Destination(engine, dtype, format)


def move(tensors: Iterable[Tensor], destination: Destination) -> None:
    """Gives tensors, and their gradients, memory elsewhere, of another dtype or order; the objects stay the same.

    An error or a KeyboardInterrupt finds none of them moved, or all.
    """
    changes = Changes()
    for tensor in tensors:
        _stage_move(tensor, destination, changes)
        if tensor.grad is not None:
            _stage_move(tensor.grad, destination, changes)
    changes.make()


def _stage_move(tensor: Tensor, destination: Destination, changes: Changes) -> None:
    engine = destination.engine or tensor.engine
    dtype = destination.dtype if destination.dtype is not None and dtypes.is_float(tensor.dtype) else tensor.dtype
    format = destination.format
    order = order_in("to", tensor, format) if format is None or fits(tensor, format) else None
    if engine is not tensor.engine:
        moved = engine.from_numpy(tensor.engine.to_numpy(tensor.detach()).astype(dtype, copy=False))
    elif dtype != tensor.dtype:
        moved = engine.empty_like(tensor, dtype)
        engine.copy(tensor, moved)
    else:
        moved = tensor
    if order is not None:
        moved = moved.engine.dense(moved, order)
    if moved is not tensor:
        changes.take(tensor, moved)


def collect(module: Module, entries: dict[str, Tensor], prefix: str, keep_vars: bool) -> dict[str, Tensor]:
    """Adds a module's parameters and persistent buffers to a dict, under names that begin with a prefix; returns it."""
    modules = [(f"{prefix}{path}." if path else prefix, part) for path, part in module.named_modules(None, "", False)]
    known = set(entries)
    for start, part in modules:
        for hook in hooks_of(part, "saving"):
            hook(part, start, keep_vars)
        for name, tensor in part._own_state():
            key = start + name
            if key in entries and key not in known:
                raise ArgumentError(f"[state_dict] expected one tensor a name, got two called {key!r}: rename one")
            known.discard(key)
            entries[key] = tensor if keep_vars else tensor.detach()
    for start, part in reversed(modules):
        for hook in hooks_of(part, "saved"):
            hook(part, entries, start, {})
    return entries


def stage_module(
    module: Module, given: Mapping[str, Any], strict: bool, changes: Changes
) -> tuple[list[str], list[str]]:
    """``stage`` of a module's state, after its hooks; returns missing and unexpected keys."""
    found: tuple[list[str], list[str]] = [], []
    if isinstance(given, Mapping):
        modules = list(module.named_modules(None, "", False))
        if any(hooks_of(part, "loading") for _, part in modules):
            given = _prepared(modules, dict(given), strict, found)
        check_filters(modules, given)
    missing, unexpected = stage(type(module).__name__, module.state_dict(), given, strict, changes)
    return found[0] + missing, found[1] + unexpected


def _prepared(
    modules: list[tuple[str, Module]], given: dict[str, Any], strict: bool, found: tuple[list[str], list[str]]
) -> dict[str, Any]:
    """The state that modules' hooks leave; ``found``: the missing and unexpected keys that they tell of."""
    errors: list[str] = []
    for path, part in modules:
        prefix = f"{path}." if path else ""
        for hook in hooks_of(part, "loading"):
            below = {key: value for key, value in given.items() if str(key).startswith(prefix)}
            others = {key: value for key, value in given.items() if key not in below}
            hook(part, below, prefix, {}, strict, *found, errors)
            given = others | below
    if errors or (strict and (found[0] or found[1])):
        listed = "; ".join([*errors, *found[0], *found[1]])
        raise CheckpointError(
            f"[load_state_dict] expected a state that hooks accept, got: {listed}; nothing was loaded"
        )
    return given


def call_loaded(module: Module, result: Any, strict: bool) -> None:
    """Calls the hooks after loading, those below first; CheckpointError for keys that a strict load finds left."""
    for part in reversed([part for _, part in module.named_modules()]):
        for hook in hooks_of(part, "loaded"):
            hook(part, result)
    if strict and (result.missing_keys or result.unexpected_keys):
        listed = f"missing: {_list(result.missing_keys)}; unexpected: {_list(result.unexpected_keys)}"
        raise CheckpointError(
            f"[load_state_dict] expected the state of this {type(module).__name__}, got another's ({listed}): take the "
            "model it was saved from; what it has was loaded"
        )


def assign(tensor: Tensor, values: Array) -> None:
    """Copies an array into a tensor, which may be a leaf that requires a gradient."""
    changes = Changes()
    changes.write(tensor, values)
    changes.make()


def stage(
    owner: str, tensors: Mapping[str, Tensor], given: Mapping[str, Any], strict: bool, changes: Changes
) -> tuple[list[str], list[str]]:
    """Adds copying given values into a module's tensors to the changes, once all are found to fit.

    Returns missing and unexpected keys.
    """
    if not isinstance(given, Mapping):
        raise ArgumentError(f"[load_state_dict] expected a dict of tensors, got {type(given).__name__}")
    arrays = {key: _array(value) if key in tensors else None for key, value in given.items()}
    missing, unexpected = check("load_state_dict", owner, tensors, arrays, strict)
    memory = _Memory(tensors.values())
    for key, array in arrays.items():
        if array is not None:
            # An array in the module's own memory may be overwritten before it is copied: so copy it first.
            changes.write(tensors[key], array.copy() if memory.holds(array) else array)
    return missing, unexpected


def check_filters(modules: Iterable[tuple[str, Any]], given: Mapping[str, Any]) -> None:
    """CheckpointError for PyTorch's tensors in the place of filters with channels last: shapes may agree by chance.

    They are tensors of PyTorch, or those of a module's state in a file of PyTorch's.
    """
    of_torch = {
        key
        for key, value in given.items()
        if getattr(given, "_from_torch", False) or type(value).__module__.partition(".")[0] == "torch"
    }
    if not of_torch:
        return
    for path, module in modules:
        for name in getattr(module, "channels_last_filters", ()):
            key = f"{path}.{name}".lstrip(".")
            if key in of_torch:
                raise CheckpointError(
                    f"[load_state_dict] expected filters (OC, ..., IC) for {key}, got a tensor of PyTorch, whose "
                    "filters are (OC, IC, ...): convert the state by nn.models.from_torch(state, module), or make the "
                    'module with alpha.set_image_layout("NCHW"); nothing was loaded'
                )


class _Memory:
    """The places of tensors in the host's memory."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        storages = {id(tensor.storage): tensor.storage for tensor in tensors}.values()
        self._ranges = sorted((storage.address, storage.address + storage.nbytes) for storage in storages)

    def holds(self, array: Array) -> bool:
        """Whether an array shares memory with one of them (or may: addresses of a device are taken for the host's)."""
        low, high = byte_bounds(array)
        place = bisect_left(self._ranges, (high, 0))  # those that begin before the array's end
        return place > 0 and self._ranges[place - 1][1] > low


def check(
    function: str, owner: str, tensors: Mapping[str, Tensor], arrays: Mapping[str, Array | None], strict: bool = True
) -> tuple[list[str], list[str]]:
    """Missing and unexpected keys; one CheckpointError for them (if strict) and for all arrays that do not fit."""
    counted = any(str(key).endswith(COUNTER) for key in arrays)  # states from before BatchNorm kept its count have none
    missing = [key for key in tensors if key not in arrays and (counted or not key.endswith(COUNTER))]
    unexpected = [str(key) for key in arrays if key not in tensors]
    misfits = [
        f"{key} {why}" for key, array in arrays.items() if key in tensors and (why := _misfit(tensors[key], array))
    ]
    found = {"missing": missing if strict else [], "unexpected": unexpected if strict else [], "misshaped": misfits}
    if any(found.values()):
        listed = "; ".join(f"{kind}: {_list(keys)}" for kind, keys in found.items() if keys)
        raise CheckpointError(
            f"[{function}] expected the state of this {owner}, got another's ({listed}): take the model it was saved "
            "from; nothing was loaded"
        )
    return missing, unexpected


def _array(value: Any) -> Array:
    if hasattr(value, "detach") and not isinstance(value, Tensor):
        value = value.detach()  # PyTorch's tensors, which refuse while they require a gradient
    try:
        return np.asarray(value.engine.to_numpy(value.detach()) if isinstance(value, Tensor) else value)
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"[load_state_dict] expected tensors or arrays by name, got {type(value).__name__}, of which none can be "
            f"made ({error}): take the state_dict of a module; nothing was loaded"
        ) from error


def _misfit(tensor: Tensor, array: Array | None) -> str:
    """Why an array cannot be copied into a tensor; empty if it can."""
    if array is None:
        return f"expected {tensor.shape}, got None"
    if array.shape != tensor.shape:
        return f"expected {tensor.shape}, got {array.shape}"
    if not np.can_cast(array.dtype, tensor.dtype, "same_kind"):
        return f"expected {tensor.dtype}, got {array.dtype}"
    return ""


def _list(keys: Iterable[str]) -> str:
    names = list(keys)
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")

"""Making one batch of several samples: tensors, arrays, numbers, strings, and dicts, tuples and lists of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from alpha import errors
from alpha.conversion import tensor
from alpha.dtypes import float64, holds_numbers
from alpha.functions import stack
from alpha.tensor import Tensor

_SAMPLES = "tensors, NumPy arrays, numbers, strings, or dicts, tuples and lists of them"


def default_collate(batch: Sequence[Any]) -> Any:
    """Samples as one batch, by PyTorch's rules: what a loader does without a ``collate_fn``.

    Tensors and arrays of one shape are stacked along a new first axis and keep their dtype; Python floats become a
    float64 tensor, ints an int64 one, bools one of bools; strings and bytes stay as they come. A dict gives a dict of
    batches, a named tuple a named tuple, other tuples and lists a list: one batch for each place.

    Raises:
        ShapeError: arrays of several shapes, or lists of several lengths. DtypeError: a sample of another kind.
    """
    if not isinstance(batch, Sequence) or len(batch) == 0:
        raise errors.ArgumentError(
            f"[default_collate] expected a list of samples, got {errors.described(batch)}: give one or more"
        )
    first = batch[0]
    leaf = _collated_leaves(first, batch)
    if leaf is not None:
        return leaf
    if isinstance(first, Mapping):
        return with_contents(first, {key: default_collate([_at(sample, key) for sample in batch]) for key in first})
    if isinstance(first, Sequence):
        lengths = {len(sample) if isinstance(sample, Sequence) else -1 for sample in batch}
        if len(lengths) > 1:
            raise errors.ShapeError(
                f"[default_collate] expected samples of one length, got {_some(lengths)}: pad them, or give the loader "
                "a collate_fn that does"
            )
        return with_items(first, [default_collate(items) for items in zip(*batch, strict=True)])
    raise _no_sample("default_collate", first)


def default_convert(data: Any) -> Any:
    """A sample with its NumPy arrays as tensors: what a loader with ``batch_size=None`` does without a ``collate_fn``.

    Dicts, tuples and lists are gone through; everything else is left as it is.
    """
    if isinstance(data, np.ndarray | np.generic) and holds_numbers(data.dtype):
        return tensor(data)
    if isinstance(data, Mapping):
        return with_contents(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        items = [default_convert(value) for value in data]
        return items if type(data) is tuple else with_items(data, items)
    return data


def tensors_replaced(data: Any, replace: Callable[[Tensor], Tensor]) -> Any:
    """A batch with each of its tensors replaced, in dicts, tuples and lists."""
    if isinstance(data, Tensor):
        return replace(data)
    if isinstance(data, Mapping):
        return with_contents(data, {key: tensors_replaced(value, replace) for key, value in data.items()})
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        items = [tensors_replaced(value, replace) for value in data]
        return tuple(items) if type(data) is tuple else with_items(data, items)
    return data


def _collated_leaves(first: Any, batch: Sequence[Any]) -> Any:
    """Samples that hold no others, as one tensor or list; None for all others."""
    if isinstance(first, str | bytes):
        return batch
    if isinstance(first, Tensor):
        if not all(isinstance(sample, Tensor) for sample in batch):
            raise _mixed(batch)
        _check_shapes(batch)
        return stack(list(batch))
    if isinstance(first, np.ndarray | np.generic):
        if not holds_numbers(first.dtype):
            raise _no_sample("default_collate", first)
        if not all(isinstance(sample, np.ndarray | np.generic) for sample in batch):
            raise _mixed(batch)
        _check_shapes(batch)
        return tensor(np.stack(batch))
    if isinstance(first, bool | int | float):
        if not all(isinstance(sample, bool | int | float | np.number) for sample in batch):
            raise _mixed(batch)
        return tensor(list(batch), float64 if isinstance(first, float) else None)
    return None


def _check_shapes(batch: Sequence[Any]) -> None:
    shapes = {tuple(sample.shape) for sample in batch}
    if len(shapes) > 1:
        raise errors.ShapeError(
            f"[default_collate] expected samples of one shape, got {_some(shapes)} in one batch: crop, resize or pad "
            "them in the data set, or give the loader a collate_fn that does"
        )


def _at(sample: Any, key: Any) -> Any:
    try:
        return sample[key]
    except (KeyError, TypeError, IndexError):
        raise errors.ShapeError(
            f"[default_collate] expected the key {key!r} in every sample of a batch, got one without it: give all of "
            "them the same keys"
        ) from None


def with_contents(like: Mapping[Any, Any], contents: dict[Any, Any]) -> Any:
    """A mapping of the kind of ``like``, or a dict where that kind cannot be made of one."""
    try:
        if isinstance(like, MutableMapping):
            made = copy.copy(like)  # it may have attributes of its own, as a defaultdict has
            made.update(contents)
            return made
        return type(like)(contents)  # type: ignore[call-arg]
    except TypeError:
        return contents


def with_items(like: Sequence[Any], items: list[Any]) -> Any:
    """A named tuple or a list of a class of its own like ``like``; else a list."""
    try:
        if isinstance(like, tuple):
            return type(like)(*items) if hasattr(like, "_fields") else items
        return items if type(like) is list else type(like)(items)  # type: ignore[call-arg]
    except TypeError:
        return items


def _mixed(batch: Sequence[Any]) -> errors.DtypeError:
    names = _some({type(sample).__name__ for sample in batch})
    return errors.DtypeError(
        f"[default_collate] expected samples of one kind in a batch, got {names}: give all of them the same"
    )


def _no_sample(function: str, value: Any) -> errors.DtypeError:
    kind = f"an array of {value.dtype}" if isinstance(value, np.ndarray | np.generic) else type(value).__name__
    return errors.DtypeError(
        f"[{function}] expected samples of {_SAMPLES}, got {kind}: convert it in the data set, as ToTensor does "
        "with an image, or give the loader a collate_fn"
    )


def _some(values: set[Any]) -> str:
    """The smallest few of some values, by their text."""
    texts = sorted(map(str, values))
    return " and ".join(texts[:3]) + (" and more" if len(texts) > 3 else "")

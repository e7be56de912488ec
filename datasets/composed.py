"""Data sets made by a user, of tensors, and of other data sets: parts of them, several in a row or side by side."""

from __future__ import annotations

import bisect
import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from types import GenericAlias
from typing import Any

import numpy as np

from alpha import errors, random
from alpha.random import Generator
from alpha.tensor import Tensor


class Dataset:
    """A data set whose samples have indices: a subclass writes ``__getitem__``, and ``__len__`` for loaders.

    A sample may be anything: a tensor, an array, a number, a string, dicts, tuples and lists of them. A loader makes
    batches of them with ``default_collate``, or with its ``collate_fn``.

    A loader asks a data set with ``__getitems__(indices)`` for several at once. Where ranks share batches,
    ``alpha.distributed``, it asks for one at a time, with seeds for each, unless there is ``draws_nothing = True``.
    """

    draws_nothing = False
    """Whether samples are made without random numbers."""

    @classmethod
    def __class_getitem__(cls, item: Any) -> GenericAlias:
        """``Dataset[int]`` and its like in annotations."""
        return GenericAlias(cls, item)

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"[{type(self).__name__}] expected a data set with __getitem__, got none: write one")

    def __add__(self, other: Any) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """A data set that is iterated over and has no indices: a subclass writes ``__iter__``.

    Each worker process of a loader iterates over a copy of its own: ``get_worker_info()`` tells it which one it is, so
    that it can give a share of the samples.
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"[{type(self).__name__}] expected a data set with __iter__, got none: write one")

    def __add__(self, other: Any) -> ChainDataset:  # type: ignore[override]
        return ChainDataset([self, other])


class TensorDataset(Dataset):
    """Samples ``(tensors[0][i], tensors[1][i], ...)`` of tensors whose first axes have one length."""

    draws_nothing = True

    def __init__(self, *tensors: Tensor) -> None:
        if not tensors or not all(isinstance(tensor, Tensor) and tensor.ndim for tensor in tensors):
            got = ", ".join(type(tensor).__name__ for tensor in tensors)
            raise errors.ArgumentError(
                f"[TensorDataset] expected tensors with a first axis of samples, got {got or 'none'}: make them with "
                "alpha.tensor()"
            )
        if len({len(tensor) for tensor in tensors}) > 1:
            shapes = " and ".join(str(tensor.shape) for tensor in tensors)
            raise errors.ShapeError(f"[TensorDataset] expected first axes of one length, got {shapes}: cut them alike")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __getitems__(self, indices: list[Any]) -> list[tuple[Tensor, ...]]:
        """The samples at several indices, taken out of each tensor together."""
        places = np.asarray(indices)
        return list(zip(*(tensor[places] for tensor in self.tensors), strict=True))

    def __len__(self) -> int:
        return len(self.tensors[0])


class StackDataset(Dataset):
    """Samples of several data sets side by side: tuples of one from each, or dicts where they are given by name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.datasets: tuple[Any, ...] | dict[str, Any] = kwargs or args
        parts = list(kwargs.values()) or args
        if bool(args) == bool(kwargs) or len({len(part) for part in parts}) != 1:
            raise errors.ArgumentError(
                "[StackDataset] expected data sets of one length, all of them with names or none, got lengths "
                f"{[len(part) for part in (*args, *kwargs.values())]}: cut them alike"
            )
        self._length = len(parts[0])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: part[index] for name, part in self.datasets.items()}
        return tuple(part[index] for part in self.datasets)

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset):
    """Several data sets with indices, one after another."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise errors.ArgumentError("[ConcatDataset] expected one data set or more, got none")
        if any(isinstance(part, IterableDataset) for part in self.datasets):
            raise errors.ArgumentError(
                "[ConcatDataset] expected data sets with indices, got an IterableDataset: use ChainDataset"
            )
        self.cumulative_sizes = list(itertools.accumulate(map(len, self.datasets)))

    def __getitem__(self, index: Any) -> Any:
        place = position_of("ConcatDataset", index, len(self))
        part = bisect.bisect_right(self.cumulative_sizes, place)
        return self.datasets[part][place - (self.cumulative_sizes[part - 1] if part else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


class ChainDataset(IterableDataset):
    """Several data sets without indices, one after another."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        for part in self.datasets:
            if not isinstance(part, IterableDataset):
                raise errors.ArgumentError(
                    f"[ChainDataset] expected IterableDatasets, got {type(part).__name__}: use ConcatDataset for data "
                    "sets with indices"
                )

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(self.datasets)

    def __len__(self) -> int:
        return sum(map(len, self.datasets))


class Subset(Dataset):
    """The samples of a data set at given indices."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[place] for place in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """The samples at several indices."""
        return items(self.dataset, [self.indices[place] for place in indices])

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Any, lengths: Sequence[int | float], generator: Generator | None = None) -> list[Subset]:
    """Subsets of a data set that share no sample, drawn at random.

    Args:
        lengths: how many samples each has, together all of them; or fractions, together 1, each rounded down, the
            samples that are left given to the first subsets one by one.
        generator: where random numbers come from, by default alpha's own (``alpha.manual_seed``).
    """
    count = len(dataset)
    try:
        parts: list[Any] = list(lengths)
        total = math.fsum(parts)
    except (TypeError, ValueError):
        raise errors.ArgumentError(
            f"[random_split] expected a list of lengths or fractions, got {errors.described(lengths)}"
        ) from None
    if math.isclose(total, 1) and all(0 <= part <= 1 for part in parts):
        parts = [math.floor(count * part) for part in parts]
        for place in range(count - sum(parts)):
            parts[place % len(parts)] += 1
    elif any(part != int(part) or part < 0 for part in parts) or total != count:
        raise errors.ArgumentError(
            f"[random_split] expected lengths that add up to the data set's {count}, or fractions that add up to 1, "
            f"got {errors.described(lengths)}"
        )
    order = random.permutation(count, generator).tolist()
    stops = list(itertools.accumulate(map(int, parts)))
    return [Subset(dataset, order[end - int(part) : end]) for part, end in zip(parts, stops, strict=True)]


def items(dataset: Any, indices: list[Any]) -> list[Any]:
    """The samples at several indices, at once where the data set can."""
    several = getattr(dataset, "__getitems__", None)
    if not callable(several):
        return [dataset[index] for index in indices]
    found: list[Any] = several(indices)
    if len(found) != len(indices):
        raise errors.ShapeError(
            f"[DataLoader] expected {len(indices)} samples from {type(dataset).__name__}.__getitems__, got "
            f"{len(found)}: return one for every index"
        )
    return found


def position_of(function: str, index: Any, length: int) -> int:
    """An index of a data set, negative ones from its end, as a number from 0 on; IndexingError for any other."""
    try:
        number = operator.index(index)
    except TypeError:
        raise errors.IndexingError(
            f"[{function}] expected an integer index, got {index!r}: use one at a time"
        ) from None
    if not -length <= number < length:
        raise errors.IndexingError(f"[{function}] expected an index below {length}, got {index}: use len()")
    return number % length

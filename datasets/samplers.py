"""Samplers: in which order, and together with which others, a loader takes a data set's samples."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from types import GenericAlias
from typing import Any

import numpy as np

from alpha import errors, random
from alpha.arguments import flag, whole
from alpha.conversion import tensor
from alpha.functions import multinomial
from alpha.random import Generator, checked

_AT_A_TIME = 1 << 15  # indices that a sampler with replacement draws at a time


class Sampler:
    """Gives a loader indices, one by one or as lists; a subclass writes ``__iter__``, and ``__len__`` if it can."""

    @classmethod
    def __class_getitem__(cls, item: Any) -> GenericAlias:
        """``Sampler[int]`` and its like in annotations."""
        return GenericAlias(cls, item)

    def __init__(self, data_source: Any = None) -> None:
        """Takes the data set, as older programs pass it, and does nothing with it."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"[{type(self).__name__}] expected a sampler with __iter__, got none: write one")


class SequentialSampler(Sampler):
    """All indices of a data set in order."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """Indices of a data set in a random order, new in each epoch.

    Args:
        data_source: the data set.
        replacement: draw each index from all of them, so that some come several times.
        num_samples: how many are drawn, by default as many as there are; without replacement more than that begin
            another order.
        generator: where random numbers come from, by default alpha's own (``alpha.manual_seed``).
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        self.data_source = data_source
        if not isinstance(replacement, bool):
            raise errors.ArgumentError(
                f"[RandomSampler] expected replacement as True or False, got {errors.described(replacement)}"
            )
        self.replacement = replacement
        self._num_samples = None if num_samples is None else whole("RandomSampler", "num_samples", num_samples, 1)
        self.generator = _generator("RandomSampler", generator)

    @property
    def num_samples(self) -> int:
        """How many indices an epoch has; the data set may grow meanwhile."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        count, wanted = len(self.data_source), self.num_samples
        if count == 0:
            return
        left = wanted
        while left > 0:
            if self.replacement:
                rng = np.random.Generator(np.random.Philox(drawn_seed(self.generator)))
                drawn = rng.integers(0, count, min(left, _AT_A_TIME))
            else:
                drawn = random.permutation(count, self.generator)
            yield from drawn.tolist()[:left]
            left -= len(drawn)

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """Given indices, each once, in a random order that is new in each epoch."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices, self.generator = indices, _generator("SubsetRandomSampler", generator)

    def __iter__(self) -> Iterator[int]:
        for place in random.permutation(len(self.indices), self.generator).tolist():
            yield self.indices[place]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """Indices 0..len(weights) - 1, each drawn with a probability in proportion to its weight.

    Args:
        weights: numbers >= 0, not all of them 0; they need not add up to 1.
        num_samples: how many are drawn in an epoch.
        replacement: draw from all each time; else no index comes twice, and at most as many are drawn as have a weight.
    """

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        self.num_samples = whole("WeightedRandomSampler", "num_samples", num_samples, 1)
        if not isinstance(replacement, bool):
            raise errors.ArgumentError(
                f"[WeightedRandomSampler] expected replacement as True or False, got {errors.described(replacement)}"
            )
        self.replacement, self.generator = replacement, _generator("WeightedRandomSampler", generator)
        try:
            array = np.asarray(weights, np.float64)
        except (TypeError, ValueError):
            array = np.empty((0, 0))
        if array.ndim != 1 or not array.size or not np.isfinite(array).all() or array.min() < 0 or not array.any():
            raise errors.ArgumentError(
                "[WeightedRandomSampler] expected weights as one list of finite numbers >= 0, not all of them 0, got "
                f"{errors.described(weights)}: give one weight for each sample"
            )
        self.weights = tensor(array, engine="cpu")

    def __iter__(self) -> Iterator[int]:
        drawn = multinomial(self.weights, self.num_samples, self.replacement, self.generator)
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """Lists of ``batch_size`` indices of another sampler; with ``drop_last`` without a last one that is not full."""

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool) -> None:
        self.sampler = sampler
        self.batch_size = whole("BatchSampler", "batch_size", batch_size, 1)
        self.drop_last = flag("BatchSampler", "drop_last", drop_last)

    def __iter__(self) -> Iterator[list[Any]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


def _generator(function: str, generator: Any) -> Generator | None:
    """A generator, or None for alpha's own."""
    return None if generator is None else checked(function, generator)


def drawn_seed(generator: Generator | None) -> int:
    """A seed of 63 bits that a generator draws, by default alpha's own."""
    source = random.default_generator if generator is None else generator
    high, low = random.words(*source.reserve(2), 2)
    return (int(high) << 32 | int(low)) >> 1

"""Random numbers of data sets in a distributed program, which depend neither on ranks nor on worker processes.

A data set of single samples, a sampler or a data set without indices draws from Python's, NumPy's and alpha's own
generators. Where ranks share batches a loader gives it these three in a state of its own, and gives them back after.
"""

from __future__ import annotations

import os
import random as python_random
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from alpha import random


class _Here:
    """The lock of all who change this process's generators, and the threads that have."""

    lock = threading.RLock()
    threads: set[int] = set()


def _after_fork() -> None:
    """In a forked child, whose lock another thread of the parent may have held."""
    _Here.lock, _Here.threads = threading.RLock(), set()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def is_drawing() -> bool:
    """Whether this thread's caller is a data set, a sampler or a collate function that was given generators."""
    return threading.get_ident() in _Here.threads


@contextmanager
def own_generators() -> Iterator[None]:
    """``with own_generators():`` Python's and NumPy's generators, and this thread's of alpha, may be seeded at will.

    After the block they are where they were. Only one thread at a time is in such a block: they are the process's.
    """
    me = threading.get_ident()
    with _Here.lock, random.own_sequence({"seed": 0, "offset": 0}):
        outermost = me not in _Here.threads
        python, numpy = python_random.getstate(), np.random.get_state(legacy=False)
        try:
            _Here.threads.add(me)
            yield
        finally:
            python_random.setstate(python)
            np.random.set_state(numpy)
            if outermost:
                _Here.threads.discard(me)


def seed_generators(seeds: np.random.SeedSequence) -> None:
    """Seeds Python's, NumPy's and alpha's generators."""
    words = [int(word) for word in seeds.generate_state(4, np.uint64)]
    random.manual_seed(words[0])
    python_random.seed(words[1])
    try:
        np.random.seed([word & 0xFFFFFFFF for word in words[2:]])
    except TypeError:  # somebody has put another bit generator behind NumPy's functions
        bits: Any = type(np.random.mtrand.get_bit_generator())
        np.random.set_state(bits(seeds).state)


class Draws:
    """Generators that go on where they were, each time that they are used: ``with draws: ...``."""

    def __init__(self, seeds: np.random.SeedSequence) -> None:
        self._seeds = seeds
        self._states: tuple[Any, Any, Any] | None = None

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """A context in which they take the place of the process's."""
        with own_generators():
            if self._states is None:
                seed_generators(self._seeds)
            else:
                python_random.setstate(self._states[0])
                np.random.set_state(self._states[1])
                random.set_state(self._states[2])
            try:
                yield
            finally:
                python, numpy = python_random.getstate(), np.random.get_state(legacy=False)
                self._states = python, numpy, random.get_state()

    def along(self, iterable: Iterable[Any]) -> Iterator[Any]:
        """What an iterable gives, which draws from them."""
        with self.in_force():
            items = iter(iterable)
        while True:
            with self.in_force():
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item

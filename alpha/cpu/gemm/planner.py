"""Which algorithm a product of matrices takes on the CPU: the cheapest by the models, or the one that users name."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import lru_cache

from alpha.conv.registry import Registry, within
from alpha.cpu import figures
from alpha.cpu.gemm.algorithm import Algorithm
from alpha.cpu.gemm.algorithms import ALGORITHMS
from alpha.cpu.gemm.problem import PRODUCT, Product
from alpha.launches import LINEAR, MATMUL, PRODUCT_ALGORITHM


def use(algorithm: str) -> AbstractContextManager[None]:
    """A context in which products of matrices take this algorithm wherever it can compute them.

    Args:
        algorithm: one of ``names()``. "vectors": one pass over a matrix that is multiplied with a vector. "blas":
            NumPy's BLAS, for small matrices. "tiles": blocks on the convolutions' micro-kernel. "pixels": the
            convolutions' own algorithms.

    Raises:
        ArgumentError: for another algorithm.
    """
    _registry.check(algorithm)
    return within(PRODUCT_ALGORITHM, algorithm)


def choose(problem: Product) -> Algorithm:
    """The algorithm of a problem that is not empty: the wanted one where it serves, else the cheapest."""
    wanted = PRODUCT_ALGORITHM.get()
    if wanted is not None:
        algorithm = named(wanted, PRODUCT)
        if algorithm is not None and algorithm.serves(problem):
            return algorithm
    return _cheapest(problem)


@lru_cache(maxsize=8192)
def _cheapest(problem: Product) -> Algorithm:
    """The cheapest algorithm by the algorithms' models, or the first of equals."""
    known = figures.known().figures
    suiting = [found for found in candidates(problem) if found.suits(problem)]
    return min(suiting, key=lambda algorithm: algorithm.cycles(problem, known))


def forget() -> None:
    """Forgets choices, after the list of algorithms or the figures that they are based on have changed."""
    global _generation
    _generation += 1
    _cheapest.cache_clear()
    MATMUL.forget()
    LINEAR.forget()


_generation = 0


def generation() -> int:
    """How often choices were forgotten: others' choices that are based on these are of one generation."""
    return _generation


_registry = Registry(ALGORITHMS, forget)
names, named, candidates = _registry.names, _registry.named, _registry.candidates
register, unregister = _registry.register, _registry.unregister

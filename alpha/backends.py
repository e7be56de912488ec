"""Settings and questions under the names of ``torch.backends``, for what scripts ask before they begin."""

from __future__ import annotations

from typing import Any

from alpha import cuda as _cuda
from alpha.arguments import flag
from alpha.precision import get_float32_precision, set_float32_precision
from alpha.search import get_search, set_search

__all__ = ["cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp"]


class _Absent:
    """A library or a kind of device that nothing here uses."""

    def is_available(self) -> bool:
        """False."""
        return False

    is_built = is_available


class _AllowsTF32:
    """``allow_tf32``: ``set_float32_precision("high")`` where it is True, "highest" where it is False."""

    @property
    def allow_tf32(self) -> bool:
        """Whether the CUDA engine may round factors to TF32: convolutions' and matrix products', for both are one."""
        return get_float32_precision() == "high"

    @allow_tf32.setter
    def allow_tf32(self, on: Any) -> None:
        set_float32_precision("high" if flag("backends", "allow_tf32", on) else "highest")


class _CuDNN(_AllowsTF32, _Absent):
    """What scripts set of cuDNN, which is not used: its settings are those of the engines."""

    @property
    def benchmark(self) -> bool:
        """Whether the CUDA engine times its kernels: ``set_search``."""
        return get_search()

    @benchmark.setter
    def benchmark(self, on: bool) -> None:
        set_search(on)

    @property
    def deterministic(self) -> bool:
        """True: all kernels are, so that setting it asks for what holds anyway."""
        return True

    @deterministic.setter
    def deterministic(self, on: Any) -> None:
        flag("backends", "deterministic", on)

    def version(self) -> None:
        """None: it is not used."""


class _CUDA:
    """The CUDA engine."""

    def __init__(self) -> None:
        self.matmul = _AllowsTF32()

    def is_built(self) -> bool:
        """Whether ``cu32`` can be used."""
        return _cuda.is_available()


cuda, cudnn = _CUDA(), _CuDNN()
mkl, mkldnn, mps, openmp = _Absent(), _Absent(), _Absent(), _Absent()

"""What scripts ask and set before they begin, under the names of ``torch.backends`` and ``torch.accelerator``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import alpha
from alpha import backends
from alpha.errors import ArgumentError


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    search, precision = alpha.get_search(), alpha.get_float32_precision()
    yield
    alpha.set_search(search)
    alpha.set_float32_precision(precision)


def test_settings_are_those_of_the_engines() -> None:
    for on in (True, False):
        backends.cudnn.benchmark = on
        assert backends.cudnn.benchmark is alpha.get_search() is on
        for holder in (backends.cudnn, backends.cuda.matmul):
            holder.allow_tf32 = on
            assert alpha.get_float32_precision() == ("high" if on else "highest")
            assert backends.cudnn.allow_tf32 is backends.cuda.matmul.allow_tf32 is on
        backends.cudnn.deterministic = on
        assert backends.cudnn.deterministic and not alpha.are_deterministic_algorithms_enabled()
    with pytest.raises(ArgumentError, match=r"\[set_search\] expected True or False, got 1"):
        backends.cudnn.benchmark = 1  # type: ignore[assignment]


def test_what_there_is_not() -> None:
    for absent in (backends.mps, backends.mkl, backends.mkldnn, backends.openmp, backends.cudnn):
        assert not absent.is_available() and not absent.is_built()
    assert backends.cudnn.version() is None
    assert backends.cuda.is_built() == alpha.cuda.is_available()


def test_a_script_finds_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    for available in (False, True):
        monkeypatch.setattr(alpha.cuda, "is_available", lambda available=available: available)
        name = "cuda" if alpha.cuda.is_available() else "mps" if alpha.backends.mps.is_available() else "cpu"
        assert name == ("cuda" if available else "cpu") and alpha.accelerator.is_available() is available
        found = alpha.accelerator.current_accelerator()
        assert found is None if not available else str(found) == "cuda"
    assert alpha.accelerator.current_device_index() == 0

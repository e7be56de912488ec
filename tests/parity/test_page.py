"""The page tells of PyTorch's names what is so."""

from __future__ import annotations

import pytest

from tests.parity.page import PAGE, updated

pytestmark = [pytest.mark.needs("torch", "torchvision"), pytest.mark.slow]


def test_the_page_is_up_to_date() -> None:
    page = PAGE.read_text()
    assert updated(page) == page, "run python -m tests.parity"

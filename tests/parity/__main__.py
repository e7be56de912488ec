"""Writes the table of names into docs/from-pytorch.md: ``python -m tests.parity``."""

from tests.parity.page import PAGE, updated

PAGE.write_text(updated(PAGE.read_text()))

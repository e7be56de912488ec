"""docs/gpu-messages.md: every message of the GPU engine has its line there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "gpu-messages.md"
TOOLS = ("census.py", "resources.py")
"""Commands of those who write kernels."""
FAULT = "a fault of ours"
"""What messages end with that nobody should see."""


def raised() -> Iterator[str]:
    """The texts of the engine's errors, with ``...`` in the place of what is filled in."""
    files = [*(ROOT / "cu32").glob("*.py"), *(ROOT / "cu32" / "conv").glob("*.py")]
    for file in files:
        if file.name in TOOLS:
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            is_named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args
            if is_named and node.func.id in ("EngineError", "GraphError", "OutOfMemoryError"):  # type: ignore[attr-defined]
                yield text_of(node.args[0])  # type: ignore[attr-defined]


def text_of(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)
    return "..."


def expected_of(text: str) -> str:
    """What a message expects, as far as it says so itself: its longest run of words between what is filled in."""
    expected = text.partition("expected ")[2].partition(", got")[0].partition(" (")[0]
    return max(expected.split("..."), key=len).strip(" ,:")


def test_every_message_is_explained() -> None:
    page = PAGE.read_text("utf-8")
    messages = {expected_of(text) for text in raised() if FAULT not in text} - {""}
    assert len(messages) > 25
    missing = sorted(one for one in messages if one not in page)
    assert not missing, missing

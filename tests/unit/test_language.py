"""Names and docstrings are plain English: words whose meaning only their author knew do not come back.

The listed words say too little as names: whose is "own", what are "each" and "few", where are the "ends"? A docstring
or comment that begins with "Of" or "And" leaves out its subject.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("alpha", "nn", "optim", "models", "datasets", "cu32", "benchmarks", "examples", "tests")

WORDS = {"bed", "beds", "board", "boards", "patience", "outlook", "question", "questions", "beside"}
"""Words that no name has as a part."""

NAMES = {"each", "own", "few", "ends"}
"""Words that are no name by themselves, except in sentences such as names of tests."""

OPENINGS = re.compile(r"\s*(Of|And|Nor|Beside)\b")
"""How no docstring or comment begins."""

A_FOR_PER = re.compile(
    r"\b(one|threads|blocks|registers|cycles|instructions|terms|epochs|numbers|elements|tasks|lanes) an? "
    r"(axis|channel|class|row|column|thread|file|step|epoch|image|group|block|process|turn|batch|multiprocessor|warp|cycle"
    r"|second|launch|contestant|task|family|problem|position)\b(?! (of|at|in|on|by)\b)",
    re.IGNORECASE,
)
"""Rates and counts with "a" where "per" is meant: "one an axis", "cycles a number"."""

PRODUCTS = {"TensorBoard"}
"""Names of products, which are spelled as their makers do."""

PYTORCHS = {"patience"}
"""Arguments that are named as PyTorch names them."""


def sources() -> Iterator[tuple[str, str]]:
    """The path and the text of every module of the repository."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            relative = path.relative_to(ROOT)
            linked = any((ROOT / parent).is_symlink() for parent in relative.parents)
            if not linked and not any(part.startswith((".", "_build", "__pycache__")) for part in relative.parts):
                yield relative.as_posix(), path.read_text(encoding="utf-8")


def names(tree: ast.AST) -> Iterator[str]:
    """Every identifier in a module, except tests' names, which are sentences."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg | ast.keyword) and node.arg:
            yield node.arg
        elif isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("test_"):
            yield node.name
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.rpartition(".")[2]


def is_unclear(name: str) -> bool:
    """Whether a name contains, or is, one of the listed words."""
    if name in PRODUCTS | PYTORCHS or name.startswith("test_"):
        return False
    parts = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().strip("_").split("_")
    return not WORDS.isdisjoint(parts) or (len(parts) == 1 and parts[0] in NAMES)


def openings(text: str) -> Iterator[str]:
    """The first words of docstrings (also below constants) and of blocks of comments."""
    for node in ast.walk(ast.parse(text)):
        for statement in getattr(node, "body", ()) if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.value
    previous = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != previous + 1:
                yield token.string.lstrip("# ")
            previous = token.start[0] if token.line.lstrip().startswith("#") else 0


@pytest.mark.slow
def test_names_say_what_they_name() -> None:
    found = {path: sorted({name for name in names(ast.parse(text)) if is_unclear(name)}) for path, text in sources()}
    found = {path: unclear for path, unclear in found.items() if unclear}
    assert not found, f"expected names that say what they name, got {found}: use the field's term or the thing's name"


@pytest.mark.slow
def test_docstrings_begin_with_what_a_thing_is() -> None:
    found = [(path, opening[:60]) for path, text in sources() for opening in openings(text) if OPENINGS.match(opening)]
    assert not found, f"expected docstrings and comments that begin with their subject, got {found}"


def test_rates_say_per() -> None:
    found = [(path, line.strip()) for path, text in sources() for line in text.splitlines() if A_FOR_PER.search(line)]
    found = [(path, line) for path, line in found if path != "tests/unit/test_language.py"]
    assert not found, f"expected rates and counts with 'per', got {found}"


def test_the_check_sees_names_and_openings() -> None:
    text = (
        '"""And a module."""\nBED = 1\n"""Of a bed."""\ndef rest(own, ownBoard=own): ...\n# Of a comment\n'
        "class Each: ..."
    )
    assert sorted(set(filter(is_unclear, names(ast.parse(text))))) == ["BED", "Each", "own", "ownBoard"]
    assert [opening for opening in openings(text) if OPENINGS.match(opening)] == [
        "And a module.",
        "Of a bed.",
        "Of a comment",
    ]
    assert all(map(A_FOR_PER.search, ["one an axis", "Threads a block.", "cycles a step"]))
    assert not any(map(is_unclear, ["TensorBoard", "own_state", "test_each_row", "embedding", "keyboard", "friends"]))

"""One root: what is ours is imported through alpha, wherever the folders lie."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
OURS = {"cu32", "datasets", "models", "nn", "optim"}
"""The folders beside alpha that are its packages."""


def _sources() -> Iterator[Path]:
    for folder in ("alpha", "benchmarks", "cu32", "datasets", "examples", "models", "nn", "optim", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(parent.is_symlink() for parent in path.parents):
                yield path


def _imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module


@pytest.mark.slow
def test_nothing_is_imported_from_beside_alpha() -> None:
    """``import datasets`` is Hugging Face's, where that is installed, and a second copy of ours where it is not."""
    sources = list(_sources())
    assert len(sources) > 300
    bare = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sources
        for line, name in _imported(ast.parse(path.read_text(), str(path)))
        if name.partition(".")[0] in OURS
    ]
    assert not bare


def test_a_checkout_without_links(tmp_path: Path) -> None:
    """As on file systems that have none: git then leaves a file with the link's text."""
    shutil.copytree(ROOT / "alpha", tmp_path / "alpha", ignore=lambda folder, names: OURS | {"__pycache__"})
    for name in OURS:
        (tmp_path / "alpha" / name).write_text(f"../{name}")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    program = (
        "import alpha, alpha.nn.functional as F, alpha.cu32.planner\n"
        "from alpha import datasets, optim\n"
        "print(datasets.__file__, F.relu(alpha.tensor([-1.0, 2.0])).tolist())"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == f"{tmp_path / 'datasets' / '__init__.py'} [0.0, 2.0]\n", done.stderr

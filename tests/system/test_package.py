"""The wheel: what it lays into site-packages, beside other packages and before type checkers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

FOLDERS = ("nn", "optim", "models", "datasets", "cu32")
"""The folders beside alpha that are its packages."""

BOTH = """
import datasets
import alpha
from alpha import nn
from alpha.datasets import ArrayDataset, DataLoader

table = datasets.Dataset.from_dict({"x": [[1.0, 2.0], [3.0, 4.0]]})
assert "site-packages" in alpha.__file__ and "site-packages" in datasets.__file__
assert nn.Linear(2, 1)(alpha.tensor(table["x"])).shape == (2, 1)
"""


def _run(*command: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    text = [str(part) for part in command]
    done = subprocess.run(text, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel made from the source distribution, as an index would have both."""
    folder = tmp_path_factory.mktemp("wheel")
    make = "from setuptools import build_meta; build_meta.build_{}({!r})"
    source = folder / "source"
    for name in ("alpha", *FOLDERS):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    _run(sys.executable, "-c", make.format("sdist", str(folder)), cwd=source)
    (archive,) = folder.glob("*.tar.gz")
    _run("tar", "xzf", archive, cwd=folder)
    (unpacked,) = (path for path in folder.glob("dragon_alpha-*") if path.is_dir())
    _run(sys.executable, "-c", make.format("wheel", str(folder)), cwd=unpacked)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Site-packages of an environment with the wheel alone; its dependencies are those of this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    _run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    return packages


def test_the_wheel_holds_alpha_alone(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    roots = {name.partition("/")[0] for name in names}
    assert roots == {"alpha", next(root for root in roots if root.endswith(".dist-info"))}
    for folder in FOLDERS:
        files = (path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".cu", ".cuh"))
        assert {f"alpha/{path.relative_to(ROOT)}" for path in files} <= set(names)
    assert {"alpha/py.typed", "alpha/cpu/figures.json"} <= set(names)


@pytest.mark.needs("mypy")
def test_type_checkers_see_what_is_installed(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "use.py").write_text(
        "import alpha\n"
        "from alpha.nn import functional\n\n"
        "reveal_type(functional.relu)\n"
        "reveal_type(alpha.tensor([1.0]).sum)\n"
    )
    python = environment.parent.parent.parent / "bin" / "python"
    command = (sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "--cache-dir", tmp_path)
    seen = _run(*command, "use.py", cwd=tmp_path)
    assert '"def (input: alpha.tensor.Tensor, inplace: bool =) -> alpha.tensor.Tensor"' in seen
    assert '"def (dim: Any =, keepdim: bool =, *, dtype: Any | None =, axis: Any =, keepdims: ' in seen  # as a method


@pytest.mark.slow
def test_beside_hugging_face_datasets(environment: Path, tmp_path: Path) -> None:
    python = environment.parent.parent.parent / "bin" / "python"
    command = [python, "-m", "pip", "install", "--quiet", "datasets"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"Hugging Face's datasets could not be installed: {done.stderr.strip()[-200:]}")
    _run(python, "-c", BOTH, cwd=tmp_path)
    _run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "dragon-alpha", cwd=tmp_path)
    _run(python, "-c", "import datasets; datasets.Dataset", cwd=tmp_path)

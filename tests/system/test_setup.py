"""The Makefile's variables reach the scripts, and its targets say what they miss."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.system.scripts import ROOT, environment

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs make at the top of the repository."""
    command = ["make", "--no-print-directory", *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, env=environment(**variables), capture_output=True, text=True, timeout=120, check=False
    )


def stand_in(folder: Path, body: str) -> Path:
    """A virtual environment that is ready for `make train`, whose python is a shell script."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").write_text(f"#!/bin/sh\n{body}\n")
    (folder / "bin/python").chmod(0o755)
    for stamp in ("made", "train", "digits"):
        (folder / f"{stamp}.stamp").touch()
    return folder


PRINT = 'for word in "$@"; do printf "<%s>" "$word"; done; echo'


def test_help_names_every_target() -> None:
    process = make()
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
    assert process.returncode == 0
    assert set(re.findall(r"^make ([\w-]+)", process.stdout, re.MULTILINE)) == set(targets) - {"help"}


def test_train_passes_every_variable_on(tmp_path: Path) -> None:
    venv = stand_in(tmp_path / "venv", PRINT)
    variables = {
        "DATA": "--data", "RECIPE": "--recipe", "MODEL": "--model", "EPOCHS": "--epochs", "STEPS": "--steps",
        "BATCH": "--batch-size", "ENGINE": "--engine", "SEED": "--seed", "OUT": "--out",
    }  # fmt: skip
    process = make("train", f"VENV={venv}", *(f"{name}=a {name}" for name in variables))
    assert process.returncode == 0, process.stderr
    first, second = process.stdout.splitlines()
    assert first == "<examples/get_data.py><cifar10><--data><a DATA>"
    expected = [word for name, option in variables.items() for word in (option, f"a {name}")]
    assert second == "".join(f"<{word}>" for word in ["examples/train_cifar10.py", "--dataset", "cifar10", *expected])


def test_train_takes_nothing_from_the_environment(tmp_path: Path) -> None:
    venv = stand_in(tmp_path / "venv", PRINT)
    process = make("train", f"VENV={venv}", OUT="/somewhere", MODEL="T100", DATA="x")
    assert process.stdout.splitlines() == [
        "<examples/get_data.py><cifar10>",
        "<examples/train_cifar10.py><--dataset><cifar10>",
    ]


def test_train_goes_on_with_digits_only_where_cifar10_cannot_be_had(tmp_path: Path) -> None:
    for code, expected in ((3, 0), (1, 2), (130, 2)):
        body = f'case "$1" in examples/get_data.py) echo "no data" >&2; exit {code};; esac; {PRINT}'
        process = make("train", f"VENV={stand_in(tmp_path / str(code), body)}")
        assert process.returncode == expected  # make's own code for a recipe that failed is 2
        assert "no data" in process.stderr
        assert ("<--dataset><digits>" in process.stdout) == (code == 3)
        assert ("going on with the digits" in process.stderr) == (code == 3)


def test_a_data_set_that_was_asked_for_is_never_replaced(tmp_path: Path) -> None:
    body = f'case "$1" in examples/get_data.py) exit 3;; esac; {PRINT}'
    venv = stand_in(tmp_path / "venv", body)
    named = make("train", f"VENV={venv}", "DATASET=cifar100")
    assert named.stdout == "<examples/train_cifar10.py><--dataset><cifar100>\n"
    resumed = make("train", f"VENV={venv}", "RESUME=runs/one")
    assert resumed.stdout == "<examples/train_cifar10.py><--resume><runs/one>\n"


def test_an_old_python_is_told_plainly(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    process = make("train", f"PYTHON={tmp_path / 'python'}", f"VENV={tmp_path / 'venv'}")
    assert process.returncode == 2
    assert "make: expected Python 3.11 or newer" in process.stderr

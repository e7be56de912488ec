"""Every Python and console block of README and docs/ runs, with less to do, and prints what the page shows, in form."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.documents import PAGES, README, ROOT, Block, Command, blocks, commands, inline_commands, is_form_of
from tests.system.scripts import device_environment
from tests.system.shortened import OPTIONS

DATA = "path/to/folder"
"""The folder of data, as the pages write it."""

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
TIMEOUT = 600

NOT_RUN = {
    "make test": "it would run these tests",
    "make lint": "it installs its tools",
    "make gpu": "it needs a GPU and eight minutes",
    "ENGINE=cu32": "it installs what a GPU needs",
    "alpha.cu32.build": "it compiles every kernel, with NVIDIA's compiler",
}
"""Commands of which the tests check the words alone, and why."""

PYTHON = [block for page in PAGES for block in blocks(page, "python")]
CONSOLE = [page for page in PAGES if blocks(page, "console")]
OPTIONAL = {"Digits": "sklearn", "import torch": "torch"}
"""What in a block's text asks for an optional package."""


def python_cases() -> Iterator[Any]:
    """The Python blocks, marked by what they need; what trains a whole network is slow."""
    for block in PYTHON:
        marks: list[pytest.MarkDecorator] = [
            pytest.mark.needs(package) for text, package in OPTIONAL.items() if text in block.text
        ]
        if "cu32" in block.text or "for epoch in" in block.text:
            marks.append(pytest.mark.slow)
        yield pytest.param(block, id=block.name, marks=marks)


@pytest.mark.parametrize("block", list(python_cases()))
def test_a_python_block_runs(block: Block, tmp_path: Path) -> None:
    environment = device_environment() if "cu32" in block.text else dict(os.environ)
    (tmp_path / "block.py").write_text(block.text, encoding="utf-8")
    process = subprocess.run(
        [sys.executable, "block.py"], cwd=tmp_path, env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=TIMEOUT, check=False,
    )  # fmt: skip
    assert process.returncode == 0, f"{block.text}\n{process.stderr}"
    if block == blocks(README)[0]:
        losses = [float(loss) for loss in re.findall(r"^epoch \d+: loss (\S+)$", process.stdout, re.MULTILINE)]
        assert len(losses) == 3 and max(losses) < 1, process.stdout  # the last batch's; chance is log(10) = 2.3


# -- console blocks --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """CIFAR-10's files, of full length, and faces: made up, so that no download is needed."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    batches = folder / "cifar-10-batches-py"
    batches.mkdir()
    labels = rng.integers(0, 10, 10_000)
    pixels = rng.integers(0, 200, (10_000, 3072), np.uint8) + (5 * labels).astype(np.uint8)[:, None]
    batch = pickle.dumps({"data": pixels, "labels": labels.tolist()}, protocol=4)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        (batches / name).write_bytes(batch)
    (batches / "batches.meta").write_bytes(pickle.dumps({"label_names": list(CLASSES)}))
    for person in range(1, 6):
        (folder / f"s{person}").mkdir()
        face = rng.integers(0, 2, (5, 4)).repeat(4, axis=0).repeat(4, axis=1) * 200
        for number in range(1, 5):
            grey = (face + rng.integers(0, 40, face.shape)).astype(np.uint8)
            (folder / f"s{person}/{number}.pgm").write_bytes(b"P5 16 20 255\n" + grey.tobytes())
    yield folder
    shutil.rmtree(folder)  # 180 MB


@pytest.fixture
def clone(tmp_path: Path, data: Path) -> Path:
    """A folder that looks like a clone with its .venv, whose python makes scripts small, and with the pages' data."""
    for path in ROOT.iterdir():
        if not path.name.startswith(".") and path.name not in ("build", "runs"):
            (tmp_path / path.name).symlink_to(path)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    python = tmp_path / ".venv/bin/python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.system.shortened "$@"\n')
    python.chmod(0o755)
    for stamp in ("made", "train", "digits"):
        (tmp_path / f".venv/{stamp}.stamp").touch()
    (tmp_path / DATA).parent.mkdir(parents=True)
    (tmp_path / DATA).symlink_to(data)
    return tmp_path


def console_cases() -> Iterator[Any]:
    """The pages with console blocks; those of PyTorch need it."""
    for page in CONSOLE:
        text = "".join(block.text for block in blocks(page, "console"))
        torch = any(name in text for name in ("pytorch", "paper", "benchmarks"))
        needed = ("sklearn", *(("torch",) if torch else ()))
        yield pytest.param(page, id=page.name, marks=[pytest.mark.needs(*needed), pytest.mark.slow])


@pytest.mark.parametrize("page", list(console_cases()))
def test_console_blocks_run_and_print_what_is_shown(page: Path, clone: Path) -> None:
    for block in blocks(page, "console"):
        for command in commands(block):
            if not_run(command.words):
                check_words(command.words)
            else:
                run(command, clone)


def not_run(words: list[str]) -> bool:
    """Whether only the words of a command are checked: one that installs, or is listed with its reason."""
    return "pip" in Path(words[0]).name or any(found in " ".join(words) for found in NOT_RUN)


def run(command: Command, clone: Path) -> None:
    """Runs a command in the clone; what it prints has the form that the page shows."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "ALPHA_DATA"))}
    environment = {**variables, "PYTHONPATH": str(ROOT)}
    process = subprocess.run(
        command.words, cwd=clone, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert process.returncode == 0, f"{command.line}\n{process.stdout}\n{process.stderr}"
    if command.output:
        shown = "\n".join(command.output)
        printed = is_form_of(command.output, process.stdout.splitlines())
        assert printed, f"{command.line}: expected the form of\n{shown}\ngot\n{process.stdout}"


def check_words(words: list[str]) -> None:
    """A make target and its variables, a script and its options, an extra of the package: all exist."""
    if words[0] == "make":
        text = (ROOT / "Makefile").read_text(encoding="utf-8")
        for word in words[1:]:
            name, assigned, _ = word.partition("=")
            assert re.search(rf"^{name} \??=" if assigned else rf"^{name}:", text, re.MULTILINE), word
    elif "pip" in Path(words[0]).name:
        check_extras(" ".join(words))
    else:
        script = words[1:3] if words[1] == "-m" else words[1:2]
        known = help_of(*script)
        for option in [word for word in words if word.startswith("--")]:
            assert re.search(rf"{option}\b", known), f"{option} of {' '.join(words)}"


@cache
def help_of(*script: str) -> str:
    """What a script or module prints for --help."""
    process = subprocess.run(
        [sys.executable, *script, "--help"], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=TIMEOUT, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return process.stdout


def check_extras(line: str) -> None:
    """The extras behind ``pip install -e '.[NAME]'`` are the package's."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for group in re.findall(r"\.\[([\w,-]+)\]", line):
        assert set(group.split(",")) <= set(known), line


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_the_text_exist(page: Path) -> None:
    for words in inline_commands(page):
        if words[0] == "pip":
            check_extras(" ".join(words))
        else:
            check_words([word.partition("|")[0] for word in words])


@pytest.mark.slow
@pytest.mark.parametrize("block", [b for page in PAGES for b in blocks(page, "bash")], ids=lambda block: block.name)
def test_a_batch_job_is_one(block: Block) -> None:
    """A scheduler runs it, which is not here: its syntax is the shell's, its commands' options exist."""
    subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)
    jobs = [line.split() for line in block.text.splitlines() if line.startswith("srun ")]
    assert jobs
    for words in jobs:
        check_words(words[1:])


def test_what_is_made_small_is_shown() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert all(script in text for script in (*OPTIONS, *NOT_RUN))

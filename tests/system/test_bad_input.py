"""Bad input to the examples: one line that names the cause and what to do, the right exit code, and nothing lost."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.system.scripts import ROOT, TINY, Script, one_line_error

TRAIN = "train_cifar10.py"


@pytest.mark.parametrize(
    "name", ["train_cifar10.py", "dcgan.py", "evaluate.py", "custom_layer.py", "compare_pytorch.py"]
)
def test_help_shows_options_and_defaults(script: Script, name: str) -> None:
    process = script(name, "--help")
    assert process.returncode == 0
    assert process.stdout.startswith(f"usage: {name}")
    assert "--engine NAME" in process.stdout
    assert "(default: " in process.stdout


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (TRAIN, ["--speed", "9"], r"unrecognized arguments: --speed 9: see --help"),
        (TRAIN, ["--model", "resnet99"], r"argument --model: invalid choice: 'resnet99' \(choose from .*resnet18"),
        (TRAIN, ["--dataset", "imagenet"], r"argument --dataset: invalid choice: 'imagenet' \(choose from .*cifar10"),
        (TRAIN, ["--batch-size", "0"], r"argument --batch-size: expected an integer >= 1, got '0': see --help"),
        (TRAIN, ["--lr", "nan"], r"argument --lr: expected a number >= 0, got 'nan': see --help"),
        (TRAIN, ["--seed", "-1"], r"argument --seed: expected .*: see --help"),
        ("evaluate.py", [], r"the following arguments are required: RUN: see --help"),
        ("compare_pytorch.py", ["--dtype", "float16"], r"argument --dtype: invalid choice: 'float16' \(choose from "),
        ("get_data.py", ["svhn"], r"argument dataset: invalid choice: 'svhn' \(choose from .*cifar10"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    script: Script, name: str, options: Sequence[str], message: str
) -> None:
    process = script(name, *options)
    assert process.returncode == 2
    assert re.match(rf"{name}: error: {message}", one_line_error(process))


@pytest.mark.needs("sklearn")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine", "abacus"], r'\[engine\] expected "cpu", "cu32" or .*, got \'abacus\''),
        (["--memory", "lots"], r"\[memory\] expected a size such as \"8GB\".*, got 'lots'"),
        (["--memory", "3MB"], r"\[memory\] expected room for \d+ bytes .*cap 3\.0 MiB.*: use a smaller batch"),
        (
            ["--out", "file/run"],
            r"\[--out\] expected a folder that can be written to, got file/run \(Not a dir.*: choose",
        ),
        (["--out", "old"], r"\[--out\] expected a folder without a run, got old with metrics.csv: .*--resume old"),
        (["--resume", "none"], r"\[--resume\] expected a run's folder, .*got none: give the folder"),
        (["--resume", "file"], r"\[--resume\] expected a run's folder, .*got file: give the folder"),
    ],
)
def test_bad_options_of_training(script: Script, tmp_path: Path, options: Sequence[str], message: str) -> None:
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "old").mkdir()
    (tmp_path / "old/metrics.csv").write_text("somebody's results")
    process = script(TRAIN, *TINY, *options)
    assert process.returncode == 1
    assert re.match(f"train_cifar10: error: {message}", one_line_error(process))
    assert (tmp_path / "file").read_text() == "not a folder"
    assert (tmp_path / "old/metrics.csv").read_text() == "somebody's results"


def test_data_that_is_missing_or_corrupt(script: Script, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    # Nothing can be downloaded to below a file, so that no network is asked.
    missing = script(TRAIN, "--data", "file/data")
    error = one_line_error(missing)
    assert missing.returncode == 1
    assert "[CIFAR10] expected CIFAR-10 in one of file/data/cifar-10-batches-py, got none: " in error
    assert "supply the data with DATA=DIR, $ALPHA_DATA" in error

    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py/batches.meta").write_bytes(b"\x80\x04 no pickle")
    corrupt = script(TRAIN, "--data", tmp_path)
    assert corrupt.returncode == 1
    assert re.match(r"train_cifar10: error: \[CIFAR10\] expected .*batches.meta.*: delete ", one_line_error(corrupt))


def test_get_data_tells_data_that_cannot_be_had_from_corrupt_data(script: Script, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    missing = script("get_data.py", "cifar10", "--data", "file/data")
    assert missing.returncode == 3  # what `make train` goes on from with the digits
    assert "got none" in one_line_error(missing)
    (tmp_path / "cifar-10-batches-py").mkdir()
    corrupt = script("get_data.py", "cifar10", "--data", tmp_path)
    assert corrupt.returncode == 1
    assert "batches.meta" in one_line_error(corrupt)


def test_debug_shows_the_traceback(script: Script) -> None:
    process = script(TRAIN, *TINY, "--engine", "abacus", "--debug")
    assert process.returncode == 1
    assert "Traceback" in process.stderr
    assert "EngineError" in process.stderr


@pytest.mark.needs("sklearn")
def test_a_run_is_resumed_only_with_what_shaped_it(reference: Path, script: Script) -> None:
    before = (reference / "checkpoint.safetensors").read_bytes()
    for option, value in (("--model", "vgg16"), ("--batch-size", 7), ("--seed", 5), ("--lr", 0.5)):
        process = script(TRAIN, "--resume", reference, option, value)
        assert process.returncode == 1
        assert f"[--resume] expected {option} " in one_line_error(process)
        assert f"got {value}: leave {option} out" in one_line_error(process)
    elsewhere = script(TRAIN, "--resume", reference, "--out", "elsewhere")
    assert elsewhere.returncode == 1
    assert "leave --out out" in one_line_error(elsewhere)
    assert (reference / "checkpoint.safetensors").read_bytes() == before


@pytest.mark.needs("sklearn")
def test_a_checkpoint_that_is_corrupt_or_of_another_program(reference: Path, script: Script, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    whole = (reference / "checkpoint.safetensors").read_bytes()
    flipped = bytearray(whole)
    flipped[-1000] ^= 1
    for content in (whole[: len(whole) // 2], bytes(flipped), b""):
        (run / "checkpoint.safetensors").write_bytes(content)
        process = script(TRAIN, "--resume", run)
        assert process.returncode == 1
        assert re.match(r"train_cifar10: error: \[load_checkpoint\] expected .*run", one_line_error(process))
        assert (run / "checkpoint.safetensors").read_bytes() == content
    shutil.copy(reference / "model.safetensors", run / "checkpoint.safetensors")
    process = script(TRAIN, "--resume", run)
    assert process.returncode == 1
    assert "expected a checkpoint, got another safetensors file" in one_line_error(process)


@pytest.mark.needs("sklearn")
def test_evaluate_with_no_run_and_with_another_models_weights(reference: Path, script: Script, tmp_path: Path) -> None:
    none = script("evaluate.py", "none")
    assert none.returncode == 1
    assert "[settings.json] expected a JSON file at" in one_line_error(none)

    run = tmp_path / "run"
    shutil.copytree(reference, run)
    settings = (run / "settings.json").read_text()
    (run / "settings.json").write_text(settings.replace('"resnet18"', '"vgg16"'))
    other = script("evaluate.py", "run")
    assert other.returncode == 1
    assert "[evaluate] expected the weights of the vgg16" in one_line_error(other)

    (run / "settings.json").write_text('{"model": "resnet18"}')
    partial = script("evaluate.py", "run")
    assert partial.returncode == 1
    assert "got none for style, base_width" in one_line_error(partial)


def test_compare_without_pytorch_says_how_to_install_it(script: Script, tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden/torch.py").write_text("raise ImportError('No module named torch')\n")
    process = script("compare_pytorch.py", env={"PYTHONPATH": f"{tmp_path / 'hidden'}:{ROOT}"})
    assert process.returncode == 1
    assert 'No module named torch: pip install "dragon-alpha[compare]"' in one_line_error(process)

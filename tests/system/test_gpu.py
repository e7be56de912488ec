"""``make gpu`` without a GPU: its parts run one after the other whatever becomes of them, and the table tells."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import gpu
from benchmarks.gpu import Part
from tests.system.scripts import ROOT, environment


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def run_parts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], out: Path, parts: list[Part], *options: str
) -> tuple[int, list[str]]:
    """The command's status and the lines it printed, with these parts instead of its own."""
    monkeypatch.setattr(gpu, "parts", lambda *_: parts)
    status = gpu.main(["--out", str(out), *options])
    return status, capsys.readouterr().out.splitlines()


def test_a_part_that_fails_does_not_keep_the_next_from_running(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    parts = [
        Part("broken", python("print('its last words'); raise SystemExit(3)"), 30),
        Part("absent", ["no-such-command"], 30, "no-such-command is not installed"),
        Part("good", python("import os; print(os.environ['ALPHA_TEST_ENGINES'])"), 30),
    ]
    status, lines = run_parts(monkeypatch, capsys, tmp_path, parts)
    assert status == 1
    assert "its last words" in lines
    table = lines[-4:-1]
    assert [line.split()[:2] for line in table] == [["broken", "FAILED"], ["absent", "skipped"], ["good", "passed"]]
    assert table[0].endswith("status 3") and table[1].endswith("no-such-command is not installed")
    assert (tmp_path / "summary.txt").read_text().splitlines() == table
    assert (tmp_path / "good.txt").read_text().splitlines()[-1] == "cu32"


def test_all_is_well_when_nothing_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    parts = [Part("good", python("pass"), 30), Part("absent", [], 30, "not there")]
    assert run_parts(monkeypatch, capsys, tmp_path, parts)[0] == 0


def test_a_part_is_ended_with_its_children_at_its_limit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    child = f"import time; time.sleep(3); open({str(tmp_path / 'survived')!r}, 'w')"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    status, lines = run_parts(monkeypatch, capsys, tmp_path, [Part("slow", python(parent), 1)])
    assert status == 1
    assert lines[-2].split()[:2] == ["slow", "LATE"] and lines[-2].endswith("limit 1 s")
    time.sleep(3)
    assert not (tmp_path / "survived").exists()


def test_nothing_starts_when_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, lines = run_parts(monkeypatch, capsys, tmp_path, [Part("good", python("pass"), 30)], "--minutes", "0")
    assert status == 0 and lines[-2].endswith("no time was left")


def test_the_table_holds_the_benchmarks_figures(tmp_path: Path) -> None:
    training = {"alpha_s": 0.01, "alpha_peak_mib": 500.0, "torch_s": 0.0125, "torch_peak_mib": 1000.0, "ratio": 1.25}
    (tmp_path / "training-graph.json").write_text(json.dumps(training))
    assert gpu.figures(tmp_path, "training graph") == (
        "10.00 ms a step, 500 MiB; PyTorch 12.50 ms, 1000 MiB: 1.25 times as fast, 0.50 of the memory"
    )
    rows = [
        {"operator": "deconv", "ratio": ratio, "nominal_gflop": 2.0, "useful_gflop": 1.0, "useful_gflops": 3e4}
        for ratio in (0.9, 1.2)
    ]
    operators = {"rows": rows, "geometric_mean": {"deconv": 1.04, "all": 1.04}}
    (tmp_path / "paper.json").write_text(json.dumps(operators))
    assert gpu.figures(tmp_path, "paper") == "ratio deconv 1.04, all 1.04; deconv ahead in 1 of 2"
    (tmp_path / "paper.json").write_text(json.dumps({**operators, "geometric_mean": None}))
    assert gpu.figures(tmp_path, "paper") == "30.0 useful TFLOP/s at most"
    assert gpu.figures(tmp_path, "absent") == ""


def test_its_own_parts_are_commands_that_exist(tmp_path: Path) -> None:
    for part in gpu.parts(tmp_path, "cu32"):
        if part.command[1:3] == ["-m", "pytest"] or part.name in ("memcheck", "racecheck"):
            assert all((ROOT / word).exists() for word in part.command if word.startswith("tests/"))
            continue
        known = subprocess.run(
            [*part.command[:3], "--help"], cwd=ROOT, env=environment(), capture_output=True, text=True, check=True
        ).stdout
        for option in [word for word in part.command if word.startswith("--")]:
            assert option in known, f"{option} of {part.name}"


def test_unknown_parts_and_folders_without_wheels_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        gpu.main(["--out", str(tmp_path), "--only", "paint"])
    assert "expected parts of build, training," in capsys.readouterr().err
    assert gpu.main(["--out", str(tmp_path), "--wheels", str(tmp_path)]) == 1
    assert "expected wheels that can be installed" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_passes_its_variables_on(tmp_path: Path) -> None:
    stand_in = tmp_path / "python"
    stand_in.write_text('#!/bin/sh\nfor word in "$@"; do printf "<%s>" "$word"; done; echo\n')
    stand_in.chmod(0o755)
    command = ["make", "--no-print-directory", "gpu", f"PYTHON={stand_in}", "OUT=a b", "WHEELS=w", "ENGINE=cu32:1"]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout == "<-m><benchmarks.gpu><--out><a b><--wheels><w><--engine><cu32:1>\n"

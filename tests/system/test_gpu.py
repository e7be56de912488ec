"""The commands for a GPU, whole, on the driver that stands in for one: run, killed midway, gone on with."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.gpu.journal import FAILED, PASSED, Identity, Journal, JournalInUseError, Row, revision
from benchmarks.workers import Worker
from tests.system.scripts import ROOT, device_environment, environment

FILES = ["logs.tar.gz", "results.jsonl", "summary.txt"]
WAIT = 240.0
"""Seconds after which something that is waited for is not going to happen: kernels may have to be compiled first."""

LIMIT = "12"
"""Seconds of a test that hangs: enough for all others to compile their kernels."""

Line = dict[str, Any]


def start(command: str, out: Path, *options: str, **variables: str) -> subprocess.Popen[str]:
    """A command on the stand-in, with few tests or rows of small sizes."""
    words = [sys.executable, "-m", "benchmarks.gpu", command, "--out", str(out), "--small", *options]
    env = {**device_environment(), "PYTHONPATH": str(ROOT), **variables}
    return subprocess.Popen(words, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run(command: str, out: Path, *options: str, **variables: str) -> tuple[int, str]:
    """Status and output of a command that runs to its end."""
    process = start(command, out, *options, **variables)
    text, _ = process.communicate(timeout=2 * WAIT)
    return process.returncode, text


def lines(out: Path) -> list[Line]:
    """The results so far, without a line that is being written."""
    file = out / "results.jsonl"
    return [json.loads(text) for text in file.read_text().split("\n")[:-1]] if file.exists() else []


def names(out: Path, start: str = "") -> list[str]:
    return [line["name"] for line in lines(out) if line["name"].startswith(start)]


def wait_until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def left_behind(out: Path) -> list[str]:
    return sorted(path.name for path in out.iterdir())


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def own_tests(folder: Path, *bodies: str) -> Path:
    """A file of tests with the engine as a fixture, whose process notes its number."""
    head = [
        "import os, signal, time",
        "from pathlib import Path",
        "import pytest, alpha",
        f"FOLDER = Path({str(folder)!r})",
        "@pytest.fixture",
        "def cu32():",
        "    (FOLDER / f'pid-{os.getpid()}').touch()",
        "    return alpha.engine('cu32')",
    ]
    file = folder / "test_its_own.py"
    file.write_text("\n".join([*head, *bodies]) + "\n")
    return file


def pids(folder: Path) -> list[int]:
    return [int(path.name[4:]) for path in folder.glob("pid-*")]


SLOW = [f"def test_{number}(cu32): time.sleep({0.05 if number < 3 else 0.6})" for number in range(9)]


# -- gpu-tests ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def sanitizer(tmp_path: Path) -> str:
    """A PATH with a compute-sanitizer that finds nothing, and notes which tool it was."""
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "compute-sanitizer"
    command.write_text(
        "#!/bin/sh\n"
        'while case "$1" in --*) ;; *) false;; esac; do\n'
        f'  [ "$1" = --tool ] && echo "$2" >>{folder}/tools\n  shift 2\ndone\nexec "$@"\n'
    )
    command.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_tests_run_whole_and_a_second_call_has_nothing_to_do(tmp_path: Path, sanitizer: str) -> None:
    out = tmp_path / "out"
    status, text = run("tests", out, PATH=sanitizer)
    assert status == 0, text
    assert left_behind(out) == FILES
    smoke = names(out, "smoke: ")
    for word in ("copies", "vector loads", "asynchronous", "tensor cores", "shared", "last block", "graph"):
        assert any(word in name for name in smoke), word
    assert len(names(out, "tests/cu32/test_parts.py::")) > 50
    assert (tmp_path / "bin" / "tools").read_text().split() == ["memcheck", "racecheck"]
    assert {line["state"] for line in lines(out)} == {PASSED}
    summary = (out / "summary.txt").read_text()
    assert "smoke: 7 passed, 0 not reached" in summary and "sanitizer: 2 passed, 0 not reached" in summary
    before = (out / "results.jsonl").read_text()
    status, text = run("tests", out, PATH=sanitizer)
    assert status == 0 and (out / "results.jsonl").read_text() == before and "done by an earlier call" in text
    assert left_behind(out) == FILES
    with tarfile.open(out / "logs.tar.gz") as logs:
        assert "logs/tests-worker-1.txt" in logs.getnames()


def test_what_a_test_breaks_is_its_own(tmp_path: Path) -> None:
    """A lost context, a death, a hang: each ends its worker alone; all others are run, and none of the CPU engine's."""
    file = own_tests(
        tmp_path,
        "def test_good(cu32): alpha.ones(2, engine=cu32).numpy()",
        "def test_lost(cu32):",
        "    from alpha.errors import EngineError",
        "    def lost(): raise EngineError('an illegal memory access')",
        "    cu32.device.synchronize = lost",
        "    (FOLDER / f'blocking-{os.environ.get(\"CUDA_LAUNCH_BLOCKING\")}').touch()",
        "def test_after_lost(cu32): alpha.ones(2, engine=cu32).numpy()",
        "def test_dies(cu32): os.kill(os.getpid(), signal.SIGKILL)",
        "def test_hangs(cu32):",
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "    time.sleep(1000)",
        "def test_after_hang(cu32): alpha.ones(2, engine=cu32).numpy()",
        "def test_wrong(cu32): assert 1 == 2",
        "def test_skipped(cu32): pytest.skip('no such thing here')",
        "def test_of_the_cpu(): assert False",
        "@pytest.mark.parametrize('engine', ['cpu', 'cu32'])",
        "def test_both(engine): assert engine == 'cu32'",
    )
    out = tmp_path / "out"
    status, text = run("tests", out, "--tests", str(file), "--limit", LIMIT, "--jobs", "1")
    assert status == 1 and left_behind(out) == FILES
    found = {line["name"].partition("::test_")[2]: line for line in lines(out) if "::" in line["name"]}
    states = {name: line["state"] for name, line in found.items()}
    assert states == {
        "good": "passed", "lost": "failed", "after_lost": "passed", "dies": "failed", "hangs": "late",
        "after_hang": "passed", "wrong": "failed", "skipped": "skipped", "both[cu32]": "passed",
    }  # fmt: skip
    assert "an illegal memory access; alone, synchronously: failed" in found["lost"]["note"]
    assert (tmp_path / "blocking-None").exists() and (tmp_path / "blocking-1").exists()
    assert found["dies"]["note"].count("died by SIGKILL") == 2
    assert "1 == 2" in found["wrong"]["note"]
    assert "tests: 4 passed, 3 failed, 1 late, 1 skipped, 0 not reached, of 9" in text
    assert not any(alive(pid) for pid in pids(tmp_path))
    before = len(lines(out))
    assert run("tests", out, "--tests", str(file), "--limit", LIMIT, "--jobs", "1")[0] == 1
    assert len(lines(out)) == before  # what failed is done, too
    status, text = run("tests", out, "--tests", str(file), "--limit", "1", "--jobs", "1", "--again", "--budget", "60")
    assert status == 1 and names(out).count(found["wrong"]["name"]) == 2
    assert names(out).count(found["good"]["name"]) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_tests_are_killed_and_go_on(tmp_path: Path, number: signal.Signals) -> None:
    file, out = own_tests(tmp_path, *SLOW), tmp_path / "out"
    process = start("tests", out, "--tests", str(file), "--jobs", "1")
    wait_until(lambda: len([name for name in names(out) if "::" in name]) >= 2, "two tests done")
    process.send_signal(number)
    process.communicate(timeout=30)
    finished = names(out)
    if number == signal.SIGKILL:
        assert process.returncode == -number
        with (out / "results.jsonl").open("a") as results:  # as if it had been killed while it wrote
            results.write('{"command": "tests", "name": "half a li')
    else:
        assert process.returncode == 128 + number
        assert left_behind(out) == FILES
        summary = (out / "summary.txt").read_text()
        assert f"ended by {number.name}" in summary and "not reached, of 9" in summary
    wait_until(lambda: not any(alive(pid) for pid in pids(tmp_path)), "the children end with the command")
    status, text = run("tests", out, "--tests", str(file), "--jobs", "2")
    assert status == 0, text
    assert left_behind(out) == FILES and names(out)[: len(finished)] == finished
    assert sorted(name.partition("::")[2] for name in names(out) if "::" in name) == [f"test_{n}" for n in range(9)]
    assert "tests: 9 passed, 0 not reached, of 9" in (out / "summary.txt").read_text()


def test_the_deadline_leaves_what_was_done(tmp_path: Path) -> None:
    """Each call ends in time; on a slow machine it takes some to get to the test that never ends."""
    file, out = own_tests(tmp_path, *SLOW, "def test_long(cu32): time.sleep(1000)"), tmp_path / "out"
    for _ in range(8):
        start = time.monotonic()
        status, text = run("tests", out, "--tests", str(file), "--jobs", "1", "--budget", "16", "--limit", "900")
        assert time.monotonic() - start < 16 + 6  # Python itself has to start, too
        assert status in (1, 3) and left_behind(out) == FILES and "its 16 s are over" in text
        if "tests: 9 passed, 1 not reached, of 10" in text:
            break
    assert status == 3 and "  not reached: " in text and "test_long" in text


def test_a_call_that_ends_before_it_knows_all_is_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that it had planned so far passed; the tests were not even listed."""
    from benchmarks.gpu import command
    from benchmarks.gpu.session import Session

    def body(running: Session) -> None:
        running.plan("smoke", [("smoke: a", {})])
        running.add(Row("smoke: a", PASSED, 0.1))
        running.stop_for_time()

    monkeypatch.setattr(command, "COMMANDS", {"tests": (body, "")})
    monkeypatch.setattr(command, "identify", lambda _: None)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        assert command.main(["tests", "--out", str(tmp_path)]) == 3
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert left_behind(tmp_path) == FILES


def test_a_sanitizer_that_cannot_work_here_says_nothing_of_kernels(tmp_path: Path, sanitizer: str) -> None:
    (tmp_path / "bin" / "compute-sanitizer").write_text("#!/bin/sh\necho '========= Device not supported.'\nexit 86\n")
    file = own_tests(tmp_path, "def test_good(cu32): pass")
    status, text = run("tests", tmp_path / "out", "--tests", str(file), PATH=sanitizer)
    assert status == 0 and "sanitizer: 2 skipped, 0 not reached" in text
    found = next(line for line in lines(tmp_path / "out") if line["name"].startswith("memcheck"))
    assert found["note"] == "compute-sanitizer: Device not supported here"


def test_tests_that_cannot_be_collected_are_told(tmp_path: Path) -> None:
    file = own_tests(tmp_path, "import no_such_module")
    status, text = run("tests", tmp_path / "out", "--tests", str(file))
    assert status == 1 and "collecting" in text and "no_such_module" in text
    file = own_tests(tmp_path, "os._exit(7)")
    status, text = run("tests", tmp_path / "out", "--tests", str(file))
    assert status == 1 and "expected processes that collect tests, got: its process died with status 7" in text
    assert left_behind(tmp_path / "out") == FILES


# -- gpu-operators, gpu-training ---------------------------------------------------------------------------------------

ROWS = {"operators": 8, "training": 4}


@pytest.mark.parametrize("command", ROWS)
def test_rows_are_killed_and_go_on(tmp_path: Path, command: str) -> None:
    options = ("--against", "none")
    process = start(command, tmp_path, *options)
    wait_until(lambda: len(lines(tmp_path)) >= 1, "a row done")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    finished = lines(tmp_path)
    assert process.returncode == 143 and left_behind(tmp_path) == FILES
    assert f"{ROWS[command] - len(finished)} not reached" in (tmp_path / "summary.txt").read_text()
    status, text = run(command, tmp_path, *options)
    assert status == 0, text
    assert left_behind(tmp_path) == FILES
    done = lines(tmp_path)
    assert done[: len(finished)] == finished and len({line["name"] for line in done}) == len(done) == ROWS[command]
    assert all(line["state"] == PASSED for line in done)
    for line in done:
        numbers = [value for value in line["result"].values() if isinstance(value, float)]
        assert numbers and all(value > 0 for value in numbers)
    if command == "operators":
        assert {"fma_gflops", "memory_gb_per_s", "l2_gb_per_s"} <= done[0]["result"].keys()  # before all others


def test_commands_share_a_folder(tmp_path: Path) -> None:
    """Each has its part of the summary; one at a time."""
    taken = Journal(tmp_path, "tests")
    status, text = run("training", tmp_path)
    assert status == 1 and "another command writes to" in text
    taken.close()
    (tmp_path / "summary.txt").write_text("make gpu-tests: done\nall passed\n\nmake gpu-training: old\n")
    # The second may end while the kernels compile, which then were late (1), or after them, where they were kept (3).
    assert run("training", tmp_path, "--budget", "1")[0] in (1, 3)
    summary = (tmp_path / "summary.txt").read_text()
    assert (
        summary.startswith("make gpu-tests: done\nall passed\n\nmake gpu-training: its 1 s are over")
        and "old" not in summary
    )


# -- parts -------------------------------------------------------------------------------------------------------------


def test_results_hold_for_one_revision_driver_and_device(tmp_path: Path) -> None:
    here = Identity("r", "580.1 CUDA 13.0", "H200")
    journal = Journal(tmp_path, "operators")
    journal.identity = here
    row = Row("conv", PASSED, 1.0, settings={"batch": 512}, result={"alpha_ms": 0.5})
    journal.add(row, Row("deconv", FAILED, 1.0, "off by 2"))
    journal.close()
    for changed in (here, replace(here, revision="s"), replace(here, driver="581"), replace(here, device="H100")):
        journal = Journal(tmp_path, "operators")
        journal.identity = changed
        assert journal.finished("conv", {"batch": 512}) == (row if changed == here else None)
        assert journal.finished("conv", {"batch": 128}) is None and journal.finished("conv") is None
        assert (journal.finished("deconv") is not None) == (changed == here)
        journal.close()
    other = Journal(tmp_path, "training")
    other.identity = here
    assert other.finished("deconv") is None
    other.close()
    again = Journal(tmp_path, "operators", retry=(FAILED,))
    again.identity = here
    assert again.finished("deconv") is None and again.finished("conv", {"batch": 512}) is not None
    with pytest.raises(JournalInUseError):
        Journal(tmp_path, "operators")
    again.close()


@pytest.mark.parametrize("tail", ['{"half', "x" * 200_000, "[]\n", '{"state": "passed"}\n', "\x00\xff\n"], ids=range(5))
def test_broken_lines_are_no_results(tmp_path: Path, tail: str) -> None:
    journal = Journal(tmp_path, "tests")
    journal.add(Row("a", PASSED, 1.0))
    journal.close()
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write(tail)
    journal = Journal(tmp_path, "tests")
    journal.add(Row("b", PASSED, 1.0))
    journal.close()
    journal = Journal(tmp_path, "tests")
    assert journal.finished("a") is not None and journal.finished("b") is not None
    journal.close()


def test_the_revision_is_that_of_the_content(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from benchmarks.gpu import journal

    monkeypatch.setattr(journal, "ROOT", tmp_path)
    (tmp_path / "cu32" / "kernels").mkdir(parents=True)
    kernel = tmp_path / "cu32" / "kernels" / "a.cu"
    kernel.write_text("one")
    first = revision()
    (tmp_path / "README.md").write_text("words")
    assert revision() == first
    kernel.write_text("two")
    assert revision() != first


def test_what_is_compiled_on_the_device_compiles() -> None:
    """By the real compiler: the stand-in's takes what NVRTC does not."""
    from alpha.cu32 import compiler
    from benchmarks import gpu_peak
    from benchmarks.gpu import smoke

    library = compiler._load_nvrtc()
    if library is None:
        pytest.skip("no NVRTC")
    for text in (*smoke.TEXTS, *gpu_peak.TEXTS):
        assert compiler.Nvrtc(library).compile(compiler.Source("user", text=text), "sm_90")


def test_the_figures_of_an_earlier_call_are_kept_for_the_cost_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The machine may be another one of the same kind, whose cache is empty."""
    from alpha.cu32 import figures
    from benchmarks.gpu.measuring import Operators, _answer

    monkeypatch.setenv("ALPHA_CACHE", str(tmp_path))
    speeds = {"fma_gflops": 6e4, "memory_gb_per_s": 4e3, "l2_gb_per_s": 6e3}
    found = {**speeds, "device": "H200", "multiprocessors": 132, "clock": 1_980_000_000, "cost_model": "rewritten"}
    assert _answer(Operators(True, "none"), {"figures": found}, tmp_path) == {"result": {}}
    assert figures.read("H200", 132, 1_980_000_000) == figures.Figures(6e4, 4e3, 6e3)


@pytest.mark.parametrize("kind", ["operators", "training"])
def test_rows_have_names_and_settings_of_their_own(kind: str) -> None:
    """In order of value: the device's figures, then what is claimed, first."""
    from benchmarks.gpu.measuring import FIGURES, KINDS

    planned = list(KINDS[kind](False, "torch").planned())
    assert len({row.name for row in planned}) == len(planned)
    assert len({json.dumps(dict(row.settings), sort_keys=True) for row in planned}) == len(planned)
    assert all(0 < row.limit < 450 for row in planned)
    if kind == "operators":
        assert planned[0].name == FIGURES and planned[1].name.startswith("resnet18 64, batch 512, float32: conv")
        words = {
            name for row in planned for name in ("float32", "TF32", "paper", "matrix and vector") if name in row.name
        }
        assert len(words) == 4
    else:
        assert [row.name for row in planned[:4]] == [
            f"ResNet18's step, batch 512, {mode}"
            for mode in ("float32, eager", "float32, graph", "TF32, graph", "TF32, eager")
        ]


def test_the_summary_says_how_often_we_are_ahead() -> None:
    from benchmarks.gpu.rows import headline

    def row(name: str, operator: str, ratio: float | None, precision: str = "highest") -> Row:
        result = {"operator": operator, "ratio": ratio, "alpha_ms": 1.0}
        return Row(name, PASSED, 1.0, settings={"precision": precision}, result=result)

    rows = [row("paper a", "deconv", 0.5), row("paper b", "deconv", 2.0), row("paper c", "deconv", 4.0)]
    rows += [row("resnet18 64", "conv", 1.5, "high"), row("resnet18 128", "conv", None)]
    assert headline(rows) == [
        "  ratio of paper, float32, deconv: 1.59, ahead in 2 of 3",
        "  ratio of resnet18, TF32, conv: 1.50, ahead in 1 of 1",
    ]


def test_pytorchs_step_is_captured_once_it_has_run() -> None:
    """As PyTorch's manual has it: some steps on another stream, no gradients from before, then one capture for all."""
    from benchmarks.sides import TORCH_WARMUP
    from benchmarks.training_worker import Torch

    side: Any = object.__new__(Torch)
    done: list[str] = []

    def captured(call: Callable[[], str]) -> Callable[[], str]:
        done.append("captured")
        return lambda: f"replayed {call()}"

    side.on_side_stream, side.captured = lambda call: f"side {call()}", captured
    side._optimizer = SimpleNamespace(zero_grad=lambda set_to_none: done.append("cleared"))
    step = side._graphed_step(lambda: "step")
    assert [step() for _ in range(TORCH_WARMUP)] == ["side step"] * TORCH_WARMUP and done == []
    assert [step() for _ in range(3)] == ["replayed step"] * 3 and done == ["cleared", "captured"]


def test_a_worker_that_does_not_answer_is_ended() -> None:
    """A kernel that never returns must not keep a benchmark waiting for ever."""
    from alpha.errors import EngineError

    with pytest.raises(EngineError, match="expected an answer from the slow process within 1 s, got none"):
        Worker("tests.system.hanging", "slow", {}, 1, limit=1.0)


def test_wrong_options_are_told(tmp_path: Path) -> None:
    for options, told in (
        (["paint"], "invalid choice: 'paint'"),
        (["tests", "--engine", "cpu"], "expected cu32 or cu32:N, got 'cpu'"),
        (["tests", "--budget", "0"], "expected seconds > 0, got '0'"),
        (["tests", "--cubins", str(tmp_path / "absent")], "expected a folder, got"),
    ):
        command = [sys.executable, "-m", "benchmarks.gpu", *options]
        done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 2 and told in done.stderr


def test_folders_without_wheels_are_told(tmp_path: Path) -> None:
    status, text = run("tests", tmp_path / "out", "--wheels", str(tmp_path))
    assert status == 1 and "expected wheels in" in text and left_behind(tmp_path / "out") == FILES


def test_the_children_see_the_cubins_and_the_device(tmp_path: Path) -> None:
    from benchmarks.gpu.command import make_parser
    from benchmarks.gpu.machine import environment as children

    options = make_parser().parse_args(["tests", "--cubins", str(tmp_path), "--engine", "cu32:1"])
    found = children(options)
    assert found["ALPHA_CUBINS"] == str(tmp_path.resolve()) and found["CUDA_VISIBLE_DEVICES"] == "1"
    assert found["ALPHA_TEST_ENGINES"] == "cu32"


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("target", ["tests", "operators", "training"])
def test_make_passes_its_variables_on(tmp_path: Path, target: str) -> None:
    stand_in = tmp_path / "python"
    stand_in.write_text('#!/bin/sh\nfor word in "$@"; do printf "<%s>" "$word"; done; echo\n')
    stand_in.chmod(0o755)
    variables = [f"PYTHON={stand_in}", "OUT=a b", "WHEELS=w", "ENGINE=cu32:1", "CUBINS=c d", "BUDGET=60"]
    command = ["make", "--no-print-directory", f"gpu-{target}", *variables]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout == (
        f"<-m><benchmarks.gpu><{target}><--out><a b><--wheels><w><--cubins><c d><--engine><cu32:1><--budget><60>\n"
    )


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_runs_all_three_whatever_becomes_of_them(tmp_path: Path) -> None:
    stand_in = tmp_path / "python"
    stand_in.write_text('#!/bin/sh\necho "$3 $5"\n[ "$3" = tests ] && exit 1\nexit 0\n')
    stand_in.chmod(0o755)
    command = ["make", "--no-print-directory", "gpu", f"PYTHON={stand_in}", "OUT=a b"]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["tests a b", "operators a b", "training a b"] and done.returncode != 0

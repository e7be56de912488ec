"""Everything that needs a GPU in one go: ``make gpu`` builds, tests, checks and measures, and prints a table last.

Offline, with Python >= 3.11, NumPy, pytest and a CUDA toolkit; packages that are missing may lie as wheels in a folder.
Each part runs in processes of its own under a limit of time; one that fails does not keep the next from running.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PYTHON = sys.executable

TF32 = ("--precision", "high")
SANITIZED = ("tests/engine/test_conv.py", "-k", "picked or accumulated or gradcheck")
PASSED, FAILED, LATE, SKIPPED = "passed", "FAILED", "LATE", "skipped"


@dataclass(frozen=True)
class Part:
    """One command: its name, its words, how many seconds it may take, and why it cannot run here, if so."""

    name: str
    command: Sequence[str]
    limit: float
    missing: str = ""


@dataclass(frozen=True)
class Outcome:
    """How a part ended."""

    name: str
    state: str
    seconds: float
    note: str = ""


# -- the parts -------------------------------------------------------------------------------------------------------


def parts(out: Path, engine: str) -> list[Part]:
    """What is run, in order."""
    against = "torch" if importlib.util.find_spec("torch") else "none"
    pytest = [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    many = ["-n", str(min(8, os.cpu_count() or 1))] if importlib.util.find_spec("xdist") else []
    no_pytest = "" if importlib.util.find_spec("pytest") else "pytest is not installed"
    # The registers of every kernel are checked where there is no GPU.
    tests = [*pytest, *many, "-m", "not slow", "tests/engine", "tests/cu32"]
    return [
        Part("build", [PYTHON, "-m", "cu32.build"], 90),
        *_training_parts(out, engine, against),
        Part("tests", tests, 150, no_pytest),
        *_operators_parts(out, engine, against),
        *_sanitizers(pytest, no_pytest),
    ]


def _sanitizers(pytest: Sequence[str], no_pytest: str) -> list[Part]:
    """compute-sanitizer's memory and race checks on picked convolutions, at some ten times a kernel's own time."""
    command = shutil.which("compute-sanitizer") or _beside_toolkit("compute-sanitizer")
    missing = no_pytest or ("" if command else "compute-sanitizer is not installed")
    options = ["--error-exitcode", "86", "--target-processes", "all", "--print-limit", "5"]
    return [
        Part(tool, [command or "", "--tool", tool, *options, *pytest, "-x", *SANITIZED], 60, missing)
        for tool in ("memcheck", "racecheck")
    ]


def _beside_toolkit(command: str) -> str | None:
    folders = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    return next((found for folder in folders if folder and (found := shutil.which(f"{folder}/bin/{command}"))), None)


def _training_parts(out: Path, engine: str, against: str) -> list[Part]:
    """Steps of ResNet18, in float32 and in TF32; the first also waits for PyTorch to be read from disk."""
    words = ("training", "--batch-size", "512", "--steps", "10", "--trial-steps", "0")
    ends = (out, engine, against)
    return [
        _benchmark("training", words, 100, *ends),
        _benchmark("training graph", (*words, "--graph"), 40, *ends),
        _benchmark("training tf32 graph", (*words, *TF32, "--graph"), 40, *ends),
    ]


def _operators_parts(out: Path, engine: str, against: str) -> list[Part]:
    """The paper's operators and ResNet18's, in float32 and in TF32; products of a matrix and a vector."""
    words = ("operators", "--repeats", "5", "--graph", "--suite")
    ends = (out, engine, against)
    return [
        _benchmark("paper", (*words, "paper", "--gflop", "20"), 100, *ends),
        _benchmark("resnet18", (*words, "resnet18", "--batch-size", "512"), 40, *ends),
        _benchmark("resnet18 tf32", (*words, "resnet18", "--batch-size", "512", *TF32), 40, *ends),
        _benchmark("matvec", (*words, "matvec"), 60, *ends),
    ]


def _benchmark(name: str, words: Sequence[str], limit: float, out: Path, engine: str, against: str) -> Part:
    ends = ("--engine", engine, "--against", against, "--json", str(_json(out, name)))
    return Part(name, [PYTHON, "-m", f"benchmarks.{words[0]}", *words[1:], *ends], limit)


def _json(out: Path, name: str) -> Path:
    return out / f"{name.replace(' ', '-')}.json"


# -- running ---------------------------------------------------------------------------------------------------------


def install(wheels: Path, target: Path) -> None:
    """Puts a folder's wheels where ``environment`` lets Python find them; CalledProcessError where pip cannot."""
    files = [str(file) for file in sorted(wheels.glob("*.whl"))]
    if not files:
        raise FileNotFoundError(f"no wheels in {wheels}")
    pip = [PYTHON, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--upgrade"]
    subprocess.run([*pip, "--target", str(target), *files], check=True)


def environment(packages: Path, engine: str) -> dict[str, str]:
    """This process's, with the wheels' packages, and the tests told to use the GPU."""
    paths = [str(packages), *([os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else [])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        "ALPHA_TEST_ENGINES": engine,
        "ALPHA_TEST_DRIVER": "real",
    }


def run(part: Part, log: Path, env: Mapping[str, str], seconds: float) -> Outcome:
    """Runs a part into its log, and ends it with all its processes when its time is over."""
    if part.missing or seconds < 1:
        return Outcome(part.name, SKIPPED, 0.0, part.missing or "no time was left")
    start = time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        print("$", shlex.join(part.command), file=file, flush=True)
        process = subprocess.Popen(
            part.command, cwd=ROOT, env=dict(env), stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(min(part.limit, seconds))
            state = PASSED if status == 0 else FAILED
        except subprocess.TimeoutExpired:
            state = LATE
        finally:
            if process.poll() is None:  # late, or interrupted
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    note = "" if state == PASSED else f"limit {min(part.limit, seconds):.0f} s" if state == LATE else f"status {status}"
    return Outcome(part.name, state, time.monotonic() - start, note)


# -- the report ------------------------------------------------------------------------------------------------------


def _ahead(rows: Sequence[Mapping[str, Any]], operator: str, least_share: float = 0.0) -> str:
    """``deconv ahead in 16 of 16``: of the rows whose padding adds at least such a share to the useful work."""
    found = [
        row["ratio"]
        for row in rows
        if row["operator"] == operator
        and row["ratio"] is not None
        and row["nominal_gflop"] > least_share * row["useful_gflop"]
    ]
    where = f" with padding's share > {least_share}" if least_share else ""
    return f"{operator} ahead in {sum(ratio > 1 for ratio in found)} of {len(found)}{where}" if found else ""


def _operators(result: Mapping[str, Any]) -> str:
    rows, means = result["rows"], result["geometric_mean"]
    if not means:
        return f"{max(row['useful_gflops'] for row in rows) / 1e3:.1f} useful TFLOP/s at most"
    ahead = [_ahead(rows, "deconv"), _ahead(rows, "conv", 1.25), _ahead(rows, "dilated", 1.25)]
    mean = ", ".join(f"{name} {value:.2f}" for name, value in means.items())
    return f"ratio {mean}; {'; '.join(filter(None, ahead))}"


def _matvec(result: Mapping[str, Any]) -> str:
    fastest = f"{max(row['gb_per_s'] for row in result['rows']):.0f} GB/s at most"
    means = result["geometric_mean"]
    return fastest + (f", ratio {', '.join(f'{name} {value:.2f}' for name, value in means.items())}" if means else "")


def _training(result: Mapping[str, Any]) -> str:
    ours = f"{1e3 * result['alpha_s']:.2f} ms a step, {result['alpha_peak_mib']:.0f} MiB"
    if result["ratio"] is None:
        return ours
    return (
        f"{ours}; PyTorch {1e3 * result['torch_s']:.2f} ms, {result['torch_peak_mib']:.0f} MiB: {result['ratio']:.2f} "
        f"times as fast, {result['alpha_peak_mib'] / result['torch_peak_mib']:.2f} of the memory"
    )


def figures(out: Path, name: str) -> str:
    """A benchmark's figures in a few words, from the file it wrote; empty where it wrote none."""
    try:
        result = json.loads(_json(out, name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    if "alpha_s" in result:
        return _training(result)
    return _matvec(result) if "bandwidths_gb_per_s" in result else _operators(result)


def table(outcomes: Sequence[Outcome], out: Path) -> str:
    """A line for each part."""
    width = max(len(outcome.name) for outcome in outcomes)
    lines = []
    for outcome in outcomes:
        said = "; ".join(filter(None, (outcome.note, figures(out, outcome.name))))
        lines.append(f"{outcome.name:<{width}}  {outcome.state:<7}  {outcome.seconds:6.1f} s  {said}".rstrip())
    return "\n".join(lines) + "\n"


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


# -- the command -----------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; exit status 1 where a part failed or took too long."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), metavar="DIR", help="for results (%(default)s)")
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="install these packages first, beside the others")
    parser.add_argument("--engine", default="cu32", help="cu32 or cu32:N (%(default)s)")
    parser.add_argument("--minutes", type=float, default=8.0, metavar="N", help="for all of it (%(default)s)")
    parser.add_argument("--only", metavar="NAME[,NAME...]", help="only these parts")
    options = parser.parse_args(arguments)
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * options.minutes
    chosen = parts(out, options.engine)
    if options.only is not None:
        names = options.only.split(",")
        unknown = set(names) - {part.name for part in chosen}
        if unknown:
            parser.error(f"expected parts of {', '.join(part.name for part in chosen)}, got {', '.join(unknown)}")
        chosen = [part for part in chosen if part.name in names]
    packages = ROOT / "build" / "gpu"
    if options.wheels is not None:
        try:
            install(options.wheels, packages)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"make gpu: expected wheels that can be installed in {options.wheels}: {error}", file=sys.stderr)
            return 1
    env = environment(packages, options.engine)
    outcomes = []
    for part in chosen:
        log = out / f"{part.name.replace(' ', '-')}.txt"
        outcome = run(part, log, env, end - time.monotonic())
        outcomes.append(outcome)
        print(f"{outcome.name}: {outcome.state} {outcome.note}", flush=True)
        if outcome.state in (FAILED, LATE):
            print(_tail(log), flush=True)
    text = table(outcomes, out)
    (out / "summary.txt").write_text(text, encoding="utf-8")
    print(f"\n{text}logs and results are in {out}")
    return int(any(outcome.state in (FAILED, LATE) for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())

"""The figures that the cost models rank by: measured, kept by processor and path, shipped, refused, and told of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest

import alpha
from alpha import cache
from alpha.autograd import is_inference
from alpha.conv.problem import FORWARD
from alpha.cpu import calibrate, explain, explanations, figures, fitting, planner
from alpha.cpu.calibrate import LAYERS, Layer
from alpha.cpu.conv.problem import Problem, dense_problem, flattened
from alpha.cpu.engine import CPUEngine
from alpha.cpu.figures import PLAUSIBLE, Figures, Processor
from alpha.cpu.fitting import Sample
from alpha.cpu.isa import ISA, PATHS
from alpha.errors import ArgumentError, EngineError
from alpha.geometry import Geometry

HERE = Processor("znver9", "A processor of these tests")
LAYER = dense_problem(FORWARD, Geometry.make((16, 16), (3, 3), padding=(1, 1)), 64, 64, 64, 1)
SHIPPED = json.loads(figures.SHIPPED.read_bytes())


def forget() -> None:
    """As at the start of a process."""
    figures.known.cache_clear()
    planner.forget()


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Files of these tests alone, on a processor that nobody has measured."""
    monkeypatch.setenv("ALPHA_CACHE", str(tmp_path))
    monkeypatch.setattr(figures, "processor", lambda: HERE)
    forget()
    yield tmp_path
    monkeypatch.undo()
    forget()


@pytest.fixture
def some() -> Figures:
    """Plausible, and no processor's of the package: transforms that take so long that none repays."""
    return replace(figures.shipped("znver4", ISA.name).figures, transform_cycles_per_operation=40.0)


# -- what is kept and shipped ----------------------------------------------------------------------------------------


def test_what_is_kept_is_taken(some: Figures, folder: Path) -> None:
    assert planner.choose(LAYER).name.startswith("winograd")
    file = figures.keep(HERE, ISA.name, some, date="today")
    assert file.parent == folder / figures.KIND and "znver9" in file.name
    content = json.loads(cache.read(file))
    assert (content["core"], content["model"], content["path"], content["date"]) == (*HERE, ISA.name, "today")
    assert not figures.known().matches  # a process keeps to what it has begun with
    forget()
    assert figures.known() == (some, HERE.core, file, True)
    assert not planner.choose(LAYER).name.startswith("winograd")


def test_each_path_and_processor_has_its_own(some: Figures) -> None:
    others = [path.name for path in PATHS if path.name != ISA.name]
    assert len({figures.name_of(here, path) for here in (HERE, Processor("znver9", "B")) for path in others}) == 4
    figures.keep(HERE, others[0], some)
    figures.keep(Processor("znver9", "B"), ISA.name, some)
    assert figures.known().path == figures.SHIPPED


@pytest.mark.parametrize("how", ["cut", "changed", "another's", "implausible", "incomplete", "no JSON", "a folder"])
def test_a_broken_file_is_told_of_once(how: str, some: Figures) -> None:
    file = figures.keep(HERE, ISA.name, some)
    content = json.loads(cache.read(file))
    if how == "cut":
        file.write_bytes(file.read_bytes()[:100])
    elif how == "changed":
        file.write_bytes(file.read_bytes().replace(b"znver9", b"znver8"))
    elif how == "a folder":
        file.unlink()
        file.mkdir()
    else:
        if how == "another's":
            content["model"] = "another"
        elif how == "implausible":
            content["figures"]["tile_cycles"] = 0
        elif how == "incomplete":
            del content["figures"]["tile_cycles"]
        text = b"{" if how == "no JSON" else json.dumps(content).encode()
        cache.write_atomically(file, cache.sealed(file.name, text))
    with pytest.warns(RuntimeWarning, match=r"\[figures\] expected the figures of A processor .*alpha.cpu.calibrate"):
        found = figures.known()
    assert found.path == figures.SHIPPED
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert figures.known() is found
        planner.choose(LAYER)


def test_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, some: Figures) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ALPHA_CACHE", str(tmp_path / "file"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert figures.known().path == figures.SHIPPED
    forget()
    with pytest.raises(OSError):
        figures.keep(HERE, ISA.name, some)


def test_what_the_package_ships() -> None:
    for core, paths in SHIPPED.items():
        for path, content in paths.items():
            assert content.keys() == {field.name for field in fields(Figures)} == PLAUSIBLE.keys()
            assert figures.shipped(core, path) == (Figures(**content), core, figures.SHIPPED, True)
    assert {path.name for path in PATHS} == SHIPPED["znver4"].keys()


def test_the_nearest_processor_stands_in() -> None:
    assert figures.shipped("znver9", "avx512")[1:] == ("znver5", figures.SHIPPED, False)
    assert figures.shipped("znver3", "avx2").core == "znver4"
    for core in ("sapphirerapids", "", "cortex-a76", "123"):
        for path in PATHS:
            first = next(name for name, paths in SHIPPED.items() if path.name in paths)
            assert figures.shipped(core, path.name)[1::2] == (first, False)


def test_explain_says_whose_figures_it_has(cpu: CPUEngine, some: Figures, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explanations, "seconds_per_cycle", lambda engine: 1e-9)  # no kernel is in this test's cache

    def told() -> str:
        return str(explain(cpu, "forward", (2, 8, 8, 16), (16, 3, 3, 16), padding=1))

    note = (
        f"note: no figures of this processor (A processor of these tests, znver9) on its {ISA.name} path: those of zn"
    )
    assert note in told() and figures.COMMAND in told()
    figures.keep(HERE, ISA.name, some)
    forget()
    assert "note" not in told()


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), "40", None, True])
def test_no_processor_has_such_figures(value: Any, some: Figures) -> None:
    with pytest.raises(ArgumentError, match=r"\[figures\] expected tile_cycles .* measure again"):
        figures.keep(HERE, ISA.name, replace(some, tile_cycles=value))


def test_import_reads_no_figures(tmp_path: Path) -> None:
    code = "import sys, alpha; alpha.engine('cpu'); sys.exit('alpha.cpu.figures' in sys.modules and " + (
        "sys.modules['alpha.cpu.figures'].known.cache_info().currsize)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "ALPHA_CACHE": str(tmp_path)})


# -- measuring -------------------------------------------------------------------------------------------------------


def samples_by(truth: Figures, layers: tuple[Layer, ...] = LAYERS) -> list[Sample]:
    """What a processor of these figures would take."""
    cases = [(flattened(case.problem), case.packs) for layer in layers for case in layer.cases()]
    return [
        Sample(algorithm, problem, packs, algorithm.cycles(problem, packs, truth))
        for problem, packs in cases
        for algorithm in planner.candidates(problem)
    ]


TRUTH = {
    "fmas_per_cycle": 0.7,
    "outer_fmas_per_cycle": 1.1,
    "tile_cycles": 90.0,
    "pack_cycles_per_number": 3.0,
    "transform_cycles_per_operation": 1.5,
    "dram_bytes_per_cycle": 2.0,
}


def test_the_fit_finds_the_figures_behind_the_times() -> None:
    start = figures.shipped("znver5", "avx512").figures
    truth = replace(start, **TRUTH)
    samples = samples_by(truth)
    found = fitting.fit(samples, start)
    assert abs(fitting.errors(samples, found)).max() < 0.03
    for name, value in TRUTH.items():
        assert getattr(found, name) == pytest.approx(value, rel=0.1), name
    assert found == fitting.fit(samples, start)
    wrong = samples[3]._replace(cycles=samples[3].cycles * 20)  # another program took the core
    assert abs(fitting.errors(samples, fitting.fit([*samples[:3], wrong, *samples[4:]], start))).max() < 0.1


class Clock:
    """A processor of given figures, at 2 GHz: calls take what the models say by them, with some noise."""

    def __init__(self, truth: Figures, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.calls, self._truth = 0.0, 0, truth
        monkeypatch.setattr(explanations, "call_of", self._call_of)
        monkeypatch.setattr(calibrate, "seconds_per_cycle", lambda clock, tries=0: 0.5e-9)
        monkeypatch.setattr(calibrate, "clock", lambda: self)

    def __call__(self) -> float:
        return self.now

    def _call_of(self, engine: CPUEngine, problem: Problem) -> Any:
        result = alpha.zeros(1)

        def call() -> alpha.Tensor:
            self.calls += 1
            packs = not is_inference()
            cycles = planner.choose(problem).cycles(flattened(problem), packs, self._truth)
            self.now += 0.5e-9 * cycles * (1 + self.calls % 3)  # two calls of three are disturbed
            return result

        return call


def test_measured_on_a_clock_of_known_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    start = figures.shipped("znver5", "avx512").figures
    clock = Clock(replace(start, **TRUTH), monkeypatch)
    layers = (*LAYERS[:4], LAYERS[-1])
    found, error = calibrate.measured(start, layers)
    assert error < 0.02 and found.fmas_per_cycle == pytest.approx(0.7, rel=0.1)
    calls = clock.calls
    calibrate.measured(start, layers, seconds=0.0)  # what takes too long is visited once
    assert clock.calls - calls < calls / 2


def test_times_that_fit_no_processor_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    start = figures.shipped("znver5", "avx512").figures
    monkeypatch.setattr(calibrate, "seconds_per_cycle", lambda clock, tries=0: 0.5e-9)
    noise = [sample._replace(cycles=10.0 ** (5 + i % 4)) for i, sample in enumerate(samples_by(start, LAYERS[:3]))]
    monkeypatch.setattr(calibrate, "measure", lambda *_: noise)
    with pytest.raises((EngineError, ArgumentError), match="less else runs on this machine"):
        calibrate.measured(start)


@pytest.mark.slow
def test_a_short_run_gives_plausible_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # of this very processor, whose kernels are in its cache
    layers = (Layer(8, 16, 16, 3, 1, 1, 16), Layer(8, 3, 16, 3, 1, 1, 8))
    seconds = calibrate.seconds_per_cycle(calibrate.clock(), tries=5)
    assert 0.1e-9 < seconds < 3e-9
    samples = calibrate.measure(layers, calibrate.clock(), rounds=2, turns=2, seconds=5.0)
    assert len({sample.problem for sample in samples}) == 6
    for sample in samples:  # at most 16 vectors of 16 numbers per cycle, and 1 / 200 of one
        assert sample.problem.macs / 256 < sample.cycles < 200 * sample.problem.macs + 1e6
    fitting.fit(samples, figures.shipped("znver4", ISA.name).figures).check()
    assert 0 < calibrate.launch_cycles(seconds, tries=20) < 1e8


def test_sizes_of_the_caches(tmp_path: Path) -> None:
    for number, (level, size) in enumerate([("1", "32K"), ("2", "512K"), ("3", "16384K"), ("4", "no size")]):
        (tmp_path / f"index{number}").mkdir()
        (tmp_path / f"index{number}" / "level").write_text(f"{level}\n")
        (tmp_path / f"index{number}" / "size").write_text(f"{size}\n")
    assert calibrate.cache_sizes(tmp_path) == {"l2_bytes": 512 << 10, "l3_bytes": 6 << 20}
    assert calibrate.cache_sizes(tmp_path / "none") == {}


# -- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def stubbed(monkeypatch: pytest.MonkeyPatch, some: Figures) -> Figures:
    """What the command measures."""
    monkeypatch.setattr(calibrate, "measured", lambda start: (some, 0.03))
    return some


def command(monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    """Its exit status."""
    monkeypatch.setattr(sys, "argv", ["calibrate", *options])
    return calibrate.run()


def test_the_command_keeps_and_tells(
    monkeypatch: pytest.MonkeyPatch, stubbed: Figures, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch) == 0
    printed = capsys.readouterr().out
    forget()
    found = figures.known()
    assert found.figures == stubbed and found.matches and str(found.path) in printed
    assert (
        all(field.name in printed for field in fields(Figures)) and "within 3%" in printed and "old (znver" in printed
    )
    assert command(monkeypatch) == 0
    assert "old (znver" not in capsys.readouterr().out


def test_a_dry_run_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch, stubbed: Figures, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, "--dry-run") == 0
    assert "Nothing was kept" in capsys.readouterr().out and not list(folder.rglob("*.json"))


def test_shipping(monkeypatch: pytest.MonkeyPatch, stubbed: Figures, folder: Path) -> None:
    package = folder / "figures.json"
    package.write_text(json.dumps(SHIPPED))
    monkeypatch.setattr(figures, "SHIPPED", package)
    assert command(monkeypatch, "--ship") == 0
    content = json.loads(package.read_bytes())
    assert {core: content[core] for core in SHIPPED} == SHIPPED
    assert content["znver9"][ISA.name] == pytest.approx(asdict(stubbed), rel=1e-2)
    assert figures.shipped("znver9", ISA.name).matches


def test_a_folder_that_cannot_be_written_to(
    monkeypatch: pytest.MonkeyPatch, stubbed: Figures, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ALPHA_CACHE", str(tmp_path / "file"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert command(monkeypatch) == 1
    assert "[calibrate] expected a folder to keep figures in" in capsys.readouterr().err


def test_bad_options(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command(monkeypatch, "--fast")
    assert "--help lists the options" in capsys.readouterr().err

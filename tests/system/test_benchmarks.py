"""The benchmarks at a tiny size: what they write holds together, bad input is told in one line; no speed asserted."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import alpha
from alpha.errors import EngineError, NumericsError
from benchmarks import common, deeplab, function_cases, functions, operators, training
from benchmarks.fma_peak import fma_peak
from benchmarks.suites import SUITES, Layer, equal_batch
from benchmarks.workers import Worker
from tests.system.scripts import device_environment

AGAINST = "torch" if importlib.util.find_spec("torch") else "none"
needs_torch = pytest.mark.skipif(AGAINST == "none", reason="PyTorch is not installed")
Result = dict[str, Any]


def run(module: str, file: Path, *arguments: str) -> tuple[Result, str]:
    """Runs a benchmark as a user does; what it wrote and what it printed."""
    # One thread: on a busy machine two would wait for each other.
    command = [sys.executable, "-m", module, "--json", str(file), "--threads", "1", *arguments]
    done = subprocess.run(command, cwd=common.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text()), done.stdout


def check_head(result: Result, module: str) -> None:
    assert result["command"].startswith(f"python -m {module} --json ")
    assert {"cpu", "cores", "instruction_path", "caches", "memory_gib"} <= set(result["machine"])
    assert {"python", "numpy", "numba", "dragon-alpha"} <= set(result["versions"])
    assert ("torch" in result["versions"]) == (AGAINST == "torch")
    assert result["settings"]["threads"] == 1 and result["settings"]["engine"] == "cpu"


# -- training --------------------------------------------------------------------------------------------------------

TINY = ("--batch-size", "4", "--base-width", "8", "--steps", "2", "--warmup", "1", "--trial-steps", "0")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, str]:
    file = tmp_path_factory.mktemp("training") / "result.json"
    return run("benchmarks.training", file, "--model", "resnet18", "--against", AGAINST, *TINY)


def test_training_describes_itself(trained: tuple[Result, str]) -> None:
    check_head(trained[0], "benchmarks.training")


def test_training_times_are_medians_without_the_warmup(trained: tuple[Result, str]) -> None:
    alpha = trained[0]["contestants"]["alpha"]
    assert len(alpha["seconds"]) == len(alpha["page_faults"]) == 3
    assert trained[0]["alpha_s"] == statistics.median(alpha["seconds"][1:]) > 0
    assert trained[0]["alpha_peak_mib"] > 0


@needs_torch
def test_training_compares_with_the_faster_layout(trained: tuple[Result, str]) -> None:
    result, printed = trained
    layouts = {name: one for name, one in result["contestants"].items() if name != "alpha"}
    assert set(layouts) == {"torch contiguous", "torch channels_last"}
    assert result["torch_s"] == min(one["median_s"] for one in layouts.values())
    assert result["torch_s"] == layouts[f"torch {result['torch_layout']}"]["median_s"]
    assert result["ratio"] == result["torch_s"] / result["alpha_s"]
    assert result["torch_peak_mib"] >= result["torch_least_peak_mib"] > 0
    assert f"alpha is {result['ratio']:.2f} times as fast" in printed


@needs_torch
def test_training_starts_both_sides_from_the_same_weights(trained: tuple[Result, str]) -> None:
    alpha, torch = trained[0]["alpha_losses"], trained[0]["torch_losses"]
    assert len(alpha) == len(torch) == 3
    # The first loss differs by float32's rounding alone; the others after as many steps of Adam, which divides by
    # gradients that may be tiny.
    assert alpha[0] == pytest.approx(torch[0], abs=1e-5)
    assert alpha == pytest.approx(torch, abs=0.05)
    assert alpha[2] < alpha[0]


def test_training_in_the_form_of_ilsvrc2012(tmp_path: Path) -> None:
    form = ("--model", "vgg16", "--head", "ilsvrc2012", "--against", AGAINST)
    result, _ = run("benchmarks.training", tmp_path / "r.json", *form, *TINY, "--base-width", "1", "--warmup", "0")
    assert result["settings"]["image"] == [128, 128, 3] and result["settings"]["classes"] == 1000
    assert result["alpha_losses"][0] == pytest.approx(math.log(1000), abs=0.5)
    if AGAINST == "torch":
        assert result["alpha_losses"][0] == pytest.approx(result["torch_losses"][0], abs=1e-5)


def test_training_of_torchvisions_networks(tmp_path: Path) -> None:
    form = ("--model", "mobilenet_v2", "--against", AGAINST, "--steps", "1", "--trial-steps", "0")
    options = ("--size", "64", "--batch-size", "8", "--warmup", "0")
    result, _ = run("benchmarks.training", tmp_path / "r.json", *form, *options)
    assert result["settings"]["image"] == [64, 64, 3] and result["settings"]["classes"] == 1000
    assert result["alpha_losses"][0] == pytest.approx(math.log(1000), abs=0.5)
    if AGAINST == "torch":
        assert result["alpha_losses"][0] == pytest.approx(result["torch_losses"][0], abs=1e-4)


def test_training_of_ours_alone_in_float64(tmp_path: Path) -> None:
    result, _ = run(
        "benchmarks.training", tmp_path / "r.json", "--against", "none", *TINY, "--model", "vgg16", "--dtype", "float64"
    )
    assert result["torch_s"] is result["ratio"] is result["torch_losses"] is result["torch_peak_mib"] is None
    assert list(result["contestants"]) == ["alpha"]
    assert all(math.isfinite(loss) for loss in result["alpha_losses"])


@needs_torch
def test_trials_choose_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    class Timed:
        """A worker whose steps take what its allocator says."""

        def __init__(self, choice: dict[str, Any]) -> None:
            self.seconds = 1.0 if choice["allocator"] == "kept" else 2.0

        def __enter__(self) -> Timed:
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def turn(self, method: str, **_: Any) -> Any:
            forms = {"fused True": 3.0, "fused False": 4.0, "foreach True": 2.0, "foreach False": 5.0}
            return forms if method == "compare_updates" else {"seconds": self.seconds}

        def call(self, method: str) -> Any:
            return {"process_mib": 100.0 * self.seconds}

    monkeypatch.setattr(training, "_torch", lambda setup, model, weights, layout, choice: Timed(choice))
    choices = training._choose(common.Setup("cpu", 1), None, Path("w.npz"), 3)  # type: ignore[arg-type]
    assert set(choices) == {"contiguous", "channels_last"}
    for choice in choices.values():
        assert (choice["allocator"], choice["adam"], choice["set_to_none"]) == ("kept", "foreach", True)
        assert choice["trial_peak_mib"] == {"default": 200.0, "kept": 100.0, "kept, huge pages": 200.0}


def test_a_loss_that_is_not_finite_is_named() -> None:
    series = training.Series()
    series.add("alpha", {"seconds": 1.0, "loss": 2.0, "page_faults": 0})
    with pytest.raises(NumericsError, match=r"got nan from alpha at step 1"):
        series.add("alpha", {"seconds": 1.0, "loss": math.nan, "page_faults": 0})


def test_different_networks_are_not_compared() -> None:
    series = {"alpha": training.Series(losses=[2.3]), "torch contiguous": training.Series(losses=[2.4])}
    with pytest.raises(NumericsError, match="equal first losses"):
        training._check_same(series)


# -- operators -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, str]:
    file = tmp_path_factory.mktemp("operators") / "result.json"
    tiny = ("--batch-size", "2,3", "--layers", "stem,64-128", "--repeats", "2")
    return run("benchmarks.operators", file, "--suite", "resnet18", "--against", AGAINST, *tiny)


def test_operators_describe_themselves(operated: tuple[Result, str]) -> None:
    check_head(operated[0], "benchmarks.operators")


def test_operators_write_a_row_for_each_problem(operated: tuple[Result, str]) -> None:
    rows = operated[0]["rows"]
    found = {(row["operator"], row["layer"], row["batch"]) for row in rows}
    wanted = {(o, n, b) for o in ("conv", "deconv", "dilated") for n in ("stem", "64-128") for b in (2, 3)}
    assert found == wanted and len(rows) == 12
    directions = {(row["operator"], row["direction"]) for row in rows}
    assert directions == {("conv", "forward"), ("deconv", "input gradient"), ("dilated", "weight gradient")}


def test_operators_rows_hold_together(operated: tuple[Result, str]) -> None:
    result = operated[0]
    for row in result["rows"]:
        assert 0 < row["useful_gflop"] <= row["nominal_gflop"]
        assert row["alpha_ms"] == statistics.median(row["times_ms"]["alpha"])
        assert row["useful_gflops"] == pytest.approx(row["useful_gflop"] / (row["alpha_ms"] * 1e-3))
        assert row["peak_share"] == pytest.approx(row["useful_gflops"] / result["fma_peak_gflops"])
        assert 0 < row["peak_share"] < 2  # beyond 1 by noise at most


@needs_torch
def test_operators_compare_with_pytorch_at_its_best(operated: tuple[Result, str]) -> None:
    result, printed = operated
    for row in result["rows"]:
        others = {name: statistics.median(times) for name, times in row["times_ms"].items() if name != "alpha"}
        assert len(others) == 4  # two layouts, two allocators
        assert row["torch_ms"] == min(others.values()) == others[row["torch_settings"]]
        assert row["ratio"] == row["torch_ms"] / row["alpha_ms"]
        assert row["difference"] < 1e-4  # of float32 sums of a few thousand terms
    assert result["lowest_ratio"] == min(row["ratio"] for row in result["rows"])
    assert result["geometric_mean"]["all"] == pytest.approx(
        math.exp(statistics.mean(math.log(row["ratio"]) for row in result["rows"]))
    )
    assert f"all {result['geometric_mean']['all']:.2f}" in printed


def test_the_suite_is_the_papers_network() -> None:
    layers = SUITES["resnet18"]
    assert len({(x.size, x.in_channels, x.out_channels, x.filter, x.stride, x.padding) for x in layers}) == 8
    shapes = [(layer.shape["input"], layer.shape["output"]) for layer in layers]
    assert shapes[0] == ([32, 32, 3], [16, 16, 64]) and shapes[-1] == ([2, 2, 512], [2, 2, 512])
    for before, after in itertools.pairwise(shapes):
        assert before[1] == after[0] or before[0] == after[0]  # each follows the one before or takes the same input


def test_useful_and_nominal_work_by_hand() -> None:
    # 2x2 images, 3x3 filter, padding 1: each of 4 positions has 9 taps, of which 4 lie inside.
    layer = Layer("x", 2, 5, 7, 3, 1, 1)
    assert layer.nominal_gflop(3) == pytest.approx(2e-9 * 4 * 9 * 3 * 5 * 7)
    assert layer.useful_gflop(3) == pytest.approx(2e-9 * 4 * 4 * 3 * 5 * 7)


def test_the_papers_suite_has_equal_work() -> None:
    layers = SUITES["paper"]
    assert len(layers) == 32 and len({layer.name for layer in layers}) == 32
    for layer in layers:
        (out, _), (filter_size, _) = layer.geometry.output, layer.geometry.filter
        assert out in (128, 64, 32, 24, 16, 8, 4, 2) and (filter_size, layer.padding) in ((3, 1), (5, 2))
        assert layer.geometry.input == (out * layer.stride, out * layer.stride)
        assert layer.operators == (("conv",) if layer.stride == 1 else ("deconv", "dilated"))
        # The smallest batch, of 24, is rounded to a multiple of 8: by 4 of 24 at most.
        assert layer.nominal_gflop(equal_batch(layer, 77.3)) == pytest.approx(77.3, rel=4 / 24)
    assert equal_batch(layers[0], 77.3) == 64 and equal_batch(layers[0], 1e-3) == 1


def test_results_that_differ_are_refused(tmp_path: Path) -> None:
    import numpy as np

    class Saving:
        """A worker that writes a constant."""

        def __init__(self, value: float) -> None:
            self.value = value

        def call(self, method: str, operator: str, path: str) -> None:
            np.save(path, np.full((2, 2), self.value, np.float32))

    layer = SUITES["resnet18"][0]
    assert operators._compare("conv", layer, {"alpha": Saving(1), "a": Saving(1.0001)}, tmp_path) < 1e-3  # type: ignore
    with pytest.raises(NumericsError, match="equal results of conv on layer stem"):
        operators._compare("conv", layer, {"alpha": Saving(1), "a": Saving(1.1)}, tmp_path)  # type: ignore
    with pytest.raises(NumericsError, match="equal results"):
        operators._compare("conv", layer, {"alpha": Saving(math.nan), "a": Saving(1)}, tmp_path)  # type: ignore


def test_the_sweep_judges_neighbours(tmp_path: Path) -> None:
    result, printed = run(
        "benchmarks.operators", tmp_path / "r.json", "--suite", "sweep", "--axes", "stride", "--repeats", "1"
    )
    assert result["settings"]["against"] == "none" and result["pairs"] == 18
    assert len(result["lines"]) == 3 and all(line["values"] == [1, 2, 3] for line in result["lines"])
    assert len(result["rows"]) == 3 * (3 * 3 + 1)
    for row in result["rows"]:
        assert row["bound_ms"] > 0 and row["bound_share"] == row["bound_ms"] / row["alpha_ms"]
        assert ":" in row["algorithm"]
    assert [pair["ratio"] for pair in result["cliffs"]] == sorted((p["ratio"] for p in result["cliffs"]), reverse=True)
    assert f"{result['cliff_count']} of 18 pairs of neighbours differ" in printed


# -- inference -------------------------------------------------------------------------------------------------------

RUNTIME = importlib.util.find_spec("onnxruntime") is not None and importlib.util.find_spec("onnx") is not None
OPENVINO = importlib.util.find_spec("openvino") is not None and importlib.util.find_spec("onnx") is not None


def check_inference(result: Result, printed: str, opponent: str, names: int, largest: float = 1e-4) -> None:
    (row,) = result["rows"]
    others = {name: times for name, times in row["times_ms"].items() if name.startswith(opponent)}
    assert len(others) == names
    assert row[f"{opponent}_ms"] == min(statistics.median(times) for times in others.values())
    assert row[f"{opponent}_ratio"] == row[f"{opponent}_ms"] / row["alpha_ms"]
    assert row["alpha_ms"] == min(statistics.median(row["times_ms"][name]) for name in ("alpha", "alpha, captured"))
    assert set(row["differences"]) == set(others) and max(row["differences"].values()) < largest
    assert f"times as fast as {opponent}" in printed


SMALL = ("--suite", "inference", "--batch-size", "2", "--image-size", "32", "--repeats", "2")


@pytest.mark.skipif(not RUNTIME, reason="ONNX Runtime is not installed")
def test_inference_beside_onnx_runtime(tmp_path: Path) -> None:
    result, printed = run("benchmarks.operators", tmp_path / "r.json", *SMALL, "--against", "onnxruntime")
    check_inference(result, printed, "onnxruntime", 1)


@pytest.mark.skipif(not OPENVINO, reason="OpenVINO is not installed")
@pytest.mark.parametrize(("precision", "largest"), [("highest", 1e-4), ("bf16", 5e-2)])
def test_inference_beside_openvino(precision: str, largest: float, tmp_path: Path) -> None:
    arguments = (*SMALL, "--against", "openvino", "--precision", precision)
    result, printed = run("benchmarks.operators", tmp_path / "r.json", *arguments)
    check_inference(result, printed, "openvino", 1, largest)


@needs_torch
@pytest.mark.slow
def test_inference_beside_pytorch(tmp_path: Path) -> None:
    result, printed = run("benchmarks.operators", tmp_path / "r.json", *SMALL, "--against", "torch")
    check_inference(result, printed, "torch", 4 - len(result["failed"]))
    assert all("compiled" in name for name in result["failed"])  # that one needs a compiler


def test_what_does_not_go_with_a_suite_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (
            ["--suite", "sweep", "--batch-size", "1"],
            "expected --batch-size with --suite resnet18 or paper or depthwise or inference",
        ),
        (["--suite", "resnet18", "--axes", "map"], "expected --axes with --suite sweep, got suite resnet18"),
        (["--suite", "sweep", "--engine", "cu32"], "expected --engine cpu with --suite sweep"),
        (["--suite", "sweep", "--against", "all"], "expected --against torch or none with --suite sweep"),
        (["--suite", "sweep", "--against", "openvino"], "expected --against torch or none with --suite sweep"),
        (["--image-size", "64"], "expected --image-size with --suite inference"),
        (["--precision", "bf16"], "expected --precision bf16 with --suite inference, got suite resnet18"),
        (
            ["--suite", "inference", "--precision", "bf16", "--against", "onnxruntime"],
            "expected --against torch, openvino or none with --precision bf16, got onnxruntime",
        ),
    ):
        assert operators.main(arguments) == 1
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    for option in (("--style", "paper"), ("--stem", "3x3"), ("--head", "cifar10")):
        assert training.main(["--against", "none", "--model", "resnet18-3x3", *option]) == 1
        error = capsys.readouterr().err
        assert (
            f"expected no --style, --stem or --head with --model resnet18-3x3, which says all three, got {option[1]}"
            in error
        )
    for arguments, message in (
        (["--model", "resnet50", "--stem", "7x7"], "expected no --style, --stem, --head or --base-width with --model"),
        (["--size", "64"], "expected --size with one of resnet50, mobilenet_v2, efficientnet_b0, convnext_tiny, vit"),
    ):
        assert training.main(["--against", "none", *arguments]) == 1
        assert message in capsys.readouterr().err
    assert training.main(["--against", "none", "--style", "torchvision", "--head", "ilsvrc2012"]) == 1
    assert "expected --head with --style paper, got style torchvision" in capsys.readouterr().err


def test_without_onnx_runtime_the_error_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert operators.main(["--suite", "inference", "--against", "onnxruntime"]) == 1
    error = capsys.readouterr().err
    assert 'pip install "dragon-alpha[onnx]"' in error and error.count("\n") == 1


def test_the_fma_peak_is_that_of_a_processor() -> None:
    # From a scalar unit on a crowded machine to two 512-bit units at 6 GHz.
    assert 0.01 < fma_peak(1, tries=2) < 400


# -- what both share -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [training, operators])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--modle", "x"], "unrecognized arguments"),
        (["--engine", "cu33"], "expected cpu, cu32 or cu32:N, got 'cu33'"),
        (["--batch-size", "0"], "expected an integer >= 1, got '0'"),
        (["--threads", "two"], "expected an integer >= 1, got 'two'"),
    ],
)
def test_bad_options_are_one_line(
    module: Any, arguments: Sequence[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit:
        module.main(arguments)
    error = capsys.readouterr().err
    assert exit.value.code == 2 and message in error and error.count("\n") == 1


@pytest.mark.parametrize("module", [training, operators])
def test_an_unwritable_result_is_told_before_the_run(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "run", lambda args: pytest.fail("it ran"))
    (tmp_path / "file").write_text("")
    for bad in (tmp_path / "absent" / "r.json", tmp_path, tmp_path / "file" / "r.json"):
        assert module.main(["--against", "none", "--json", str(bad)]) == 1
        error = capsys.readouterr().err
        assert "expected --json to name a file that can be written" in error and error.count("\n") == 1
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("module", [training, operators])
def test_without_pytorch_the_error_says_how_to_get_it(
    module: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert module.main(["--against", "torch"]) == 1
    error = capsys.readouterr().err
    assert "pip install" in error and "--against none" in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("module", "option"),
    [(training, ["--precision", "high"]), (operators, ["--precision", "high"]), (operators, ["--graph"])],
)
def test_what_only_a_gpu_has_is_refused_elsewhere(
    module: Any, option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert module.main(["--against", "none", *option]) == 1
    error = capsys.readouterr().err
    assert f"expected {option[0]} with --engine cu32" in error and error.count("\n") == 1


def test_unknown_layers_and_misplaced_stems_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert operators.main(["--against", "none", "--layers", "stem,1024"]) == 1
    assert "got 1024" in capsys.readouterr().err
    assert training.main(["--against", "none", "--stem", "3x3"]) == 1
    assert "expected --stem with a ResNet of --style torchvision" in capsys.readouterr().err


def test_a_workers_error_arrives_as_one_of_ours() -> None:
    with pytest.raises(EngineError, match=r"\[engine\] expected \"cpu\""):
        Worker("benchmarks.operators_worker", "alpha", {"setup": {"engine": "abacus", "threads": 1}}, 1)


def test_results_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    common.write_json(file, {"a": 1})
    with pytest.raises(ValueError):
        common.write_json(file, {"a": math.nan})
    assert json.loads(file.read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["r.json"]


def test_results_have_a_row_a_line(tmp_path: Path) -> None:
    result = {"a": 1, "none": [], "rows": [{"x": [1, 2]}, {"x": []}], "settings": {"b": {"c": None}}}
    common.write_json(tmp_path / "r.json", result)
    text = (tmp_path / "r.json").read_text()
    assert json.loads(text) == result
    assert '  {"x": [1, 2]},\n  {"x": []}\n' in text


def test_spread_of_timings() -> None:
    assert common.spread([1.0]) == 1.0
    assert common.spread([1.0, 1.0, 1.0]) == 1.0
    assert common.spread([1.0, 2.0, 3.0, 4.0, 5.0]) == 2.0


def test_generators_beside_inserted_zeros(tmp_path: Path) -> None:
    """A row for each direction, whose figures agree with each other."""
    options = ("--suite", "huge2", "--layers", "cGAN DC2", "--batch-size", "1", "--repeats", "1", "--against", AGAINST)
    result, text = run("benchmarks.operators", tmp_path / "result.json", *options)
    check_head(result, "benchmarks.operators")
    forward, training = result["rows"]
    assert (forward["direction"], training["direction"]) == ("forward", "training")
    assert training["useful_gflop"] == 3 * forward["useful_gflop"] == pytest.approx(3 * 2e-9 * 62**2 * 128 * 3)
    for row in (forward, training):
        assert row["baseline_ratio"] == row["baseline_ms"] / row["alpha_ms"]
        assert 0 < row["bytes_share"] == row["alpha_bytes"] / row["baseline_bytes"] < 1
        assert row["difference"] < 1e-3
        assert row["baseline_mib"] is None or row["baseline_mib"] >= 0  # not every system tells
        assert (row["ratio"] is None) == (AGAINST == "none")
    assert "cGAN DC2" in text and "forward over baseline" in text


def test_one_launch_beside_separate_sub_kernels(tmp_path: Path) -> None:
    """Counts of elements and bytes by hand, and the memory that the sub-kernels' outputs take."""
    layers = ("--layers", "odd cGAN DC2,EB-GAN DC6")
    options = ("--suite", "segregation", *layers, "--batch-size", "2", "--repeats", "1", "--against", AGAINST)
    result, text = run("benchmarks.operators", tmp_path / "result.json", *options)
    check_head(result, "benchmarks.operators")
    odd, even = result["rows"]
    assert (odd["result"], odd["elements"], odd["extra_elements"]) == (31, 6 * 31**2, 6 * (32**2 - 31**2))
    assert (even["result"], even["elements"], even["extra_elements"]) == (256, 6 * 256**2, 0)
    for row in (odd, even):
        outputs = 4 * (row["elements"] + row["extra_elements"])
        assert (row["bytes"], row["separate_bytes"]) == (4 * row["elements"], outputs + 4 * row["elements"])
        assert 0 <= row["saved_mib"] - outputs / 2**20 <= 4 / 2**10  # the pool rounds each of four blocks up
        assert row["separate_ratio"] == row["separate_ms"] / row["alpha_ms"]
        assert row["difference"] < 1e-3
        assert (row["ratio"] is None) == (AGAINST == "none")
    assert result["saved"]["EB-GAN, batch 2"]["saved_mib"] == even["saved_mib"]
    assert "EB-GAN DC6" in text and "all layers of odd results, batch 2" in text


def test_heads_without_a_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where inserted zeros are too much work the row has none; ours alone then is no comparison."""
    monkeypatch.setattr(deeplab, "MOST_INSERTED_GFLOP", 0)
    file = tmp_path / "result.json"
    options = ["--suite", "deeplab", "--layers", "deeplab_small", "--batch-size", "1", "--repeats", "1"]
    assert operators.main([*options, "--against", "none", "--threads", "1", "--json", str(file)]) == 0
    result = json.loads(file.read_text())
    assert [row["inserted_ms"] for row in result["rows"]] == [None, None]
    assert all(list(row["times_ms"]) == ["alpha"] for row in result["rows"])
    assert result["geometric_mean"] == {} and result["lowest_ratio"] is None


def test_heads_beside_filters_with_zeros(tmp_path: Path) -> None:
    """A row for each direction, whose figures agree with each other."""
    options = ("--suite", "deeplab", "--layers", "deeplab_small", "--batch-size", "1", "--repeats", "1")
    result, text = run("benchmarks.operators", tmp_path / "result.json", *options, "--against", AGAINST)
    check_head(result, "benchmarks.operators")
    forward, training = result["rows"]
    assert (forward["direction"], training["direction"]) == ("forward", "training")
    for row in (forward, training):
        assert row["useful_gflop"] < row["nominal_gflop"] < row["inserted_gflop"]
        assert row["inserted_ratio"] == row["inserted_ms"] / row["alpha_ms"]
        assert 0 < row["difference"] < 1e-4
        assert (row["ratio"] is None) == (AGAINST == "none")
    assert "deeplab_small" in text and "training over inserted" in text


def test_matrix_and_vector(tmp_path: Path) -> None:
    """A row for each operation and shape; the best opponent's time makes the ratio."""
    options = ("--suite", "matvec", "--layers", "256x256,128x1024", "--repeats", "1", "--against", AGAINST)
    result, text = run("benchmarks.operators", tmp_path / "result.json", *options)
    check_head(result, "benchmarks.operators")
    assert [(row["operation"], row["shape"]) for row in result["rows"][:3]] == [
        ("gemv", [256, 256]), ("gemv", [128, 1024]), ("gemv, transposed", [256, 256]),
    ]  # fmt: skip
    assert len(result["rows"]) == 8
    for row in result["rows"]:
        rows, columns = row["shape"]
        assert row["bytes"] == 4 * ((1 if "gemv" in row["operation"] else 2) * rows * columns + rows + columns)
        assert row["gb_per_s"] == pytest.approx(1e-6 * row["bytes"] / row["alpha_ms"])
        assert set(row["opponents_ms"]) == ({"numpy", "torch"} if AGAINST == "torch" else {"numpy"})
        assert row["ratio"] == min(row["opponents_ms"].values()) / row["alpha_ms"]
        assert row["difference"] < 1e-4
    means = result["geometric_mean"]
    assert means["squares, ger"] == next(row["ratio"] for row in result["rows"] if row["operation"] == "ger")
    assert result["lowest_ratio"] == min(row["ratio"] for row in result["rows"])
    assert "128 x 1024" in text and "geometric mean: squares" in text


def test_what_is_timed_is_public() -> None:
    public = {*alpha.functions.__all__, *alpha.nn.functional.__all__}
    assert {one.function for one in function_cases.CASES} <= public
    names = [one.name for one in function_cases.CASES]
    assert len(set(names)) == len(names)


@needs_torch
def test_the_two_sides_of_a_function_give_the_same(tmp_path: Path) -> None:
    """Results and gradients of all cases at the smallest size; who times something else than its name says, falls."""
    setup = {"setup": {"engine": "cpu", "threads": 1}}
    with (
        Worker("benchmarks.functions_worker", "alpha", setup, 1) as ours,
        Worker("benchmarks.functions_worker", "torch", setup, 1) as theirs,
    ):
        for one in function_cases.CASES:
            workers = functions._prepared({"alpha": ours, "torch": theirs}, one, 32, seed=1)
            for direction in functions.DIRECTIONS[: 2 if one.gradients else 1]:
                difference = functions._compare(one, direction, workers, tmp_path)
                assert one.random or (difference is not None and difference < 1e-4), (one.name, direction)


def test_functions(tmp_path: Path) -> None:
    """A row for each case, direction and size; rows below 0.9 come first in the table."""
    options = ("--suite", "functions", "--only", "relu,reshape,isnan", "--sizes", "32,1000", "--repeats", "1")
    result, text = run("benchmarks.operators", tmp_path / "result.json", *options, "--against", AGAINST)
    check_head(result, "benchmarks.operators")
    found = {(row["case"], row["direction"], row["numbers"]) for row in result["rows"]}
    both = ("forward", "forward and backward")
    wanted = {("relu", direction, size) for direction in both for size in (32, 1000)}
    wanted |= {("isnan", "forward", size) for size in (32, 1000)}
    assert found == wanted | {("reshape", direction, 32) for direction in both}  # a view moves nothing: one size
    assert len(result["rows"]) == len(found)
    for row in result["rows"]:
        assert row["threads"] == 1 and row["alpha_ms"] > 0
        if AGAINST == "torch":
            assert row["ratio"] == row["torch_ms"] / row["alpha_ms"] and row["difference"] < 1e-5
    if AGAINST == "torch":
        small = [row["ratio"] for row in result["rows"] if row["numbers"] == 32]
        mean = math.exp(statistics.mean(map(math.log, small)))
        assert result["geometric_mean"]["32 numbers, 1 thread"] == pytest.approx(mean)
        ratios = [float(line[-1]) for line in functions.table(result)[1]]
        slow = [float(line[-1]) for line in functions.slow_table(result)[1]]
        assert slow == sorted(slow) == ratios[: len(slow)]
    assert "reshape" in text and "ratio: PyTorch's time over ours" in text


def test_functions_that_have_no_case_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert operators.main(["--suite", "functions", "--against", "none", "--only", "gelu,abacus"]) == 1
    error = capsys.readouterr().err
    assert "expected --only of functions that have a case, got abacus" in error and error.count("\n") == 1
    assert operators.main(["--suite", "matvec", "--sizes", "32"]) == 1
    assert "expected --sizes with --suite functions, got suite matvec" in capsys.readouterr().err


def test_generators_that_are_not_there_are_told(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.operators", "--suite", "huge2", "--layers", "DC9"],
        cwd=common.ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "expected --layers of suite huge2 (DCGAN DC1, " in done.stderr and "got DC9" in done.stderr


class Slow:
    """A contestant whose calls take what a list says, in seconds; its FMA peak is always the same."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self._seconds = itertools.cycle(seconds)

    def call(self, method: str, **options: Any) -> Any:
        return {}

    def turn(self, method: str, **options: Any) -> float:
        return next(self._seconds) if method == "time" else 100.0


def test_rows_that_others_disturb_are_measured_again_and_the_quietest_round_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sides' turns of that round: one side's best are never beside the other's worst."""
    monkeypatch.setattr(operators, "_compare", lambda *_: 0.0)
    args = operators.make_parser().parse_args(["--layers", "64", "--batch-size", "4", "--against", "torch"])
    operators._complete(args)
    args.repeats = 3
    ours, theirs = Slow((1, 3, 5, 2, 2, 4, 9, 9, 9)), Slow((9, 9, 9, 4, 4, 4, 4, 4, 4))
    workers: Any = {"alpha": ours, "torch": theirs, "other": Slow((99,))}
    table = operators._Table(args, common.setup(args), workers, {"torch": "", "other": ""}, tmp_path)
    problems = [(replace(SUITES["resnet18"][1], operators=("conv",)), 4)]
    monkeypatch.setattr(operators, "_problems", lambda _: problems)
    table.measure(problems)
    assert table.disturbed() == problems
    table.measure(table.disturbed())
    (row,) = table.result()["rows"]
    assert (row["alpha_ms"], row["torch_ms"], row["ratio"]) == (2000, 4000, 2)
    table.measure(table.disturbed())  # steady and slow: the round before was quieter
    assert table.result()["rows"][0]["times_ms"] == {
        "alpha": [2000, 2000, 4000], "torch": [4000] * 3, "other": [99000] * 3
    }  # fmt: skip


# -- on a GPU's engine: the test driver's, or a real one ---------------------------------------------------------------


def run_on_device(file: Path, module: str, *arguments: str) -> Result:
    command = [sys.executable, "-m", module, "--engine", "cu32", "--against", "none", "--json", str(file), *arguments]
    done = subprocess.run(
        command, cwd=common.ROOT, env=device_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    result: Result = json.loads(file.read_text())
    assert result["settings"]["engine"] == "cu32" and result["settings"]["clock"] == "events on the GPU"
    assert result["devices"]["alpha"]["multiprocessors"] >= 1
    return result


@pytest.mark.slow
def test_operators_on_a_gpu(tmp_path: Path) -> None:
    tiny = ("--suite", "resnet18", "--layers", "stem", "--batch-size", "1", "--repeats", "1")
    rows = run_on_device(tmp_path / "r.json", "benchmarks.operators", *tiny, "--graph")["rows"]
    assert [row["operator"] for row in rows] == ["conv", "deconv", "dilated"]
    assert all(row["alpha_ms"] > 0 and row["peak_share"] > 0 for row in rows)


@pytest.mark.slow
def test_training_on_a_gpu(tmp_path: Path) -> None:
    tiny = ("--model", "resnet18", "--batch-size", "2", "--base-width", "4", "--steps", "1", "--warmup", "1")
    result = run_on_device(tmp_path / "r.json", "benchmarks.training", *tiny, "--steps-per-turn", "1")
    alpha = result["contestants"]["alpha"]
    assert len(alpha["seconds"]) == 2 and result["alpha_s"] == alpha["seconds"][1] > 0
    assert result["alpha_peak_mib"] == alpha["peak"]["in_use_mib"] > 0
    assert result["alpha_driver_mib"] == alpha["peak"]["driver_mib"] > 0
    assert result["torch_peak_mib"] is result["torch_driver_mib"] is None

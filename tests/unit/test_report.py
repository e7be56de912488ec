"""The report: what is committed is what it makes of the committed results; each kind of result has its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from alpha.errors import ArgumentError
from benchmarks import kept, pictures, report, sweep
from benchmarks.kept import Report
from benchmarks.report import BEGIN, END
from benchmarks.suites import OPERATORS, SUITES
from benchmarks.variants import VARIANTS

HEAD = {
    "command": "python -m benchmarks.operators",
    "date": "2026-01-02T03:04:05+00:00",
    "machine": {
        "cpu": "Abacus",
        "cores": 2,
        "caches": {"L1 data": "32K"},
        "memory_gib": 1.5,
        "system": "Linux",
        "load_average": 0.1,
    },
    "versions": {"python": "3.11.7", "torch": "2.13.0"},
}


def test_the_documents_are_what_the_results_say() -> None:
    reports = report.read()
    assert (report.DOCS / "results.md").read_text(encoding="utf-8") == report.document(reports)
    text = report.README.read_text(encoding="utf-8")
    assert text == report.with_summary(text, reports)


def test_every_picture_is_there_and_no_other() -> None:
    reports = report.read()
    elsewhere = pictures.shown_elsewhere(report.DOCS)
    assert drawn(report.DOCS) - elsewhere == {"ratios.svg", *(one.picture for one in reports)} - elsewhere
    assert [name for name in elsewhere if not (report.DOCS / name).is_file()] == []


def drawn(folder: Path) -> set[str]:
    """The names of the pictures in a folder."""
    return {path.name for path in folder.iterdir() if path.suffix in (".svg", ".png")}


def inference() -> Report:
    row = {
        "batch": 1,
        "alpha_ms": 20.0,
        "torch_ms": 40.0,
        "torch_ratio": 2.0,
        "onnxruntime_ms": 24.0,
        "onnxruntime_ratio": 1.2,
        "openvino_ms": 18.0,
        "openvino_ratio": 0.9,
        "differences": {"torch frozen": 1e-6, "onnxruntime": 2e-6, "openvino": 2e-6},
        "times_ms": {"alpha": [20.0], "torch frozen": [40.0], "onnxruntime": [24.0], "openvino": [18.0]},
    }
    settings = {
        "suite": "inference",
        "engine": "cpu",
        "threads": 2,
        "image": [224, 224, 3],
        "dtype": "float32",
        "alpha": "",
        "torch": "",
        "difference": "",
    }
    return Report("cpu-inference.json", {**HEAD, "settings": settings, "rows": [row]})


def generators(against: bool = True) -> Report:
    """HUGE2's comparison of one layer: 8 times as fast as the baseline and twice as fast as PyTorch."""
    rows = [
        {
            "layer": "DC1",
            "batch": 1,
            "direction": direction,
            "useful_gflop": 1.0,
            "alpha_ms": 2.0,
            "torch_ms": 4.0 if against else None,
            "ratio": 2.0 if against else None,
            "baseline_ms": 16.0,
            "baseline_ratio": 8.0,
            "alpha_bytes": 2.5e6,
            "baseline_bytes": 1e7,
            "bytes_share": 0.25,
            "alpha_mib": 1.0,
            "torch_mib": 2.0 if against else None,
            "baseline_mib": None,
            "times_ms": {"alpha": [2.0], "baseline": [16.0]},
        }
        for direction in ("forward", "training")
    ]
    means = {f"{direction} over baseline": 8.0 for direction in ("forward", "training")}
    means |= {f"{direction} over torch": 2.0 for direction in ("forward", "training")} if against else {}
    told = dict.fromkeys(("baseline", "forward", "training", "bytes", "memory"), "")
    settings = {"suite": "huge2", "engine": "cpu", "threads": 2, **told}
    result = {**HEAD, "settings": settings, "rows": rows, "geometric_mean": means, "largest_bytes_share": 0.25}
    return Report("cpu-huge2.json", result)


@pytest.mark.parametrize("against", [True, False])
def test_generators_have_a_line_an_opponent(against: bool) -> None:
    found = report.headlines([generators(against)])
    ratios = {(one.opponent, one.title.rpartition(" ")[2]): one.ratio for one in found}
    torch = {("PyTorch", "forward"): 2, ("PyTorch", "training"): 2} if against else {}
    assert ratios == {("zeros inserted", "forward"): 8, ("zeros inserted", "training"): 8, **torch}
    text = report.document([generators(against)])
    last = "1 / 2 / -" if against else "1 / - / -"
    assert f"| 16.000 | 8.00 | 2.5 | 10.0 | 25% | {last} |" in text


def segregated(against: bool = True) -> Report:
    """A layer whose separate sub-kernels take three times as long and 2.5 MiB more."""
    row = {
        "layer": "odd",
        "batch": 16,
        "result": 15,
        "useful_gflop": 0.5,
        "elements": 1000,
        "extra_elements": 138,
        "bytes": 4e6,
        "separate_bytes": 8.5e6,
        "saved_mib": 2.5,
        "alpha_ms": 2.0,
        "torch_ms": 4.0 if against else None,
        "ratio": 2.0 if against else None,
        "separate_ms": 6.0,
        "separate_ratio": 3.0,
        "torch_mib": 7.0 if against else None,
        "mib": {"alpha": 5.0, "separate": None},
        "times_ms": {"alpha": [2.0], "separate": [6.0]},
    }
    saved = {"odd results, batch 16": {"saved_mib": 2.5, "inserted_mib": 9.0, "extra_elements": 138}}
    told = dict.fromkeys(("alpha", "separate", "elements", "written", "saved", "memory"), "")
    result = {
        **HEAD,
        "settings": {"suite": "segregation", "engine": "cpu", "threads": 2, **told},
        "rows": [row],
        "geometric_mean": {"odd results over separate": 3.0} | ({"odd results over torch": 2.0} if against else {}),
        "saved": saved,
    }
    return Report("cpu-segregation.json", result)


@pytest.mark.parametrize("against", [True, False])
def test_segregation_has_a_line_an_opponent_and_tells_what_is_saved(against: bool) -> None:
    found = report.headlines([segregated(against)])
    lines = [("a convolution for each part of the filter", 3.0, "up to 2.5 MiB saved over all layers")]
    lines += [("PyTorch", 2.0, "")] if against else []
    assert [(one.opponent, one.ratio, one.note) for one in found] == lines
    text = report.document([segregated(against)])
    assert "- All layers of odd results, batch 16: 2.5 MiB less than separate outputs, 9.0 MiB of sources" in text
    last = "5 / 7 / -" if against else "5 / - / -"
    assert f"| 6.000 | 3.00 | 13.8% | 4.00 | 8.50 | 2.50 | {last} |" in text


def heads(against: bool = True) -> Report:
    """A head that PyTorch computes in twice our time, and, forward alone, inserted zeros in fifty times."""
    rows = [
        {
            "layer": "DeepLabV3",
            "batch": 8,
            "direction": direction,
            "nominal_gflop": 3.0,
            "useful_gflop": 2.0,
            "inserted_gflop": 90.0,
            "alpha_ms": 2.0,
            "torch_ms": 4.0 if against else None,
            "ratio": 2.0 if against else None,
            "inserted_ms": 100.0 if direction == "forward" else None,
            "inserted_ratio": 50.0 if direction == "forward" else None,
            "times_ms": {"alpha": [2.0]},
        }
        for direction in ("forward", "training")
    ]
    means = {"forward over inserted": 50.0}
    means |= {"forward over torch": 2.0, "training over torch": 2.0} if against else {}
    told = dict.fromkeys(("head", "forward", "training", "torch", "inserted", "work"), "")
    settings = {"suite": "deeplab", "engine": "cpu", "threads": 2, **told}
    return Report("cpu-deeplab.json", {**HEAD, "settings": settings, "rows": rows, "geometric_mean": means})


@pytest.mark.parametrize("against", [True, False])
def test_heads_have_a_line_a_direction_and_opponent(against: bool) -> None:
    found = report.headlines([heads(against)])
    ratios = {(one.title, one.opponent): (one.ratio, one.note) for one in found}
    told = {"PyTorch": "2.00", "zeros inserted into filters": "50.00"}
    expected = {("forward", "zeros inserted into filters"): 50.0}
    expected |= {("forward", "PyTorch"): 2.0, ("training", "PyTorch"): 2.0} if against else {}
    assert ratios == {
        (f"DeepLab's heads, {direction}", opponent): (
            ratio,
            f"geometric mean over DeepLabV3, lowest {told[opponent]}",
        )
        for (direction, opponent), ratio in expected.items()
    }
    text = report.document([heads(against)])
    torch = "4.0 | 2.00" if against else "- | -"
    assert f"| DeepLabV3 | 8 | forward | 3.00 | 2.00 | 90.0 | 2.0 | {torch} | 100.0 | 50.0 |" in text
    assert f"| DeepLabV3 | 8 | training | 3.00 | 2.00 | 90.0 | 2.0 | {torch} | - | - |" in text


def test_matrix_and_vector_have_a_line_and_every_row() -> None:
    rows = [
        {
            "operation": operation,
            "shape": [256, columns],
            "bytes": 1e6,
            "alpha_ms": 0.01,
            "opponents_ms": {"numpy": 0.02, "torch": 0.04},
            "best": "numpy",
            "ratio": 2.0,
            "gb_per_s": 100.0,
            "bandwidth_share": 0.5,
            "times_ms": {"alpha": [0.01], "numpy": [0.02], "torch": [0.04]},
        }
        for operation in ("gemv", "ger")
        for columns in (256, 512)
    ]
    means = {"squares": 2.0, "128 and 256 rows": 2.0}
    settings = {"suite": "matvec", "engine": "cpu", "threads": 2, "numpy": "", "torch": "", "bandwidth": "copying"}
    told = Report("m.json", {**HEAD, "settings": settings, "rows": rows, "geometric_mean": means, "lowest_ratio": 2.0})
    (line,) = report.headlines([told])
    assert (line.opponent, line.ratio) == ("NumPy and PyTorch", pytest.approx(2))
    assert "| ger | 256 x 512 | 10.0 | 20.0 | 40.0 | 2.00 | 100 | 50% |" in report.document([told])


def test_functions_are_told_by_their_means_and_slow_rows_come_first(tmp_path: Path) -> None:
    rows = [
        {
            "function": name,
            "case": name,
            "direction": "forward",
            "numbers": 32,
            "threads": 1,
            "alpha_ms": 0.01,
            "torch_ms": 0.01 * ratio,
            "ratio": ratio,
            "times_ms": {"alpha": [0.01], "torch": [0.01 * ratio]},
        }
        for name, ratio in (("add", 2.0), ("exp", 0.25), ("log", 0.5))
    ]
    settings = {
        "suite": "functions",
        "engine": "cpu",
        "threads": 1,
        "thread_counts": [1],
        "sizes": [32],
        "torch": "",
        "backward": "",
    }
    means = {"32 numbers, 1 thread": 1.0}
    told = Report("cpu-functions.json", {**HEAD, "settings": settings, "rows": rows, "geometric_mean": means})
    (line,) = report.headlines([told])
    assert (line.title, line.opponent, line.ratio) == ("every public function, 32 numbers, 1 thread", "PyTorch", 1.0)
    text = report.document([told])
    assert "Slow rows, 1 of 3:" in text and "| exp | forward | 32 | 1 | 10.0 | 2.5 | 0.25 |" in text
    assert "| function | direction | 32 numbers, 1 thread |" in text
    assert all(f"| {name} | forward | {ratio} |" in text for name, ratio in (("add", "2.00"), ("log", "0.50")))
    pytest.importorskip("matplotlib")
    from benchmarks import pictures

    pictures.draw([told], tmp_path)
    assert (tmp_path / "cpu-functions.svg").exists()


def swept(slow: str = "dilated") -> Report:
    """A sweep over groups where one operator has a cliff between 2 and 4 groups around one centre."""
    rows = []
    for layer, batch in sweep.problems(["groups"]):
        for operator in OPERATORS:
            halved = operator == slow and layer.groups == 4 and batch == 1
            rate = 40.0 if halved else 100.0
            time = 1e3 * layer.useful_gflop(batch) / rate
            rows.append(
                {
                    "operator": operator,
                    "layer": layer.name,
                    "batch": batch,
                    "useful_gflops": rate,
                    "multiplied_gflop": layer.useful_gflop(batch),
                    "alpha_ms": time,
                    "times_ms": {"alpha": [time]},
                    "ratio": None,
                    "algorithm": "ConvV2: images as rows, 64 per task, 12 tasks on 2 threads",
                }
            )
    settings = {"suite": "sweep", "engine": "cpu", "threads": 2}
    result: dict[str, Any] = {**HEAD, "settings": settings, "fma_peak_gflops": 200.0, "rows": rows}
    return Report("cpu-sweep.json", sweep.judge(result, {1 << 28: 20.0}, ["groups"]))


def paper() -> Report:
    """The paper's comparison, in which trimming gains a quarter and splitting makes it four times as fast."""
    rows = []
    for layer in SUITES["paper"]:
        for operator in layer.operators:
            variants = dict(zip(VARIANTS[operator], (4.0, 5.0, 20.0), strict=False))
            rows.append(
                {
                    "operator": operator,
                    "layer": layer.name,
                    "shape": layer.shape,
                    "batch": 8,
                    "nominal_gflop": 1.0,
                    "useful_gflop": 0.9,
                    "alpha_ms": 4.0,
                    "torch_ms": 6.0,
                    "ratio": 1.5,
                    "useful_gflops": 225.0,
                    "peak_share": 0.9,
                    "times_ms": {"alpha": [4.0], "torch contiguous": [6.0]},
                    "variants_ms": variants,
                }
            )
    settings = {"suite": "paper", "engine": "cpu", "threads": 2, "gflop": 1.0, "batch_sizes": [8]}
    means = {"conv": 1.5, "deconv": 1.5, "dilated": 1.5, "all": 1.5}
    result = {"settings": settings, "fma_peak_gflops": 250.0, "rows": rows}
    return Report("cpu-paper.json", {**HEAD, **result, "geometric_mean": means, "lowest_ratio": 1.5})


def written() -> Report:
    """A result of programs that are written once for both packages."""
    times = {"alpha": [4.0, 4.0, 4.0], "torch system channels_last": [6.0, 6.0, 6.0], "torch system": [7.0, 7.0, 7.0]}
    medians = {"alpha_ms": 4.0, "torch_ms": 6.0, "torch_settings": "system channels_last", "ratio": 1.5}
    row = {"name": "unet", "batch": 8, **medians, "losses": {}, "times_ms": times}
    settings = {"suite": "programs", "engine": "cpu", "threads": 2, "models": ["unet"]}
    return Report("cpu-programs-2.json", {**HEAD, "settings": settings, "rows": [row]})


def gpt() -> Report:
    times = {"alpha": [10.0, 11.0, 12.0], "torch tuned": [20.0, 22.0, 24.0]}
    row = {"alpha_ms": 11.0, "torch_ms": 22.0, "torch_settings": "tuned", "ratio": 2.0, "times_ms": times}
    sizes = {"batch": 16, "tokens": 256, "embedding": 384, "heads": 6}
    settings = {"suite": "gpt", "engine": "cpu", "threads": 1, **sizes}
    return Report("cpu-gpt.json", {**HEAD, "settings": settings, "rows": [row]})


def fast() -> Report:
    """Two runs of each side."""
    rows = [
        {
            "seed": seed,
            "torch_settings": "channels_last, kept",
            "accuracy": {"alpha": 93.0 + seed, "torch": 93.5},
            "seconds": {"alpha": 20.0, "torch": 30.0 + 10 * seed},
            "times_ms": {"alpha": [10_000.0, 10_000.0], "torch": [15_000.0, 15_000.0]},
            "losses": {"alpha": [1.5, 1.2], "torch": [1.5, 1.3]},
            "ratio": 1.5 + 0.5 * seed,
        }
        for seed in (0, 1)
    ]
    settings = {"suite": "fast recipe", "engine": "cpu", "threads": 2, "dataset": "cifar10", "epochs": 2}
    settings["precision"] = "highest"
    return Report("cpu-fast-recipe.json", {**HEAD, "settings": settings, "rows": rows})


def test_whole_runs_of_the_fast_recipe_have_a_table_and_a_line() -> None:
    text = report.document([fast()])
    assert "## The recipe fast on cifar10, 2 epochs\n" in text
    assert "ours: 93.50 % in the mean of 2, 1.00 from the least to the largest, 20 s to train; PyTorch's:" in text
    assert "| 1 | 94.00 | 93.50 | 20 | 40 | 2.00 |" in text and " are 68 TFLOP." in text
    assert "| the recipe fast on cifar10, 2 epochs | 93.50 %, 20 s | PyTorch 93.50 %, 35 s | 1.75 | 0 % | - |" in text
    alone = fast()
    for row in alone.result["rows"]:
        row |= {"ratio": None, **{key: {"alpha": row[key]["alpha"]} for key in ("accuracy", "seconds", "losses")}}
    assert "| the recipe fast on cifar10, 2 epochs | 93.50 %, 20 s | - | - |" in report.document([alone])


def beginning() -> Report:
    """The first seconds of a network, cold."""
    medians = {"import": 0.25, "first step": 20.0, "second step": 0.4, "until first step": 21.5}
    times = {phase: [1e3 * seconds] for phase, seconds in medians.items()}
    row = {"network": "gpt", "batch": 16, "state": "cold", "median_s": medians, "times_ms": times}
    settings = {"suite": "first seconds", "engine": "cpu", "threads": 2, "revision": "abc1234"}
    return Report("cpu-first-seconds.json", {**HEAD, "settings": settings, "rows": [row]})


def pointwise() -> Report:
    """A function of one's own beside PyTorch and what it compiles, at two sizes."""
    rows = [
        {
            "operation": "forward",
            "size": size,
            "alpha_ms": 2.0,
            "opponents_ms": {"torch": 5.0, "torch.compile": 3.0},
            "ratios": {"torch": 2.5, "torch.compile": 1.5},
            "least_ms": 1.0,
            "times_ms": {"alpha": [2.0], "torch": [5.0], "torch.compile": [3.0]},
        }
        for size in (32, 8_000_000)
    ]
    settings = {"suite": "pointwise", "engine": "cpu", "threads": 2}
    return Report("cpu-pointwise.json", {**HEAD, "settings": settings, "rows": rows})


def test_a_function_of_ones_own_is_told_beside_each_opponent() -> None:
    text = report.document([pointwise()])
    assert "| forward | 8,000,000 | 2000.0 | 5000.0 | 2.50 | 3000.0 | 1.50 | 1000.0 |" in text
    title = "a point-wise function of one's own, 2 threads, forward, 8000000 numbers"
    assert f"| {title} | 2.0 ms | PyTorch, compiled 3.0 ms | 1.50 | 0 % | - |" in text
    assert text.count(title) == 2  # the largest size alone, a line for each opponent


def test_programs_have_a_table_and_a_line_each() -> None:
    text = report.document([written()])
    assert "| unet | 8 | 4.0 | 6.0 | system channels_last | 1.50 |" in text
    assert "| training steps of programs in PyTorch's words, 2 threads: unet | 4.0 ms | PyTorch 6.0 ms | 1.50 |" in text


def test_a_gpts_step_and_first_seconds_have_a_table_and_a_line() -> None:
    text = report.document([gpt(), beginning()])
    assert "## A training step of a GPT block, 1 thread\n" in text
    assert "| torch tuned | 22.0 | 20.0 | 2.00 |" in text
    assert "| a training step of a GPT block, 1 thread | 11.0 ms | PyTorch 22.0 ms | 2.00 | 10 % | - |" in text
    assert "## The first seconds of a training, at revision abc1234" in text
    assert "| gpt, batch 16 | cold | 0.25 | 20.00 | 0.40 | 21.50 |" in text
    assert "| first training step of gpt, cold, at revision abc1234 | 20.0 s | - | - | 0 % | - |" in text


def test_the_papers_comparison_tells_what_each_idea_gains() -> None:
    text = report.document([paper()])
    assert "## The paper's comparison of operators, 1 GFLOP each" in text and "![" in text and "cpu-paper.png" in text
    assert "| deconv | 3x3 s2 32 | 8 | 4.000 | 5.000 | 20.000 | 1.25 | 4.00 |" in text
    assert "| conv | 3x3 s1 32 | 8 | 4.000 | 5.000 | - | 1.25 | - |" in text


def reproduction() -> Report:
    """Two runs of each side."""
    sides = {
        side: {"s_per_epoch": seconds, "test_accuracy": accuracy}
        for side, seconds, accuracy in (("alpha", [10.0, 12.0], [60.0, 61.0]), ("torch", [20.0, 24.0], [60.5, 60.7]))
    }
    settings = {"suite": "reproduction", "model": "vgg16", "dataset": "cifar10", "epochs": 1, "batch_size": 512}
    result = {
        "settings": {**settings, "engine": "cpu", "threads": 2},
        "sides": sides,
        "steps": [0, 10, 20],
        "losses": {"alpha": [[2.3, 2.0, 1.9], [2.3, 2.1, 1.8]], "torch": [[2.3, 2.0, 2.0], [2.3, 2.1, 1.7]]},
        "published": {"Dragon-Alpha, published": [[0.0, 10.0], [2.3, 2.2]]},
        "curves": {"windows": 4, "inside": 3},
        "ratio": 2.0,
        "text": "| | s/epoch |",
    }
    return Report("cpu-paper-vgg16.json", {**HEAD, **result})


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ({"style": "paper", "stem": None}, "vgg16"),  # results from before there were two heads
        ({"style": "paper", "stem": None, "head": "cifar10"}, "vgg16"),
        ({"style": "paper", "stem": None, "head": "ilsvrc2012"}, "vgg16 (ILSVRC2012's head)"),
        ({"style": "torchvision", "stem": "3x3", "head": None}, "vgg16 (torchvision, 3x3 stem)"),
    ],
)
def test_a_trained_network_is_named_with_its_form(form: dict[str, Any], name: str) -> None:
    assert kept.network({"name": "vgg16", **form}) == name


def test_the_papers_training_is_told_as_its_script_told_it() -> None:
    (headline,) = report.headlines([reproduction()])
    assert headline.title == "the paper's training of vgg16 on cifar10, 1 epoch"
    assert (headline.ours, headline.theirs, headline.ratio) == (
        "11 s per epoch, test accuracy 60.5 %",
        "22 s per epoch, test accuracy 60.6 %",
        2.0,
    )
    assert headline.note == "3 of 4 windows of the loss within PyTorch's band"
    text = report.document([reproduction()])
    assert "| | s/epoch |" in text and "cpu-paper-vgg16.svg" in text
    # The quartiles of 10 and 12 are 10.5 and 11.5, those of 20 and 24 are 21 and 23.
    assert "Runs differ in their seconds per epoch by: Dragon-Alpha 10 %, PyTorch 10 %." in text


def test_the_papers_training_on_a_busy_machine_tells_no_times() -> None:
    result = reproduction().result
    for found in result["sides"].values():
        del found["s_per_epoch"]
    del result["ratio"]
    result["settings"] |= {"busy": True, "epochs": 35, "torch_epochs": 3}
    result["losses"]["torch"] = [[2.3, 2.0], [2.3, 2.1]]
    busy = Report("cpu-paper-vgg16.json", result)
    (headline,) = report.headlines([busy])
    assert (headline.ours, headline.theirs, headline.ratio, headline.rounds) == (
        "test accuracy 60.5 %",
        "test accuracy 60.6 % after 3 epochs",
        None,
        "-",
    )
    assert "Other programs ran meanwhile" in report.document([busy])
    assert len(pictures.loss_curves(result).axes[0].get_lines()[0].get_xdata()) == 2


def test_inference_has_a_line_an_opponent() -> None:
    found = report.headlines([inference()])
    assert [(one.opponent, one.theirs, one.ratio) for one in found] == [
        ("PyTorch", "40.0 ms", 2.0),
        ("ONNX Runtime", "24.0 ms", 1.2),
        ("OpenVINO", "18.0 ms", 0.9),
    ]
    text = report.document([inference()])
    assert "| openvino | 1 | 18.00 | 18.00 | 55.6 | 0.90 | 2e-06 |" in text
    assert "- machine: Abacus, 2 cores, L1 data 32K, 1.5 GiB, Linux, load 0.1 at the start" in text
    assert "- date: 2026-01-02T03:04:05+00:00" in text


def test_a_cliff_is_found_and_told() -> None:
    result = swept().result
    assert result["pairs"] == 21 and result["cliff_count"] == result["cliff_count_ours"] == 1
    (cliff,) = result["cliffs"]
    assert (cliff["operator"], cliff["axis"], cliff["values"], cliff["cause"]) == ("dilated", "groups", [2, 4], "ours")
    assert cliff["ratio"] == pytest.approx(2.5)
    text = report.document([swept()])
    assert "1 of 21 pairs of neighbours differ by 2 times or more (causes: ours 1)" in text
    assert "| dilated | batch 1, C 64, 56x56 | groups | 2 - 4 | 100.0 - 40.0 | 2.50 |" in text
    assert "| ours | ConvV2: images as rows |" in text


def test_readme_needs_its_markers() -> None:
    text = f"a\n{BEGIN}\nold\n{END}\nb\n"
    written = report.with_summary(text, [inference()])
    assert written.startswith(f"a\n{BEGIN}\n") and written.endswith(f"{END}\nb\n") and "old" not in written
    assert report.with_summary(written, [inference()]) == written
    for bad in ("", BEGIN, f"{END}{BEGIN}", text + text):
        with pytest.raises(ArgumentError, match="results: begin"):
            report.with_summary(bad, [inference()])


def test_the_readmes_table_has_at_most_eight_rows_each_with_its_command() -> None:
    lines = [line for line in report.headlines(report.read()) if line.is_in_readme()]
    assert 5 <= len(lines) <= 8
    text = report.summary(report.read())
    for line in lines:
        assert f"| {line.rounds} | `{line.command}` |" in text
        assert line.command.startswith("python ") and "--json" not in line.command
    assert text.count("| `python ") == len(lines)


def test_rows_whose_rounds_differ_say_so() -> None:
    """In every table, the short ones too: the largest spread in a row, in bold type above 10 %."""
    calm, rough = [10.0, 10.0, 10.0], [10.0, 13.0, 16.0]  # quartiles of the second: 11.5 and 14.5
    told = inference()
    (row,) = told.result["rows"]
    row["times_ms"] = {"alpha": calm, "torch frozen": rough, "onnxruntime": calm}
    text = report.document([told])
    assert "| torch frozen | 1 | 13.00 | 10.00 | 76.9 | 0.65 | 1e-06 | **26 %** |" in text
    assert "| alpha | 1 | 10.00 | 10.00 | 100.0 | 0.50 | - | 0 % |" in text
    assert "| 2.00 | **26 %** | - |" in text and "| 0.90 | **26 %** |" in report.summary([told])
    pictured = paper()
    pictured.result["rows"][3]["variants_times_ms"] = {"direct": rough}
    count = len(pictured.result["rows"])
    assert f"| **1 of {count} rows by more than 10 %** |" in report.document([pictured])


def test_no_table_of_the_report_hides_that_rounds_differ() -> None:
    """Every row of every table in docs/results.md with a time or a ratio has the column."""
    section, titles = "", ""
    for line in report.document(report.read()).splitlines():
        section = line if line.startswith("## ") else section
        if line.startswith("| :--") and "paper's training" not in section:  # a line below that table tells it
            assert "rounds differ by" in titles, section
        titles = line


def test_a_folder_without_results_is_told(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"expected results in .*: run a benchmark with --json there"):
        report.read(tmp_path)


@pytest.mark.needs("matplotlib")
def test_pictures_are_drawn_and_old_ones_go(tmp_path: Path) -> None:
    from benchmarks import pictures

    for old in ("old.svg", "old.png"):
        (tmp_path / old).write_text("")
    (tmp_path / "shown.png").write_text("")
    (tmp_path / "page.md").write_text("A curve:\n\n![curve](shown.png)\n")
    (tmp_path / "results.md").write_text("![old](old.svg)\n")
    reports = [*report.read(), inference(), swept(), paper(), generators(), segregated(), reproduction()]
    reports += [gpt(), written(), fast(), beginning(), pointwise(), heads()]
    pictures.draw(reports, tmp_path)
    assert drawn(tmp_path) == {"ratios.svg", "shown.png", *(one.picture for one in reports)}
    assert all(path.stat().st_size < 1 << 18 for path in tmp_path.glob("*.*"))

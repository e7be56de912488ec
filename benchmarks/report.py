"""The report: ``python -m benchmarks.report`` writes docs/results.md, its pictures and README's table from the results.

All that it writes comes from the JSON files in benchmarks/results, as the benchmarks left them there.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alpha.errors import ArgumentError
from benchmarks import (
    algorithms,
    common,
    deeplab,
    first_seconds,
    functions,
    huge2,
    matvec,
    pointwise,
    segregation,
    sweep,
)
from benchmarks.operators import variant_table
from benchmarks.suites import PAPER

MODULE = "benchmarks.report"
RESULTS = common.ROOT / "benchmarks" / "results"
DOCS = common.ROOT / "docs"
README = common.ROOT / "README.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"

DESCRIPTION = """
Turns benchmarks/results/*.json into docs/results.md with its pictures, and into the table of README.md between its two
markers. The pictures need Matplotlib.
"""

KINDS = (
    "training", "reproduction", "inference", "operators", PAPER, "huge2", "segregation", "deeplab", "matvec",
    "functions", "pointwise", "gpt", "first seconds", "sweep", "algorithms",
)  # fmt: skip
"""Kinds of results, in the report's order."""

Table = tuple[Sequence[str], Sequence[Sequence[object]]]


@dataclass(frozen=True)
class Report:
    """One result: the file it comes from, and what is in it."""

    file: str
    result: dict[str, Any]

    @property
    def kind(self) -> str:
        """One of KINDS: a suite's name, or "operators" for those of convolutions alone."""
        suite = str(self.result["settings"].get("suite", "training"))
        return suite if suite in KINDS else "operators"

    @property
    def picture(self) -> str:
        """The file of its picture, in docs/."""
        return f"{Path(self.file).stem}.{'png' if self.kind == PAPER else 'svg'}"

    @property
    def place(self) -> str:
        """The engine, for titles of results that were not measured on the processor."""
        engine = str(self.result["settings"]["engine"])
        return "" if engine == "cpu" else f" on {engine}"

    @property
    def title(self) -> str:
        """What was measured."""
        settings = self.result["settings"]
        if self.kind == "training":
            return f"Training {network(settings)}, batch {settings['batch_size']}{self.place}"
        if self.kind == "sweep":
            return f"Operators over neighbouring shapes{self.place}"
        if self.kind == "inference":
            return f"Inference of ResNet18 on {settings['image'][0]}x{settings['image'][1]} images{self.place}"
        if self.kind == "reproduction":
            epochs = f"{settings['epochs']} epoch{'s' if settings['epochs'] > 1 else ''}"
            return f"The paper's training of {settings['model']} on {settings['dataset']}, {epochs}{self.place}"
        if self.kind == "huge2":
            return f"Generators' transposed convolutions, as HUGE2 compares them{self.place}"
        if self.kind == "segregation":
            return f"Transposed convolutions in one launch, or a convolution for each part of the filter{self.place}"
        if self.kind == "deeplab":
            return f"DeepLab's heads of dilated convolutions{self.place}"
        if self.kind == "matvec":
            return f"Products of a matrix and a vector{self.place}"
        if self.kind == "functions":
            return f"Every public function{self.place}"
        if self.kind == "pointwise":
            threads = settings["threads"]
            return f"A point-wise function of one's own, {threads} thread{'s' if threads > 1 else ''}{self.place}"
        if self.kind == "gpt":
            threads = settings["threads"]
            return f"A training step of a GPT block, {threads} thread{'s' if threads > 1 else ''}{self.place}"
        if self.kind == "first seconds":
            return f"The first seconds of a training, at revision {settings['revision']}{self.place}"
        if self.kind == "algorithms":
            path = f", {settings['path']} path" if "path" in settings else ""
            return f"Choices of algorithms, suite {settings['layers']}{path}{self.place}"
        if self.kind == PAPER:
            return f"The paper's comparison of operators, {settings['gflop']:g} GFLOP each{self.place}"
        batches = ", ".join(map(str, settings["batch_sizes"]))
        return f"Operators of suite {settings['suite']}, batch {batches}{self.place}"


def network(settings: dict[str, Any]) -> str:
    """A trained network's name, with its form where that is not the paper's."""
    if settings["style"] == "paper":
        return str(settings["name"]) + (" (ILSVRC2012's head)" if settings.get("head") == "ilsvrc2012" else "")
    stem = f", {settings['stem']} stem" if settings.get("stem") else ""
    return f"{settings['name']} ({settings['style']}{stem})"


def read(folder: Path = RESULTS) -> list[Report]:
    """The folder's results by kind, then by name and size."""
    reports = [Report(path.name, json.loads(path.read_text(encoding="utf-8"))) for path in folder.glob("*.json")]
    if not reports:
        raise ArgumentError(
            f"[{MODULE}] expected results in {folder}, got no *.json: run a benchmark with --json there"
        )

    def key(report: Report) -> tuple[object, ...]:
        settings = report.result["settings"]
        return (
            KINDS.index(report.kind),
            report.place,
            settings.get("name", settings.get("model", "")),
            settings.get("batch_size", 0),
            report.file,
        )

    return sorted(reports, key=key)


# -- text ------------------------------------------------------------------------------------------------------------


def document(reports: Sequence[Report]) -> str:
    """docs/results.md."""
    parts = [
        "# Results",
        "Written by `python -m benchmarks.report` from the files in [benchmarks/results](../benchmarks/results), which "
        "hold every single timing. Each contestant has a process of its own, and they take turns; times are medians. "
        "A ratio is the opponent's time over ours: above 1 we are faster.",
        "![ratios](ratios.svg)",
        *(_section(report) for report in reports),
    ]
    return "\n\n".join(parts) + "\n"


def _section(report: Report) -> str:
    result = report.result
    head = [f"## {report.title}", _origin(report)]
    kinds = {
        "training": _training,
        "reproduction": _reproduction,
        "inference": _inference,
        "operators": _operators,
        PAPER: _paper,
        "huge2": _huge2,
        "segregation": _segregation,
        "deeplab": _deeplab,
        "matvec": _matvec,
        "functions": _functions,
        "pointwise": _pointwise,
        "gpt": _gpt,
        "first seconds": _first_seconds,
        "sweep": _sweep,
        "algorithms": _algorithms,
    }
    return "\n\n".join([*head, f"![{report.title}]({report.picture})", *kinds[report.kind](result)])


def _origin(report: Report) -> str:
    """Command, date, machine, versions and settings of a run."""
    result = report.result
    noise = _noise(result)
    lines = [
        f"- command: `{result['command']}`",
        f"- date: {result['date']}",
        f"- machine: {machine(result)}",
        f"- versions: {', '.join(f'{name} {version}' for name, version in result['versions'].items())}",
        f"- threads: {result['settings']['threads']}; repeated timings vary by a factor of {noise:.2f} at most "
        "(third quartile over first)",
        f"- file: [{report.file}](../benchmarks/results/{report.file})",
    ]
    return "\n".join(lines)


def machine(result: dict[str, Any]) -> str:
    """The machine on one line."""
    found = result["machine"]
    caches = ", ".join(f"{name} {size}" for name, size in found["caches"].items())
    parts = [
        f"{found['cpu']}{' (' + found['cpu_target'] + ')' if 'cpu_target' in found else ''}",
        f"{found['cores']} cores",
        *([f"{found['instruction_path']} path"] if "instruction_path" in found else []),
        caches,
        f"{found['memory_gib']} GiB",
        found["system"],
        f"load {found['load_average']} at the start",
    ]
    return ", ".join(part for part in parts if part)


def _noise(result: dict[str, Any]) -> float:
    if "contestants" in result:
        return max(float(one["spread"]) for one in result["contestants"].values())
    if "sides" in result:
        return max(common.spread(one["s_per_epoch"]) for one in result["sides"].values())
    return max(common.spread(times) for row in result["rows"] for times in row["times_ms"].values())


def _markdown(table: Table) -> str:
    """A table; the first column to the left."""
    titles, rows = table
    lines = [titles, [":--", *["--:"] * (len(titles) - 1)], *rows]
    return "\n".join("| " + " | ".join("-" if cell is None else str(cell) for cell in line) + " |" for line in lines)


def _training(result: dict[str, Any]) -> list[str]:
    batch, warmup = result["settings"]["batch_size"], result["settings"]["warmup"]
    rows = [
        [
            name,
            f"{one['median_s']:.4f}",
            f"{min(one['seconds'][warmup:]):.4f}",
            f"{batch / one['median_s']:.0f}",
            f"{one['median_s'] / result['alpha_s']:.2f}",
            f"{one['peak'].get('in_use_mib', one['peak']['process_mib']):.0f}",
            f"{one['choice']['allocator']}; Adam {one['choice']['adam']}" if "choice" in one else None,
        ]
        for name, one in result["contestants"].items()
    ]
    titles = ["", "s a step", "least", "images/s", "ratio", "peak MiB", "settings"]
    least = result.get("torch_least_peak_mib")
    note = "Peak: largest resident set less the one after the imports."
    if least is not None:
        note += f" The least that PyTorch took with any layout and allocator tried was {least:.0f} MiB."
    return [_markdown((titles, rows)), note]


def _reproduction(result: dict[str, Any]) -> list[str]:
    return [str(result["text"])]


def _inference(result: dict[str, Any]) -> list[str]:
    rows = []
    for row in result["rows"]:
        for name, times in row["times_ms"].items():
            median, difference = common.median(times), row["differences"].get(name)
            cells = [f"{median:.2f}", f"{min(times):.2f}", f"{1e3 * row['batch'] / median:.1f}"]
            ratio, apart = f"{median / row['alpha_ms']:.2f}", f"{difference:.1g}" if difference is not None else None
            rows.append([name, row["batch"], *cells, ratio, apart])
    titles = ["", "batch", "ms", "least", "images/s", "ratio", "difference"]
    note = f"Difference: {result['settings']['difference']}. PyTorch: {result['settings']['torch']}."
    return [_markdown((titles, rows)), note]


MANY_ROWS = 100
"""More rows than this are summarised by operator and batch; the file has all of them."""


def _operators(result: dict[str, Any]) -> list[str]:
    note = f"FMA peak: {result['fma_peak_gflops']:.0f} GFLOP/s; where it is passed, Winograd multiplies less."
    means = result["geometric_mean"]
    if means is not None:
        per_group = ", ".join(f"{name} {mean:.2f}" for name, mean in means.items())
        note += f" Ratio, geometric means: {per_group}; lowest {result['lowest_ratio']:.2f}."
    if means is not None and len(result["rows"]) > MANY_ROWS:
        return [note, _markdown(_by_batch(result["rows"]))]
    rows = [
        [
            row["operator"],
            row["layer"],
            row["batch"],
            f"{row['useful_gflop']:.2f}",
            f"{row['alpha_ms']:.3f}",
            f"{row['torch_ms']:.3f}" if row["torch_ms"] is not None else None,
            f"{row['ratio']:.2f}" if row["ratio"] is not None else None,
            f"{row['useful_gflops']:.0f}",
            f"{row['peak_share']:.0%}",
        ]
        for row in result["rows"]
    ]
    titles = ["operator", "layer", "batch", "useful GFLOP", "ms", "PyTorch ms", "ratio", "GFLOP/s", "of FMA peak"]
    return [note, _markdown((titles, rows))]


def _by_batch(rows: Sequence[dict[str, Any]]) -> Table:
    """The ratios' mean and range of each operator and batch."""
    cells: list[list[object]] = []
    for operator, batch in dict.fromkeys((row["operator"], row["batch"]) for row in rows):
        ratios = [row["ratio"] for row in rows if (row["operator"], row["batch"]) == (operator, batch)]
        figures = (common.geometric_mean(ratios), min(ratios), max(ratios))
        cells.append([operator, batch, len(ratios), *(f"{figure:.2f}" for figure in figures)])
    return ["operator", "batch", "layers", "ratio, geometric mean", "lowest", "highest"], cells


def _paper(result: dict[str, Any]) -> list[str]:
    note = (
        "GFLOP/s in the picture: nominal operations, those with the padding's zeros and without the inserted ones, a "
        "second. Direct: ours without Winograd's algorithm; untrimmed: over zeros of padding; zeros inserted: over "
        "those between dY's elements too. Gains: how many times longer it takes without the idea."
    )
    return [*_operators(result), note, _markdown(variant_table(result))]


def _huge2(result: dict[str, Any]) -> list[str]:
    settings = result["settings"]
    means = ", ".join(f"{name} {mean:.2f}" for name, mean in result["geometric_mean"].items())
    note = (
        f"Geometric means: {means}. Baseline: {settings['baseline']}. Forward: {settings['forward']}; training: "
        f"{settings['training']}. MB: {settings['bytes']}; MiB: {settings['memory']}."
    )
    return [note, _markdown(huge2.table(result))]


def _segregation(result: dict[str, Any]) -> list[str]:
    settings = result["settings"]
    means = ", ".join(f"{name} {mean:.2f}" for name, mean in result["geometric_mean"].items())
    note = (
        f"Geometric means: {means}. Ours: {settings['alpha']}. Separate: {settings['separate']}. "
        f"Extra elements: {settings['elements']}. Written: {settings['written']}. Saved: {settings['saved']}. "
        f"MiB: {settings['memory']}."
    )
    saved = "\n".join(f"- All layers of {line}." for line in segregation.savings(result))
    return [note, saved, _markdown(segregation.table(result))]


def _deeplab(result: dict[str, Any]) -> list[str]:
    settings = result["settings"]
    means = ", ".join(f"{name} {mean:.2f}" for name, mean in result["geometric_mean"].items())
    note = (
        f"Geometric means: {means}. Heads: {settings['head']}. Forward: {settings['forward']}; training: "
        f"{settings['training']}. PyTorch: {settings['torch']}. Inserted: {settings['inserted']}. "
        f"GFLOP: {settings['work']}."
    )
    return [note, _markdown(deeplab.table(result))]


def _matvec(result: dict[str, Any]) -> list[str]:
    settings = result["settings"]
    note = (
        f"Ratio: the best opponent's time over ours. NumPy: {settings['numpy']}; PyTorch: {settings['torch']}. Of "
        f"bandwidth: {settings['bandwidth']}."
    )
    means = result["geometric_mean"]
    if means is not None:
        per_group = ", ".join(f"{name} {mean:.2f}" for name, mean in means.items())
        note += f" Geometric means: {per_group}; lowest {result['lowest_ratio']:.2f}."
    return [note, _markdown(matvec.table(result))]


def _functions(result: dict[str, Any]) -> list[str]:
    settings = result["settings"]
    note = (
        f"Microseconds of a call at about so many numbers. PyTorch: {settings['torch']}. Backward: "
        f"{settings['backward']}. Slow rows are those below {functions.SLOW} of PyTorch's speed, or below "
        f"{functions.SLOW_CALL} with fewer than {functions.CALL_NUMBERS} numbers."
    )
    means = result["geometric_mean"] or {}
    listed = "\n".join(f"- {name}: geometric mean of the ratios {mean:.2f}" for name, mean in means.items())
    slow = functions.slow_table(result)
    told = f"Slow rows, {len(slow[1])} of {len(result['rows'])}:"
    parts = [note, *([listed] if listed else []), *([told, _markdown(slow)] if slow[1] else [])]
    return [*parts, "All ratios:", _markdown(functions.ratio_table(result))]


def _pointwise(result: dict[str, Any]) -> list[str]:
    note = (
        "A Mish with a learnt slope, `x * tanh(softplus(slope * x))`, through `alpha.pointwise`; microseconds of a "
        "call. Memory's least: the bytes that one loop must read and write, at the bandwidth of copying as many."
    )
    return [note, _markdown(pointwise.table(result))]


def _gpt(result: dict[str, Any]) -> list[str]:
    settings, (row,) = result["settings"], result["rows"]
    note = (
        f"Batch {settings['batch']}, {settings['tokens']} tokens, embedding {settings['embedding']}, "
        f"{settings['heads']} heads, float32, AdamW."
    )
    titles = ["", "ms", "least", "ratio"]
    rows = [
        [name, f"{common.median(times):.1f}", f"{min(times):.1f}", f"{common.median(times) / row['alpha_ms']:.2f}"]
        for name, times in row["times_ms"].items()
    ]
    return [note, _markdown((titles, rows))]


def _first_seconds(result: dict[str, Any]) -> list[str]:
    note = (
        "Cold: no compiled kernel is kept on the machine. Warm: those of the cold process are. Each in a new process."
    )
    return [note, _markdown(first_seconds.table(result))]


def _algorithms(result: dict[str, Any]) -> list[str]:
    rows, measured = algorithms.rows_of(result), result["settings"].get("figures")
    note = (
        f"Each algorithm that serves a problem was forced; {algorithms.summary(rows)}. Ratio: the time of the "
        f"planner's choice over the best one's."
    )
    note += f" The model's figures: {measured}." if measured else ""
    return [note, _markdown(algorithms.choices(rows))]


def _sweep(result: dict[str, Any]) -> list[str]:
    note = (
        f"{sweep.summary(result)}. Of bound: share of the roofline with an FMA peak of {result['fma_peak_gflops']:.0f} "
        "GFLOP/s and memory as it copies that many bytes; where it is passed, Winograd multiplies less."
    )
    causes = (
        "Cause: machine - the shares of the bound differ by less than the limit; call - they do with a call's own time "
        "added to the bound (that of a call that computes nothing: "
        + ", ".join(f"{operator} {1e3 * time:.0f} us" for operator, time in result["call_ms"].items())
        + "); Winograd - they do by what is multiplied, of which the faster one saves a part; ours - none of these."
    )
    cliffs = [_markdown(sweep.cliff_table(result)), causes] if result["cliffs"] else []
    return [note, *cliffs, _markdown(sweep.line_table(result))]


# -- README ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Headline:
    """A line of the short table; ratio None where there is no opponent."""

    title: str
    ours: str = ""
    opponent: str = ""
    theirs: str = ""
    ratio: float | None = None
    note: str = ""

    @property
    def cells(self) -> list[str | None]:
        """The line's cells."""
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        opponent = f"{self.opponent} {self.theirs}".strip()
        return [cell or None for cell in (self.title, self.ours, opponent, ratio, self.note)]


def headlines(reports: Sequence[Report]) -> list[Headline]:
    """The lines of the short table."""
    headlines_of = {
        "training": _training_headlines,
        "reproduction": _reproduction_headlines,
        "inference": _inference_headlines,
        "operators": _operators_headlines,
        PAPER: _operators_headlines,
        "huge2": _huge2_headlines,
        "segregation": _segregation_headlines,
        "deeplab": _deeplab_headlines,
        "matvec": _matvec_headlines,
        "functions": _functions_headlines,
        "pointwise": _pointwise_headlines,
        "gpt": _gpt_headlines,
        "first seconds": _first_seconds_headlines,
        "sweep": _sweep_headlines,
        "algorithms": _algorithms_headlines,
    }
    return [headline for report in reports for headline in headlines_of[report.kind](report)]


def _training_headlines(report: Report) -> list[Headline]:
    result = report.result
    title, mine = _lower(report.title), result["alpha_peak_mib"]
    ours = f"{result['alpha_s']:.3f} s, {mine:.0f} MiB"
    if result["ratio"] is None:
        return [Headline(title, ours)]
    theirs = f"{result['torch_s']:.3f} s, {result['torch_peak_mib']:.0f} MiB"
    note = f"{mine / result['torch_peak_mib']:.2f} of its memory"
    if result.get("torch_least_peak_mib") is not None:
        note += f", {mine / result['torch_least_peak_mib']:.2f} of the least with any of its allocators"
    return [Headline(title, ours, "PyTorch", theirs, result["ratio"], note)]


def _reproduction_headlines(report: Report) -> list[Headline]:
    result = report.result
    means = {
        side: [statistics.mean(found[key]) for key in ("s_per_epoch", "test_accuracy")]
        for side, found in result["sides"].items()
    }
    told = {side: f"{seconds:.0f} s/epoch, {accuracy:.1f} %" for side, (seconds, accuracy) in means.items()}
    if "torch" not in told:
        return [Headline(_lower(report.title), told["alpha"])]
    curves = result["curves"]
    note = f"test accuracy; {curves['inside']} of {curves['windows']} windows of the loss within PyTorch's band"
    return [Headline(_lower(report.title), told["alpha"], "PyTorch", told["torch"], result["ratio"], note)]


def _inference_headlines(report: Report) -> list[Headline]:
    found = []
    for row in report.result["rows"]:
        title, ours = f"inference of ResNet18, batch {row['batch']}{report.place}", f"{row['alpha_ms']:.1f} ms"
        for key, opponent in (("torch", "PyTorch"), ("onnxruntime", "ONNX Runtime")):
            if row[f"{key}_ms"] is not None:
                found.append(Headline(title, ours, opponent, f"{row[f'{key}_ms']:.1f} ms", row[f"{key}_ratio"]))
    return found


def _operators_headlines(report: Report) -> list[Headline]:
    means = report.result["geometric_mean"]
    if means is None:
        return []
    per_group = ", ".join(f"{name} {mean:.2f}" for name, mean in means.items() if name != "all")
    note = f"geometric mean ({per_group}); lowest {report.result['lowest_ratio']:.2f}"
    return [Headline(_lower(report.title), opponent="PyTorch", ratio=means["all"], note=note)]


def _huge2_headlines(report: Report) -> list[Headline]:
    means, share = report.result["geometric_mean"], report.result["largest_bytes_share"]
    found = []
    for direction in huge2.DIRECTIONS:
        title = f"generators' transposed convolutions, {direction}{report.place}"
        note = f"reads and writes {share:.0%} of it at most" if direction == "forward" else ""
        found.append(Headline(title, opponent="zeros inserted", ratio=means[f"{direction} over baseline"], note=note))
        if f"{direction} over torch" in means:
            found.append(Headline(title, opponent="PyTorch", ratio=means[f"{direction} over torch"]))
    return found


def _segregation_headlines(report: Report) -> list[Headline]:
    found = []
    for name, ratio in report.result["geometric_mean"].items():
        group, _, opponent = name.rpartition(" over ")
        title, separate = f"transposed convolutions, {group}{report.place}", opponent == segregation.SEPARATE
        saved = [row["saved_mib"] for key, row in report.result["saved"].items() if key.startswith(group)]
        most = max(saved)
        amount = f"up to {most:.1f} MiB saved" if most >= 0 else f"{-most:.1f} MiB more taken"
        note = f"{amount} over all layers" if separate else ""
        told = "a convolution for each part of the filter" if separate else "PyTorch"
        found.append(Headline(title, opponent=told, ratio=ratio, note=note))
    return found


def _deeplab_headlines(report: Report) -> list[Headline]:
    found = []
    for name, ratio in report.result["geometric_mean"].items():
        direction, _, opponent = name.partition(" over ")
        told = "zeros inserted into filters" if opponent == deeplab.INSERTED else "PyTorch"
        key = "inserted_ratio" if opponent == deeplab.INSERTED else "ratio"
        rows = [row for row in report.result["rows"] if row["direction"] == direction and row[key] is not None]
        heads = ", ".join(dict.fromkeys(row["layer"] for row in rows))
        note = f"geometric mean over {heads}, lowest {min(row[key] for row in rows):.2f}"
        found.append(Headline(f"DeepLab's heads, {direction}{report.place}", opponent=told, ratio=ratio, note=note))
    return found


def _matvec_headlines(report: Report) -> list[Headline]:
    means = report.result["geometric_mean"]
    if means is None:
        return []
    opponent = " and ".join(
        name
        for key, name in (("numpy", "NumPy"), ("torch", "PyTorch"))
        if key in report.result["rows"][0]["opponents_ms"]
    )
    note = f"the better one; squares {means['squares']:.2f}, 128 and 256 rows {means['128 and 256 rows']:.2f}"
    ratio = common.geometric_mean([row["ratio"] for row in report.result["rows"]])
    return [Headline(_lower(report.title), opponent=opponent, ratio=ratio, note=note)]


def _functions_headlines(report: Report) -> list[Headline]:
    means = report.result["geometric_mean"] or {}
    title = _lower(report.title)
    note = f"geometric mean over {len(report.result['rows'])} rows in all"
    return [Headline(f"{title}, {name}", opponent="PyTorch", ratio=mean, note=note) for name, mean in means.items()]


_OPPONENTS = {"torch": "PyTorch", "torch.compile": "PyTorch, compiled"}


def _pointwise_headlines(report: Report) -> list[Headline]:
    rows = report.result["rows"]
    largest = max(row["size"] for row in rows)
    found = []
    for row in (one for one in rows if one["size"] == largest):
        title = f"{_lower(report.title)}, {row['operation']}, {row['size']} numbers"
        for name, ratio in row["ratios"].items():
            times = f"{row['alpha_ms']:.1f} ms", f"{row['opponents_ms'][name]:.1f} ms"
            found.append(Headline(title, times[0], _OPPONENTS.get(name, name), times[1], ratio))
    return found


def _gpt_headlines(report: Report) -> list[Headline]:
    (row,) = report.result["rows"]
    title, ours = _lower(report.title), f"{row['alpha_ms']:.1f} ms"
    if row["torch_ms"] is None:
        return [Headline(title, ours)]
    return [Headline(title, ours, "PyTorch", f"{row['torch_ms']:.1f} ms", row["ratio"])]


def _first_seconds_headlines(report: Report) -> list[Headline]:
    revision = report.result["settings"]["revision"]
    return [
        Headline(
            f"first training step of {row['network']}, {row['state']}, at revision {revision}",
            f"{row['median_s']['first step']:.1f} s",
        )
        for row in report.result["rows"]
    ]


def _sweep_headlines(report: Report) -> list[Headline]:
    return [Headline(_lower(report.title), note=sweep.summary(report.result))]


def _algorithms_headlines(report: Report) -> list[Headline]:
    return [Headline(_lower(report.title), note=algorithms.summary(algorithms.rows_of(report.result)))]


def _lower(title: str) -> str:
    return title[0].lower() + title[1:]


def summary(reports: Sequence[Report]) -> str:
    """README's part, between the markers: a table for each machine."""
    machines: dict[str, list[Report]] = {}
    for report in reports:
        machines.setdefault(_processor(report.result), []).append(report)
    parts = []
    for machine, measured in machines.items():
        software = dict.fromkeys(package for report in measured for package in _software(report.result))
        noise = max(_noise(report.result) for report in measured)
        parts.append(f"On {machine}; {', '.join(software)}. Repeated timings vary by a factor of {noise:.2f} at most:")
        parts.append(_markdown((["", "ours", "opponent", "ratio", ""], [line.cells for line in headlines(measured)])))
    parts += ["![ratios](docs/ratios.svg)", "All figures, commands and dates: [docs/results.md](docs/results.md)."]
    return "\n\n".join(parts)


def _processor(result: dict[str, Any]) -> str:
    found = result["machine"]
    target = f" ({found['cpu_target']}, {found['instruction_path']})" if "cpu_target" in found else ""
    return f"{found['cores']} cores of {found['cpu']}{target}"


def _software(result: dict[str, Any]) -> list[str]:
    named = (("python", "Python"), ("torch", "PyTorch"), ("onnxruntime", "ONNX Runtime"))
    return [f"{name} {result['versions'][key]}" for key, name in named if key in result["versions"]]


def with_summary(text: str, reports: Sequence[Report]) -> str:
    """README's text with its part replaced; ArgumentError without the markers."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ArgumentError(f"[{MODULE}] expected one line {BEGIN} and one {END} after it in README.md: put them there")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{summary(reports)}\n\n{END}{rest.split(END)[1]}"


# -- the command -----------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = common.Parser(prog=f"python -m {MODULE}", description=DESCRIPTION, allow_abbrev=False)
    parser.parse_args(list(sys.argv[1:] if arguments is None else arguments))

    def write() -> None:
        common.require_pictures(MODULE)
        from benchmarks import pictures

        reports = read()
        readme = with_summary(README.read_text(encoding="utf-8"), reports)
        DOCS.mkdir(exist_ok=True)
        pictures.draw(reports, DOCS)
        (DOCS / "results.md").write_text(document(reports), encoding="utf-8")
        README.write_text(readme, encoding="utf-8")
        print(f"docs/results.md, its pictures and README.md tell of {len(reports)} results")

    return common.run_command(write)


if __name__ == "__main__":
    sys.exit(main())

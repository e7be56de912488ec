"""The report's pictures: small SVG files in docs/, one of all ratios and one per result."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from benchmarks import common
from benchmarks.algorithms import NEAR
from benchmarks.headlines import headlines
from benchmarks.kept import Report
from benchmarks.report import MANY_ROWS
from benchmarks.suites import OPERATORS, PAPER
from benchmarks.variants import DIRECT, INSERTED, UNTRIMMED

OURS, THEIRS, THIRD = "#1b6ca8", "#d9822b", "#7a9e3f"
_PAPER_LINES = (
    ("torch", THEIRS, "-"),
    ("alpha", OURS, "-"),
    (DIRECT, OURS, "--"),
    (UNTRIMMED, THIRD, "--"),
    (INSERTED, "gray", ":"),
)
_PAPER_NAMES = {"torch": "PyTorch", "alpha": "ours", DIRECT: "ours without Winograd"}
_SWEPT = ("channels", "batch", "map")
"""The axes with enough values for a line; the others are in the table."""


def draw(reports: Sequence[Report], folder: Path) -> None:
    """Draws all pictures, and removes those of results that are gone: that no other page shows."""
    style = {
        "svg.hashsalt": "alpha",
        "svg.fonttype": "none",
        "font.size": 8,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    kept = {"ratios.svg", *(report.picture for report in reports)} | shown_elsewhere(folder)
    for old in (*folder.glob("*.svg"), *folder.glob("*.png")):
        if old.name not in kept:
            old.unlink()
    with mpl.rc_context(style):
        _save(_ratios(reports), folder / "ratios.svg")
        for report in reports:
            kinds = {
                "training": _training,
                "fast recipe": _fast_recipe,
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
                "programs": _programs,
                "scaling": _scaling,
                "first seconds": _first_seconds,
                "sweep": _sweep,
                "algorithms": _algorithms,
                "reproduction": loss_curves,
            }
            _save(kinds[report.kind](report.result), folder / report.picture)


def shown_elsewhere(folder: Path) -> set[str]:
    """The names of the pictures that a folder's pages show, the report's own page left out."""
    pages = [page.read_text("utf-8") for page in folder.glob("*.md") if page.name != "results.md"]
    return {name for page in pages for name in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page)}


def _save(figure: Figure, path: Path) -> None:
    """Without the date, so that equal results give equal files."""
    nothing = {"Software": None} if path.suffix == ".png" else {"Date": None, "Creator": None}
    figure.savefig(path, metadata=nothing, facecolor="white", dpi=130)


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def _ratios(reports: Sequence[Report]) -> Figure:
    """A bar from 1 for each ratio of README's table, on a logarithmic axis: half and twice the time are as long."""
    compared = [one for one in headlines(reports) if one.ratio is not None]
    rows = [(f"{one.title}\nbeside {one.opponent}", one.ratio or 0.0) for one in compared]
    figure = _figure(12, 0.6 + 0.42 * max(1, len(rows)))
    axes = figure.subplots()
    places = range(len(rows))
    colours = [OURS if ratio >= 1 else THEIRS for _, ratio in rows]
    _ratio_bars(axes, places, [ratio for _, ratio in rows], color=colours, height=0.6)
    axes.set_yticks(places, [name for name, _ in rows])
    axes.invert_yaxis()
    axes.set_xlabel("the opponent's time over ours: above 1 we are faster", loc="right")
    return figure


def _ratio_bars(axes: Axes, places: Sequence[float], ratios: Sequence[float], *, digits: int = 2, **look: Any) -> None:
    """Bars from 1 on a logarithmic axis, so that one that is many times the others leaves them to be seen."""
    bars = axes.barh(places, [ratio - 1 for ratio in ratios], left=1, **look)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.bar_label(bars, [f"{ratio:.{digits}f}" for ratio in ratios], padding=3)
    axes.margins(x=0.15, y=0.02)
    axes.axvline(1, color="black", linewidth=0.8)


def _training(result: dict[str, Any]) -> Figure:
    """Time of a step and peak memory of every contestant."""
    names = list(result["contestants"])
    figure = _figure(7, 0.8 + 0.3 * len(names))
    time, memory = figure.subplots(1, 2, sharey=True)
    unit, scale, digits = common.unit_of(result["alpha_s"])
    times = [scale * one["median_s"] for one in result["contestants"].values()]
    peaks = [one["peak"].get("in_use_mib", one["peak"]["process_mib"]) for one in result["contestants"].values()]
    panels = ((time, times, f"{unit} per step", f"%.{digits}f"), (memory, peaks, "peak MiB", "%.0f"))
    for axes, values, label, form in panels:
        axes.bar_label(axes.barh(names, values, color=_colours(names), height=0.6), fmt=form, padding=3)
        axes.set_xlabel(label)
        axes.margins(x=0.15)
    time.invert_yaxis()
    return figure


def loss_curves(result: dict[str, Any]) -> Figure:
    """Loss over steps: each run thin, the mean of a side bold, and the published curves as far as the runs go."""
    settings = result["settings"]
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    look = {"torch": (THEIRS, "PyTorch", 2.5), "alpha": (OURS, "Dragon-Alpha", 1.2)}
    for side in sorted(result["losses"], reverse=True):
        runs = result["losses"][side]
        colour, name, width = look[side]
        for one in runs:
            axes.plot(result["steps"][: len(one)], one, color=colour, alpha=0.25, linewidth=0.7)
        mean = [sum(values) / len(runs) for values in zip(*runs, strict=True)]
        label = f"{name}, mean of {len(runs)}" if len(runs) > 1 else name
        axes.plot(result["steps"][: len(mean)], mean, color=colour, linewidth=width, label=label)
    for (name, (steps, losses)), style in zip(result["published"].items(), ("--", ":"), strict=False):
        axes.plot(steps, losses, style, color="gray", linewidth=1, label=name)
    axes.set_title(
        f"{settings['model']} on {settings['dataset']}, batch {settings['batch_size']}, {settings['engine']}"
    )
    axes.set_xlabel("training step")
    axes.set_ylabel("loss")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def _huge2(result: dict[str, Any]) -> Figure:
    """How many times longer PyTorch and the baseline take, by layer and batch."""
    figure = _figure(7, 0.8 + 0.3 * len(result["rows"]))
    for axes, direction in zip(figure.subplots(1, 2, sharey=True), ("forward", "training"), strict=True):
        rows = [row for row in result["rows"] if row["direction"] == direction]
        names = [f"{row['layer']}, batch {row['batch']}" for row in rows]
        sides = (("baseline_ratio", "zeros inserted", THIRD, 0.2), ("ratio", "PyTorch", THEIRS, -0.2))
        for key, label, colour, shift in sides:
            if rows and rows[0][key] is not None:
                places = [place + shift for place in range(len(rows))]
                _ratio_bars(axes, places, [row[key] for row in rows], color=colour, height=0.4, label=label, digits=1)
        axes.set_yticks(range(len(rows)), names)
        axes.set_xlabel(f"{direction}: the other's time over ours")
    axes.invert_yaxis()
    axes.legend()
    return figure


def _segregation(result: dict[str, Any]) -> Figure:
    """How many times longer PyTorch and separate sub-kernels take, and the memory that those take more."""
    rows = result["rows"]
    figure = _figure(7, 0.8 + 0.3 * len(rows))
    times, memory = figure.subplots(1, 2, sharey=True)
    for key, label, colour, shift in (("separate_ratio", "separate", THIRD, -0.2), ("ratio", "PyTorch", THEIRS, 0.2)):
        if rows[0][key] is not None:
            places = [place + shift for place in range(len(rows))]
            bars = times.barh(places, [row[key] for row in rows], color=colour, height=0.4, label=label)
            times.bar_label(bars, fmt="%.1f", padding=3)
    times.axvline(1, color="black", linewidth=0.8)
    times.set_xlabel("the other's time over ours")
    lines, names = times.get_legend_handles_labels()
    figure.legend(lines, names, loc="outside upper center", ncols=len(names), frameon=False)
    bars = memory.barh(range(len(rows)), [row["saved_mib"] for row in rows], color=OURS, height=0.6)
    memory.bar_label(bars, fmt="%.2f", padding=3)
    memory.set_xlabel("MiB less than separate outputs")
    times.set_yticks(range(len(rows)), [f"{row['layer']}, batch {row['batch']}" for row in rows])
    times.invert_yaxis()
    for axes in (times, memory):
        axes.margins(x=0.2)
    return figure


def _deeplab(result: dict[str, Any]) -> Figure:
    """How many times longer PyTorch and filters with inserted zeros take, by head and batch, on a logarithmic axis."""
    rows = result["rows"]
    figure = _figure(9, 1 + 0.2 * len(rows))
    panels = figure.subplots(1, 2, sharey=True)
    for axes, direction in zip(panels, ("forward", "training"), strict=True):
        chosen = [row for row in rows if row["direction"] == direction]
        sides = (("inserted_ratio", "zeros inserted", THIRD, 0.2), ("ratio", "PyTorch", THEIRS, -0.2))
        for key, label, colour, shift in sides:
            found = [(place + shift, row[key]) for place, row in enumerate(chosen) if row[key] is not None]
            if found:
                places, ratios = zip(*found, strict=True)
                lengths = [ratio - 1 for ratio in ratios]
                bars = axes.barh(places, lengths, left=1, color=colour, height=0.4, label=label)
                axes.bar_label(bars, [f"{ratio:.1f}" for ratio in ratios], padding=3)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
        axes.set_yticks(range(len(chosen)), [f"{row['layer']}, batch {row['batch']}" for row in chosen])
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_xlabel(f"{direction}: the other's time over ours")
        axes.margins(x=0.25)
    panels[0].invert_yaxis()
    lines, names = panels[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside upper center", ncols=len(names) or 1, frameon=False)
    return figure


def _algorithms(result: dict[str, Any]) -> Figure:
    """The choice's time over the best algorithm's, problem by problem, in order; and the limit of a good choice."""
    losses = sorted(row["ratio"] for row in result["rows"])
    figure = _figure(7, 2.5)
    axes = figure.subplots()
    colours = [OURS if one <= NEAR else THEIRS for one in losses]
    axes.bar(range(1, 1 + len(losses)), [one - 1 for one in losses], bottom=1, color=colours)
    axes.axhline(NEAR, color="gray", linewidth=0.8, linestyle=":", label=f"{100 * (NEAR - 1):.0f} % above the best")
    axes.set_ylim(bottom=1)
    axes.set_xlabel("problems, from the best choice to the worst")
    axes.set_ylabel("time of the choice over the best")
    axes.legend(frameon=False)
    return figure


def _matvec(result: dict[str, Any]) -> Figure:
    """GB/s of every contestant over the matrices' columns, one panel per operation and number of rows."""
    operations = list(dict.fromkeys(row["operation"] for row in result["rows"]))
    figure = _figure(9, 2.2 * len(operations))
    look = {"alpha": (OURS, "Dragon-Alpha"), "torch": (THEIRS, "PyTorch"), "numpy": (THIRD, "NumPy")}
    for line, operation in zip(figure.subplots(len(operations), 3, squeeze=False), operations, strict=True):
        for axes, height in zip(line, ("square", 128, 256), strict=True):
            rows = [
                row
                for row in result["rows"]
                if row["operation"] == operation
                and (row["shape"][0] == row["shape"][1] if height == "square" else row["shape"][0] == height)
            ]
            columns = [row["shape"][1] for row in rows]
            for name in rows[0]["times_ms"]:
                colour, label = look[name]
                rates = [1e-6 * row["bytes"] / common.median(row["times_ms"][name]) for row in rows]
                axes.plot(columns, rates, color=colour, label=label, marker=".")
            axes.set_xscale("log", base=2)
            axes.set_title(f"{operation}, {height}" + ("" if height == "square" else " rows"))
            axes.set_ylim(bottom=0)
            axes.grid(alpha=0.3)
        line[0].set_ylabel("GB/s")
    for axes in line:
        axes.set_xlabel("columns")
    lines, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside upper center", ncols=len(names), frameon=False)
    return figure


def _functions(result: dict[str, Any]) -> Figure:
    """The ratios of all rows in ascending order, a panel for each size and a line for each number of threads."""
    rows = [row for row in result["rows"] if row["ratio"] is not None]
    sizes = sorted({row["numbers"] for row in result["rows"]})
    figure = _figure(3 * len(sizes), 3)
    panels = figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0]
    for axes, size in zip(panels, sizes, strict=True):
        for threads, colour in zip(result["settings"]["thread_counts"], (OURS, THIRD), strict=False):
            ratios = sorted(row["ratio"] for row in rows if (row["numbers"], row["threads"]) == (size, threads))
            axes.plot(ratios, color=colour, label=f"{threads} thread{'s' if threads > 1 else ''}")
        axes.axhline(1, color=THEIRS, linewidth=0.8)
        axes.set_yscale("log")
        axes.set_title(f"{size} numbers")
        axes.set_xlabel("functions, by ratio")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("PyTorch's time over ours")
    panels[0].legend(frameon=False)
    return figure


def _pointwise(result: dict[str, Any]) -> Figure:
    """The ratios of each opponent's time to ours, by size, a panel for each operation."""
    operations = list(dict.fromkeys(row["operation"] for row in result["rows"]))
    figure = _figure(3.5 * len(operations), 2.6)
    panels = figure.subplots(1, len(operations), sharey=True, squeeze=False)[0]
    for axes, operation in zip(panels, operations, strict=True):
        rows = [row for row in result["rows"] if row["operation"] == operation]
        sizes = [row["size"] for row in rows]
        for name, colour in zip(rows[0]["ratios"], (THEIRS, THIRD), strict=False):
            axes.plot(sizes, [row["ratios"][name] for row in rows], color=colour, marker="o", label=name)
        axes.axhline(1, color=OURS, linewidth=0.8)
        axes.set_xscale("log")
        axes.set_title(operation)
        axes.set_xlabel("numbers")
    panels[0].set_ylabel("opponent's time over ours")
    panels[0].set_ylim(bottom=0)
    panels[0].legend(frameon=False)
    return figure


def _gpt(result: dict[str, Any]) -> Figure:
    """Milliseconds of a step, a bar for each contestant."""
    (row,) = result["rows"]
    names = list(row["times_ms"])
    figure = _figure(7, 0.6 + 0.4 * len(names))
    axes = figure.subplots()
    times = [common.median(row["times_ms"][name]) for name in names]
    axes.bar_label(axes.barh(names, times, color=_colours(names), height=0.6), fmt="%.0f", padding=3)
    axes.invert_yaxis()
    axes.set_xlabel("ms per training step")
    return figure


def _programs(result: dict[str, Any]) -> Figure:
    """How many times as fast as PyTorch, a bar for each program."""
    rows = [row for row in result["rows"] if row["ratio"] is not None]
    figure = _figure(7, 0.8 + 0.4 * len(rows))
    axes = figure.subplots()
    ratios = [row["ratio"] for row in rows]
    colours = [OURS if ratio >= 1 else THEIRS for ratio in ratios]
    bars = axes.barh([row["name"] for row in rows], ratios, color=colours, height=0.6)
    axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.set_xlabel("PyTorch's time over ours")
    return figure


def _scaling(result: dict[str, Any]) -> Figure:
    """Milliseconds of a step, a group of bars for each batch."""
    rows = result["rows"]
    figure = _figure(7, 0.8 + 0.4 * sum(len(row["medians_ms"]) for row in rows))
    axes = figure.subplots()
    names = [f"{name}, batch {row['batch']}" for row in rows for name in row["medians_ms"]]
    bars = axes.barh(names, [ms for row in rows for ms in row["medians_ms"].values()], color=OURS, height=0.6)
    axes.bar_label(bars, fmt="%.0f", padding=3)
    axes.invert_yaxis()
    axes.set_xlabel("ms per training step")
    return figure


def _fast_recipe(result: dict[str, Any]) -> Figure:
    """The mean loss of each epoch over the seconds of training, a line for each run."""
    figure = _figure(7, 3.5)
    axes = figure.subplots()
    for name, colour in (("alpha", OURS), ("torch", THEIRS)):
        for k, row in enumerate(one for one in result["rows"] if name in one["losses"]):
            seconds = np.cumsum(row["times_ms"][name]) / 1e3
            axes.plot(seconds, row["losses"][name], color=colour, marker="o", label=None if k else name)
    axes.set_xlabel("seconds of training")
    axes.set_ylabel("mean loss of an epoch")
    axes.legend(frameon=False)
    return figure


def _first_seconds(result: dict[str, Any]) -> Figure:
    """Seconds until the first training step is done, a bar for each network, cold and warm."""
    names = [f"{row['network']}, {row['state']}" for row in result["rows"]]
    figure = _figure(7, 0.6 + 0.4 * len(names))
    axes = figure.subplots()
    seconds = [row["median_s"]["until first step"] for row in result["rows"]]
    axes.bar_label(axes.barh(names, seconds, color=OURS, height=0.6), fmt="%.1f", padding=3)
    axes.invert_yaxis()
    axes.set_xlabel("seconds from the start of the process to the end of the first training step")
    return figure


def _colours(names: Sequence[str]) -> list[str]:
    return [
        OURS if name.startswith("alpha") else THIRD if name in ("onnxruntime", "openvino") else THEIRS for name in names
    ]


def _inference(result: dict[str, Any]) -> Figure:
    """Images per second of every contestant, one panel per batch."""
    rows = result["rows"]
    figure = _figure(7, 0.8 + 0.3 * len(rows[0]["times_ms"]))
    panels = figure.subplots(1, len(rows), sharey=True, squeeze=False)[0]
    for axes, row in zip(panels, rows, strict=True):
        names = list(row["times_ms"])
        rates = [1e3 * row["batch"] / common.median(times) for times in row["times_ms"].values()]
        axes.bar_label(axes.barh(names, rates, color=_colours(names), height=0.6), fmt="%.1f", padding=3)
        axes.set_xlabel(f"images/s, batch {row['batch']}")
        axes.margins(x=0.15)
    panels[0].invert_yaxis()
    return figure


def _operators(result: dict[str, Any]) -> Figure:
    """GFLOP/s of useful FLOPs by layer, one panel per operator."""
    if result["geometric_mean"] is not None and len(result["rows"]) > MANY_ROWS:
        return _all_ratios(result)
    operators = list(dict.fromkeys(row["operator"] for row in result["rows"]))
    figure = _figure(9, 3.2)
    panels = figure.subplots(1, len(operators), sharey=True, squeeze=False)[0]
    several = len(result["settings"]["batch_sizes"]) > 1
    for axes, operator in zip(panels, operators, strict=True):
        rows = [row for row in result["rows"] if row["operator"] == operator]
        names = [f"{row['layer']}, {row['batch']}" if several else row["layer"] for row in rows]
        axes.bar([i - 0.2 for i in range(len(rows))], [r["useful_gflops"] for r in rows], 0.4, color=OURS, label="ours")
        if result["geometric_mean"] is not None:
            theirs = [row["useful_gflops"] / row["ratio"] for row in rows]
            axes.bar([i + 0.2 for i in range(len(rows))], theirs, 0.4, color=THEIRS, label="PyTorch")
        axes.axhline(result["fma_peak_gflops"], color="gray", linewidth=0.8, linestyle=":", label="FMA peak")
        axes.set_xticks(range(len(rows)), names, rotation=90 if len(rows) > 8 else 45)
        axes.set_title(f"{operator} ({OPERATORS[operator]})")
        axes.set_xlabel("layer, batch" if several else "layer")
    panels[0].set_ylabel("GFLOP/s of useful FLOPs")
    lines, labels = panels[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    return figure


def _all_ratios(result: dict[str, Any]) -> Figure:
    """The ratios of many layers, sorted, one line per operator."""
    figure = _figure(7, 2.8)
    axes = figure.subplots()
    for operator, colour in zip(OPERATORS, (OURS, THIRD, THEIRS), strict=True):
        ratios = sorted(row["ratio"] for row in result["rows"] if row["operator"] == operator)
        axes.plot(range(1, len(ratios) + 1), ratios, color=colour, label=f"{operator} ({OPERATORS[operator]})")
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_yticks((0.5, 1, 2, 4), ("0.5", "1", "2", "4"))
    axes.minorticks_off()
    axes.set_xlabel("layers and batches, from the lowest ratio to the highest")
    axes.set_ylabel("PyTorch's time over ours")
    axes.legend(frameon=False)
    return figure


def _paper(result: dict[str, Any]) -> Figure:
    """Six panels, an operator and filter each: nominal GFLOP/s over the output map's size, as the paper draws them."""
    sides = sorted({row["shape"]["filter"][0] for row in result["rows"]})
    operators = list(dict.fromkeys(row["operator"] for row in result["rows"]))
    figure = _figure(10, 0.4 + 2.8 * len(sides))
    panels = figure.subplots(len(sides), len(operators), squeeze=False)
    for axes_row, side in zip(panels, sides, strict=True):
        for axes, operator in zip(axes_row, operators, strict=True):
            rows = [r for r in result["rows"] if r["operator"] == operator and r["shape"]["filter"][0] == side]
            for name, colour, style in _PAPER_LINES:
                times = [r["variants_ms"].get(name, r.get(f"{name}_ms")) for r in rows]
                if all(times):
                    rates = [1e3 * r["nominal_gflop"] / time for r, time in zip(rows, times, strict=True)]
                    axes.plot(
                        range(len(rows)), rates, style, color=colour, marker=".", label=_PAPER_NAMES.get(name, name)
                    )
            axes.set_xticks(range(len(rows)), [f"{r['shape']['output'][0]}\n{r['shape']['output'][2]}" for r in rows])
            axes.set_ylim(bottom=0)
            axes.set_title(f"{operator} ({OPERATORS[operator]}), {side}x{side}")
            axes.grid(axis="y", linewidth=0.3)
    for axes in panels[-1]:
        axes.set_xlabel("output map and channels")
    for axes_row in panels:
        axes_row[0].set_ylabel("GFLOP/s, nominal")
    lines, names = panels[0][-1].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside upper center", ncols=len(names), frameon=False)
    return figure


def _sweep(result: dict[str, Any]) -> Figure:
    """GFLOP/s along the long axes, one row of panels per centre."""
    found = {(row["operator"], row["layer"], row["batch"]): row["useful_gflops"] for row in result["rows"]}
    lines = [line for line in result["lines"] if line["axis"] in _SWEPT] or result["lines"]
    centres, axes_names = (list(dict.fromkeys(line[key] for line in lines)) for key in ("centre", "axis"))
    figure = _figure(9, 0.6 + 2.0 * len(centres))
    panels = figure.subplots(len(centres), len(axes_names), sharey=True, squeeze=False)
    for line in lines:
        axes = panels[centres.index(line["centre"])][axes_names.index(line["axis"])]
        for operator, colour in zip(OPERATORS, (OURS, THIRD, THEIRS), strict=True):
            rates = [found[operator, layer, batch] for layer, batch in line["problems"]]
            axes.plot(range(len(rates)), rates, color=colour, marker=".", markersize=4, linewidth=1, label=operator)
        axes.set_xticks(range(len(line["values"])), map(str, line["values"]), rotation=90, fontsize=6)
        axes.set_yscale("log")
        axes.minorticks_off()
        axes.set_xlabel(f"{line['axis']} ({line['centre']})", fontsize=7)
        axes.grid(axis="y", linewidth=0.3)
    for row in panels:
        row[0].set_ylabel("GFLOP/s")
    panels[0][-1].legend(frameon=False, fontsize=7, loc="lower right")
    return figure

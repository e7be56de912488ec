"""The report: ``python -m benchmarks.report`` writes docs/results.md, its pictures and README's table from the results.

All that it writes comes from the JSON files in benchmarks/results, as the benchmarks left them there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from alpha.errors import ArgumentError
from benchmarks import (
    algorithms,
    common,
    deeplab,
    disturbance,
    fast_recipe,
    first_seconds,
    functions,
    huge2,
    matvec,
    pointwise,
    programs,
    scaling,
    segregation,
    sweep,
)
from benchmarks.disturbance import Table
from benchmarks.headlines import headlines
from benchmarks.kept import MODULE, Report, read
from benchmarks.operators import variant_table
from benchmarks.suites import PAPER

DOCS = common.ROOT / "docs"
README = common.ROOT / "README.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"

DESCRIPTION = """
Turns benchmarks/results/*.json into docs/results.md with its pictures, and the most important ones into the table of
README.md between its two markers. The pictures need Matplotlib.
"""

# -- text ------------------------------------------------------------------------------------------------------------


def document(reports: Sequence[Report]) -> str:
    """docs/results.md."""
    parts = [
        "# Results",
        "Written by `python -m benchmarks.report` from the files in [benchmarks/results](../benchmarks/results), which "
        "hold every single timing. Each contestant has a process of its own, and they take turns; times are medians. "
        "A ratio is the opponent's time over ours: above 1 we are faster. *Rounds differ by* is the third quartile of "
        "a contestant's rounds over the first, less 1, the largest in a row; in bold type where it is above "
        f"{disturbance.per_cent(disturbance.LARGE)}. [speed.md](speed.md) says how results are measured.",
        "![ratios](ratios.svg)",
        *_summaries(reports),
        *(_section(report) for report in reports),
    ]
    return "\n\n".join(parts) + "\n"


def _section(report: Report) -> str:
    result = report.result
    head = [f"## {report.title}", _origin(report)]
    kinds = {
        "training": _training,
        "reproduction": _reproduction,
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
    }
    return "\n\n".join([*head, f"![{report.title}]({report.picture})", *kinds[report.kind](result)])


def _origin(report: Report) -> str:
    """Command, date, machine, versions and settings of a run."""
    result = report.result
    lines = [
        f"- command: `{result['command']}`",
        f"- date: {result['date']}",
        f"- machine: {machine(result)}",
        f"- versions: {', '.join(f'{name} {version}' for name, version in result['versions'].items())}",
        f"- threads: {result['settings']['threads']}",
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


def _markdown(table: Table) -> str:
    """A table; the first column to the left."""
    titles, rows = table
    lines = [titles, [":--", *["--:"] * (len(titles) - 1)], *rows]
    return "\n".join("| " + " | ".join("-" if cell is None else str(cell) for cell in line) + " |" for line in lines)


def _training(result: dict[str, Any]) -> list[str]:
    batch, warmup = result["settings"]["batch_size"], result["settings"]["warmup"]
    unit, scale, _ = common.unit_of(result["alpha_s"])
    rows = [
        [
            name,
            f"{scale * one['median_s']:.4f}",
            f"{scale * min(one['seconds'][warmup:]):.4f}",
            f"{batch / one['median_s']:.0f}",
            f"{one['median_s'] / result['alpha_s']:.2f}",
            f"{one['peak'].get('in_use_mib', one['peak']['process_mib']):.0f}",
            f"{one['choice']['allocator']}; Adam {one['choice']['adam']}" if "choice" in one else None,
            disturbance.cell(one["spread"]),
        ]
        for name, one in result["contestants"].items()
    ]
    titles = ["", f"{unit} per step", "least", "images/s", "ratio", "peak MiB", "settings", disturbance.TITLE]
    least = result.get("torch_least_peak_mib")
    note = "Peak: largest resident set less the one after the imports."
    if least is not None:
        note += f" The least that PyTorch took with any layout and allocator tried was {least:.0f} MiB."
    return [_markdown((titles, rows)), note]


def _reproduction(result: dict[str, Any]) -> list[str]:
    if result["settings"].get("busy"):
        return [str(result["text"]), "Other programs ran meanwhile: times of these runs say nothing and are left out."]
    spreads = {side: disturbance.cell(common.spread(one["s_per_epoch"])) for side, one in result["sides"].items()}
    names = {"alpha": "Dragon-Alpha", "torch": "PyTorch"}
    told = ", ".join(f"{names[side]} {spread}" for side, spread in spreads.items())
    return [str(result["text"]), f"Runs differ in their seconds per epoch by: {told}."]


def _inference(result: dict[str, Any]) -> list[str]:
    rows = []
    for row in result["rows"]:
        for name, times in row["times_ms"].items():
            median, difference = common.median(times), row["differences"].get(name)
            cells = [f"{median:.2f}", f"{min(times):.2f}", f"{1e3 * row['batch'] / median:.1f}"]
            ratio, apart = f"{median / row['alpha_ms']:.2f}", f"{difference:.1g}" if difference is not None else None
            rows.append([name, row["batch"], *cells, ratio, apart, disturbance.cell(common.spread(times))])
    titles = ["", "batch", "ms", "least", "images/s", "ratio", "difference", disturbance.TITLE]
    settings = result["settings"]
    note = f"Difference: {settings['difference']}. PyTorch: {settings['torch']}. Ours: {settings['alpha']}."
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
    return [note, _markdown(disturbance.with_rounds_of((titles, rows), result["rows"]))]


def _by_batch(rows: Sequence[dict[str, Any]]) -> Table:
    """The ratios' mean and range of each operator and batch."""
    cells: list[list[object]] = []
    for operator, batch in dict.fromkeys((row["operator"], row["batch"]) for row in rows):
        found = [row for row in rows if (row["operator"], row["batch"]) == (operator, batch)]
        ratios = [row["ratio"] for row in found]
        figures = (common.geometric_mean(ratios), min(ratios), max(ratios))
        cells.append([operator, batch, len(ratios), *(f"{figure:.2f}" for figure in figures), disturbance.told(found)])
    return ["operator", "batch", "layers", "ratio, geometric mean", "lowest", "highest", disturbance.TITLE], cells


def _paper(result: dict[str, Any]) -> list[str]:
    note = (
        "GFLOP/s in the picture: nominal operations, those with the padding's zeros and without the inserted ones, a "
        "second. Direct: ours without Winograd's algorithm; untrimmed: over zeros of padding; zeros inserted: over "
        "those between dY's elements too. Gains: how many times longer it takes without the idea."
    )
    return [*_operators(result), note, _markdown(disturbance.with_rounds_of(variant_table(result), result["rows"]))]


def _huge2(result: dict[str, Any]) -> list[str]:
    settings = result["settings"]
    means = ", ".join(f"{name} {mean:.2f}" for name, mean in result["geometric_mean"].items())
    note = (
        f"Geometric means: {means}. Baseline: {settings['baseline']}. Forward: {settings['forward']}; training: "
        f"{settings['training']}. MB: {settings['bytes']}; MiB: {settings['memory']}."
    )
    return [note, _markdown(disturbance.with_rounds_of(huge2.table(result), result["rows"]))]


def _segregation(result: dict[str, Any]) -> list[str]:
    settings = result["settings"]
    means = ", ".join(f"{name} {mean:.2f}" for name, mean in result["geometric_mean"].items())
    note = (
        f"Geometric means: {means}. Ours: {settings['alpha']}. Separate: {settings['separate']}. "
        f"Extra elements: {settings['elements']}. Written: {settings['written']}. Saved: {settings['saved']}. "
        f"MiB: {settings['memory']}."
    )
    saved = "\n".join(f"- All layers of {line}." for line in segregation.savings(result))
    return [note, saved, _markdown(disturbance.with_rounds_of(segregation.table(result), result["rows"]))]


def _deeplab(result: dict[str, Any]) -> list[str]:
    settings = result["settings"]
    means = ", ".join(f"{name} {mean:.2f}" for name, mean in result["geometric_mean"].items())
    note = (
        f"Geometric means: {means}. Heads: {settings['head']}. Forward: {settings['forward']}; training: "
        f"{settings['training']}. PyTorch: {settings['torch']}. Inserted: {settings['inserted']}. "
        f"GFLOP: {settings['work']}."
    )
    return [note, _markdown(disturbance.with_rounds_of(deeplab.table(result), result["rows"]))]


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
    return [note, _markdown(disturbance.with_rounds_of(matvec.table(result), result["rows"]))]


def _functions(result: dict[str, Any]) -> list[str]:
    settings = result["settings"]
    note = (
        f"Microseconds of a call at about so many numbers. PyTorch: {settings['torch']}. Backward: "
        f"{settings['backward']}. Slow rows are those below {functions.SLOW} of PyTorch's speed, or below "
        f"{functions.SLOW_CALL} with fewer than {functions.CALL_NUMBERS} numbers."
    )
    means = result["geometric_mean"] or {}
    listed = "\n".join(f"- {name}: geometric mean of the ratios {mean:.2f}" for name, mean in means.items())
    slow = disturbance.with_rounds_of(functions.slow_table(result), functions.slow_rows(result))
    told = f"Slow rows, {len(slow[1])} of {len(result['rows'])}:"
    parts = [note, *([listed] if listed else []), *([told, _markdown(slow)] if slow[1] else [])]
    return [*parts, "All ratios:", _markdown(_ratios_of_functions(result))]


def _ratios_of_functions(result: dict[str, Any]) -> Table:
    """A line for each function and direction, with the largest spread of its rows."""
    spreads: dict[tuple[str, str], float] = {}
    for row in result["rows"]:
        key = row["case"], row["direction"]
        spreads[key] = max(spreads.get(key, 1.0), disturbance.of_row(row))
    return disturbance.with_rounds(functions.ratio_table(result), spreads.values())


def _pointwise(result: dict[str, Any]) -> list[str]:
    note = (
        "A Mish with a learnt slope, `x * tanh(softplus(slope * x))`, through `alpha.pointwise`; microseconds of a "
        "call. Memory's least: the bytes that one loop must read and write, at the bandwidth of copying as many."
    )
    return [note, _markdown(disturbance.with_rounds_of(pointwise.table(result), result["rows"]))]


def _gpt(result: dict[str, Any]) -> list[str]:
    settings, (row,) = result["settings"], result["rows"]
    note = (
        f"Batch {settings['batch']}, {settings['tokens']} tokens, embedding {settings['embedding']}, "
        f"{settings['heads']} heads, float32, AdamW."
    )
    rows = [
        [name, f"{common.median(times):.1f}", f"{min(times):.1f}", f"{common.median(times) / row['alpha_ms']:.2f}"]
        for name, times in row["times_ms"].items()
    ]
    table = disturbance.with_rounds((["", "ms", "least", "ratio"], rows), map(common.spread, row["times_ms"].values()))
    return [note, _markdown(table)]


def _programs(result: dict[str, Any]) -> list[str]:
    note = (
        "Networks of a few million parameters, written once for both packages; float32, AdamW. PyTorch's fastest of "
        "its allocators and memory layouts counts."
    )
    return [note, _markdown(disturbance.with_rounds_of(programs.table(result), result["rows"]))]


def _scaling(result: dict[str, Any]) -> list[str]:
    note = (
        "One process has two threads, a rank one; each is pinned to a core. Medians in ms of steps of the whole batch, "
        "float32, Adam. What was predicted for two ranks comes from the processes that train apart, and from the sums."
    )
    model = (
        "A model, not measured: each rank on a machine of its own with the same rows, 25 Gb/s and "
        f"{1e6 * scaling.NETWORK_LATENCY_S:g} us between them, sums beside backward for half of a step."
    )
    table = disturbance.with_rounds_of(scaling.table(result), result["rows"])
    sums = ", ".join(f"{row['nbytes']} bytes in {row['ms']:.3f} ms" for row in result["sums"])
    efficiencies = ", ".join(f"{row['ranks']} ranks {100 * row['efficiency']:.0f} %" for row in result["model"])
    return [
        note,
        _markdown(table),
        f"Sums over two ranks of this machine, medians of one run: {sums}.",
        f"{model} The efficiencies: {efficiencies}.",
    ]


def _fast_recipe(result: dict[str, Any]) -> list[str]:
    products = fast_recipe.TERAFLOP_PER_EPOCH * result["settings"]["epochs"]
    note = (
        f"{fast_recipe.summary(result)}. Per cent of the test images with averaged views; seconds of the epochs, with "
        f"the loading of their batches. The products of {result['settings']['epochs']} epochs, each computed once, "
        f"are {products:.0f} TFLOP."
    )
    return [note, _markdown(disturbance.with_rounds_of(fast_recipe.table(result), result["rows"]))]


def _first_seconds(result: dict[str, Any]) -> list[str]:
    note = (
        "Cold: no compiled kernel is kept on the machine. Warm: those of the cold process are. Each in a new process."
    )
    return [note, _markdown(disturbance.with_rounds_of(first_seconds.table(result), result["rows"]))]


def _algorithms(result: dict[str, Any]) -> list[str]:
    rows, measured = algorithms.rows_of(result), result["settings"].get("figures")
    note = (
        f"Each algorithm that serves a problem was forced; {algorithms.summary(rows)}. Ratio: the time of the "
        f"planner's choice over the best one's."
    )
    note += f" The model's figures: {measured}." if measured else ""
    return [note, _markdown(disturbance.with_rounds_of(algorithms.choices(rows), result["rows"]))]


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
    lines = disturbance.with_rounds(
        sweep.line_table(result), [spread for line in result["lines"] for spread in _line_spreads(result, line)]
    )
    pairs = disturbance.with_rounds(
        sweep.cliff_table(result), [_pair_spread(result, pair) for pair in result["cliffs"]]
    )
    cliffs = [_markdown(pairs), causes] if result["cliffs"] else []
    return [note, *cliffs, _markdown(lines)]


def _line_spreads(result: dict[str, Any], line: dict[str, Any], operators: Sequence[str] = ()) -> list[float]:
    """The largest spread of the operators (all of them unless given) at each value of a sweep's line."""
    spreads: dict[tuple[str, int], float] = {}
    for row in result["rows"]:
        if not operators or row["operator"] in operators:
            key = row["layer"], row["batch"]
            spreads[key] = max(spreads.get(key, 1.0), disturbance.of_row(row))
    return [spreads[layer, batch] for layer, batch in line["problems"]]


def _pair_spread(result: dict[str, Any], pair: dict[str, Any]) -> float:
    """The larger spread of two neighbours in a sweep."""
    (line,) = (one for one in result["lines"] if (one["centre"], one["axis"]) == (pair["centre"], pair["axis"]))
    spreads = zip(line["values"], _line_spreads(result, line, [pair["operator"]]), strict=True)
    return max(spread for value, spread in spreads if value in pair["values"])


# -- the short tables --------------------------------------------------------------------------------------------------


def summary(reports: Sequence[Report]) -> str:
    """README's part, between the markers: its rows with their commands, a table for each machine."""
    titles = ["", "ours", "opponent", "ratio", disturbance.TITLE, "command"]
    parts = []
    for title, measured in _by_machine(reports).items():
        lines = [line for line in headlines(measured) if line.is_in_readme()]
        if lines:
            rows = [[*line.cells, f"`{line.command}`"] for line in lines]
            parts += [title, _markdown((titles, rows))]
    return "\n\n".join(parts)


def _summaries(reports: Sequence[Report]) -> list[str]:
    """The table of all results, for each machine."""
    titles = ["", "ours", "opponent", "ratio", disturbance.TITLE, ""]
    parts = []
    for title, measured in _by_machine(reports).items():
        parts += [title, _markdown((titles, [[*line.cells, line.note or None] for line in headlines(measured)]))]
    return parts


def _by_machine(reports: Sequence[Report]) -> dict[str, list[Report]]:
    """The results of each machine, by a line that names it and the software."""
    machines: dict[str, list[Report]] = {}
    for report in reports:
        machines.setdefault(_processor(report.result), []).append(report)
    return {
        f"On {machine}; {', '.join(dict.fromkeys(name for one in found for name in _software(one.result)))}:": found
        for machine, found in machines.items()
    }


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

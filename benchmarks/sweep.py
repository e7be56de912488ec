"""The sweep: neighbouring shapes around a few centres, and where throughput falls off a cliff between two of them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import bandwidth, common
from benchmarks.suites import OPERATORS, Layer

CLIFF = 2.0
"""Throughput per useful FLOP of neighbours that differs by this factor is a cliff."""


@dataclass(frozen=True)
class Shape:
    """A square convolution of C channels to C channels that pads as far as its filter reaches."""

    batch: int
    channels: int
    map: int
    filter: int = 3
    stride: int = 1
    dilation: int = 1
    groups: int = 1

    @property
    def layer(self) -> Layer:
        """The shape as a layer, for measuring its operators."""
        steps = f"f{self.filter} s{self.stride} d{self.dilation} g{self.groups}"
        return Layer(
            name=f"C{self.channels} {self.map}x{self.map} {steps}",
            size=self.map,
            in_channels=self.channels,
            out_channels=self.channels,
            filter=self.filter,
            stride=self.stride,
            padding=self.dilation * (self.filter // 2),
            dilation=self.dilation,
            groups=self.groups,
        )


AXES = {
    "channels": (16, 17, 20, 24, 31, 32, 33, 40, 48, 63, 64, 65, 80, 96, 127, 128, 129, 160, 192, 256, 320, 384, 512),
    "batch": (1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128),
    "map": (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 14, 15, 20, 24, 28, 36, 48, 56, 72, 96, 128, 160, 224),
    "filter": (1, 3, 5, 7, 11),
    "stride": (1, 2, 3),
    "dilation": (1, 2, 3),
    "groups": (1, 2, 4, 8),
}
CENTRES = {
    "batch 32, C 64, 14x14": Shape(32, 64, 14),
    "batch 1, C 64, 56x56": Shape(1, 64, 56),
    "batch 128, C 128, 8x8": Shape(128, 128, 8),
}
ROUNDS = 3
"""How often the problems of neighbours that differ by almost a cliff or more are measured again."""

_SUSPECT = 0.85 * CLIFF
_LEAST_CHANNELS = 16
"""Fewest channels per group: with fewer it is another kind of problem, which fills no vector of a wide processor."""
_MOST_GFLOP = 40.0
"""Most work of one operator: larger problems would take most of the run's time, and a small machine's memory."""


def lines(axes: Sequence[str] = ()) -> list[tuple[str, str, list[Shape]]]:
    """Centre, axis and the shapes along it, the centre's own among them, for every pair of centre and axis."""
    found = []
    for (name, centre), (axis, values) in itertools.product(CENTRES.items(), AXES.items()):
        if axes and axis not in axes:
            continue
        shapes = [replace(centre, **{axis: value}) for value in values]
        fitting = [shape for shape in shapes if shape.layer.nominal_gflop(shape.batch) <= _MOST_GFLOP]
        found.append((name, axis, [s for s in fitting if s.channels // s.groups >= _LEAST_CHANNELS]))
    return found


def problems(axes: Sequence[str] = ()) -> list[tuple[Layer, int]]:
    """The layers and batches of all lines, each once; the first is a call that computes next to nothing."""
    shapes = dict.fromkeys(itertools.chain([NOTHING], *(shapes for _, _, shapes in lines(axes))))
    return [(shape.layer, shape.batch) for shape in shapes]


NOTHING = Shape(1, 16, 1, filter=1)
"""512 FLOPs: its time is a call's own, whatever it computes."""


# -- bounds ----------------------------------------------------------------------------------------------------------


def moved_bytes(layer: Layer, batch: int) -> int:
    """Bytes of x, w and y in float32, each once: any of the operators reads two of them and writes the third."""
    shape = layer.geometry
    images = sum(rows * columns for rows, columns in (shape.input, shape.output))
    filters = layer.filter**2 * layer.in_channels * layer.out_channels // layer.groups
    return 4 * (batch * images * layer.in_channels + filters)


def bound_ms(layer: Layer, batch: int, gflop: float, peak: float, bandwidths: Mapping[int, float]) -> float:
    """The roofline: milliseconds of so many GFLOP at the FMA peak, or of the bytes, whichever are more."""
    moved = moved_bytes(layer, batch)
    return max(1e3 * gflop / peak, 1e-6 * moved / bandwidth.at(bandwidths, moved))


def suspects(result: dict[str, Any], axes: Sequence[str] = ()) -> list[tuple[Layer, int]]:
    """The problems of neighbours that differ by almost a cliff or more: what other processes' noise may decide."""
    rows = {(row["operator"], row["layer"], row["batch"]): row for row in result["rows"]}
    found: dict[Shape, None] = {NOTHING: None}
    for _, _, shapes in lines(axes):
        for operator, (a, b) in itertools.product(OPERATORS, itertools.pairwise(shapes)):
            rates = (rows[operator, shape.layer.name, shape.batch]["useful_gflops"] for shape in (a, b))
            if _ratio(*rates) >= _SUSPECT:
                found |= {a: None, b: None}
    return [(shape.layer, shape.batch) for shape in found]


# -- judgement -------------------------------------------------------------------------------------------------------


def judge(result: dict[str, Any], bandwidths: Mapping[int, float], axes: Sequence[str] = ()) -> dict[str, Any]:
    """The result of the operators with each row's bound, and with all neighbours' ratios."""
    known = {shape.layer.name: shape.layer for _, _, shapes in lines(axes) for shape in shapes}
    known[NOTHING.layer.name] = NOTHING.layer
    rows = {(row["operator"], row["layer"], row["batch"]): row for row in result["rows"]}
    for row in rows.values():
        layer, batch, peak = known[row["layer"]], row["batch"], result["fma_peak_gflops"]
        row["bound_ms"] = bound_ms(layer, batch, layer.useful_gflop(batch), peak, bandwidths)
        row["bound_share"] = row["bound_ms"] / row["alpha_ms"]
        row["multiplied_bound_ms"] = bound_ms(layer, batch, row["multiplied_gflop"], peak, bandwidths)
        row.pop("shape", None)  # its layer's name says it
    call_ms = {name: min(rows[name, NOTHING.layer.name, NOTHING.batch]["times_ms"]["alpha"]) for name in OPERATORS}
    pairs = [
        _pair(rows[operator, a.layer.name, a.batch], rows[operator, b.layer.name, b.batch], call_ms[operator])
        | {"centre": centre, "axis": axis, "values": [getattr(a, axis), getattr(b, axis)]}
        for centre, axis, shapes in lines(axes)
        for operator in OPERATORS
        for a, b in itertools.pairwise(shapes)
    ]
    pairs.sort(key=lambda pair: -pair["ratio"])
    cliffs = [pair for pair in pairs if pair["ratio"] >= CLIFF]
    return {
        "cliffs": cliffs,
        "cliff_count": len(cliffs),
        "cliff_count_ours": sum(pair["cause"] == "ours" for pair in cliffs),
        "pairs": len(pairs),
        "call_ms": call_ms,
        "bandwidths_gb_s": {str(size): rate for size, rate in bandwidths.items()},
        "lines": [
            {"centre": centre, "axis": axis, "values": [getattr(shape, axis) for shape in shapes]}
            | {"problems": [[shape.layer.name, shape.batch] for shape in shapes]}
            for centre, axis, shapes in lines(axes)
        ],
        **result,
    }


def _pair(a: dict[str, Any], b: dict[str, Any], call_ms: float) -> dict[str, Any]:
    """How the throughputs of two neighbours differ, and what of it the machine explains.

    cause: "machine" where the shares of the roofline differ by less than a cliff; "call" where they do once a call's
    own time is added to both bounds; "Winograd" where they do when what is multiplied counts, not what is useful; else
    "ours".
    """

    def alike(bound: str, more: float = 0.0) -> bool:
        return _ratio(*((row[bound] + more) / row["alpha_ms"] for row in (a, b))) < CLIFF

    ratio = _ratio(a["useful_gflops"], b["useful_gflops"])
    if alike("bound_ms"):
        cause = "machine"
    elif alike("bound_ms", call_ms):
        cause = "call"
    elif alike("multiplied_bound_ms") or alike("multiplied_bound_ms", call_ms):
        cause = "Winograd"
    else:
        cause = "ours"
    return {
        "operator": a["operator"],
        "ratio": ratio,
        "gflops": [a["useful_gflops"], b["useful_gflops"]],
        "bound_share": [a["bound_share"], b["bound_share"]],
        "algorithms": [row.get("algorithm") for row in (a, b)],
        "cause": cause,
    }


def _ratio(one: float, other: float) -> float:
    return max(one, other) / min(one, other)


# -- tables ----------------------------------------------------------------------------------------------------------


def line_table(result: dict[str, Any]) -> tuple[list[str], list[list[object]]]:
    """Titles and rows: each line's values with throughput and share of the bound of the three operators."""
    found = {(row["operator"], row["layer"], row["batch"]): row for row in result["rows"]}
    rows: list[list[object]] = []
    for line in result["lines"]:
        for value, (layer, batch) in zip(line["values"], line["problems"], strict=True):
            cells: list[object] = [line["centre"], line["axis"], value]
            for operator in OPERATORS:
                row = found[operator, layer, batch]
                cells += [f"{row['useful_gflops']:.1f}", f"{row['bound_share']:.0%}"]
                cells += [f"{row['ratio']:.2f}"] if row["ratio"] is not None else []
            rows.append(cells)
    titles = ["centre", "axis", "value"]
    against = any(row["ratio"] is not None for row in result["rows"])
    for operator in OPERATORS:
        titles += [operator, "of bound", *(["ratio"] if against else [])]
    return titles, rows


def cliff_table(result: dict[str, Any]) -> tuple[list[str], list[list[object]]]:
    """Titles and rows: pairs of neighbours beyond the limit, the largest ratio first."""
    rows: list[list[object]] = [
        [
            pair["operator"],
            pair["centre"],
            pair["axis"],
            " - ".join(map(str, pair["values"])),
            " - ".join(f"{rate:.1f}" for rate in pair["gflops"]),
            f"{pair['ratio']:.2f}",
            " - ".join(f"{share:.0%}" for share in pair["bound_share"]),
            pair["cause"],
            " - ".join(dict.fromkeys(map(_short, pair["algorithms"]))),
        ]
        for pair in result["cliffs"]
    ]
    return ["operator", "centre", "axis", "values", "GFLOP/s", "ratio", "of bound", "cause", "algorithms"], rows


def _short(algorithm: str | None) -> str:
    """The algorithm, and for those with variants how it is cut, without numbers."""
    name, _, choice = (algorithm or "").partition(": ")
    return name if name.startswith("Winograd") else f"{name}: {choice.partition(',')[0]}"


def summary(result: dict[str, Any]) -> str:
    """One line: how many cliffs there are, by cause."""
    counts = Counter(pair["cause"] for pair in result["cliffs"])
    causes = ", ".join(f"{cause} {count}" for cause, count in sorted(counts.items()))
    return f"{result['cliff_count']} of {result['pairs']} pairs of neighbours differ by {CLIFF:g} times or more" + (
        f" (causes: {causes})" if causes else ""
    )


def print_tables(result: dict[str, Any]) -> None:
    """Prints all lines, then the cliffs and their count."""
    common.print_table(*line_table(result))
    rates = ", ".join(f"{int(size) >> 20} MiB {rate:.0f}" for size, rate in result["bandwidths_gb_s"].items())
    calls = ", ".join(f"{operator} {1e3 * time:.0f}" for operator, time in result["call_ms"].items())
    print(
        f"GFLOP/s of useful FLOPs; of bound: share of the roofline, FMA peak {result['fma_peak_gflops']:.0f} GFLOP/s,"
    )
    print(f"GB/s of copying by working set: {rates}; Winograd multiplies less and may pass it")
    print(f"A call that computes nothing takes, in us: {calls}")
    common.warn_of_noise(max(common.spread(row["times_ms"]["alpha"]) for row in result["rows"]))
    print()
    if result["cliffs"]:
        common.print_table(*cliff_table(result))
        print("cause: machine - shares of the bound are within the limit; call - they are with a call's own time;")
        print("Winograd - they are by what is multiplied: the faster of the two multiplies less than is useful")
    print(summary(result))

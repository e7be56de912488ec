"""The report's short tables: a line or a few for each result, and which of them README shows."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks import algorithms, common, deeplab, disturbance, fast_recipe, inference, segregation, sweep
from benchmarks.contests import DIRECTIONS
from benchmarks.kept import Report
from benchmarks.suites import PAPER

README_ROWS = (
    ("training resnet18, batch 128", "PyTorch"),
    ("training resnet18, batch 512", "PyTorch"),
    ("training resnet18 (torchvision, 3x3 stem), batch 128", "PyTorch"),
    ("the recipe fast on cifar10", "PyTorch"),
    ("inference of ResNet18, batch 1", "OpenVINO"),
    ("operators of suite resnet18", "PyTorch"),
    ("generators' transposed convolutions, training", "PyTorch"),
    ("a training step of a GPT block, 2 threads", "PyTorch"),
)
"""README's rows, where there is such a result: the title, or how it begins up to a comma, and the opponent."""


@dataclass(frozen=True)
class Headline:
    """A line of a short table; ratio None where there is no opponent."""

    title: str
    ours: str = ""
    opponent: str = ""
    theirs: str = ""
    ratio: float | None = None
    note: str = ""
    rounds: str = ""
    command: str = ""

    @property
    def cells(self) -> list[str | None]:
        """The line's cells but the last one, which is its note or its command."""
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        opponent = f"{self.opponent} {self.theirs}".strip()
        return [cell or None for cell in (self.title, self.ours, opponent, ratio, self.rounds)]

    def is_in_readme(self) -> bool:
        """Whether README shows it."""
        return any(
            (self.title == title or self.title.startswith(f"{title},")) and self.opponent == opponent
            for title, opponent in README_ROWS
        )


def headlines(reports: Sequence[Report]) -> list[Headline]:
    """The lines of the table of all results, with the command that measured each."""
    headlines_of = {
        "training": _training_headlines,
        "reproduction": _reproduction_headlines,
        "fast recipe": _fast_recipe_headlines,
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
        "programs": _programs_headlines,
        "scaling": _scaling_headlines,
        "first seconds": _first_seconds_headlines,
        "sweep": _sweep_headlines,
        "algorithms": _algorithms_headlines,
    }
    return [
        replace(headline, command=_command(report), rounds=headline.rounds or _rounds(report))
        for report in reports
        for headline in headlines_of[report.kind](report)
    ]


def _command(report: Report) -> str:
    """The command of a result, without the file that it wrote."""
    return str(report.result["command"]).partition(" --json")[0]


def _rounds(report: Report) -> str:
    """How much the rounds of a whole result differ."""
    result = report.result
    if "contestants" in result:
        return disturbance.cell(max(float(one["spread"]) for one in result["contestants"].values()))
    if "sides" in result:
        if result["settings"].get("busy"):
            return "-"
        return disturbance.cell(max(common.spread(one["s_per_epoch"]) for one in result["sides"].values()))
    return disturbance.told(result["rows"])


def _training_headlines(report: Report) -> list[Headline]:
    result = report.result
    title, mine = _lower(report.title), result["alpha_peak_mib"]
    ours = f"{common.told(result['alpha_s'])}, {mine:.0f} MiB"
    if result["ratio"] is None:
        return [Headline(title, ours)]
    theirs = f"{common.told(result['torch_s'])}, {result['torch_peak_mib']:.0f} MiB"
    note = f"{mine / result['torch_peak_mib']:.2f} of its memory"
    if result.get("torch_least_peak_mib") is not None:
        note += f", {mine / result['torch_least_peak_mib']:.2f} of the least with any of its allocators"
    return [Headline(title, ours, "PyTorch", theirs, result["ratio"], note)]


def _reproduction_headlines(report: Report) -> list[Headline]:
    result = report.result
    told = {}
    for side, found in result["sides"].items():
        parts = [f"{statistics.mean(found['s_per_epoch']):.0f} s per epoch"] if "s_per_epoch" in found else []
        told[side] = ", ".join([*parts, f"test accuracy {statistics.mean(found['test_accuracy']):.1f} %"])
    if "torch" not in told:
        return [Headline(_lower(report.title), told["alpha"])]
    if result["settings"].get("torch_epochs"):
        told["torch"] += f" after {result['settings']['torch_epochs']} epochs"
    curves = result["curves"]
    note = f"{curves['inside']} of {curves['windows']} windows of the loss within PyTorch's band"
    return [Headline(_lower(report.title), told["alpha"], "PyTorch", told["torch"], result.get("ratio"), note)]


def _inference_headlines(report: Report) -> list[Headline]:
    found = []
    for row in report.result["rows"]:
        form = " in bfloat16" if report.result["settings"]["dtype"] == "bfloat16" else ""
        title, ours = f"inference of ResNet18{form}, batch {row['batch']}{report.place}", f"{row['alpha_ms']:.1f} ms"
        for key, opponent in inference.NAMES.items():
            if row.get(f"{key}_ms") is not None:
                theirs, rounds = f"{row[f'{key}_ms']:.1f} ms", disturbance.told([row])
                found.append(Headline(title, ours, opponent, theirs, row[f"{key}_ratio"], rounds=rounds))
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
    for direction in DIRECTIONS:
        rounds = disturbance.told([row for row in report.result["rows"] if row["direction"] == direction])
        title = f"generators' transposed convolutions, {direction}{report.place}"
        note = f"reads and writes {share:.0%} of it at most" if direction == "forward" else ""
        found.append(
            Headline(
                title, opponent="zeros inserted", ratio=means[f"{direction} over baseline"], note=note, rounds=rounds
            )
        )
        if f"{direction} over torch" in means:
            found.append(Headline(title, opponent="PyTorch", ratio=means[f"{direction} over torch"], rounds=rounds))
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
        title, differ = f"DeepLab's heads, {direction}{report.place}", disturbance.told(rows)
        found.append(Headline(title, opponent=told, ratio=ratio, note=note, rounds=differ))
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
    note = f"geometric mean over {len(report.result['rows'])} rows in all"
    title = f"every public function{report.place}"
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
            rounds = disturbance.told([row])
            found.append(Headline(title, times[0], _OPPONENTS.get(name, name), times[1], ratio, rounds=rounds))
    return found


def _gpt_headlines(report: Report) -> list[Headline]:
    (row,) = report.result["rows"]
    title, ours = _lower(report.title), f"{row['alpha_ms']:.1f} ms"
    if row["torch_ms"] is None:
        return [Headline(title, ours)]
    return [Headline(title, ours, "PyTorch", f"{row['torch_ms']:.1f} ms", row["ratio"])]


def _programs_headlines(report: Report) -> list[Headline]:
    found = []
    for row in report.result["rows"]:
        title, ours = f"{_lower(report.title)}: {row['name']}", f"{row['alpha_ms']:.1f} ms"
        if row["torch_ms"] is None:
            found.append(Headline(title, ours))
        else:
            rounds = disturbance.told([row])
            found.append(Headline(title, ours, "PyTorch", f"{row['torch_ms']:.1f} ms", row["ratio"], rounds=rounds))
    return found


def _scaling_headlines(report: Report) -> list[Headline]:
    found = []
    for row in report.result["rows"]:
        medians = {name: f"{ms:.0f} ms" for name, ms in row["medians_ms"].items()}
        title = f"{_lower(report.title)}, batch {row['batch']}"
        ratio = 1 / row["ranks_to_process"]
        rounds = disturbance.told([row])
        found.append(Headline(title, medians["2 ranks"], "one process", medians["1 process"], ratio, rounds=rounds))
    return found


def _fast_recipe_headlines(report: Report) -> list[Headline]:
    means = fast_recipe.means(report.result)
    told = {name: f"{mean.accuracy:.2f} %, {mean.seconds:.0f} s" for name, mean in means.items()}
    if "torch" not in means:
        return [Headline(_lower(report.title), told["alpha"])]
    ratio = means["torch"].seconds / means["alpha"].seconds
    return [Headline(_lower(report.title), told["alpha"], "PyTorch", told["torch"], ratio)]


def _first_seconds_headlines(report: Report) -> list[Headline]:
    revision = report.result["settings"]["revision"]
    return [
        Headline(
            f"first training step of {row['network']}, {row['state']}, at revision {revision}",
            f"{row['median_s']['first step']:.1f} s",
            rounds=disturbance.told([row]),
        )
        for row in report.result["rows"]
    ]


def _sweep_headlines(report: Report) -> list[Headline]:
    return [Headline(_lower(report.title), note=sweep.summary(report.result))]


def _algorithms_headlines(report: Report) -> list[Headline]:
    return [Headline(_lower(report.title), note=algorithms.summary(algorithms.rows_of(report.result)))]


def _lower(title: str) -> str:
    return title[0].lower() + title[1:]

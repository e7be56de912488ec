"""The table of names as text: for each family what is the same, what differs and how, and what is absent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.parity.differences import DIFFERENCES, MISNAMED
from tests.parity.families import FAMILIES, Family, found, lacking, names

PAGE = Path(__file__).parent.parent.parent / "docs" / "from-pytorch.md"
BEGIN, END = "<!-- names: made by python -m tests.parity -->", "<!-- end of names -->"


def sorted_names(family: Family) -> tuple[list[str], dict[str, str], list[str]]:
    """A family's names that are the same, those that differ with how they do, and those that are absent."""
    theirs, ours = found(family.theirs), found(family.ours)
    same: list[str] = []
    differing: dict[str, str] = {}
    absent: list[str] = []
    for name in names(family):
        value = None if ours is None else getattr(ours, name, None)
        if value is None:
            absent.append(name)
            continue
        how = DIFFERENCES.get(f"{family.title}.{name}")
        if how is None and callable(value):
            misnamed = MISNAMED.get(f"{family.title}.{name}", ())
            without = [argument for argument in lacking(_unbound(theirs, name), value) if argument not in misnamed]
            how = f"without {', '.join(without)}" if without else None
        if how is None:
            same.append(name)
        else:
            differing[name] = how
    return same, differing, absent


def _unbound(owner: Any, name: str) -> Any:
    return getattr(owner, name)


def text() -> str:
    """The section of the page."""
    lines = [BEGIN]
    for family in FAMILIES:
        same, differing, absent = sorted_names(family)
        total = len(same) + len(differing) + len(absent)
        lines += [f"### {family.title}", "", f"{len(same) + len(differing)} of {total} names.", ""]
        lines += _list("Same", same)
        if differing:
            lines += ["Different:", "", *[f"- `{name}`: {how}" for name, how in sorted(differing.items())], ""]
        lines += _list("Absent", absent)
    return "\n".join([*lines, END])


def _list(title: str, given: list[str]) -> list[str]:
    return [f"{title}: {', '.join([f'`{name}`' for name in given])}.", ""] if given else []


def updated(page: str) -> str:
    """A page with the section as it should be."""
    before, _, rest = page.partition(BEGIN)
    return before + text() + rest.partition(END)[2]

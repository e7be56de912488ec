"""The layers of the sources: what their text shows of who imports whom, and of what stands in one place alone."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "alpha": "alpha",
    "nn": "alpha.nn",
    "optim": "alpha.optim",
    "datasets": "alpha.datasets",
    "cu32": "alpha.cu32",
}
"""The folders of the installed packages and their names."""


def test_one_place_counts_the_writes_to_memory() -> None:
    places = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in (*PACKAGES, "benchmarks", "examples")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if "version +=" in line
    ]
    assert len(places) == 1, f"expected Storage.touch() alone to count the writes, got {places}: call storage.touch()"
    assert places[0].startswith("alpha/tensor.py")

"""None of PyTorch's samples gives another result, gradient or second gradient here; what is refused has a reason."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import alpha
from tests.opinfo import samples
from tests.opinfo.exceptions import NOT_COMPARED, REFUSED, SPECIAL, WITHOUT_COMPLEX

pytestmark = [pytest.mark.needs("torch", "expecttest"), pytest.mark.slow]

PARTS = 16
"""The operations are tried in so many tests, which processes share."""

LEAST_SAMPLES = 2500
MOST_REFUSED = 0.05

_tried: dict[int, int] = {}
"""How many samples of float64 each part had, of the parts that ran."""


def tried_operations() -> list[tuple[Any, Any]]:
    """PyTorch's operations that we have, with our function."""
    found = []
    for operation in samples.operations():
        function = samples.ours(operation.name, SPECIAL, operation.variant_test_name)
        names = {operation.name, f"{operation.name}.{operation.variant_test_name}"}
        if function is not None and not names & set(NOT_COMPARED):
            found.append((operation, function))
    return found


@pytest.mark.parametrize("part", range(PARTS))
def test_samples(part: int) -> None:
    import torch

    counts: Counter[str] = Counter()
    wrong = []
    with alpha.set_image_layout("NCHW"):
        for operation, function in tried_operations()[part::PARTS]:
            for dtype in ("float32", "float64", "complex128"):
                if getattr(torch, dtype) not in operation.dtypes or f"{operation.name}.{dtype}" in NOT_COMPARED:
                    continue
                if dtype == "complex128" and operation.name in WITHOUT_COMPLEX:
                    continue
                chosen = samples.chosen(operation, dtype)
                counts["of float64"] += len(chosen) if dtype == "float64" else 0
                for number, sample in enumerate(chosen):
                    try:
                        verdict = samples.tried(operation, function, sample, dtype)
                    except Exception as error:
                        verdict = "wrong"
                        wrong.append(f"{operation.formatted_name}, {dtype}, sample {number}: {error!r:.300}")
                    if verdict == "refused" and operation.name not in REFUSED:
                        wrong.append(f"{operation.formatted_name}, {dtype}, sample {number}: refused without a reason")
                    counts[verdict] += 1
    _tried[part] = counts.pop("of float64")
    print(dict(counts))
    assert not wrong, "\n".join(wrong)
    assert counts["refused"] <= MOST_REFUSED * counts.total()


def test_what_has_no_complex_numbers_says_so() -> None:
    import torch

    for operation, function in tried_operations():
        if operation.name in WITHOUT_COMPLEX and torch.complex128 in operation.dtypes:
            with alpha.set_image_layout("NCHW"):
                verdicts = {
                    samples.tried(operation, function, sample, "complex128")
                    for sample in samples.chosen(operation, "complex128", 4)
                }
            assert verdicts <= {"refused", "skipped"}, operation.name


def test_there_are_samples_enough() -> None:
    """Those that the parts above had, or where not all of them ran, as many as it takes."""
    all_ran = len(_tried) == PARTS
    count = sum(_tried.values()) if all_ran else 0
    for operation, _ in () if all_ran else tried_operations():
        if count >= LEAST_SAMPLES:
            break
        count += len(samples.chosen(operation, "float64")) if "torch.float64" in map(str, operation.dtypes) else 0
    assert count >= LEAST_SAMPLES


def test_the_first_tier_is_here() -> None:
    """The more frequent half of the names that scripts on GitHub use, by the counts that PyTorch keeps."""
    from torch._functorch import top_operators_github_usage as usage

    names = {operation.name for operation in samples.operations()}
    for counted in (usage.top_torch, usage.top_nn_functional):
        ranked = [name for name, _ in sorted(counted, key=lambda pair: -pair[1])]
        first = [name for name in ranked[: len(ranked) // 2] if name in names]
        assert [name for name in first if samples.ours(name, SPECIAL) is None] == []

"""The engine's families share one class: what one of them names, no other may name."""

from __future__ import annotations

from cu32.engine import CUDAEngine


def test_no_two_families_define_the_same_name() -> None:
    owners: dict[str, list[str]] = {}
    for family in CUDAEngine.__bases__:
        for name in vars(family):
            if not name.startswith("__") and name not in ("_abc_impl",):
                owners.setdefault(name, []).append(family.__name__)
    assert {name: found for name, found in owners.items() if len(found) > 1} == {}

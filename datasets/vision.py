"""VisionDataset: the base of a user's data sets of images, with the transforms of inputs and targets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from alpha import errors
from alpha.datasets.composed import Dataset

_INDENT = " " * 4


class StandardTransform:
    """Separate transforms of the input and of the target as one of both.

    Args:
        transform: from an input to anything; None leaves it.
        target_transform: from a target to anything; None leaves it.
    """

    def __init__(
        self,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
    ) -> None:
        self.transform, self.target_transform = transform, target_transform

    def __call__(self, input: Any, target: Any) -> tuple[Any, Any]:
        """(input, target), each transformed."""
        changed = input if self.transform is None else self.transform(input)
        return changed, target if self.target_transform is None else self.target_transform(target)

    def __repr__(self) -> str:
        parts = [("Transform", self.transform), ("Target transform", self.target_transform)]
        return "\n".join(["StandardTransform", *(f"{name}: {part!r}" for name, part in parts if part is not None)])


class VisionDataset(Dataset):
    """A data set of images: a subclass writes ``__len__`` and ``__getitem__``, which applies ``self.transforms``.

    Args:
        root: the folder of its files; a ``~`` is the user's home.
        transforms: from (input, target) to a pair.
        transform: from an input to anything. target_transform: from a target to anything.

    Attributes:
        transforms: the transform of pairs, also where single ones were given; None where nothing was.

    Raises:
        ArgumentError: both ``transforms`` and a single one.
    """

    def __init__(
        self,
        root: str | Path | None = None,
        transforms: Callable[[Any, Any], tuple[Any, Any]] | None = None,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
    ) -> None:
        self.root = str(Path(root).expanduser()) if isinstance(root, str) else root
        single = transform is not None or target_transform is not None
        if transforms is not None and single:
            raise errors.ArgumentError(
                f"[{type(self).__name__}] expected transforms or single ones, got both: leave one out"
            )
        self.transform, self.target_transform = transform, target_transform
        self.transforms = StandardTransform(transform, target_transform) if single else transforms

    def __len__(self) -> int:
        raise NotImplementedError(f"[{type(self).__name__}] expected a subclass with __len__, got none: write one")

    def extra_repr(self) -> str:
        """Further lines of the representation."""
        return ""

    def __repr__(self) -> str:
        body = [f"Number of datapoints: {len(self)}"]
        if self.root is not None:
            body.append(f"Root location: {self.root}")
        body += self.extra_repr().splitlines()
        if self.transforms is not None:
            body += repr(self.transforms).splitlines()
        return "\n".join([f"Dataset {type(self).__name__}", *(_INDENT + line for line in body)])

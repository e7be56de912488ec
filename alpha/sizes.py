"""Size: what ``Tensor.size()`` gives, a tuple of lengths."""

from __future__ import annotations

import math
from typing import Any


class Size(tuple[int, ...]):
    """The lengths of a tensor's axes: a tuple that counts its elements, as PyTorch's ``Size``."""

    __slots__ = ()

    def numel(self) -> int:
        """How many elements a tensor of these lengths has."""
        return math.prod(self)

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return Size(found) if isinstance(key, slice) else found

    def __add__(self, other: tuple[Any, ...]) -> Size:
        return Size(super().__add__(other))

    def __repr__(self) -> str:
        return f"alpha.Size({list(self)})"

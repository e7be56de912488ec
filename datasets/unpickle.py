"""Reading a data set's pickles without running anything that is written in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from alpha import errors, unpickling


def load_dict(function: str, path: Path, advice: str) -> dict[str, Any]:
    """The pickled dict in a file, its keys as str, its arrays as uint8 ndarrays.

    Raises:
        DataError: the file is missing, truncated, no pickle of a dict, or names anything but data.
    """
    try:
        with path.open("rb") as file:
            content = unpickling.load(file, unpickling.ARRAYS)
    except FileNotFoundError:
        raise errors.DataError(f"[{function}] expected the file {path}, got none: {advice}") from None
    except (unpickling.PickleError, OSError, MemoryError) as error:
        raise errors.DataError(f"[{function}] expected a pickled dict in {path}, got {error}: {advice}") from error
    if not isinstance(content, dict):
        raise errors.DataError(
            f"[{function}] expected a pickled dict in {path}, got {type(content).__name__}: {advice}"
        )
    for value in content.values():
        if isinstance(value, np.ndarray) and value.dtype != np.uint8:
            raise errors.DataError(
                f"[{function}] expected arrays of uint8 in {path}, got one of {value.dtype}: {advice}"
            )
    return {_text(key): value for key, value in content.items()}


def _text(key: Any) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)

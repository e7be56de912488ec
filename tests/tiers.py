"""What the quick tests leave to the full run."""

from __future__ import annotations

import numpy as np
import pytest

FLOATS = [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)]
"""The dtypes of floats: kernels for float64, which take as long to compile as float32's, are the full run's."""

FLOAT_NAMES = ["float32", pytest.param("float64", marks=pytest.mark.slow)]
"""``FLOATS`` by name."""

"""``python -m benchmarks.gpu tests`` (or operators, or training)."""

from __future__ import annotations

import sys

from benchmarks.gpu.session import main

if __name__ == "__main__":
    sys.exit(main())

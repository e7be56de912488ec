"""``python -m benchmarks.gpu tests`` (or operators, or training)."""

from __future__ import annotations

import sys

from benchmarks.gpu.command import main

if __name__ == "__main__":
    sys.exit(main())

"""Benchmarks of Dragon-Alpha beside PyTorch: ``python -m benchmarks.training``, ``python -m benchmarks.operators``."""

from __future__ import annotations

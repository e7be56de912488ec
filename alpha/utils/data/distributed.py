"""PyTorch's place of DistributedSampler: ``from alpha.utils.data.distributed import DistributedSampler``."""

from __future__ import annotations

from alpha.datasets.shared_sampler import DistributedSampler

__all__ = ["DistributedSampler"]

"""DistributedSampler: a share of a data set's indices for each rank."""

from __future__ import annotations

from collections.abc import Iterator, Sized

import numpy as np

from alpha.arguments import flag, whole
from alpha.datasets.samplers import Sampler
from alpha.distributed.world import current
from alpha.random import Generator, permutation


class DistributedSampler(Sampler):
    """Every ``num_replicas``-th index of a data set from number ``rank`` on, as many for each rank.

    A loader needs none: without it ranks share each batch, see ``DataLoader``. With it ``batch_size`` is a rank's own,
    the first indices come again where ranks do not divide the data set, and the order depends on the number of ranks.

    Args:
        dataset: the data set.
        num_replicas: among how many ranks it is shared; by default among those of ``alpha.distributed``.
        rank: whose share this is; by default this rank's.
        shuffle: in a random order, the same on all ranks, which follows from the seed and ``set_epoch``.
        seed: of the order, the same on all ranks.
        drop_last: leave out the last indices where ranks do not divide them, instead of repeating the first.

    Raises:
        ArgumentError: a rank that is not below ``num_replicas``. DistributedError: one of the two is to be found, and
        ``alpha.distributed.init()`` was not called.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        function = "DistributedSampler"
        found = current(function).size if num_replicas is None else num_replicas
        self.dataset, self.num_replicas = dataset, whole(function, "num_replicas", found, 1)
        found = current(function).rank if rank is None else rank
        self.rank = whole(function, "rank", found, 0, self.num_replicas - 1)
        self.shuffle, self.drop_last = flag(function, "shuffle", shuffle), flag(function, "drop_last", drop_last)
        self.seed, self.epoch = whole(function, "seed", seed, 0), 0
        length, ranks = len(dataset), self.num_replicas
        self.num_samples = length // ranks if self.drop_last else -(-length // ranks)
        self.total_size = self.num_samples * ranks

    def __iter__(self) -> Iterator[int]:
        length = len(self.dataset)
        if self.shuffle:
            order = permutation(length, Generator().manual_seed(self.seed + self.epoch))
        else:
            order = np.arange(length)
        repeated = np.resize(order, self.total_size)  # from the first on, as often as it takes; or cut off
        return iter(repeated[self.rank :: self.num_replicas].tolist())

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of an epoch; without it all have the same."""
        self.epoch = whole("set_epoch", "epoch", epoch, 0)

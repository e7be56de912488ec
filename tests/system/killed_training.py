"""train_cifar10.py, of which one rank is killed after some steps of its first start: test_distributed_training.py.

python killed_training.py RANK STEP ARGUMENTS
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "examples"))

import common
import train_cifar10

from alpha import distributed as dist

RANK, STEP = int(sys.argv.pop(1)), int(sys.argv.pop(1))
train_step = train_cifar10.train_step


def killed(run: train_cifar10.Run, *batch: Any) -> Any:
    """A step, unless it is the one before which the rank is killed."""
    if run.progress.step == STEP and dist.rank() == RANK and not dist.restarts():
        os.kill(os.getpid(), signal.SIGKILL)
    return train_step(run, *batch)


train_cifar10.train_step = killed
common.run(train_cifar10.main)

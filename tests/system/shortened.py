"""The ``python`` of the pages' commands in tests: ``python -m tests.system.shortened WORDS``, with less to do.

A script gets options that make it small behind its own, of which the last one counts; the others run as they are.
Among them is one thread: on a busy machine two would wait for each other.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

_ONE_THREAD = ("--threads", "1")
_DIGITS = ("--dataset", "digits", *_ONE_THREAD)
_SMALL = ("--batch-size", "4", "--base-width", "8", "--steps", "2", "--warmup", "1", "--trial-steps", "0", *_ONE_THREAD)

OPTIONS: dict[str, tuple[str, ...]] = {
    "examples/train_cifar10.py": ("--base-width", "1", "--batch-size", "5000", *_ONE_THREAD),
    "examples/evaluate.py": _ONE_THREAD,
    "examples/custom_layer.py": _ONE_THREAD,
    "examples/compare_pytorch.py": (*_DIGITS, "--base-width", "8", "--batch-size", "64", "--steps", "3"),
    "examples/reproduce_paper.py": (
        *_DIGITS, "--base-width", "4", "--batch-size", "200", "--epochs", "1", "--every", "1",
    ),
    "examples/dcgan.py": (*_DIGITS, "--base-width", "2", "--latent", "4", "--batch-size", "400", "--epochs", "1"),
    "examples/mnist_mlp.py": (*_DIGITS, "--hidden", "32", "--epochs", "1"),
    "examples/rbm_mnist.py": (*_DIGITS, "--hidden", "24", "--epochs", "1"),
    "examples/sdae_faces.py": (
        "--train-images", "3", "--hidden", "32", "16", "--pretrain", "1", "--fine-tune", "2", "--units", "16",
        "--epochs", "2", "--seeds", "2", *_ONE_THREAD,
    ),
    "examples/segment_digits.py": (
        *_DIGITS, "--scenes", "24", "--test-scenes", "8", "--size", "24", "--base-width", "2", "--batch-size", "8",
    ),
    "benchmarks.training": (*_SMALL,),
    "benchmarks.operators": ("--repeats", "1", *_ONE_THREAD),
    "benchmarks.gpt": (
        "--repeats", "1", "--batch", "2", "--tokens", "16", "--embedding", "32", "--heads", "2", *_ONE_THREAD,
    ),
    "benchmarks.scaling": (
        "--batches", "8", "--repeats", "1", "--steps", "1", "--sums", "2", "--base-width", "4",
    ),
    "benchmarks.programs": ("--repeats", "1", "--batch", "1", "--models", "lstm", *_ONE_THREAD),
    "tests.robustness": ("--calls", "40", "--count", "1", "--workers", "1"),
}  # fmt: skip
"""What each script or module is given."""

BY_SUITE = {"resnet18": ("--layers", "stem", "--batch-size", "1")}
"""What ``benchmarks.operators`` is given for a suite, which its other suites would refuse."""

BEHIND = {
    ("examples/dcgan.py", "--resume"): (),
    ("examples/reproduce_paper.py", "--resume"): (),
    ("examples/train_cifar10.py", "--recipe"): (
        "--base-width", "4", "--batch-size", "500", "--steps", "3", *_ONE_THREAD,
    ),
}  # fmt: skip
"""What a script is given instead where an option is among its own: a resumed run has its small settings already."""


def shortened(words: Sequence[str]) -> list[str]:
    """A command's words behind ``python``, with the options that make it small."""
    script = words[1] if words[:1] == ["-m"] else words[0]
    if script == "alpha.distributed.run":
        script = next(word for word in words if word.endswith(".py"))
    extra = OPTIONS.get(script, ())
    for (name, option), instead in BEHIND.items():
        if script == name and option in words:
            extra = instead
    if script == "benchmarks.operators":
        extra = (*extra, *(BY_SUITE.get(words[words.index("--suite") + 1], ()) if "--suite" in words else ()))
    return [*words, *extra]


if __name__ == "__main__":
    os.execv(sys.executable, [sys.executable, *shortened(sys.argv[1:])])

"""Storms over files: bits of checkpoints and of kept kernels, full disks, writers that are killed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import alpha
from alpha import cache, nn, optim
from alpha.errors import CheckpointError
from alpha.serialization import load_checkpoint, save_checkpoint

_WRITER = """
import sys, alpha, alpha.serialization
from alpha import nn
net = nn.Linear(200, 200)
if len(sys.argv) > 2:
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
print("ready", flush=True)
number = 0
while len(sys.argv) == 2 or number < 3:
    number += 1
    try:
        alpha.serialization.save_checkpoint(sys.argv[1], model=net, number=number)
    except alpha.errors.CheckpointError:
        pass
"""


def _model() -> tuple[nn.Linear, optim.Adam]:
    net = nn.Linear(7, 5)
    adam = optim.Adam(net.parameters(), lr=0.1)
    net(alpha.ones(3, 7)).sum().backward()
    return net, adam.step()


def checkpoint_bits(count: int, seed: int) -> dict[str, int]:
    """Every bit of a checkpoint's header, and ``count`` of its body, flipped one at a time: none may be accepted."""
    chooser = random.Random(seed)
    accepted = raw = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        net, adam = _model()
        save_checkpoint(path, model=net, optimizer=adam, step=391, rate=0.1)
        whole = path.read_bytes()
        header = 8 * (8 + int.from_bytes(whole[:8], "little"))
        body = (chooser.randrange(header, 8 * len(whole)) for _ in range(count))
        for bit in (*range(header), *body):
            damaged = bytearray(whole)
            damaged[bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            try:
                load_checkpoint(path, model=net, optimizer=adam)
                accepted += 1
            except CheckpointError:
                pass
            except Exception:
                raw += 1
    return {"bits": header + count, "fallen: accepted": accepted, "fallen: other errors": raw}


def cache_bits(count: int, seed: int) -> dict[str, int]:
    """Bits of a file that the cache keeps, flipped or cut off: none may be read."""
    chooser = random.Random(seed)
    taken = 0
    before = os.environ.get("ALPHA_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ALPHA_CACHE"] = folder
        try:
            content = chooser.randbytes(3000)
            cache.keep("storm", "file", content)
            path = cache.directory("storm") / "file"
            whole = path.read_bytes()
            for _ in range(count):
                damaged = bytearray(whole)
                if chooser.random() < 0.2:
                    del damaged[chooser.randrange(len(damaged)) :]
                else:
                    bit = chooser.randrange(8 * len(damaged))
                    damaged[bit // 8] ^= 1 << bit % 8
                path.write_bytes(damaged)
                taken += cache.load("storm", "file") is not None
        finally:
            if before is None:
                del os.environ["ALPHA_CACHE"]
            else:
                os.environ["ALPHA_CACHE"] = before
    return {"damages": count, "fallen: taken": taken}


def kills(count: int, seed: int) -> dict[str, int]:
    """Writers of a checkpoint that are killed at any time: the file is always whole, and nothing else is left."""
    chooser = random.Random(seed)
    broken = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        net = nn.Linear(200, 200)
        save_checkpoint(path, model=net, number=0)
        for _ in range(count):
            with subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE) as writer:
                assert writer.stdout is not None
                writer.stdout.readline()
                time.sleep(chooser.uniform(0, 0.05))
                writer.kill()
            try:
                load_checkpoint(path, model=net)
                save_checkpoint(path, model=net, number=0)
            except CheckpointError:
                broken += 1
        left = len(list(Path(folder).iterdir())) - 1
    return {"kills": count, "fallen: broken checkpoints": broken, "fallen: files left": left}


def full_disks(count: int, seed: int) -> dict[str, int]:
    """Writers whose disk is full after any number of bytes: the checkpoint before stays."""
    chooser = random.Random(seed)
    broken = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        net = nn.Linear(200, 200)
        save_checkpoint(path, model=net, number=0)
        size = path.stat().st_size
        for _ in range(count):
            limit = str(chooser.randrange(1, size))
            done = subprocess.run([sys.executable, "-c", _WRITER, str(path), limit], capture_output=True, check=False)
            try:
                broken += done.returncode != 0 or load_checkpoint(path, model=net)["number"] != 0
            except CheckpointError:
                broken += 1
        left = len(list(Path(folder).iterdir())) - 1
    return {"writers": count, "fallen: broken checkpoints": broken, "fallen: files left": left}

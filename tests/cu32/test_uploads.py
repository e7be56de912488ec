"""Arrays on their way to a device: whole, in the order of the calls, and beside the engine's work if they are large."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from alpha.cu32 import uploads
from alpha.cu32.base import DeviceEngine
from alpha.cu32.driver import Device
from alpha.tensor import Storage, Tensor
from tests.system.scripts import device_environment

SIZES = (1, 1000, uploads.APART // 4 - 1, uploads.APART // 4, 100_000, uploads.CHUNK // 4 + 5, 3 * uploads.CHUNK // 4)


class Streams:
    """Which streams arrays were sent on: True for the engine's."""

    def __init__(self, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[bool] = []
        upload = device.upload

        def noted(address: int, array: Any, stream: Any = None) -> None:
            self.seen.append(stream is None or stream is device.stream)
            upload(address, array, stream)

        monkeypatch.setattr(device, "upload", noted)


def uploader(cu32: DeviceEngine, most: int = 64 << 20) -> uploads.Uploader:
    return uploads.Uploader(cu32.device, lambda nbytes: Storage(cu32, cu32.memory, nbytes), lambda: most)


def send(ours: uploads.Uploader, cu32: DeviceEngine, array: Any, times: int = 1) -> Tensor:
    """An array as a batch is sent, after some work with the last one."""
    x = cu32.empty(array.shape, array.dtype)
    for _ in range(times):
        cu32.elementwise("add", x, 1.0, out=x)
        ours.upload(x.address, array)
        cu32.synchronize()
    return x


@pytest.mark.parametrize("count", SIZES)
def test_arrays_arrive(cu32: DeviceEngine, rng: np.random.Generator, count: int) -> None:
    """More of a size than are on their way at once; the caller writes over each as soon as the call is over."""
    ours, given = uploader(cu32), rng.standard_normal((8, count)).astype(np.float32)
    array, tensors = np.empty(count, np.float32), []
    for values in given:
        array[:] = values
        tensors.append(cu32.empty((count,), array.dtype))
        cu32.device.launches += 1  # as if something were done between arrays
        ours.upload(tensors[-1].address, array)
        array[:] = np.nan
    for values, tensor in zip(given, tensors, strict=True):
        np.testing.assert_array_equal(cu32.to_numpy(tensor), values)


def test_large_batches_travel_beside_the_work(
    cu32: DeviceEngine, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, streams = uploader(cu32), Streams(cu32.device, monkeypatch)
    small, large = rng.random(100, np.float32), rng.random(100_000, np.float32)
    send(ours, cu32, small, 6)
    send(ours, cu32, large, uploads.BATCHES)
    assert all(streams.seen)
    send(ours, cu32, large)
    send(ours, cu32, large[:-1])  # of nearly the same size
    assert streams.seen[-2:] == [False, False]


def test_arrays_with_nothing_done_between_them_are_no_batches(
    cu32: DeviceEngine, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the weights of a network's layers."""
    ours, streams = uploader(cu32), Streams(cu32.device, monkeypatch)
    x = cu32.from_numpy(rng.random(100_000, np.float32))
    streams.seen.clear()
    for _ in range(8):
        ours.upload(x.address, rng.random(100_000, np.float32))
    assert len(streams.seen) >= 8 and all(streams.seen)


def test_what_is_kept_for_them_is_bounded(
    cu32: DeviceEngine, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, streams = uploader(cu32, 1 << 20), Streams(cu32.device, monkeypatch)
    before = cu32.memory.in_use
    for kilobytes in (512, 768, 512):  # each takes the room of the other
        send(ours, cu32, rng.random(kilobytes * 256, np.float32), 4)
        assert not streams.seen[-1] and cu32.memory.in_use - before < (1 << 20) + 4096
    send(ours, cu32, rng.random(1 << 20, np.float32), 4)
    assert streams.seen[-1]  # larger than all that may be kept
    del ours
    assert cu32.memory.in_use == before


def test_an_interrupt_leaves_no_copy_under_way(
    cu32: DeviceEngine, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, array = uploader(cu32), rng.random(100_000, np.float32)
    before = cu32.memory.in_use
    x = send(ours, cu32, array, 4)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cu32.device, "wait_for", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ours.upload(x.address, array)
    for more in (1, 2):
        np.testing.assert_array_equal(cu32.to_numpy(send(ours, cu32, array + more)), array + more)
    del ours, x
    assert cu32.memory.in_use == before


DEFERRED = """
import numpy as np, alpha
from alpha.cu32 import uploads
engine = alpha.engine("cu32")
rng = np.random.default_rng(0)
given = rng.standard_normal((8, uploads.APART // 4 + 3)).astype(np.float32)
array = np.empty(given.shape[1], np.float32)
total, expected = alpha.zeros(given.shape[1], engine=engine), np.zeros(given.shape[1], np.float32)
for values in given:  # what was uploaded is gone when the next one comes, and its memory is used again
    array[:] = values
    x = alpha.tensor(array, engine=engine)
    array[:] = np.nan
    total += x * x
    expected += values * values
    del x
assert np.abs(total.numpy() - expected).max() < 1e-5

assert engine._uploader._rooms[-(-array.nbytes // uploads.GRAIN) * uploads.GRAIN]
x = engine.from_numpy(given[0])
engine.synchronize()
x += 1
behind = engine.device.event(timed=False).record()
later = engine.from_numpy(given[1])
engine._uploader._stream.synchronize()
assert not behind.done()  # the second array has arrived, and the work before it waits still
np.testing.assert_array_equal(later.numpy(), given[1])
np.testing.assert_array_equal(x.numpy(), given[0] + 1)

other = rng.standard_normal(3 * uploads.GRAIN).astype(np.float32)
assert other.nbytes > uploads.APART and other.nbytes % uploads.GRAIN == 0
before = [engine.from_numpy(other) + 0 for _ in range(8)]
engine.synchronize()
engine._uploader._rooms[other.nbytes].clear()
for one in reversed(before):
    one += 1
del before, one  # the next arrays and their rooms have this memory, where the additions are still to be done
later = []
for _ in range(3):
    later.append(engine.from_numpy(other))
    engine.device.launches += 1  # as if it were
engine._uploader._stream.synchronize()
for one in later:
    np.testing.assert_array_equal(one.numpy(), other)

wait_for = engine.device.wait_for


def interrupted(*arguments):
    raise KeyboardInterrupt


engine.device.wait_for = interrupted
try:
    engine.from_numpy(other)
except KeyboardInterrupt:
    engine.device.wait_for = wait_for
filled = [alpha.full(other.shape, 7.0, engine=engine) for _ in range(8)]  # one of them where the array would go
engine.synchronize()
engine._uploader._stream.synchronize()
assert all((one.numpy() == 7).all() for one in filled)
print("beside")
"""

TWO = """
import threading
import numpy as np, alpha
from alpha import nn, optim

engines = [alpha.engine("cu32:0"), alpha.engine("cu32:1", memory="256MB")]
assert engines[0] is not engines[1] and [one.name for one in engines] == ["cu32:0", "cu32:1"]
assert engines[1].memory.cap == 256 << 20 and engines[0].memory is not engines[1].memory

rng = np.random.default_rng(0)
images, labels = rng.standard_normal((4, 6, 8, 8, 4)).astype(np.float32), rng.integers(0, 3, (4, 6))


def training(engine, graphed):
    alpha.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(4, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(),
                        nn.Linear(1024, 3)).to(engine).train()
    optimizer = optim.Adam(net.parameters())

    def step(x, y):
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    step = alpha.graph(step) if graphed else step
    for x, y in zip(images, labels):
        yield step(alpha.tensor(x, engine=engine), alpha.tensor(y, engine=engine)).item()


for graphed in (False, True):
    alone = list(training(engines[0], graphed))
    in_turn = list(zip(*[training(engine, graphed) for engine in engines]))  # a step of one, a step of the other
    assert in_turn == [(loss, loss) for loss in alone], (in_turn, alone)

found = [None, None]


def run(at):
    found[at] = [alpha.tensor(x, engine=engines[at]).square().sum().item() for x in images]


threads = [threading.Thread(target=run, args=(at,)) for at in (0, 1)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert found[0] == found[1]

x, y = (alpha.ones(5, engine=engine) for engine in engines)
try:
    x + y
except alpha.errors.EngineError as error:
    assert "cu32:0" in str(error) and "cu32:1" in str(error), error
else:
    raise SystemExit("tensors of two engines were added")
assert (x.to("cu32:1") + y).tolist() == [2.0] * 5 and (x + y.cuda(0)).engine is engines[0]
for taken in (alpha.from_dlpack(y), alpha.as_tensor(y)):
    assert taken.engine is engines[1]
used = engines[1].memory.in_use
del x
engines[0].memory.release_cached()
engines[0].synchronize()
assert engines[1].memory.in_use == used and y.tolist() == [1.0] * 5
print("two")
"""


def run(program: str, **settings: str) -> str:
    """What a process of its own prints, with settings of the driver that stands in for a device."""
    environment = device_environment()
    if "LD_LIBRARY_PATH" not in environment:
        pytest.skip("a real driver cannot be told to wait, or to have two devices")
    environment |= {f"ALPHA_EMULATOR_{name}": value for name, value in settings.items()}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def test_they_wait_for_nothing_and_nothing_comes_before_them() -> None:
    assert run(DEFERRED, STREAMS="deferred") == "beside"


@pytest.mark.slow
def test_two_engines_in_one_process() -> None:
    assert run(TWO, DEVICES="2") == "two"

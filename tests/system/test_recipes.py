"""The modern recipe: its training step by step beside PyTorch's, going on to the bit, and TensorBoard's events."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn, optim
from tests.system.scripts import EXAMPLES, TINY, Script, device_environment, losses, one_line_error

MODERN = (*TINY, "--recipe", "modern", "--epochs", "3")
STEPS = 100


@pytest.fixture
def recipes(monkeypatch: pytest.MonkeyPatch) -> Any:
    """examples/recipes.py."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import recipes

    yield recipes
    for name in ("recipes", "common"):
        sys.modules.pop(name, None)


@pytest.mark.needs("torch")
def test_a_hundred_steps_are_pytorchs(recipes: Any) -> None:
    """In float64: losses, rates, weights and their average.

    Rounding begins at 1e-16 and grows with the steps; 1e-8 leaves it eight digits to do so, and no mistake would be so
    small.
    """
    import torch
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    from benchmarks.torch_models import torch_twin

    settings = {**recipes.RECIPES["modern"], "model": "resnet18", "base_width": 4}
    alpha.manual_seed(0)
    net = recipes.common.make_model(settings, 10).to(np.float64).train()
    (optimizer,) = recipes.make_optimizers(settings, net)
    (schedule,) = recipes.make_schedules({**settings, "epochs": 1}, [optimizer], STEPS)
    average = recipes.make_average(settings, net)

    twin = torch_twin("resnet18", "torchvision", base_width=4, stem="3x3").double().train()
    twin.load_state_dict(nn.models.to_torch(net))
    groups = [
        {"params": [p for p in twin.parameters() if p.ndim > 1], "weight_decay": settings["weight_decay"]},
        {"params": [p for p in twin.parameters() if p.ndim <= 1], "weight_decay": 0.0},
    ]
    torch_optimizer = torch.optim.SGD(groups, settings["lr"], momentum=0.9, nesterov=True)
    torch_schedule = torch.optim.lr_scheduler.OneCycleLR(torch_optimizer, settings["lr"], STEPS, cycle_momentum=False)
    torch_average = AveragedModel(twin, multi_avg_fn=get_ema_multi_avg_fn(settings["average"]), use_buffers=True)

    rng = np.random.default_rng(0)
    smoothing = settings["label_smoothing"]
    for step in range(STEPS):
        x, y = rng.standard_normal((4, 16, 16, 3)), rng.integers(0, 10, 4)
        loss = nn.functional.cross_entropy(net(alpha.tensor(x)), alpha.tensor(y), label_smoothing=smoothing)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert optimizer.param_groups[0]["lr"] == pytest.approx(torch_optimizer.param_groups[0]["lr"], rel=1e-12)
        schedule.step()
        average.update_parameters(net)

        logits = twin(torch.from_numpy(x).permute(0, 3, 1, 2))
        expected = torch.nn.functional.cross_entropy(logits, torch.from_numpy(y), label_smoothing=smoothing)
        torch_optimizer.zero_grad()
        expected.backward()
        torch_optimizer.step()
        torch_schedule.step()
        torch_average.update_parameters(twin)
        assert float(loss) == pytest.approx(float(expected.detach()), rel=1e-8), step
    ours = nn.models.to_torch(average.module)
    for name, tensor in torch_average.module.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            np.testing.assert_allclose(np.asarray(ours[name]), tensor.numpy(), rtol=1e-6, atol=1e-9)


@pytest.mark.needs("sklearn")
def test_a_modern_run_goes_on_to_the_bit(script: Script, tmp_path: Path) -> None:
    whole = script("train_cifar10.py", *MODERN, "--out", "whole")
    first = script("train_cifar10.py", *MODERN, "--steps", 7, "--out", "run")
    other = script("train_cifar10.py", "--resume", "run", "--epochs", 4)
    second = script("train_cifar10.py", "--resume", "run", "--steps", 12)
    assert [p.returncode for p in (whole, first, other, second)] == [0, 0, 1, 0], whole.stderr + second.stderr
    assert "expected --epochs 3" in one_line_error(other)
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert weights[0] == weights[1]
    tested = script("evaluate.py", "run")
    assert tested.stdout.splitlines()[-1] == second.stdout.splitlines()[-1]
    with open(tmp_path / "run/metrics.csv") as file:
        rates = [float(row["lr"]) for row in csv.DictReader(file)]
    cycle = optim.OneCycleLR(optim.SGD([nn.Parameter([1.0])], 0.1), 0.1, 12, cycle_momentum=False)
    expected = []
    for _ in range(12):
        expected += cycle.get_last_lr()
        if len(expected) < 12:
            cycle.step()
    assert rates == pytest.approx(expected)


@pytest.mark.needs("sklearn")
@pytest.mark.slow
def test_a_modern_step_on_a_gpu(script: Script, tmp_path: Path) -> None:
    """On the CUDA engine, the test driver's or a real one: the first loss is the CPU's, in float32."""
    env = device_environment()
    small = ("--dataset", "digits", "--base-width", 4, "--batch-size", 8, "--recipe", "modern", "--epochs", 3)
    for engine in ("cpu", "cu32"):
        process = script("train_cifar10.py", *small, "--steps", 1, "--engine", engine, "--out", engine, env=env)
        assert process.returncode == 0, process.stderr
    ours, theirs = (float(losses(tmp_path / engine)[0]) for engine in ("cu32", "cpu"))
    assert ours == pytest.approx(theirs, rel=1e-4)


@pytest.mark.needs("sklearn", "tensorboard")
def test_tensorboard_shows_what_metrics_csv_holds(script: Script, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    first = script("train_cifar10.py", *TINY, "--steps", 2, "--out", "run", "--tensorboard")
    second = script("train_cifar10.py", "--resume", "run", "--steps", 4)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    events = EventAccumulator(str(tmp_path / "run/tensorboard")).Reload()
    shown = [(event.step, event.value) for event in events.Scalars("loss")]
    assert [step for step, _ in shown] == [1, 2, 3, 4]
    np.testing.assert_allclose([value for _, value in shown], list(map(float, losses(tmp_path / "run"))), rtol=1e-6)
    assert set(events.Tags()["scalars"]) == {"loss", "accuracy", "images_per_s", "lr"}

"""DCGAN: shapes, initial weights, losses by hand, training beside the same networks in PyTorch, classes, misuse."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn, optim
from alpha.engine import Engine
from alpha.errors import AlphaError, ArgumentError, IndexingError, ShapeError

Array = np.ndarray[Any, Any]
BATCH, LATENT, WIDTH, SIZE, CLASSES = 4, 5, 3, 16, 3
ADAM = {"lr": 2e-4, "betas": (0.5, 0.999)}


def small(engine: Engine, num_classes: int = 0) -> nn.models.DCGAN:
    """Two doublings, to images of 16 x 16; three channels of the widest hidden maps are odd on purpose."""
    alpha.manual_seed(0)
    return nn.models.DCGAN(LATENT, WIDTH, SIZE, num_classes=num_classes).to(engine)


def batch(engine: Engine, rng: np.random.Generator, dtype: Any = np.float64) -> tuple[alpha.Tensor, alpha.Tensor]:
    """Latents and images."""
    z, x = rng.normal(size=(BATCH, LATENT)), rng.uniform(-1, 1, (BATCH, SIZE, SIZE, 3))
    return engine.from_numpy(z.astype(dtype)), engine.from_numpy(x.astype(dtype))


def classes(engine: Engine, *values: int) -> alpha.Tensor:
    return engine.from_numpy(np.array(values or [0, 1, 2, 1]))


# -- sizes and weights -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "channels", "widest"), [(8, 1, 2), (16, 3, 4), (32, 3, 8), (64, 2, 16)])
def test_shapes(engine: Engine, size: int, channels: int, widest: int) -> None:
    net = nn.models.DCGAN(LATENT, 2, size, channels).to(engine)
    assert net.generator.project.conv.out_channels == widest
    images = net(alpha.randn(2, LATENT, engine=engine))
    assert images.shape == (2, size, size, channels)
    assert np.abs(np.array(images)).max() <= 1
    assert net.discriminator(images).shape == (2,)


def test_initial_weights_are_the_papers() -> None:
    alpha.manual_seed(0)
    net = nn.models.DCGAN(base_width=16, num_classes=10)
    for name, tensor in net.named_parameters():
        values = np.array(tensor)
        if "embedding" in name:
            assert values.std() == pytest.approx(1, abs=0.5), name
        elif tensor.ndim > 1:  # a deviation's estimate is off by 1 / sqrt(2n) of it: 5 of these
            assert abs(values.std() / 0.02 - 1) <= 5 / np.sqrt(2 * values.size), name
            assert abs(values.mean()) <= 5 * 0.02 / np.sqrt(values.size), name
        else:
            assert (values == ("bn.weight" in name)).all(), name


# -- losses and gradients ----------------------------------------------------------------------------------------------


def test_losses_by_hand(engine: Engine, rng: np.random.Generator) -> None:
    net = small(engine).to(alpha.float64)
    z, x = batch(engine, rng)
    fake = net(z)
    with alpha.no_grad():
        real_logits, fake_logits = (np.array(net.discriminator(images)) for images in (x, fake))
        discriminator, generator = net.discriminator_loss(x, fake).item(), net.generator_loss(fake).item()
    expected = np.logaddexp(0, -real_logits).mean() + np.logaddexp(0, fake_logits).mean()
    assert discriminator == pytest.approx(expected, rel=1e-12)
    assert generator == pytest.approx(np.logaddexp(0, -fake_logits).mean(), rel=1e-12)


@pytest.mark.parametrize("num_classes", [0, CLASSES])
def test_each_loss_reaches_all_of_its_network(engine: Engine, rng: np.random.Generator, num_classes: int) -> None:
    net = small(engine, num_classes)
    z, x = batch(engine, rng, np.float32)
    labels = classes(engine) if num_classes else None
    fake = net(z, labels)
    net.discriminator_loss(x, fake, labels).backward()
    assert all(parameter.grad is None for parameter in net.generator.parameters())
    for name, parameter in net.discriminator.named_parameters():
        assert parameter.grad is not None and np.abs(np.array(parameter.grad)).max() > 0, name
    net.zero_grad()
    net.discriminator.requires_grad_(False)
    net.generator_loss(fake, labels).backward()
    assert all(parameter.grad is None for parameter in net.discriminator.parameters())
    for name, parameter in net.generator.named_parameters():
        assert parameter.grad is not None and np.abs(np.array(parameter.grad)).max() > 0, name


# -- beside PyTorch ----------------------------------------------------------------------------------------------------


def torch_twin(torch: Any, num_classes: int) -> Any:
    """The small network in PyTorch, under the same names; images are (N, C, H, W)."""
    t = torch.nn

    def block(conv: Any) -> Any:
        part = t.Module()
        part.conv, part.bn = conv, t.BatchNorm2d(conv.out_channels)
        return part

    net = t.Module()
    net.generator, net.discriminator = t.Module(), t.Module()
    g, d = net.generator, net.discriminator
    g.project = block(t.ConvTranspose2d(LATENT + num_classes, 2 * WIDTH, 4, bias=False))
    g.blocks = t.Sequential(block(t.ConvTranspose2d(2 * WIDTH, WIDTH, 5, 2, 2, 1, bias=False)))
    g.image = t.ConvTranspose2d(WIDTH, 3, 5, 2, 2, 1)
    first, second = t.Conv2d(3 + bool(num_classes), WIDTH, 5, 2, 2), t.Conv2d(WIDTH, 2 * WIDTH, 5, 2, 2, bias=False)
    d.features = t.Sequential(first, t.LeakyReLU(0.2), block(second))
    d.linear = t.Linear(16 * 2 * WIDTH, 1)
    if num_classes:
        g.embedding, d.embedding = t.Embedding(num_classes, num_classes), t.Embedding(num_classes, SIZE * SIZE)
    return net.double()


def torch_passes(torch: Any, twin: Any) -> SimpleNamespace:
    """What the twin's two networks compute."""
    f = torch.nn.functional

    def generate(z: Any, labels: Any) -> Any:
        g = twin.generator
        z = z if labels is None else torch.cat([z, g.embedding(labels)], 1)
        for part in (g.project, *g.blocks):
            z = f.relu(part.bn(part.conv(z if z.ndim == 4 else z[:, :, None, None])))
        return torch.tanh(g.image(z))

    def judge(x: Any, labels: Any) -> Any:
        d = twin.discriminator
        x = x if labels is None else torch.cat([x, d.embedding(labels).reshape(-1, 1, SIZE, SIZE)], 1)
        last = d.features[2]
        x = f.leaky_relu(last.bn(last.conv(d.features[:2](x))), 0.2)
        return d.linear(x.flatten(1)).flatten()

    return SimpleNamespace(generate=generate, judge=judge)


def torch_step(torch: Any, twin: Any, optimizers: Any, x: Any, z: Any, labels: Any) -> tuple[float, float]:
    """A training step as PyTorch's own example has it: the discriminator's update, then the generator's."""
    passes, loss = torch_passes(torch, twin), torch.nn.functional.binary_cross_entropy_with_logits
    fake, ones, zeros = passes.generate(z, labels), torch.ones(BATCH).double(), torch.zeros(BATCH).double()
    discriminator = loss(passes.judge(x, labels), ones) + loss(passes.judge(fake.detach(), labels), zeros)
    twin.discriminator.zero_grad()
    discriminator.backward()
    optimizers[0].step()
    generator = loss(passes.judge(fake, labels), ones)
    twin.generator.zero_grad()
    generator.backward()
    optimizers[1].step()
    return discriminator.item(), generator.item()


def step(
    net: nn.models.DCGAN, optimizers: Any, x: alpha.Tensor, z: alpha.Tensor, labels: alpha.Tensor | None
) -> tuple[float, float]:
    fake = net(z, labels)
    losses = []
    for optimizer, loss in (
        (optimizers[0], lambda: net.discriminator_loss(x, fake, labels)),
        (optimizers[1], lambda: net.generator_loss(fake, labels)),
    ):
        value = loss()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses[0], losses[1]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("num_classes", [0, CLASSES])
def test_training_is_pytorchs(engine: Engine, rng: np.random.Generator, num_classes: int) -> None:
    """Three steps from one set of weights, and the images and logits that then come out in evaluation mode.

    float64, where the two differ by the order of their sums: about 1e-15 of a loss here, and at most 2e-14 after 18
    steps of the whole network. In float32 Adam carries the rounding of small gradients into whole steps: after five,
    losses differ by 1e-3, as PyTorch's do between its own two layouts.
    """
    import torch

    net, twin = small(engine, num_classes).to(alpha.float64), torch_twin(torch, num_classes)
    twin.load_state_dict(nn.models.to_torch(net))
    parts, twins = (net.discriminator, net.generator), (twin.discriminator, twin.generator)
    optimizers = [optim.Adam(part.parameters(), **ADAM) for part in parts]
    others = [torch.optim.Adam(part.parameters(), **ADAM) for part in twins]
    labels = classes(engine) if num_classes else None
    their_labels = None if labels is None else torch.from_numpy(np.array(labels))
    for _ in range(3):
        z, x = batch(engine, rng)
        their_z, their_x = (torch.from_numpy(np.array(tensor)) for tensor in (z, x))
        losses = step(net, optimizers, x, z, labels)
        expected = torch_step(torch, twin, others, their_x.permute(0, 3, 1, 2), their_z, their_labels)
        assert losses == pytest.approx(expected, rel=1e-11)
    with alpha.no_grad(), torch.no_grad():
        images = net.eval()(z, labels)
        passes = torch_passes(torch, twin.eval())
        expected_images = passes.generate(their_z, their_labels)
        logits, expected_logits = net.discriminator(images, labels), passes.judge(expected_images, their_labels)
    np.testing.assert_allclose(np.array(images), expected_images.permute(0, 2, 3, 1).numpy(), rtol=0, atol=1e-10)
    np.testing.assert_allclose(np.array(logits), expected_logits.numpy(), rtol=0, atol=1e-10)


# -- classes -----------------------------------------------------------------------------------------------------------


def test_the_class_counts_in_both_networks(engine: Engine, rng: np.random.Generator) -> None:
    net = small(engine, CLASSES).eval()
    z, x = batch(engine, rng, np.float32)
    one, same, other = classes(engine, 0, 1, 2, 1), classes(engine, 0, 1, 2, 1), classes(engine, 0, 1, 2, 2)
    with alpha.no_grad():
        for network, given in ((net.generator, z), (net.discriminator, x)):
            first, again, changed = (np.array(network(given, labels)) for labels in (one, same, other))
            np.testing.assert_array_equal(first, again)
            np.testing.assert_array_equal(first[:3], changed[:3])
            assert np.abs(first[3] - changed[3]).max() > 0


# -- misuse ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": 24}, r"\[DCGANGenerator\] expected image_size as 8, 16, 32, 64 or a higher power of 2, got 24"),
        ({"image_size": 4}, r"expected image_size as 8, .*, got 4"),
        ({"image_size": 32.0}, r"expected image_size as an integer >= 1, got 32.0"),
        ({"latent_size": 0}, r"expected latent_size as an integer >= 1, got 0"),
        ({"base_width": -1}, r"expected base_width as an integer >= 1, got -1"),
        ({"num_classes": -1}, r"expected num_classes as an integer >= 0, got -1"),
        ({"channels": 0}, r"expected channels as an integer >= 1, got 0"),
    ],
)
def test_sizes_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        nn.models.DCGAN(**options)


@pytest.mark.parametrize(
    ("num_classes", "call", "error", "message"),
    [
        (0, lambda net, z, x, y: net(z, y), ArgumentError, r"\[DCGANGenerator\] expected no labels, .*got \(4,\)"),
        (3, lambda net, z, x, y: net(z), ArgumentError, r"expected classes as labels, of 3, got none"),
        (3, lambda net, z, x, y: net(z, y[:3]), ShapeError, r"expected labels \(4,\), one class per image, got \(3,\)"),
        (3, lambda net, z, x, y: net(z, y + 2), IndexingError, r"expected indices in 0\.\.2"),
        (0, lambda net, z, x, y: net(x), ShapeError, r"expected latents \(N, 5\), got \(4, 16, 16, 3\)"),
        (0, lambda net, z, x, y: net.discriminator(z), ShapeError, r"expected images \(N, 16, 16, 3\), got \(4, 5\)"),
        (3, lambda net, z, x, y: net.generator_loss(x), ArgumentError, r"\[DCGANDiscriminator\] expected classes"),
    ],
)
def test_inputs_that_do_not_fit(
    cpu: Engine, rng: np.random.Generator, num_classes: int,
    call: Callable[..., Any], error: type[AlphaError], message: str,
) -> None:  # fmt: skip
    with pytest.raises(error, match=message):
        call(small(cpu, num_classes), *batch(cpu, rng, np.float32), classes(cpu))

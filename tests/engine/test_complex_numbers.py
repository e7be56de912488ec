"""Complex numbers where users meet them: in place, as Python's numbers, in files and other libraries, in spectra."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.errors import AlphaError, ArgumentError, DtypeError, NumericsError, ShapeError
from alpha.testing import assert_close, gradcheck, gradgradcheck

ONE_OPERAND = [
    "max", "min", "argmax", "argmin", "sort", "argsort", "amax", "amin", "median", "relu", "floor", "ceil", "round",
    "sign", "erf", "softplus", "gelu", "isposinf", "signbit", "lgamma", "histc", "nansum", "aminmax", "msort",
]  # fmt: skip
TWO_OPERANDS = ["atan2", "maximum", "lt", "ge", "remainder", "floor_divide", "fmod", "bitwise_and", "gcd"]

Z = np.array([[1 + 2j, 3 - 1j], [0.5j, -2]], np.complex64)


def complex_numbers(*shape: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


# -- numbers -----------------------------------------------------------------------------------------------------


def test_python_numbers() -> None:
    z = alpha.tensor([1 + 2j, 3])
    assert z.dtype == alpha.complex64
    assert z[0].item() == 1 + 2j
    assert complex(z[0]) == 1 + 2j
    assert (1 + 2j) in z
    assert (2j * alpha.ones(2, dtype=alpha.float64)).dtype == alpha.complex128
    assert repr(z) == "tensor([1.+2.j, 3.+0.j], shape=(2,), dtype=complex64, engine=cpu)"


def test_random_numbers_have_variance_1() -> None:
    alpha.manual_seed(0)
    x = alpha.randn(50_000, dtype=alpha.complex64)
    assert abs(x.var().item() - 1) < 0.03
    assert abs(x.real.var().item() - 0.5) < 0.02
    uniform = alpha.rand(1000, dtype=alpha.complex128)
    assert 0 <= uniform.real.min().item() < 0.05
    assert 0.95 < uniform.imag.max().item() < 1


@pytest.mark.parametrize("name", ["add_", "sub_", "mul_", "div_", "pow_"])
def test_writes_in_place_have_gradients(name: str) -> None:
    if name == "pow_":
        name, other = "__ipow__", 2
    else:
        other = 1 - 2j  # type: ignore[assignment]
    w = alpha.tensor(Z.astype(np.complex128), requires_grad=True)
    x = w * 1
    assert getattr(x, name)(other) is x
    x.abs().sum().backward()
    again = w.detach().requires_grad_()
    simple = {"add_": again + other, "sub_": again - other, "mul_": again * other, "div_": again / other}
    simple.get(name, again**2).abs().sum().backward()
    assert_close(w.grad, again.grad)


def test_parts_are_assigned() -> None:
    x = alpha.tensor(Z)
    x.real = 7
    x.imag = alpha.zeros((2, 2))
    assert_close(x, np.full((2, 2), 7 + 0j))
    w = alpha.tensor(Z, requires_grad=True)
    y = w * 1
    y.real = alpha.zeros((2, 2))
    y.imag.sum().backward()
    assert_close(w.grad, np.full((2, 2), 1j))


@pytest.mark.parametrize("name", ONE_OPERAND + TWO_OPERANDS)
def test_what_has_no_complex_numbers_says_so(name: str) -> None:
    function = getattr(alpha, name, None) or getattr(nn.functional, name)
    z = alpha.tensor(Z)
    with pytest.raises(DtypeError):
        function(z, z) if name in TWO_OPERANDS else function(z)


def test_a_complex_loss_is_refused() -> None:
    with pytest.raises(DtypeError, match="real result"):
        alpha.tensor(Z, requires_grad=True).sum().backward()


def test_backward_keeps_what_it_reads_alone() -> None:
    w = alpha.tensor(Z, requires_grad=True)
    y = w + 1j
    y.zero_()  # neither the sum nor its arguments are read again
    (y + w).abs().sum().backward()
    assert w.grad is not None


def test_near_each_other() -> None:
    z = alpha.tensor(Z)
    assert alpha.allclose(z, z + 1e-9)
    assert not alpha.allclose(z, z + 0.1j)
    assert alpha.isinf(alpha.tensor([complex(0, np.inf), 1j])).tolist() == [True, False]
    with pytest.raises(AssertionError):
        assert_close(z, z + 0.1j)


# -- elsewhere ---------------------------------------------------------------------------------------------------


@pytest.mark.needs("torch")
def test_other_libraries_share_memory() -> None:
    import torch

    z = alpha.tensor(Z.copy())
    assert_close(torch.from_dlpack(z), Z)
    assert_close(alpha.from_dlpack(torch.tensor(Z)), Z)
    assert_close(np.from_dlpack(z), Z)


@pytest.mark.needs("torch")
def test_files(tmp_path: Path) -> None:
    import torch

    torch.save({"z": torch.tensor(Z), "y": torch.tensor([1j], dtype=torch.complex128)}, tmp_path / "z.pt")
    found = alpha.load(tmp_path / "z.pt")
    assert_close(found["z"], Z)
    assert found["y"].dtype == alpha.complex128
    alpha.save({"z": alpha.tensor(Z)}, tmp_path / "z.safetensors")
    assert_close(alpha.load(tmp_path / "z.safetensors")["z"], Z)
    with pytest.raises(ArgumentError, match="complex128"):
        alpha.save({"z": alpha.tensor(Z).cdouble()}, tmp_path / "y.safetensors")


# -- matrices ----------------------------------------------------------------------------------------------------


def test_gradients_of_eigenvalues() -> None:
    assert gradgradcheck(lambda x: alpha.linalg.eigvals(x).abs(), np.random.default_rng(0).standard_normal((3, 3)))
    assert gradcheck(lambda x: alpha.linalg.eig(x).eigenvectors.abs(), complex_numbers(2, 3, 3))
    values, vectors = alpha.linalg.eig(alpha.tensor(np.array([[0.0, 1.0], [-1.0, 0.0]])))
    assert_close(alpha.diag(values), vectors.inverse() @ alpha.tensor([[0, 1], [-1, 0]]).cdouble() @ vectors)


@pytest.mark.parametrize("name", ["eig", "eigh"])
def test_losses_that_depend_on_phases_are_refused(name: str) -> None:
    a = complex_numbers(3, 3)
    x = alpha.tensor(a + a.conj().T, requires_grad=True)
    vectors = getattr(alpha.linalg, name)(x)[1]
    with pytest.raises(AlphaError, match="absolute value 1"):
        (vectors * vectors).real.sum().backward()


# -- spectra -----------------------------------------------------------------------------------------------------


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    ("of_complex", "n_fft", "center"), list(itertools.product((False, True), (8, 7), (False, True)))
)
def test_short_time_transforms(of_complex: bool, n_fft: int, center: bool) -> None:
    import torch

    values = complex_numbers(2, 26)
    x = values if of_complex else values.real.copy()
    for hop, width, normalized in itertools.product((None, 3), (None, 6), (False, True)):
        window = np.random.default_rng(1).uniform(0.5, 1.5, width or n_fft)
        options: dict[str, Any] = {"n_fft": n_fft, "hop_length": hop, "win_length": width, "center": center}
        options["normalized"] = normalized
        theirs = torch.stft(torch.tensor(x), window=torch.tensor(window), return_complex=True, **options)
        found = alpha.stft(alpha.tensor(x), window=alpha.tensor(window), return_complex=True, **options)
        assert_close(found, theirs, 1e-12, 1e-12)
        try:
            signal = torch.istft(theirs, window=torch.tensor(window), return_complex=of_complex, **options)
        except RuntimeError:
            with pytest.raises(NumericsError):
                alpha.istft(found, window=alpha.tensor(window), return_complex=of_complex, **options)
            continue
        again = alpha.istft(found, window=alpha.tensor(window), return_complex=of_complex, **options)
        assert_close(again, signal, 1e-10, 1e-10)


def test_gradients_of_short_time_transforms() -> None:
    rng = np.random.default_rng(0)
    signal, window = rng.standard_normal(12), rng.uniform(0.5, 1.5, 4)
    assert gradgradcheck(lambda x, w: alpha.stft(x, 4, window=w, return_complex=True), signal, window)
    assert gradgradcheck(lambda x, w: alpha.istft(x, 4, window=w), complex_numbers(3, 5), window)


@pytest.mark.parametrize("name", ["fft", "ifft", "hfft", "irfft", "rfft", "ihfft"])
def test_bad_arguments_of_transforms(name: str) -> None:
    function = getattr(alpha.fft, name)
    x = alpha.ones((3, 4))
    for options, error in (
        ({"n": 0}, ShapeError),
        ({"n": -1}, ShapeError),
        ({"n": 1.5}, ArgumentError),
        ({"dim": 2}, ShapeError),
        ({"norm": "both"}, ArgumentError),
    ):
        with pytest.raises(error):
            function(x, **options)
    with pytest.raises(DtypeError):
        function(x.half())
    if name in ("rfft", "ihfft"):
        with pytest.raises(DtypeError):
            function(x.cfloat())
    assert function(alpha.ones((4,), dtype=alpha.int64)).dtype in (alpha.complex64, alpha.float32)


def test_bad_arguments_of_transforms_along_several_axes() -> None:
    x = alpha.ones((3, 4))
    for options in ({"s": (2,), "dim": (0, 1)}, {"dim": (0, 0)}, {"s": (1, 2, 3)}, {"s": (-2, 1)}):
        with pytest.raises(ShapeError):
            alpha.fft.fftn(x, **options)
    with pytest.raises(ShapeError):
        alpha.fft.rfftn(alpha.ones(()))
    with pytest.raises(ArgumentError, match="return_complex"):
        alpha.stft(alpha.ones(8), 4)
    with pytest.raises(ShapeError):
        alpha.stft(alpha.ones(8), 4, window=alpha.ones(3), return_complex=True)
    with pytest.raises(DtypeError):
        alpha.istft(alpha.ones(3, 5), 4)


@pytest.mark.needs("torch")
def test_frequencies() -> None:
    import torch

    for n, d in itertools.product((1, 4, 5), (1.0, 0.25)):
        assert_close(alpha.fft.fftfreq(n, d), torch.fft.fftfreq(n, d))
        assert_close(alpha.fft.rfftfreq(n, d), torch.fft.rfftfreq(n, d))
    assert alpha.fft.fftshift(alpha.arange(5)).tolist() == [3, 4, 0, 1, 2]
    assert alpha.fft.ifftshift(alpha.arange(5)).tolist() == [2, 3, 4, 0, 1]

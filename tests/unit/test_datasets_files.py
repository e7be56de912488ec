"""CIFAR, MNIST, Fashion-MNIST and the digits from files: good ones in every layout, and bad ones of every kind."""

from __future__ import annotations

import gzip
import importlib.util
import os
import pickle
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alpha import datasets, errors
from alpha.datasets.unpickle import load_dict

ROOT = Path(__file__).resolve().parent.parent.parent
COUNT = 4  # images in each small file


# -- the pickles -----------------------------------------------------------------------------------------------------


def python2_array(array: np.ndarray[Any, Any]) -> bytes:
    """A uint8 matrix as Python 2 with NumPy 1 pickled it: the form of the official CIFAR files."""
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    rows, columns = (struct.pack("<cI", b"J", size) for size in array.shape)
    raw = array.tobytes()
    return b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01" + (
        rows + columns + b"\x86" + dtype + b"\x89T" + struct.pack("<I", len(raw)) + raw + b"tb"
    )


def python2_batch(pixels: np.ndarray[Any, Any], labels: list[int], key: str = "labels") -> bytes:
    def text(value: str) -> bytes:
        return b"U" + bytes([len(value)]) + value.encode()

    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + text("data") + python2_array(pixels) + text(key) + numbers + b"u."


def rows(n: int = COUNT) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(n).integers(0, 256, (n, 3072), dtype=np.uint8)


def test_the_handmade_python2_pickle_is_what_numpy_reads() -> None:
    content = pickle.loads(python2_batch(rows(), [1, 2, 3, 4]), encoding="latin1")
    np.testing.assert_array_equal(content["data"], rows())
    assert content["labels"] == [1, 2, 3, 4]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickles_of_every_protocol_are_read(tmp_path: Path, protocol: int) -> None:
    content = {"data": rows(), b"labels": [1, 2], "nested": {"a": (b"bytes", bytearray(b"x"), None, 1.5)}}
    (tmp_path / "file").write_bytes(pickle.dumps(content, protocol))
    result = load_dict("test", tmp_path / "file", "advice")
    np.testing.assert_array_equal(result["data"], rows())
    assert result["labels"] == [1, 2] and result["nested"] == content["nested"]


def test_a_fortran_ordered_array_keeps_its_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(pickle.dumps({"data": np.asfortranarray(rows())}, 4))
    np.testing.assert_array_equal(load_dict("test", tmp_path / "file", "advice")["data"], rows())


class Harmful:
    """Unpickling this calls any function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call


@pytest.mark.parametrize("function", [os.mkdir, eval, getattr, __import__, np.load, np.fromfile])
def test_a_pickle_cannot_call_anything(tmp_path: Path, function: Callable[..., Any]) -> None:
    target = tmp_path / "made"
    argument = f"__import__('os').mkdir({str(target)!r})" if function is eval else str(target)
    for protocol in (0, 2, 4):
        (tmp_path / "file").write_bytes(pickle.dumps({"data": Harmful(function, argument)}, protocol))
        with pytest.raises(errors.DataError, match=r"got one that names .*, which is no data: advice"):
            load_dict("test", tmp_path / "file", "advice")
    assert not target.exists()


def test_a_dotted_name_does_not_lead_into_a_module(tmp_path: Path) -> None:
    dotted = b"\x80\x04\x8c\x05numpy\x8c\x0bndarray.dot\x93."  # STACK_GLOBAL numpy, "ndarray.dot"
    (tmp_path / "file").write_bytes(dotted)
    with pytest.raises(errors.DataError, match=r"names numpy.ndarray.dot, which is no data"):
        load_dict("test", tmp_path / "file", "advice")


@pytest.mark.parametrize("dtype", [np.float64, object, np.dtype([("a", "u1")])])
def test_only_byte_arrays_are_rebuilt(tmp_path: Path, dtype: Any) -> None:
    (tmp_path / "file").write_bytes(pickle.dumps({"data": np.zeros(3, dtype)}))
    with pytest.raises(errors.DataError, match=r"expected arrays of uint8 in .*float64|got an array of (object|\|V1)"):
        load_dict("test", tmp_path / "file", "advice")


def test_every_truncation_of_a_pickle_is_a_data_error(tmp_path: Path) -> None:
    content = python2_batch(rows(1), [1])
    for length in [*range(300), len(content) - 1]:
        (tmp_path / "file").write_bytes(content[:length])
        with pytest.raises(errors.DataError, match=r"^\[test\] expected a pickled dict in .*file, got .*: advice$"):
            load_dict("test", tmp_path / "file", "advice")


def test_damaged_pickles_never_raise_anything_else(tmp_path: Path) -> None:
    content = python2_batch(rows(1), [1])
    rng = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(content)
        damaged[rng.integers(0, 250)] = rng.integers(0, 256)
        (tmp_path / "file").write_bytes(damaged)
        try:
            load_dict("test", tmp_path / "file", "advice")
        except errors.DataError as error:
            assert "\n" not in str(error)


# -- CIFAR -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_cifar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """CIFAR-10 in its own layout, with COUNT images per file, below tmp_path/root."""
    layout = datasets.CIFAR10.layout
    small = replace(layout, train=dict.fromkeys(layout.train, COUNT), test={"test_batch": COUNT})
    monkeypatch.setattr(datasets.CIFAR10, "layout", small)
    folder = tmp_path / "root" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for number, name in enumerate([*layout.train, *layout.test]):
        (folder / name).write_bytes(python2_batch(rows() + np.uint8(number), [0, 9, number, 3]))
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": names}, 2))
    return folder


def test_cifar10_is_read_in_order(small_cifar: Path) -> None:
    train = datasets.CIFAR10(small_cifar.parent)
    assert train.images.shape == (5 * COUNT, 32, 32, 3) and train.images.flags.c_contiguous
    assert train.labels.tolist() == [label for number in range(5) for label in (0, 9, number, 3)]
    assert train.classes[3] == "cat"
    for file in range(5):
        planes = (rows() + np.uint8(file)).reshape(COUNT, 3, 32, 32)
        for colour in range(3):
            np.testing.assert_array_equal(
                train.images[file * COUNT : (file + 1) * COUNT, ..., colour], planes[:, colour]
            )
    test = datasets.CIFAR10(small_cifar.parent, train=False)
    assert test.labels.tolist() == [0, 9, 5, 3]
    image, label = test[1]
    assert label == 9 and image.min() >= -1 and image.max() <= 1 and image.dtype == np.float32  # ToUnitRange by default


def test_cifar100_uses_the_fine_labels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        datasets.CIFAR100, "layout", replace(datasets.CIFAR100.layout, train={"train": COUNT}, test={"test": COUNT})
    )
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name in ("train", "test"):
        (folder / name).write_bytes(python2_batch(rows(), [99, 0, 50, 7], "fine_labels"))
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": [f"name {n}" for n in range(100)]}))
    data = datasets.CIFAR100(tmp_path)
    assert data.labels.tolist() == [99, 0, 50, 7] and len(data.classes) == 100


def test_the_root_is_the_argument_then_the_variable_then_data(
    monkeypatch: pytest.MonkeyPatch, small_cifar: Path, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ALPHA_DATA", raising=False)
    with pytest.raises(errors.DataError, match=r"in one of data/cifar-10-batches-py, got none"):
        datasets.CIFAR10(download=False)
    shutil.copytree(small_cifar.parent, tmp_path / "data")
    assert len(datasets.CIFAR10(download=False)) == 5 * COUNT
    monkeypatch.setenv("ALPHA_DATA", str(tmp_path / "elsewhere"))
    assert len(datasets.CIFAR10(download=False)) == 5 * COUNT  # not there, so ./data
    shutil.rmtree(tmp_path / "data")
    with pytest.raises(errors.DataError, match=r"elsewhere/cifar-10-batches-py, data/cifar-10-batches-py, got none"):
        datasets.CIFAR10(download=False)
    monkeypatch.setenv("ALPHA_DATA", str(small_cifar.parent))
    assert len(datasets.CIFAR10(download=False)) == 5 * COUNT
    assert len(datasets.CIFAR10("", download=False)) == 5 * COUNT  # an empty DATA= is none
    with pytest.raises(errors.DataError, match=r"in one of other/cifar-10-batches-py, got none"):
        datasets.CIFAR10("other", download=False)  # a given root is the only one
    assert len(datasets.CIFAR10(small_cifar, download=False)) == 5 * COUNT  # the data set's own folder


def damage(small_cifar: Path, kind: str) -> str:
    """Spoils one file of the training set; returns its name."""
    batch, meta = small_cifar / "data_batch_3", small_cifar / "batches.meta"
    spoil: dict[str, tuple[Path, bytes | None]] = {
        "missing": (batch, None),
        "truncated": (batch, batch.read_bytes()[:5000]),
        "empty": (batch, b""),
        "no dict": (batch, pickle.dumps([1, 2])),
        "no data": (batch, pickle.dumps({"labels": [1] * COUNT})),
        "few images": (batch, python2_batch(rows(COUNT - 1), [1] * COUNT)),
        "few labels": (batch, python2_batch(rows(), [1] * (COUNT - 1))),
        "label range": (batch, python2_batch(rows(), [1, 2, 3, 10])),
        "no labels": (batch, python2_batch(rows(), [1, 2, 3, 4], "fine_labels")),
        "no names": (meta, pickle.dumps({"label_names": ["one"]})),
        "no meta": (meta, None),
    }
    path, content = spoil[kind]
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    return path.name


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("missing", "expected the file .*, got none"),
        ("truncated", "got a truncated or damaged pickle"),
        ("empty", "got a truncated or damaged pickle"),
        ("no dict", "got list"),
        ("no data", r"expected uint8 pixels \(4, 3072\) under 'data' in .*, got none"),
        ("few images", r"expected uint8 pixels \(4, 3072\) under 'data' in .*, got an array \(3, 3072\)"),
        ("few labels", "expected 4 labels in 0..9 under 'labels' in .*, got a list of 3 from 1 to 1"),
        ("label range", "expected 4 labels in 0..9 under 'labels' in .*, got a list of 4 from 1 to 10"),
        ("no labels", "expected 4 labels in 0..9 under 'labels' in .*, got none"),
        ("no names", "expected 10 names under 'label_names' in .*, got a list of 1"),
        ("no meta", "expected the file .*, got none"),
    ],
)
def test_a_bad_cifar_file_is_named(small_cifar: Path, kind: str, reason: str) -> None:
    name = damage(small_cifar, kind)
    with pytest.raises(errors.DataError, match=reason) as caught:
        datasets.CIFAR10(small_cifar.parent)
    message = str(caught.value)
    assert str(small_cifar / name) in message and f"delete {small_cifar} so that" in message and "\n" not in message


@pytest.mark.skipif("ALPHA_DATA" not in os.environ, reason="needs the real CIFAR-10 in $ALPHA_DATA")
def test_the_real_cifar10() -> None:
    try:
        test = datasets.CIFAR10(train=False, download=False)
    except errors.DataError as error:
        pytest.skip(str(error))
    assert np.bincount(test.labels).tolist() == [1000] * 10
    assert test.classes[0] == "airplane" and test.classes[9] == "truck"


# -- MNIST -----------------------------------------------------------------------------------------------------------


def idx(magic: int, content: np.ndarray[Any, Any]) -> bytes:
    return struct.pack(f">I{content.ndim}I", magic, *content.shape) + content.astype(np.uint8).tobytes()


MNIST_COUNT = 12


def mnist_images(split: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    rng = np.random.default_rng(len(split))
    return rng.integers(0, 256, (MNIST_COUNT, 28, 28), dtype=np.uint8)


def write_mnist(kind: type[datasets.MNIST], folder: Path, compressed: bool) -> None:
    folder.mkdir(parents=True)
    for split in ("train", "t10k"):
        labels = np.array([*kind.layout.first_labels[split], 8, 6])
        parts = {"images-idx3": idx(0x803, mnist_images(split)), "labels-idx1": idx(0x801, labels)}
        for name, content in parts.items():
            path = folder / f"{split}-{name}-ubyte"
            if compressed:
                path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(content))
            else:
                path.write_bytes(content)


@pytest.fixture
def small_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both data sets with MNIST_COUNT images per split."""
    for kind in (datasets.MNIST, datasets.FashionMNIST):
        small = replace(kind.layout, counts={"train": MNIST_COUNT, "t10k": MNIST_COUNT})
        monkeypatch.setattr(kind, "layout", small)


@pytest.mark.usefixtures("small_mnist")
@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize(
    ("kind", "folder"),
    [
        (datasets.MNIST, "."),
        (datasets.MNIST, "MNIST/raw"),
        (datasets.MNIST, "mnist"),
        (datasets.FashionMNIST, "."),
        (datasets.FashionMNIST, "FashionMNIST/raw"),
        (datasets.FashionMNIST, "fashion-mnist"),
    ],
)
def test_mnist_is_read_from_every_layout(
    tmp_path: Path, kind: type[datasets.MNIST], folder: str, compressed: bool
) -> None:
    write_mnist(kind, tmp_path / "root" / folder, compressed)
    for train, split in ((True, "train"), (False, "t10k")):
        data = kind(tmp_path / "root", train=train, download=False)
        np.testing.assert_array_equal(data.images, mnist_images(split)[..., None])
        assert data.labels.tolist() == [*kind.layout.first_labels[split], 8, 6]
    assert len(data.classes) == 10 and data[0][0].shape == (28, 28, 1)


@pytest.mark.usefixtures("small_mnist")
def test_each_of_the_two_refuses_the_others_files(tmp_path: Path) -> None:
    write_mnist(datasets.MNIST, tmp_path / "m", True)
    write_mnist(datasets.FashionMNIST, tmp_path / "f", False)
    with pytest.raises(errors.DataError, match=r"expected Fashion-MNIST in .*m, got labels that begin \[5, 0, 4, 1"):
        datasets.FashionMNIST(tmp_path / "m")
    with pytest.raises(errors.DataError, match=r"expected MNIST in .*f, got labels that begin .*MNIST/raw"):
        datasets.MNIST(tmp_path / "f", train=False)


@pytest.mark.usefixtures("small_mnist")
@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("t10k-images-idx3-ubyte", None, "expected the file .* or .*gz, got neither"),
        ("t10k-labels-idx1-ubyte", b"", r"expected an idx file of shape \(12,\) in .*, got a header b''"),
        ("t10k-labels-idx1-ubyte", idx(0x801, np.arange(11)), "got a header"),
        ("t10k-labels-idx1-ubyte", idx(0x802, np.arange(12)), "got a header"),
        ("t10k-labels-idx1-ubyte", idx(0x801, np.arange(12)), "expected labels in 0..9 in .*, got 11"),
        ("t10k-images-idx3-ubyte", idx(0x803, mnist_images("t10k"))[:-1], "expected 9424 bytes in .*, got 9423 bytes"),
        ("t10k-images-idx3-ubyte", idx(0x803, mnist_images("t10k")) + b"x", "expected 9424 bytes in .*, got more"),
    ],
)
def test_a_bad_mnist_file_is_named(tmp_path: Path, name: str, content: bytes | None, reason: str) -> None:
    write_mnist(datasets.MNIST, tmp_path / "root", False)
    (tmp_path / "root" / name).unlink()
    if content is not None:
        (tmp_path / "root" / name).write_bytes(content)
    with pytest.raises(errors.DataError, match=reason) as caught:
        datasets.MNIST(tmp_path / "root", train=False)
    assert str(tmp_path / "root") in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.usefixtures("small_mnist")
def test_truncated_and_false_gzip_files_are_named(tmp_path: Path) -> None:
    write_mnist(datasets.MNIST, tmp_path / "root", True)
    path = tmp_path / "root" / "train-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    for content, reason in ((whole[:-20], "EOFError"), (b"plain text", "BadGzipFile"), (whole[:40], "EOFError")):
        path.write_bytes(content)
        with pytest.raises(errors.DataError, match=rf"expected an idx file in {path}, got {reason}.*delete {path} so"):
            datasets.MNIST(tmp_path / "root")


def test_the_real_mnist_test_set(shared_data: Path) -> None:
    data = datasets.MNIST(shared_data, train=False, download=False)
    assert data.images.shape == (10_000, 28, 28, 1)
    assert np.bincount(data.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert abs(data.images.mean() / 255 - 0.1325) < 1e-3  # its well-known mean


# -- digits ----------------------------------------------------------------------------------------------------------


@pytest.mark.needs("sklearn")
def test_digits_are_scikit_learns_enlarged_and_split() -> None:
    import sklearn.datasets

    source = sklearn.datasets.load_digits()
    train, test = datasets.Digits(), datasets.Digits(train=False)
    assert (len(train), len(test)) == (1437, 360) and train.images.shape[1:] == (32, 32, 3)
    assert len(np.unique(test.labels)) == 10
    small = np.concatenate([data.images[:, ::4, ::4, 0] for data in (train, test)])
    labels = np.concatenate([train.labels, test.labels])
    ours = sorted((*image.ravel().tolist(), label) for image, label in zip(small, labels.tolist(), strict=True))
    theirs = [np.rint(image.ravel() * 255 / 16).astype(int).tolist() for image in source.images]
    assert ours == sorted((*image, label) for image, label in zip(theirs, source.target.tolist(), strict=True))
    whole = train.images.reshape(-1, 8, 4, 8, 4, 3)
    assert (whole == whole[:, :, :1, :, :1, :1]).all()  # each pixel is a 4 x 4 block of grey
    np.testing.assert_array_equal(datasets.Digits().images, train.images)  # the same split each time


@pytest.mark.needs("sklearn")
def test_digits_in_another_size() -> None:
    assert datasets.Digits(size=8, channels=1).images.shape == (1437, 8, 8, 1)
    with pytest.raises(errors.ArgumentError, match="expected size a multiple of 8"):
        datasets.Digits(size=30)


@pytest.mark.needs("sklearn")
def test_digits_do_not_import_scikit_learn() -> None:
    program = "import sys; from alpha import datasets; datasets.Digits(); assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)


@pytest.mark.needs("sklearn")
def test_digits_of_a_scikit_learn_that_keeps_them_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = [datasets.Digits(train=train) for train in (True, False)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: ModuleSpec(name, None, is_package=True))
    for data, train in zip(usual, (True, False), strict=True):
        asked = datasets.Digits(train=train)
        np.testing.assert_array_equal(asked.images, data.images)
        np.testing.assert_array_equal(asked.labels, data.labels)


def test_digits_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sklearn", "sklearn.datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(errors.DataError, match=r"expected scikit-learn, .*pip install 'dragon-alpha\[digits\]'"):
        datasets.Digits()

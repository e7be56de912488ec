"""Downloads from a server on this machine: a good one is unpacked in place, a bad one leaves nothing behind."""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import sys
import tarfile
import threading
import types
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alpha import datasets, errors

COUNT = 3  # images in each file of the small archives


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


class Server:
    """Serves what ``pages`` holds; ``cut`` bytes are missing at the end of each answer, below the announced length."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.pages: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.cut = 0


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.lstrip("/")
            state.asked.append(name)
            if name not in state.pages:
                self.send_error(404)
                return
            content = state.pages[name]
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) - state.cut])

        def log_message(self, *_arguments: Any) -> None:
            """Keeps the test's output clean."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state = Server(f"http://127.0.0.1:{http.server_address[1]}/")
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setitem(sys.modules, "torchvision", None)  # as if it were not installed
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield state
    http.shutdown()
    http.server_close()
    thread.join()


def cifar_files() -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    names = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]
    batches = {
        name: {"data": rng.integers(0, 256, (COUNT, 3072), dtype=np.uint8), "labels": [1, 9, 0]} for name in names
    }
    meta = {"label_names": [f"class {number}" for number in range(10)]}
    return {name: pickle.dumps(content, 2) for name, content in {**batches, "batches.meta": meta}.items()}


def archive(files: dict[str, bytes], extra: tuple[tarfile.TarInfo, ...] = ()) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for member in extra:
            tar.addfile(member)
        for name, content in files.items():
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def serve_cifar(monkeypatch: pytest.MonkeyPatch, server: Server, content: bytes, digest: str = "") -> None:
    layout = replace(
        datasets.CIFAR10.layout,
        train=dict.fromkeys(datasets.CIFAR10.layout.train, COUNT),
        test={"test_batch": COUNT},
        url=f"{server.url}cifar.tar.gz",
        md5=digest or md5(content),
    )
    monkeypatch.setattr(datasets.CIFAR10, "layout", layout)
    server.pages["cifar.tar.gz"] = content


def everything_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_good_archive_is_unpacked_once(
    monkeypatch: pytest.MonkeyPatch, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = cifar_files()
    serve_cifar(monkeypatch, server, archive(files))
    root = tmp_path / "new" / "root"
    train = datasets.CIFAR10(root)
    assert "cifar.tar.gz: 100%" in capsys.readouterr().err  # the progress bar
    test = datasets.CIFAR10(root, train=False)
    assert len(train) == 5 * COUNT and len(test) == COUNT and server.asked == ["cifar.tar.gz"]
    folder = root / "cifar-10-batches-py"
    assert everything_below(root) == sorted([folder.name, *(f"{folder.name}/{name}" for name in files)])
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files
    planes = pickle.loads(files["data_batch_2"])["data"]
    np.testing.assert_array_equal(train.images[COUNT, 5, 7], planes[0].reshape(3, 32, 32)[:, 5, 7])


@pytest.mark.parametrize("fault", ["truncated", "digest", "404", "no tar", "file missing", "refused"])
def test_a_failed_download_is_one_line_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, server: Server, tmp_path: Path, fault: str
) -> None:
    files = cifar_files()
    if fault == "file missing":
        del files["data_batch_4"]
    good = b"no archive" if fault == "no tar" else archive(files)
    serve_cifar(monkeypatch, server, good, digest="0" * 32 if fault == "digest" else "")
    server.cut = 100 if fault == "truncated" else 0
    if fault == "404":
        server.pages.clear()
    if fault == "refused":
        unused = replace(datasets.CIFAR10.layout, url="http://127.0.0.1:9/cifar.tar.gz")
        monkeypatch.setattr(datasets.CIFAR10, "layout", unused)
    reasons = {
        "truncated": rf"cifar.tar.gz: {len(good) - 100} of {len(good)} bytes came",
        "digest": rf"cifar.tar.gz: MD5 {md5(good)} instead of 0000",
        "404": "cifar.tar.gz: HTTPError: HTTP Error 404",
        "no tar": "the archive cannot be unpacked: ReadError",
        "file missing": "the archive lacks cifar-10-batches-py/data_batch_4",
        "refused": "127.0.0.1:9/cifar.tar.gz: URLError",
    }
    with pytest.raises(errors.DataError, match=reasons[fault]) as caught:
        datasets.CIFAR10(tmp_path / "root")
    message = str(caught.value)
    assert "\n" not in message and message.startswith("[CIFAR10] expected CIFAR-10 in ")
    assert str(tmp_path / "root" / "cifar-10-batches-py") in message
    assert "DATA=DIR" in message and "$ALPHA_DATA" in message and "--dataset digits" in message
    assert everything_below(tmp_path) == []


def test_an_interrupted_download_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, server: Server, tmp_path: Path
) -> None:
    serve_cifar(monkeypatch, server, archive(cifar_files()))
    opened = urllib.request.urlopen

    def interrupted(*arguments: Any, **options: Any) -> Any:
        response = opened(*arguments, **options)
        pieces = iter([response.read(1000)])

        def read(_size: int) -> bytes:
            for piece in pieces:
                return bytes(piece)
            raise KeyboardInterrupt

        response.read = read
        return response

    monkeypatch.setattr(urllib.request, "urlopen", interrupted)
    (tmp_path / "mine").write_text("the user's own file")
    with pytest.raises(KeyboardInterrupt):
        datasets.CIFAR10(tmp_path)
    assert everything_below(tmp_path) == ["mine"]


def test_an_archive_cannot_write_elsewhere(monkeypatch: pytest.MonkeyPatch, server: Server, tmp_path: Path) -> None:
    climbing = tarfile.TarInfo("cifar-10-batches-py/../../escaped")
    link = tarfile.TarInfo("cifar-10-batches-py/link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc"
    files = cifar_files()
    serve_cifar(monkeypatch, server, archive(files, (climbing, link)))
    datasets.CIFAR10(tmp_path / "root")
    assert sorted(path.name for path in tmp_path.rglob("*") if not path.is_dir()) == sorted(files)


def test_a_link_in_place_of_a_file_is_not_followed(
    monkeypatch: pytest.MonkeyPatch, server: Server, tmp_path: Path
) -> None:
    files = cifar_files()
    del files["test_batch"]
    link = tarfile.TarInfo("cifar-10-batches-py/test_batch")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    serve_cifar(monkeypatch, server, archive(files, (link,)))
    with pytest.raises(errors.DataError, match="the archive lacks cifar-10-batches-py/test_batch"):
        datasets.CIFAR10(tmp_path)


def test_a_root_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, server: Server, tmp_path: Path) -> None:
    serve_cifar(monkeypatch, server, archive(cifar_files()))
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(errors.DataError, match=r"writing to .*file failed: FileExistsError"):
        datasets.CIFAR10(tmp_path / "file")


def test_nothing_is_asked_of_the_network_where_it_is_not_wanted(
    monkeypatch: pytest.MonkeyPatch, server: Server, tmp_path: Path
) -> None:
    serve_cifar(monkeypatch, server, archive(cifar_files()))
    with pytest.raises(errors.DataError, match="download=False was asked for"):
        datasets.CIFAR10(tmp_path, download=False)
    assert server.asked == [] and everything_below(tmp_path) == []


def fake_torchvision(monkeypatch: pytest.MonkeyPatch, **makers: Any) -> None:
    module = types.ModuleType("torchvision.datasets")
    for name, maker in makers.items():
        setattr(module, name, maker)
    monkeypatch.setitem(sys.modules, "torchvision", types.ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.datasets", module)


def test_torchvision_downloads_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, server: Server, tmp_path: Path
) -> None:
    files = cifar_files()
    serve_cifar(monkeypatch, server, archive(files))

    def cifar10(root: str, train: bool, download: bool) -> None:
        assert download
        folder = Path(root) / "cifar-10-batches-py"
        folder.mkdir(parents=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        (Path(root) / "cifar-10-python.tar.gz").write_bytes(b"the archive stays beside it")

    fake_torchvision(monkeypatch, CIFAR10=cifar10)
    assert len(datasets.CIFAR10(tmp_path)) == 5 * COUNT
    assert server.asked == [] and [path.name for path in tmp_path.iterdir()] == ["cifar-10-batches-py"]


def test_we_download_where_torchvision_fails(monkeypatch: pytest.MonkeyPatch, server: Server, tmp_path: Path) -> None:
    serve_cifar(monkeypatch, server, archive(cifar_files()))

    def failing(root: str, train: bool, download: bool) -> None:
        Path(root).mkdir(parents=True)
        (Path(root) / "cifar-10-python.tar.gz").write_bytes(b"half of it")
        raise RuntimeError("File not found or corrupted.")

    fake_torchvision(monkeypatch, CIFAR10=failing)
    assert len(datasets.CIFAR10(tmp_path)) == 5 * COUNT
    assert server.asked == ["cifar.tar.gz"] and [path.name for path in tmp_path.iterdir()] == ["cifar-10-batches-py"]


def serve_mnist(monkeypatch: pytest.MonkeyPatch, server: Server) -> dict[str, bytes]:
    first = datasets.MNIST.layout.first_labels["t10k"]
    sizes = np.array([len(first), 28, 28], ">i4").tobytes()
    pixels = (bytes(range(256)) * 31)[: len(first) * 28 * 28]
    files = {
        "t10k-images-idx3-ubyte.gz": gzip.compress(b"\0\0\x08\x03" + sizes + pixels),
        "t10k-labels-idx1-ubyte.gz": gzip.compress(b"\0\0\x08\x01" + sizes[:4] + first),
    }
    digests = {name: md5(content) for name, content in files.items()}
    layout = replace(datasets.MNIST.layout, url=server.url, md5=digests, counts={"t10k": len(first)})
    monkeypatch.setattr(datasets.MNIST, "layout", layout)
    server.pages.update(files)
    return files


def test_mnist_gets_the_two_files_of_a_split(monkeypatch: pytest.MonkeyPatch, server: Server, tmp_path: Path) -> None:
    files = serve_mnist(monkeypatch, server)
    data = datasets.MNIST(tmp_path, train=False)
    assert len(data) == 10 and data.labels[:2].tolist() == [7, 2] and data.images[0, 0, :3, 0].tolist() == [0, 1, 2]
    raw = tmp_path / "MNIST" / "raw"
    assert {path.name: path.read_bytes() for path in raw.iterdir()} == files
    assert sorted(server.asked) == sorted(files)


def test_mnist_keeps_neither_file_if_the_second_fails(
    monkeypatch: pytest.MonkeyPatch, server: Server, tmp_path: Path
) -> None:
    serve_mnist(monkeypatch, server)
    del server.pages["t10k-labels-idx1-ubyte.gz"]
    with pytest.raises(errors.DataError, match=r"\[MNIST\] .*labels-idx1-ubyte.gz: HTTPError: HTTP Error 404"):
        datasets.MNIST(tmp_path, train=False)
    assert everything_below(tmp_path) == []


def test_mnist_through_torchvision(monkeypatch: pytest.MonkeyPatch, server: Server, tmp_path: Path) -> None:
    files = serve_mnist(monkeypatch, server)

    def mnist(root: str, train: bool, download: bool) -> None:
        raw = Path(root) / "MNIST" / "raw"
        raw.mkdir(parents=True)
        for name, content in files.items():
            (raw / name).write_bytes(content)
            (raw / name.removesuffix(".gz")).write_bytes(gzip.decompress(content))

    fake_torchvision(monkeypatch, MNIST=mnist)
    assert len(datasets.MNIST(tmp_path, train=False)) == 10
    assert server.asked == []


def test_we_download_where_torchvision_does_not_import(
    monkeypatch: pytest.MonkeyPatch, server: Server, tmp_path: Path
) -> None:
    serve_cifar(monkeypatch, server, archive(cifar_files()))
    package = tmp_path / "site" / "torchvision"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.delitem(sys.modules, "torchvision")
    monkeypatch.delitem(sys.modules, "torchvision.datasets")
    monkeypatch.syspath_prepend(package.parent)
    assert len(datasets.CIFAR10(tmp_path / "root")) == 5 * COUNT

"""A data set's files: where they are looked for, and how they are downloaded, checked and unpacked."""

from __future__ import annotations

import hashlib
import http.client
import importlib
import os
import shutil
import tarfile
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tqdm import tqdm

from alpha import errors

ADVICE = "supply the data with DATA=DIR, $ALPHA_DATA or root=DIR, or go without it with --dataset digits"

_CHUNK = 1 << 20
_TIMEOUT = 30.0  # seconds without a byte

Root = str | os.PathLike[str] | None


class Unavailable(Exception):
    """Why a download failed, in a few words; the data set that wanted it makes a DataError of it."""


def roots(root: Root) -> tuple[Path, ...]:
    """The folders to look in: ``root`` alone where it is given, else $ALPHA_DATA (where set), then ./data."""
    if root is not None and os.fspath(root):
        return (Path(root).expanduser(),)
    return tuple(Path(place).expanduser() for place in (os.environ.get("ALPHA_DATA"), "data") if place)


def missing(function: str, title: str, looked: Sequence[Path], reason: str) -> errors.DataError:
    """The error for a data set that is nowhere and cannot be had."""
    places = ", ".join(map(str, looked))
    return errors.DataError(f"[{function}] expected {title} in one of {places}, got none: {reason}; {ADVICE}")


def corrupt_advice(path: Path) -> str:
    """What to do about a file that is there but unusable."""
    return f"delete {path} so that it is downloaded again, or {ADVICE}"


@contextmanager
def staging(root: Path) -> Iterator[Path]:
    """A temporary folder beside the final place; whatever is still in it afterwards is deleted.

    Raises:
        Unavailable: writing below ``root`` failed.
    """
    created = not root.exists()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=root) as folder:
            yield Path(folder)
    except OSError as error:
        raise Unavailable(f"writing to {root} failed: {one_line(error)}") from error
    finally:
        if created:
            with suppress(OSError):
                root.rmdir()  # leaves it where something was put into it


def publish(source: Path, target: Path) -> None:
    """Moves a finished file or folder to its place in one step."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.replace(source, target)
    except OSError:
        if not target.is_dir():  # a folder that is there now: another process was quicker, and its copy is as good
            raise


def download(url: str, target: Path, md5: str) -> None:
    """Fetches ``url`` into ``target`` with a progress bar and checks its length and digest.

    Raises:
        Unavailable: no connection, an HTTP error, fewer bytes than announced, another digest. No file is left then.
    """
    try:
        length, digest = _fetch(url, target)
        if length is not None and target.stat().st_size != length:
            raise Unavailable(f"{url}: {target.stat().st_size} of {length} bytes came")
        if digest != md5:
            raise Unavailable(f"{url}: MD5 {digest} instead of {md5}")
    except BaseException as error:  # Ctrl-C too must leave no partial file
        target.unlink(missing_ok=True)
        if isinstance(error, OSError | ValueError | http.client.HTTPException):
            raise Unavailable(f"{url}: {one_line(error)}") from error
        raise


def _fetch(url: str, target: Path) -> tuple[int | None, str]:
    """Streams ``url`` into ``target``; returns the length the server announced and the MD5 of what came."""
    digest = hashlib.md5(usedforsecurity=False)
    with urllib.request.urlopen(url, timeout=_TIMEOUT) as response, target.open("wb") as file:
        announced = response.headers.get("Content-Length")
        length = int(announced) if announced is not None else None
        with tqdm(total=length, unit="B", unit_scale=True, unit_divisor=1024, desc=url.rsplit("/", 1)[-1]) as bar:
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                digest.update(chunk)
                bar.update(len(chunk))
    return length, digest.hexdigest()


def unpack(archive: Path, folder: str, names: Collection[str], target: Path) -> None:
    """Takes ``folder/name`` for each of ``names`` out of a .tar.gz and writes it as ``target/name``.

    Only regular files with these names are read and only these paths are written, so nothing in an archive (a link, an
    absolute path, "..") can lead outside ``target``, on every Python version.

    Raises:
        Unavailable: no such archive, or one that lacks a file.
    """
    target.mkdir(parents=True)
    wanted = {f"{folder}/{name}": name for name in names}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                source = tar.extractfile(member) if member.isreg() and member.name in wanted else None
                if source is not None:
                    with source, (target / wanted.pop(member.name)).open("wb") as file:
                        shutil.copyfileobj(source, file, _CHUNK)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise Unavailable(f"the archive cannot be unpacked: {one_line(error)}") from error
    if wanted:
        raise Unavailable(f"the archive lacks {', '.join(sorted(wanted))}")


def unzip(archive: Path, names: Collection[str], target: Path) -> None:
    """Takes the files with these names, in whatever folder, out of a .zip and writes them into ``target``.

    Raises:
        Unavailable: no such archive, or one that lacks a file.
    """
    target.mkdir(parents=True)
    wanted = set(names)
    try:
        with zipfile.ZipFile(archive) as pack:
            for member in pack.infolist():
                name = member.filename.rsplit("/", 1)[-1]
                if name in wanted:
                    with pack.open(member) as source, (target / name).open("wb") as file:
                        shutil.copyfileobj(source, file, _CHUNK)
                    wanted.remove(name)
    except (zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise Unavailable(f"the archive cannot be unpacked: {one_line(error)}") from error
    if wanted:
        raise Unavailable(f"the archive lacks {', '.join(sorted(wanted))}")


def through_torchvision(name: str, train: bool, folder: Path) -> bool:
    """Lets torchvision download data set ``name`` below ``folder``.

    False where it is not installed, does not import beside this PyTorch or does not succeed: then we try ourselves.
    """
    try:
        module = importlib.import_module("torchvision.datasets")
        getattr(module, name)(str(folder), train=train, download=True)
    except Exception:
        return False
    return True


def one_line(error: BaseException) -> str:
    """An exception as one line of text."""
    try:
        text = str(error)
    except Exception:  # its class decides what happens here
        text = ""
    return " ".join((f"{type(error).__name__}: {text}" if text else type(error).__name__).split())

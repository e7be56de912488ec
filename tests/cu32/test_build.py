"""Cubins made ahead: left in a folder by ``python -m alpha.cu32.build --out``, found there by ``ALPHA_CUBINS``."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from alpha.cu32 import build, compiler
from alpha.cu32.base import DeviceEngine
from alpha.cu32.compiler import Compiler, Source
from alpha.errors import EngineError
from tests.cu32.test_compiler import ADD, Counting

SOURCES = tuple(Source("user", text=ADD, VALUE=value) for value in (1, 2))


@pytest.fixture
def counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counting:
    """A machine that has a compiler, which counts, an empty cache and nothing made ahead."""
    monkeypatch.setenv("ALPHA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ALPHA_NVCC", raising=False)
    monkeypatch.delenv("ALPHA_CUBINS", raising=False)
    monkeypatch.setattr(compiler, "_without_compiler", False)
    return with_compiler(monkeypatch, "counting 1")


def with_compiler(monkeypatch: pytest.MonkeyPatch, version: str) -> Counting:
    """From here on the machine's compiler is another."""
    found = Counting()
    found.version = version
    monkeypatch.setattr(compiler, "compiler", lambda: found)
    monkeypatch.setattr(build, "compiler", lambda: found)
    return found


def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the machine has none."""

    def missing() -> Compiler:
        raise EngineError("[cu32] expected a CUDA compiler, got neither NVRTC nor nvcc")

    monkeypatch.setattr(compiler, "compiler", missing)


@pytest.fixture
def ahead(tmp_path: Path, counting: Counting, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of cubins, brought to a machine whose cache is empty."""
    assert build.build(["sm_90", "sm_80"], 2, tmp_path / "ahead", SOURCES) == 4 == counting.calls
    monkeypatch.setenv("ALPHA_CACHE", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("ALPHA_CUBINS", str(tmp_path / "ahead"))
    return tmp_path / "ahead"


def test_what_was_made_ahead_needs_no_compiler(ahead: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_compiler(monkeypatch)
    compiler.check_compiler()
    found = {compiler.made_ahead(source, architecture) for source in SOURCES for architecture in ("sm_80", "sm_90")}
    assert len(found) == 4 and None not in found
    assert compiler.made_ahead(SOURCES[0], "sm_90") == f"{ADD}|['-DVALUE=1']|sm_90|".encode() + found_call(ahead)
    others = (Source("user", text=ADD, VALUE=3), Source("user", text=f"{ADD} ", VALUE=1))
    assert [compiler.made_ahead(source, "sm_90") for source in others] == [None, None]
    assert compiler.made_ahead(SOURCES[0], "sm_75") is None
    with pytest.raises(EngineError, match=r"expected a cubin of user\.cu \(VALUE=1\) for sm_75 in .*ahead.* neither"):
        compiler.cubin(SOURCES[0], "sm_75")


def found_call(ahead: Path) -> bytes:
    """The number of the call, of which threads decide the order, in the first source's cubin for sm_90."""
    (path,) = ahead.glob(f"{compiler._source_key(SOURCES[0], 'sm_90')}-*.cubin")
    return compiler.disk.read(path).rsplit(b"|", 1)[1]


def test_the_own_version_comes_first_and_a_named_compiler_alone(ahead: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = SOURCES[0]
    first = compiler.made_ahead(source, "sm_90")
    newer = with_compiler(monkeypatch, "counting 2")
    assert compiler.made_ahead(source, "sm_90") == first, "of another version, where there is none of this"
    newer.calls = 100
    build.build(["sm_90"], 1, ahead, (source,))
    assert compiler.made_ahead(source, "sm_90") == compiler.cubin(source, "sm_90") != first
    with_compiler(monkeypatch, "counting 1")
    assert compiler.made_ahead(source, "sm_90") == first
    with_compiler(monkeypatch, "counting 3")
    monkeypatch.setenv("ALPHA_NVCC", "named")
    assert compiler.made_ahead(source, "sm_90") is None


def test_headers_count(ahead: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "KERNELS", tmp_path)
    source = Source("user", text='#include "a.cuh"\n' + ADD, VALUE=1)
    for text, made in (("// 1", False), ("// 2", False), ("// 1", True)):
        (tmp_path / "a.cuh").write_text(text)
        compiler._headers.cache_clear()
        assert (compiler.made_ahead(source, "sm_90") is not None) == made
        if text == "// 1":
            build.build(["sm_90"], 1, ahead, (source,))
    compiler._headers.cache_clear()


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "swapped", "directory", "garbage"])
def test_damaged_cubins_are_not_taken(
    ahead: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    first, second = (ahead / compiler.cubin_name(source, "sm_90") for source in SOURCES)
    whole = first.read_bytes()
    first.unlink()
    if damage == "directory":
        first.mkdir()
    else:
        flipped = bytearray(whole)
        flipped[len(whole) // 2] ^= 4
        contents = {"cut": whole[:-1], "empty": b"", "flipped": flipped, "garbage": b"?"}
        first.write_bytes(contents.get(damage, second.read_bytes()))
    with caplog.at_level(logging.WARNING):
        assert compiler.made_ahead(SOURCES[0], "sm_90") is None
    assert str(first) in caplog.text and "ALPHA_CUBINS" in caplog.text
    assert compiler.made_ahead(SOURCES[1], "sm_90") is not None
    build.build(["sm_90"], 1, ahead, SOURCES)  # makes it whole again
    assert compiler.made_ahead(SOURCES[0], "sm_90") is not None and first.is_file()


@pytest.mark.parametrize("damage", [b"", b"?", None])
def test_damaged_cubins_in_the_cache_are_made_anew(counting: Counting, damage: bytes | None) -> None:
    source = SOURCES[0]
    compiler.cubin(source, "sm_90")
    path = compiler.cubin_path(source, "sm_90")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] if damage is None else damage)
    assert compiler.cubin(source, "sm_90").endswith(b"|2") and counting.calls == 2
    assert compiler.cubin(source, "sm_90").endswith(b"|2") and counting.calls == 2


def test_a_folder_that_cannot_be_written_is_told(
    counting: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match=r"expected to keep cubins in .*file, got: .*: name a folder"):
        build.build(["sm_90"], 1, tmp_path / "file", SOURCES)
    monkeypatch.setenv("ALPHA_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(compiler.disk, "warn_once", lambda *_: None)
    with pytest.raises(EngineError, match=r"expected to keep cubins in the cache, got: "):
        build.build(["sm_90"], 1, None, SOURCES)
    assert build.build(["sm_90"], 1, tmp_path / "out", SOURCES) == 2, "which needs no cache"


def test_a_folder_that_is_none_is_told(
    counting: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ALPHA_CUBINS", str(tmp_path / "absent"))
    compiler.check_compiler()
    assert "expected ALPHA_CUBINS to name a folder" in caplog.text
    assert compiler.made_ahead(SOURCES[0], "sm_90") is None
    without_compiler(monkeypatch)
    with pytest.raises(EngineError, match="expected a CUDA compiler"):
        compiler.check_compiler()


@pytest.mark.parametrize("command", ["/nonexistent/nvcc", "/bin/false", ""])
def test_a_compiler_that_does_not_answer_is_an_error_of_ours(command: str) -> None:
    with pytest.raises(EngineError, match="expected nvcc to tell its version"):
        compiler.Nvcc(command)


def test_without_a_temporary_folder_nvcc_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "nvcc"
    command.write_text("#!/bin/sh\necho nvcc 1\n")
    command.chmod(0o755)
    monkeypatch.setattr(compiler.tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(EngineError, match=r"a temporary folder for what it makes, got: .*: set TMPDIR"):
        compiler.Nvcc(str(command)).compile(SOURCES[0], "sm_90")


def test_the_engine_takes_what_was_made_ahead(
    cu32: DeviceEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source("user", text='extern "C" __global__ void one(float* a) { a[threadIdx.x] = 1.0f; }')
    build.build([cu32.device.architecture], 1, tmp_path / "ahead", (source,))

    def refuse(*_: object) -> bytes:
        raise AssertionError("compiled")

    monkeypatch.setattr(type(compiler.compiler()), "compile", refuse)
    monkeypatch.setenv("ALPHA_CACHE", str(tmp_path / "empty"))
    monkeypatch.setenv("ALPHA_CUBINS", str(tmp_path / "ahead"))
    assert cu32.device.kernel(source, "one") is not None
    other = Source("user", text='extern "C" __global__ void two(float* a) { }')
    with pytest.raises(AssertionError, match="compiled"):
        cu32.device.kernel(other, "two")


def test_an_image_that_the_driver_refuses_is_compiled_here(
    cu32: DeviceEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source("user", text='extern "C" __global__ void three(float* a) { }')
    monkeypatch.setenv("ALPHA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ALPHA_CUBINS", str(tmp_path))
    name = compiler.cubin_name(source, cu32.device.architecture)
    compiler.disk.write_atomically(tmp_path / name, compiler.disk.sealed(name, b"\x7fELF of a newer toolkit"))
    compiler.note_refused.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert cu32.device.kernel(source, "three") is not None
    assert "expected the driver to take the cubins in ALPHA_CUBINS" in caplog.text


COMMAND = """
import sys
from alpha.cu32 import build
from alpha.cu32.compiler import Source
build.sources = lambda: (Source("user", text='extern "C" __global__ void f(float* a) { }'),)
sys.argv = ["build", *sys.argv[1:]]
sys.exit(build.main())
"""


def test_the_command_needs_no_device(tmp_path: Path) -> None:
    """The compiler of this machine makes a real cubin, where there is one."""
    environment = {**os.environ, "ALPHA_CACHE": str(tmp_path / "cache")}
    environment.pop("ALPHA_NVCC", None)
    command = [sys.executable, "-c", COMMAND, "sm_90", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    if "expected a CUDA compiler" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    assert f"ALPHA_CUBINS={tmp_path / 'out'}" in done.stdout
    (file,) = (tmp_path / "out").iterdir()
    assert file.read_bytes().startswith(b"\x7fELF") and file.name.startswith("user-sm_90-")

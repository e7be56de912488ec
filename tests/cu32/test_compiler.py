"""Sources, cubins and their cache: what the key covers, what many processes see, what a mistake says."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from alpha import cache as disk
from alpha.cu32 import compiler
from alpha.cu32.build import sources
from alpha.cu32.compiler import Compiler, Nvcc, Nvrtc, Source, cubin, cubin_path
from alpha.errors import EngineError

ADD = 'extern "C" __global__ void add(float* a) { a[threadIdx.x] += VALUE; }'


class Counting(Compiler):
    """A compiler that returns what it was asked for."""

    version = "counting 1"

    def __init__(self) -> None:
        self.calls = 0

    def compile(self, source: Source, architecture: str) -> bytes:
        self.calls += 1
        return f"{source.code}|{source.flags}|{architecture}|{self.calls}".encode()


@pytest.fixture
def counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counting:
    """A compiler that counts, and an empty cache."""
    found = Counting()
    monkeypatch.setenv("ALPHA_CACHE", str(tmp_path))
    monkeypatch.setattr(compiler, "compiler", lambda: found)
    return found


def test_the_same_source_is_the_same_object() -> None:
    source = Source("losses", REAL="float", WIDTH=4)
    assert Source("losses", WIDTH=4, REAL="float") is Source("losses", REAL="float", WIDTH="4") is source
    assert Source("losses", REAL="double", WIDTH=4) is not source
    assert Source("user", text=ADD) is not Source("user")
    assert pickle.loads(pickle.dumps(source)) is source


def test_a_source_is_its_name_and_macros() -> None:
    assert Source("losses", T="float", N=4) == Source("losses", N="4", T="float")
    assert Source("losses", T="float") != Source("losses", T="double")
    assert hash(Source("losses", T="float")) == hash(Source("losses", T="float"))
    assert str(Source("losses", T="float", N=4)) == "losses.cu (N=4, T=float)"
    assert Source("losses", T="float").flags == ["-DT=float"]


def test_compiles_once_and_keeps_it(counting: Counting, tmp_path: Path) -> None:
    source = Source("user", text=ADD, VALUE=1)
    assert cubin(source, "sm_90") == cubin(source, "sm_90")
    assert counting.calls == 1
    assert [path.name for path in (tmp_path / "cu32").iterdir()] == [cubin_path(source, "sm_90").name]


def test_the_key_covers_all_that_decides_the_code(
    counting: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = {cubin_path(Source("user", text=ADD, VALUE=1), "sm_90")}
    paths.add(cubin_path(Source("user", text=ADD + " ", VALUE=1), "sm_90"))
    paths.add(cubin_path(Source("user", text=ADD, VALUE=2), "sm_90"))
    paths.add(cubin_path(Source("user", text=ADD, VALUE=1), "sm_80"))
    counting.version = "counting 2"
    paths.add(cubin_path(Source("user", text=ADD, VALUE=1), "sm_90"))
    assert len(paths) == 5


def test_the_key_covers_the_headers_that_are_included(
    counting: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "KERNELS", tmp_path)
    source = Source("user", text=f'#include "outer.cuh"\n{ADD}')

    def key(**headers: str) -> str:
        for name, text in headers.items():
            (tmp_path / f"{name}.cuh").write_text(text)
        compiler._headers.cache_clear()
        return cubin_path(source, "sm_90").name

    first = key(outer='#include "inner.cuh"', inner='#include "outer.cuh"', other="// 1")  # a ring ends
    assert key(other="// 2") == first
    assert len({first, key(inner="// 1"), key(outer='#include "inner.cuh" // 2'), key(outer="// 3")}) == 4


def test_what_was_edited_meanwhile_is_not_kept(
    counting: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has read a header before it was changed would otherwise keep the new code under the old name."""
    monkeypatch.setattr(compiler, "KERNELS", tmp_path)
    header = tmp_path / "a.cuh"
    header.write_text("// 1")
    compiler._headers.cache_clear()
    first, second = (Source("user", text=f'#include "a.cuh"\n{ADD}', VALUE=value) for value in (1, 2))
    cubin(first, "sm_90")
    header.write_text("// 2")
    cubin(second, "sm_90")
    assert [path.name for path in (tmp_path / "cu32").iterdir()] != [] and counting.calls == 2
    header.write_text("// 1")
    compiler._headers.cache_clear()
    assert cubin(second, "sm_90").endswith(b"|3"), "compiled anew"
    compiler._headers.cache_clear()


def test_a_cache_that_cannot_be_written_costs_only_time(
    counting: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ALPHA_CACHE", str(tmp_path / "file"))  # a folder cannot be made below a file
    monkeypatch.setattr(disk, "_warned", threading.Lock())
    source = Source("user", text=ADD, VALUE=1)
    with pytest.warns(RuntimeWarning, match=rf"\[cache\] expected to keep .* in {tmp_path / 'file'}") as warned:
        assert cubin(source, "sm_90").startswith(ADD.encode())
        assert cubin(source, "sm_90").startswith(ADD.encode())
    assert counting.calls == 2 and len(warned) == 1


def test_threads_and_processes_never_see_half_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHA_CACHE", str(tmp_path))
    script = (
        "from cu32 import compiler\n"
        "class Long(compiler.Compiler):\n"
        "    version = 'long'\n"
        "    def compile(self, source, architecture):\n"
        "        return source.code.encode() * 200000\n"
        "compiler.compiler = Long\n"
        "for i in range(20):\n"
        "    content = compiler.cubin(compiler.Source('user', text='0123456789', VALUE=i), 'sm_90')\n"
        "    assert content == b'0123456789' * 200000, len(content)\n"
    )
    workers = [subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE) for _ in range(3)]
    for worker in workers:
        _, stderr = worker.communicate(timeout=120)
        assert worker.returncode == 0, stderr.decode()
    assert len(list((tmp_path / "cu32").iterdir())) == 20


def test_a_wrong_source_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHA_CACHE", str(tmp_path))
    try:
        compiler.compiler()
    except EngineError as error:
        pytest.skip(str(error))
    with pytest.raises(EngineError, match=r"(?s)expected user\.cu to compile for sm_90, got:.*user\.cu.*nonsense"):
        cubin(Source("user", text='extern "C" __global__ void f() { nonsense; }'), "sm_90")


def test_no_compiler_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALPHA_NVCC", raising=False)
    monkeypatch.setattr(compiler, "_load_nvrtc", lambda: None)
    monkeypatch.setattr(compiler, "_find_nvcc", lambda: None)
    compiler.compiler.cache_clear()
    try:
        with pytest.raises(EngineError, match="neither NVRTC nor nvcc: pip install nvidia-cuda-nvrtc"):
            compiler.compiler()
    finally:
        compiler.compiler.cache_clear()


def test_the_environment_names_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "nvcc"
    command.write_text("#!/bin/sh\necho my nvcc 1.0\n")
    command.chmod(0o755)
    monkeypatch.setenv("ALPHA_NVCC", str(command))
    compiler.compiler.cache_clear()
    try:
        found = compiler.compiler()
        assert isinstance(found, Nvcc)
        assert found.version == "nvcc my nvcc 1.0"
    finally:
        compiler.compiler.cache_clear()


def test_threads_share_a_compilation_or_repeat_it_harmlessly(counting: Counting) -> None:
    source, found = Source("user", text=ADD, VALUE=1), []
    threads = [threading.Thread(target=lambda: found.append(cubin(source, "sm_90"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(content.startswith(ADD.encode()) for content in found)


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    """The library that compiles for users who have no toolkit; the tests are skipped where it is not installed."""
    library = compiler._load_nvrtc()
    if library is None:
        pytest.skip("no libnvrtc: pip install nvidia-cuda-nvrtc")
    return Nvrtc(library)


def one_of_each_file() -> list[Source]:
    """A variant of every kernel file, one each where REAL differs."""
    return list({(source.name, dict(source.defines).get("REAL")): source for source in sources()}.values())


@pytest.mark.parametrize("source", one_of_each_file(), ids=str)
def test_nvrtc_takes_every_kernel_file(nvrtc: Nvrtc, source: Source) -> None:
    """It has no headers but ours, and neither nvcc's implicit include nor its host pass."""
    image = nvrtc.compile(source, "sm_90")
    assert image.startswith(b"\x7fELF")
    assert b".text." in image  # some kernel's code


def test_nvrtc_says_what_is_wrong_where(nvrtc: Nvrtc) -> None:
    with pytest.raises(EngineError, match=r"(?s)expected user\.cu to compile for sm_90, got:.*user\.cu\(1\).*nonsense"):
        nvrtc.compile(Source("user", text="nonsense;"), "sm_90")

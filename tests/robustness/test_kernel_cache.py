"""Kept kernels: never another's, never damaged, never needed."""

from __future__ import annotations

import ast
import errno
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from numba import config, int64, njit

from alpha import cache
from alpha.cpu import kernel_cache
from alpha.cpu.compile import alone, compiled
from alpha.cpu.isa import PATHS
from tests.robustness.kernel_processes import ROOT, Outcome, Processes

root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may become another user")


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    """Runs processes that use a kernel."""
    if os.name != "posix":
        pytest.skip("forks, users and limits are POSIX's")
    with Processes() as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, whose one warning has not been given; the folder of the kernels in it."""
    monkeypatch.setenv("ALPHA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_warned", threading.Lock())
    return tmp_path / "cache" / "cpu"


def case(folder: Path | None, **more: Any) -> dict[str, Any]:
    """A process with its cache there."""
    return {
        "environment": {"ALPHA_CACHE": None if folder is None else str(folder), **more.pop("environment", {})},
        **more,
    }


def kernels(folder: Path) -> list[Path]:
    """What is kept."""
    return sorted((folder / "cpu").iterdir())


def told_once(outcome: Outcome, folder: Path | str, cause: str) -> None:
    """The process worked, compiled, and gave one warning, which names the folder and the cause."""
    assert (outcome.status, outcome.hits, outcome.misses) == (0, 0, 1), outcome.errors
    assert outcome.errors.count(str(folder)) == outcome.errors.count("RuntimeWarning") == 1, outcome.errors
    assert cause in outcome.errors and "Traceback" not in outcome.errors


# -- never needed ----------------------------------------------------------------------------------------------------


def test_where_nothing_can_be_kept_kernels_are_compiled_with_one_warning(processes: Processes, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    (tmp_path / "kind").mkdir()
    (tmp_path / "kind" / "cpu").write_text("not ours: stays")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    long = tmp_path / ("x" * 300)
    cases = {
        file: errno.ENOTDIR,
        file / "below": errno.ENOTDIR,
        tmp_path / "kind": errno.EEXIST,
        tmp_path / "loop": errno.ELOOP,
        long: errno.ENAMETOOLONG,
        Path("/proc/1"): errno.ENOENT,
    }
    if sys.platform != "linux":
        del cases[Path("/proc/1")]
    for folder, outcome in zip(cases, processes.run(*map(case, cases)), strict=True):
        told_once(outcome, folder, os.strerror(cases[folder]))
    assert (tmp_path / "kind" / "cpu").read_text() == "not ours: stays"


def test_a_full_disk_costs_only_time(processes: Processes, tmp_path: Path) -> None:
    """A limit on files stands in for it: what is written ends at once, in the middle of a kernel, or just after it."""
    limits = (0, 100, cache.PROBE_BYTES - 1)
    outcomes = processes.run(*(case(tmp_path / str(limit), file_bytes=limit) for limit in limits))
    for limit, outcome in zip(limits, outcomes, strict=True):
        told_once(outcome, tmp_path / str(limit), os.strerror(errno.EFBIG))
        assert [file.suffix for file in kernels(tmp_path / str(limit))] == ([] if limit <= 100 else [".kernel"])


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that other users reach."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@root
def test_users_without_a_home_a_folder_or_a_name(processes: Processes, public: Path) -> None:
    (public / "closed").mkdir(mode=0o700)
    no_home = {"HOME": None, "XDG_CACHE_HOME": None}
    first, nameless, closed, homeless, reader, again = processes.run(
        case(public / "shared"),
        case(None, uid=54321, environment=no_home),
        case(public / "closed", uid=54321),
        case(None, uid=65534, environment={**no_home, "HOME": "/nonexistent"}),
        case(public / "shared", uid=54321),
        case(None, environment={**no_home, "XDG_CACHE_HOME": str(public / "xdg")}),
    )
    assert (first.status, first.misses) == (0, 1)
    told_once(nameless, "~/.cache/alpha", "no home directory")
    told_once(closed, public / "closed", os.strerror(errno.EACCES))
    told_once(homeless, "/nonexistent/.cache/alpha", os.strerror(errno.EACCES))
    assert (reader.status, reader.hits, reader.errors) == (0, 1, ""), "what another user kept is taken, without a word"
    assert (again.status, again.misses) == (0, 1) and (public / "xdg" / "alpha" / "cpu").is_dir()


def test_the_package_loads_where_there_is_no_disk(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environment = {key: value for key, value in os.environ.items() if key not in ("HOME", "XDG_CACHE_HOME")}
    environment |= {
        "ALPHA_CACHE": str(tmp_path / "file" / "x"),
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "error::RuntimeWarning",
    }
    program = "import alpha; print(alpha.functions.gelu(alpha.ones(3)).shape)"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (0, "(3,)\n"), done.stderr
    assert done.stderr.count(str(tmp_path / "file" / "x")) == 1, "no error even where warnings are errors"


# -- never another's -------------------------------------------------------------------------------------------------

CONVOLUTION = """
import sys
import numpy as np
import alpha
from alpha.cpu.isa import ISA
assert ISA.name == sys.argv[1]
alpha.set_default_engine(alpha.engine("cpu", threads=1))
x = np.arange(36, dtype=np.float32).reshape(1, 3, 3, 4)
w = np.arange(16, dtype=np.float32).reshape(4, 1, 1, 4) - 7
result = alpha.functions.conv2d(alpha.tensor(x), alpha.tensor(w)).numpy()
np.testing.assert_allclose(result, np.einsum("nhwc,oc->nhwo", x, w[:, 0, 0]), rtol=1e-5)
"""


def test_instruction_paths_do_not_meet_where_nothing_can_be_kept(tmp_path: Path) -> None:
    """Not beside the source either, which can be written, nor in a folder of Numba's."""
    (tmp_path / "file").write_text("")
    before = set((ROOT / "alpha").rglob("*.nb?"))
    for path in (PATHS[-2].name, PATHS[-1].name):
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "ALPHA_CPU_ISA": path,
            "ALPHA_CACHE": str(tmp_path / "file"),
            "XDG_CACHE_HOME": str(tmp_path / "xdg"),
            "NUMBA_CACHE_DIR": str(tmp_path / "numba"),
        }
        command = [sys.executable, "-c", CONVOLUTION, path]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
    assert set((ROOT / "alpha").rglob("*.nb?")) == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file"]


class Codegen:
    """A code generator for some processor."""

    def __init__(self, *described: str) -> None:
        self.described = described

    def magic_tuple(self) -> tuple[str, ...]:
        return self.described


def tiny(address: int, value: int) -> int:
    return address + value * SCALE


SCALE = 3


@njit  # type: ignore[misc, untyped-decorator, unused-ignore]
def scaled(value: int) -> int:
    return value * SCALE


def caller(value: int) -> int:
    return int(scaled(value))


def test_the_name_covers_all_that_decides_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Codegen("x86_64", "znver5", "+avx2")

    def name(function: Callable[..., Any] = tiny, signature: Any = (int64, int64), codegen: Codegen = here) -> str:
        found = kernel_cache.KernelCache(function)._file(signature, codegen)
        assert found is not None
        return found

    def closed(scale: int) -> Callable[[int], int]:
        return lambda value: value * scale

    first = name()
    assert name() == first and name(closed(1)) == name(closed(1)) and name(caller) == name(caller)
    names = {first, name(signature=(int64,)), name(codegen=Codegen("x86_64", "znver4", "+avx2"))}
    names |= {name(codegen=Codegen("x86_64", "znver5", "")), name(caller), name(closed(1)), name(closed(2))}
    for target, attribute, value in (
        (kernel_cache, "ISA", PATHS[0] if kernel_cache.ISA is not PATHS[0] else PATHS[1]),
        (kernel_cache.numba, "__version__", "0"),
        (kernel_cache.llvmlite, "__version__", "0"),
        (kernel_cache.np, "__version__", "0"),
        (sys, "version", "0"),
        (config, "BOUNDSCHECK", 1),
        (config, "OPT", 1),
        (config, "SLP_VECTORIZE", 1),
        (sys.modules[__name__], "SCALE", 4),
        (kernel_cache, "sources_digest", lambda path: "other"),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(target, attribute, value)
            names.add(name())
            if attribute == "SCALE":
                names.add(name(caller))
    assert len(names) == 7 + 10 + 1 and name() == first


def test_a_source_that_cannot_be_read_is_not_kept(folder: Path) -> None:
    names: dict[str, Any] = {}
    exec(compile("def nowhere(a):\n    return a + 1\n", "<typed in>", "exec"), names)
    with pytest.warns(RuntimeWarning, match=r"\[cache\] expected to keep the kernel nowhere, got: no source"):
        assert alone(names["nowhere"])(1) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert alone(names["nowhere"])(2) == 3
    assert not folder.exists()


def test_sources_are_known_by_content_alone(tmp_path: Path) -> None:
    def digest(folder: str, text: str) -> str | None:
        path = tmp_path / folder / "kernels.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        os.utime(path, (1, 1))
        return kernel_cache.sources_digest(path)

    assert digest("a", "x = 1") == digest("b", "x = 1") is not None
    assert digest("c", "x = 2") not in (digest("d", "x = 1"), digest("e", "from alpha.cpu import isa"))
    assert kernel_cache.sources_digest(tmp_path / "absent.py") is None


def parsed(path: Path) -> set[Path]:
    """The files of the CPU engine that a source imports, by Python's own parser."""
    found: set[Path] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("alpha.cpu"):
            module = (ROOT / "alpha" / "cpu").joinpath(*node.module.split(".")[2:])
            found.update([module.with_suffix(".py"), *(module / f"{alias.name}.py" for alias in node.names)])
    return {file for file in found if file.is_file() and file.name != "kernel_cache.py"}


def test_the_imports_of_a_source_are_found() -> None:
    sources = list((ROOT / "alpha" / "cpu").rglob("*.py"))
    assert len(sources) > 40 and sum(map(len, map(parsed, sources))) > 100
    for path in sources:
        assert kernel_cache._imports(path) == parsed(path), path


@pytest.mark.parametrize(
    "text",
    [
        "from alpha.cpu import isa as i, atomics",
        "if x:\n    from alpha.cpu import (  # the (first)\n        isa,  # and\n        atomics as b,\n    )",
        "from alpha.cpu import isa, \\\n    atomics",
        "import alpha.cpu.isa, alpha.cpu.atomics as b",
        "from alpha.cpu.isa import ISA\r\nfrom alpha.cpu.atomics import *\r\n",
    ],
)
def test_every_form_of_import_is_found(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.py").write_text(text)
    assert {file.name for file in kernel_cache._imports(tmp_path / "a.py")} == {"isa.py", "atomics.py"}


def test_relative_imports_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kernel_cache, "_CPU", tmp_path)
    (tmp_path / "kernels").mkdir()
    for name in ("one.py", "two.py", "kernels/three.py", "kernels/four.py", "kernels/__init__.py"):
        (tmp_path / name).write_text(
            "from . import four, NAME\nfrom .three import x\nfrom .. import one\nfrom ..two import y"
        )
    found = kernel_cache._imports(tmp_path / "kernels" / "three.py")
    assert {file.name for file in found} == {"one.py", "two.py", "three.py", "four.py", "__init__.py"}


def test_checkouts_of_equal_sources_share_and_others_do_not(processes: Processes, tmp_path: Path) -> None:
    ignore = shutil.ignore_patterns("__pycache__")
    other = tmp_path / "elsewhere"
    shutil.copytree(ROOT / "alpha", other / "alpha", ignore=ignore)
    (other / "tests" / "robustness").mkdir(parents=True)
    for name in ("tests/__init__.py", "tests/robustness/__init__.py", "tests/robustness/kernel_processes.py"):
        shutil.copy(ROOT / name, other / name)
    (first,) = processes.run(case(tmp_path / "cache"))
    with Processes(other) as there:
        (same,) = there.run(case(tmp_path / "cache"))
    with (other / "alpha" / "cpu" / "atomics.py").open("a") as file:
        file.write("\n# changed\n")
    with Processes(other) as there:
        (changed,) = there.run(case(tmp_path / "cache"))
    assert [(one.hits, one.misses) for one in (first, same, changed)] == [(0, 1), (1, 0), (0, 1)], first.errors


# -- never damaged ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kernel(processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes]:
    """The name and the bytes of a kernel's file, which are that of a process that has ended."""
    folder = tmp_path_factory.mktemp("kernel")
    (outcome,) = processes.run(case(folder))
    assert outcome.status == 0, outcome.errors
    (file,) = kernels(folder)
    return file.name, file.read_bytes()


def put(folder: Path, name: str, content: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(content)
    return path


def test_no_cut_file_is_taken(folder: Path, kernel: tuple[str, bytes]) -> None:
    name, whole = kernel
    path = put(folder, name, whole)
    assert cache.load("cpu", name) == whole[:-32]
    for length in range(len(whole) - 1, -1, -1):
        os.truncate(path, length)
        assert cache.load("cpu", name) is None, length


def test_no_changed_file_is_taken(folder: Path, kernel: tuple[str, bytes]) -> None:
    name, whole = kernel
    path = put(folder, name, whole)
    bits = [*range(8 * (len(whole) - 32), 8 * len(whole)), *random.Random(21).sample(range(8 * len(whole)), 500)]
    for bit in bits:
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        assert cache.load("cpu", name) is None, bit
    for changed in (
        whole + b"\0",
        b"\0" + whole,
        whole + whole,
        whole[1:],
        whole[-32:],
        bytes(len(whole)),
        b"\xff" * 64,
    ):
        path.write_bytes(changed)
        assert cache.load("cpu", name) is None


def test_whatever_is_in_a_files_place_is_replaced(folder: Path, kernel: tuple[str, bytes]) -> None:
    name, whole = kernel
    path = put(folder, name, whole)
    other = put(folder, "other.kernel", whole)  # of another name

    def directory() -> None:
        path.mkdir()
        (path / "within").write_text("")

    def huge() -> None:
        with path.open("wb") as file:
            file.truncate(1 << 40)

    places: list[Callable[[], Any]] = [
        lambda: path.write_bytes(b""),
        lambda: path.write_bytes(cache.sealed("other.kernel", whole)),
        lambda: path.symlink_to(path),
        lambda: path.symlink_to(folder / "absent"),
        lambda: path.symlink_to("/dev/zero"),
        lambda: os.mkfifo(path),
        directory,
        huge,
    ]
    assert cache.load("cpu", other.name) is None
    for place in places:
        path.unlink()
        place()
        assert cache.load("cpu", name) is None
        assert cache.keep("cpu", name, whole[:-32])
        assert cache.load("cpu", name) == whole[:-32] and path.read_bytes() == whole
        assert not path.is_symlink()


def test_a_damaged_kernel_is_made_anew_by_the_next_process(
    processes: Processes, tmp_path: Path, kernel: tuple[str, bytes]
) -> None:
    """From end to end: nothing of a damaged file gets as far as pickle or LLVM."""
    name, whole = kernel
    damages = [whole[:0], whole[: len(whole) // 2], whole[:-1], b"garbage"]
    for byte in random.Random(3).sample(range(len(whole)), 4):
        damages.append(whole[:byte] + bytes([whole[byte] ^ 16]) + whole[byte + 1 :])
    folders = [tmp_path / str(number) for number in range(len(damages) + 1)]
    for folder, content in zip(folders, damages, strict=False):
        put(folder / "cpu", name, content)
    (folders[-1] / "cpu" / name).mkdir(parents=True)
    outcomes = processes.run(*map(case, folders))
    assert [(one.status, one.hits, one.misses) for one in outcomes] == [(0, 0, 1)] * len(folders), outcomes
    again = processes.run(*map(case, folders))
    assert [(one.status, one.hits, one.misses, one.errors) for one in again] == [(0, 1, 0, "")] * len(folders), again


@root
def test_a_damaged_kernel_of_another_user_costs_only_time(
    processes: Processes, public: Path, kernel: tuple[str, bytes]
) -> None:
    name, whole = kernel
    path = put(public / "cache" / "cpu", name, whole[:-1])
    path.parent.chmod(0o1777)  # as /tmp: files may be made, but not another's replaced
    (outcome,) = processes.run(case(public / "cache", uid=54321))
    assert (outcome.status, outcome.misses) == (0, 1), outcome.errors
    assert outcome.errors.count("RuntimeWarning: [cache]") == outcome.errors.count(os.strerror(errno.EPERM)) == 1
    assert kernels(public / "cache") == [path] and path.read_bytes() == whole[:-1]


def test_what_is_whole_and_cannot_be_loaded_is_made_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a change of Numba that left its version as it was."""
    first = alone(tiny)
    assert first(1, 2) == 7
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    for content in (b"", b"no pickle", b"\x80\x05N."):
        assert cache.keep("cpu", file.name, content)
        again = alone(tiny)
        assert again(1, 2) == 7 and sum(again.stats.cache_misses.values()) == 1
        assert file.stat().st_size > len(whole) // 2


def test_compiling_anew_when_told_to(folder: Path) -> None:
    function = alone(tiny)
    assert function(1, 2) == 7 and function.stats.cache_path == str(folder)
    function.recompile()
    assert function(1, 2) == 7 and sum(function.stats.cache_hits.values()) == 0


# -- many writers, killed ones, old files ----------------------------------------------------------------------------


def test_processes_that_begin_together(processes: Processes, tmp_path: Path) -> None:
    outcomes = processes.run(*[case(tmp_path)] * 4, together=True)
    assert [one.status for one in outcomes] == [0] * 4, outcomes
    assert len(kernels(tmp_path)) == 1, "and no temporary file"
    (after,) = processes.run(case(tmp_path))
    assert (after.hits, after.errors) == (1, "")


def test_a_writer_that_is_killed_leaves_nothing_that_is_taken(processes: Processes, tmp_path: Path) -> None:
    killed, after, again = processes.run(case(tmp_path, die="replace"), case(tmp_path), case(tmp_path))
    assert (killed.status, after.misses, again.hits) == (-9, 1, 1)
    assert [file.suffix for file in kernels(tmp_path)] == [".tmp", ".kernel"]
    left = kernels(tmp_path)[0]
    os.utime(left, (time.time() - 2 * cache.ABANDONED_SECONDS,) * 2)
    cache.prune(tmp_path / "cpu")
    assert not left.exists() and len(kernels(tmp_path)) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "full")])
@pytest.mark.parametrize("function", ["replace", "write"])
def test_an_interrupted_writer_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, function: str
) -> None:
    def fail(*_: Any) -> None:
        raise error

    if function == "replace":
        monkeypatch.setattr(os, "replace", fail)
    else:
        monkeypatch.setattr("builtins.open", Failing(error))
    if isinstance(error, OSError):
        with pytest.warns(RuntimeWarning, match="full"):
            assert not cache.keep("cpu", "a.kernel", b"a")
    else:
        with pytest.raises(KeyboardInterrupt):
            cache.keep("cpu", "a.kernel", b"a")
    assert list(folder.iterdir()) == []


class Failing:
    """``open`` for files whose writes fail half-way."""

    def __init__(self, error: BaseException) -> None:
        self.error, self.open = error, open

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        file = self.open(*arguments, **options)
        error = self.error

        class Half:
            def __enter__(self) -> Half:
                return self

            def __exit__(self, *_: object) -> None:
                file.close()

            def write(self, content: bytes) -> None:
                file.write(content[: len(content) // 2])
                raise error

        return Half()


def test_what_nobody_uses_is_removed(folder: Path) -> None:
    now = time.time()
    (folder / "0123456789abcdef0123" / "kernels_1").mkdir(parents=True)
    (folder / "theirs").mkdir()
    ages = {
        "old.kernel": 40,
        "used.kernel": 40,
        "new.kernel": 20,
        "notes.txt": 400,
        f".{16 * 'a'}.tmp": 1,
        f".{16 * 'b'}.tmp": 0,
    }
    ages |= {"0123456789abcdef0123/kernels_1/f.nbi": 40, "0123456789abcdef0123/kernels_1/f.1.nbc": 40}
    for name, days in ages.items():
        (folder / name).write_bytes(cache.sealed(name, b"x"))
        os.utime(folder / name, (now - 86400 * days,) * 2)
    assert cache.load("cpu", "used.kernel") == b"x"
    assert cache.keep("cpu", "another.kernel", b"y")  # the first to be kept by this process
    left = {str(file.relative_to(folder)) for file in folder.rglob("*")}
    assert left - {"0123456789abcdef0123"} == {
        "used.kernel", "new.kernel", "notes.txt", f".{16 * 'b'}.tmp", "another.kernel", "theirs",
    }  # fmt: skip


def test_times_of_a_search_stay(folder: Path) -> None:
    path = put(folder.parent / "plans", "a.json", cache.sealed("a.json", b"{}"))
    os.utime(path, (1, 1))
    assert cache.keep("plans", "b.json", b"{}")
    assert path.exists()


def test_kernels_of_one_name_do_not_meet(folder: Path) -> None:
    """Two functions of one name, as two modules have them, and a kernel as launches call it."""

    def make(number: int) -> Callable[[int], int]:
        def same(value: int) -> int:
            return value + number

        return same

    assert [alone(make(number))(1) for number in (1, 2, 1)] == [2, 3, 2]

    @compiled
    def same(counter: int) -> int:
        return 5

    assert same.__name__ == "same"
    assert len(list(folder.iterdir())) == 2

"""Builds what the tests of the CUDA engine need where there is no GPU: our libcuda.so.1, and PyCUDA from PyPI.

``python -m tests.cuda_on_cpu.build`` builds both and says what could not be built and why; the tests then skip with
that reason. Needs Linux on x86-64, g++, and cuda.h (from a toolkit or PyPI's nvidia-cuda-runtime).
"""

from __future__ import annotations

import glob
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from alpha import cache

HERE = Path(__file__).resolve().parent
LIBRARY = "libcuda.so.1"
PYCUDA = "pycuda==2026.1"
PYCUDA_NEEDS = ("setuptools", "wheel", "numpy", "pytools", "platformdirs", "mako")
OPTIONS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra")


class NotBuilt(Exception):
    """What is missing, as the reason to skip with."""


def run(*command: str, text: str | None = None, folder: Path | None = None) -> str:
    """The output of a command; NotBuilt with the end of its messages if it fails."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        messages = (done.stderr or done.stdout).strip().splitlines()
        raise NotBuilt(f"{Path(command[0]).name} failed: {' | '.join(messages[-3:])}")
    return done.stdout


def headers() -> Path:
    """The folder of cuda.h, of CUDA 13: beside this Python's packages, named by the environment, or installed."""
    packaged = [found for path in sys.path for found in glob.glob(f"{path}/nvidia/cu*/include")]
    named = [f"{os.environ[key]}/include" for key in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(key)]
    installed = sorted(glob.glob("/usr/local/cuda*/include"), reverse=True)
    for folder in (*packaged, *named, *installed):
        header = Path(folder) / "cuda.h"
        if header.is_file() and re.search(r"#define CUDA_VERSION 13\d\d\d", header.read_text()):
            return Path(folder)
    raise NotBuilt("no cuda.h of CUDA 13: pip install nvidia-cuda-runtime==13.0.96")


def check_machine() -> None:
    """NotBuilt where the driver cannot work."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise NotBuilt(f"the test driver needs Linux on x86-64, this is {sys.platform} on {platform.machine()}")
    if shutil.which("g++") is None:
        raise NotBuilt("no g++")


def entry_points(include: Path) -> set[str]:
    """Every function of the driver that the headers know, under all its versions' names."""
    names: set[str] = set()
    source = "#include <cuda.h>\n#include <cudaProfiler.h>\n"
    for versions in ((), ("-D__CUDA_API_VERSION_INTERNAL",)):
        text = run("g++", "-E", "-P", "-x", "c++", f"-I{include}", *versions, "-", text=source)
        names.update(re.findall(r"CUresult\s+(cu[A-Z]\w+)\s*\(", text))
    return names


def stub_source(names: set[str], result: int) -> str:
    """C functions that only answer with an error code."""
    return "".join(
        f'__attribute__((visibility("default"))) int {name}(void) {{ return {result}; }}\n' for name in sorted(names)
    )


def driver_key(include: Path) -> str:
    """Changes with all that the library is made from."""
    digest = hashlib.sha256(run("g++", "--version").encode())
    for file in (*sorted((HERE / "driver").iterdir()), HERE / "include" / "abi.h", Path(__file__), include / "cuda.h"):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def compile_driver(include: Path, folder: Path) -> None:
    """Leaves the library in a folder."""
    sources = sorted((HERE / "driver").glob("*.cpp"))

    def compile_one(source: Path) -> str:
        out = str(folder / f"{source.stem}.o")
        run("g++", *OPTIONS, f"-I{include}", "-c", str(source), "-o", out)
        return out

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, sources))
    have = set(re.findall(r" T (cu\w+)", run("nm", "--defined-only", *objects)))
    stubs = folder / "unsupported.c"
    stubs.write_text(stub_source(entry_points(include) - have, 801))  # CUDA_ERROR_NOT_SUPPORTED
    run("gcc", "-O1", "-fPIC", "-c", str(stubs), "-o", f"{stubs}.o")
    run(
        "g++",
        "-shared",
        f"-Wl,-soname,{LIBRARY}",
        "-o",
        str(folder / LIBRARY),
        *objects,
        f"{stubs}.o",
        "-ldl",
        "-lpthread",
    )


def driver() -> Path:
    """The library, built unless it is there; any number of processes may ask at once."""
    check_machine()
    include = headers()
    target = cache.directory("test-driver") / driver_key(include)
    library = target / LIBRARY
    if not library.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            compile_driver(include, Path(folder))
            target.mkdir(exist_ok=True)
            os.replace(Path(folder) / LIBRARY, library)
    return library


def has_pycuda() -> bool:
    """Whether this Python has PyCUDA; it is not imported, as that needs a libcuda.so.1."""
    return importlib.util.find_spec("pycuda") is not None


def pycuda() -> None:
    """Puts PyCUDA into this Python's environment, made from PyPI's source against a libcuda.so.1 of stubs."""
    if has_pycuda():
        return
    check_machine()
    include = headers()
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "install", *PYCUDA_NEEDS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stub = folder / "stub.c"
        stub.write_text(stub_source(entry_points(include), 3))  # CUDA_ERROR_NOT_INITIALIZED
        run("gcc", "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}", "-o", str(folder / "libcuda.so"), str(stub))
        run(*pip, "download", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "-d", name, PYCUDA)
        (archive,) = folder.glob("pycuda-*.tar.gz")
        shutil.unpack_archive(archive, folder / "source", filter="data")
        (source,) = (folder / "source").iterdir()
        (source / "siteconf.py").write_text(
            f"CUDA_INC_DIR = [{str(include)!r}]\nCUDA_ENABLE_CURAND = False\nCUDADRV_LIB_DIR = [{name!r}]\n"
            'CXXFLAGS = ["-O1", "-g0", "-w"]\n'
        )
        run(*pip, "install", "--no-deps", "--no-build-isolation", str(source))


def main() -> int:
    """Builds all; what cannot be built is said and is no error: its tests skip."""
    for build in (pycuda, driver):
        try:
            build()
        except (NotBuilt, OSError) as error:
            print(f"tests of the CUDA engine will be skipped: {error}", file=sys.stderr)
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())

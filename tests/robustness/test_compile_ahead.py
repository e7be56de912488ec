"""Kernels that several processes compile: each by one of them, shown to who waits, and nobody waits for ever."""

from __future__ import annotations

import errno
import io
import json
import multiprocessing  # noqa: F401  (looked up by name)
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from numba import float32, int64, types
from tqdm import tqdm

from alpha import cache
from alpha.cpu import ahead, claims, compilations, signatures
from alpha.cpu.claims import Claims
from alpha.cpu.compile import alone
from alpha.cpu.isa import PATHS
from alpha.cpu.kernel_cache import machine
from alpha.cpu.signatures import COMPILERS, Kernel

ROOT = Path(__file__).resolve().parent.parent.parent
pytestmark = pytest.mark.skipif(claims.fcntl is None, reason="the system has no locks of a file's bytes")

WRITE = Kernel("alpha.cpu.workers._write", '["2 int64"]')
SLEEPER = Kernel("alpha.cpu.workers._initialize_sleeper", '["int64"]')


POPEN = subprocess.Popen
"""As it is before tests replace it."""


def tiny(a: int, b: int) -> int:
    return a + 3 * b


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the test's own; the folder that the kernels will be in."""
    monkeypatch.setenv("ALPHA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_warned", threading.Lock())
    return tmp_path / "cache" / "cpu"


class Process:
    """A process of Python: a program, which is told lines and prints others."""

    def __init__(self, program: str, *arguments: str, **environment: str) -> None:
        self.process = POPEN(
            [sys.executable, "-c", program, *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)

    def ask(self, line: str) -> str:
        self.tell(line)
        return self.hear()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


CLAIMANT = """
import sys
from alpha.cpu.claims import Claims
claims = Claims("cpu")
for line in sys.stdin:
    word, name = line.split()
    print(getattr(claims, word)(name), flush=True)
"""


@pytest.fixture
def claimant(folder: Path) -> Iterator[Process]:
    """Another process, which takes and releases claims as it is told."""
    with Process(CLAIMANT) as process:
        yield process


# -- claims ----------------------------------------------------------------------------------------------------------


def test_one_process_has_a_claim_until_it_releases_it_or_ends(claimant: Process) -> None:
    here = Claims("cpu")
    assert claimant.ask("take a") == "True"
    assert not here.take("a") and here.take("b") and here.take("b")
    assert claimant.ask("take b") == "False" and claimant.ask("take c") == "True"
    here.release("b")
    assert claimant.ask("take b") == "True"
    claimant.tell("release a")
    assert claimant.hear() == "None" and here.take("a") and not here.take("c")
    claimant.process.kill()
    claimant.process.wait()
    assert here.take("b") and here.take("c")


def test_a_forked_child_has_no_claims_and_ends_none(claimant: Process) -> None:
    here = Claims("cpu")
    assert here.take("a")
    child = os.fork()
    if child == 0:
        os._exit(2 * here.take("a") + here.take("b"))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert claimant.ask("take a") == "False" and claimant.ask("take b") == "True"


def test_where_there_are_no_locks_every_claim_is_granted(
    tmp_path: Path, claimant: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert claimant.ask("take a") == "True"
    here = Claims("cpu")
    assert not here.take("a")

    with monkeypatch.context() as changed:
        changed.setattr(claims.fcntl, "lockf", no_locks)
        assert here.take("a")
        here.release("a")
    with monkeypatch.context() as changed:
        changed.setattr(claims, "fcntl", None)
        assert Claims("cpu").take("a")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ALPHA_CACHE", str(tmp_path / "file"))
    assert Claims("cpu").take("a")
    monkeypatch.setenv("ALPHA_CACHE", str(tmp_path / "other"))
    assert here.take("a"), "another cache, other claims"


def test_claims_outlive_their_folder(claimant: Process, folder: Path) -> None:
    here = Claims("cpu")
    assert here.take("a")
    shutil.rmtree(folder.parent)
    assert here.take("b") and claimant.ask("take a") == "True"
    here.release("b")


# -- a kernel that another process compiles --------------------------------------------------------------------------


def misses(function: Any) -> int:
    return sum(function.stats.cache_misses.values())


@pytest.fixture
def file(folder: Path) -> tuple[str, bytes]:
    """The name and the bytes of a kernel's file, which is not in the cache."""
    assert alone(tiny)(1, 2) == 7
    (path,) = folder.iterdir()
    content = path.read_bytes()
    path.unlink()
    return path.name, content


def test_a_kernel_that_another_process_compiles_is_waited_for(
    claimant: Process, folder: Path, file: tuple[str, bytes]
) -> None:
    assert claimant.ask(f"take {file[0]}") == "True"

    def finish() -> None:
        (folder / file[0]).write_bytes(file[1])
        claimant.tell(f"release {file[0]}")

    timer = threading.Timer(0.3, finish)
    timer.start()
    function, begin = alone(tiny), time.monotonic()
    assert function(1, 2) == 7 and misses(function) == 0 and time.monotonic() - begin >= 0.25
    timer.join()
    assert claimant.hear() == "None" and claimant.ask(f"take {file[0]}") == "True", "the claim was given back"


@pytest.mark.parametrize("how", ["killed", "stopped", "failed"])
def test_nobody_waits_for_a_process_that_does_not_finish(
    how: str, claimant: Process, file: tuple[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert claimant.ask(f"take {file[0]}") == "True"
    if how == "stopped":
        monkeypatch.setattr(compilations, "MOST_WAITING_SECONDS", 0.3)
    end = {"killed": claimant.process.kill, "failed": lambda: claimant.tell(f"release {file[0]}"), "stopped": int}
    timer = threading.Timer(0.3, end[how])
    timer.start()
    function = alone(tiny)
    assert function(1, 2) == 7 and misses(function) == 1
    timer.join()


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_compilation_that_ends_early_ends_its_claim_and_its_bar(
    error: type[BaseException], claimant: Process, file: tuple[str, bytes], terminal: Callable[[], Terminal]
) -> None:
    terminal()
    function = alone(tiny)

    def fail(*_: object) -> None:
        assert claimant.ask(f"take {file[0]}") == "False" and tqdm._instances
        raise error

    compiler, function._compiler = function._compiler, type("Failing", (), {"compile": fail})()
    with pytest.raises(error):
        function.compile((int64, int64))
    assert claimant.ask(f"take {file[0]}") == "True" and not tqdm._instances
    claimant.tell(f"release {file[0]}")
    assert claimant.hear() == "None"
    function._compiler = compiler
    assert function(1, 2) == 7


def test_a_wait_can_be_interrupted(claimant: Process, file: tuple[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    assert claimant.ask(f"take {file[0]}") == "True"

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as changed:
        changed.setattr(compilations.time, "sleep", interrupt)
        with pytest.raises(KeyboardInterrupt):
            alone(tiny)(1, 2)
    claimant.process.kill()
    claimant.process.wait()
    assert alone(tiny)(1, 2) == 7


# -- the bar ---------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """What a terminal is sent."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Terminal]:
    """Makes standard error a terminal, once the test has begun: pytest replaces it as tests begin."""

    def replace() -> Terminal:
        found = Terminal()
        monkeypatch.setattr(sys, "stderr", found)
        return found

    return replace


def test_a_bar_names_what_is_compiled_and_vanishes(folder: Path, terminal: Callable[[], Terminal]) -> None:
    screen = terminal()
    assert alone(tiny)(1, 2) == 7
    written = screen.getvalue()
    assert "compiling kernels" in written and "tiny, " in written
    assert not written.split("\r")[-1].strip(), "an empty line is left"
    screen.truncate(0)
    assert alone(tiny)(1, 2) == 7 and "tiny" not in screen.getvalue(), "nothing is compiled"


def test_the_bar_knows_how_many_there_will_be(
    folder: Path, terminal: Callable[[], Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = terminal()
    first = Kernel(f"{__name__}.tiny", '["2 int64"]')
    monkeypatch.setattr(ahead, "trainings", lambda: {"one": [WRITE, first, SLEEPER]})
    monkeypatch.setattr(ahead, "_needed", {WRITE: None})
    monkeypatch.setitem(COMPILERS, first.name, int)
    assert alone(tiny)(1, 2) == 7
    assert "33%" in screen.getvalue() and "1/3, tiny, " in screen.getvalue()


def test_the_bars_of_the_program_stay(folder: Path, terminal: Callable[[], Terminal]) -> None:
    screen = terminal()
    with tqdm(total=3, desc="epoch") as bar:
        bar.update(1)
        assert alone(tiny)(1, 2) == 7
        bar.update(2)
        assert list(tqdm._instances) == [bar] and bar.pos == 0
    assert "epoch: 100%" in screen.getvalue().splitlines()[-1]


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_no_bar_without_a_terminal(folder: Path, stream: io.StringIO | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream)  # in the test itself, as ``terminal`` says
    assert alone(tiny)(1, 2) == 7
    assert stream is None or stream.getvalue() == ""


def test_no_bar_on_a_closed_stream(folder: Path, terminal: Callable[[], Terminal]) -> None:
    terminal().close()
    assert alone(tiny)(1, 2) == 7


def test_a_bar_in_every_thread(folder: Path, terminal: Callable[[], Terminal]) -> None:
    terminal()

    def make(number: int) -> Callable[[int], int]:
        return lambda value: value + number

    results: list[int] = []

    def run(number: int) -> None:
        results.append(alone(make(number))(1))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [1, 2, 3, 4, 5, 6] and not tqdm._instances


def test_a_program_is_told_once_why_it_waits(
    folder: Path, terminal: Callable[[], Terminal], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal()
    monkeypatch.setattr(compilations, "_said", threading.Lock())
    monkeypatch.setitem(COMPILERS, f"{__name__}.tiny", int)
    with caplog.at_level("WARNING"), tqdm(total=1):
        assert alone(tiny)(1, 2) == 7 and alone(tiny)(1.0, 2.0) == 7
    assert [record.name for record in caplog.records] == ["alpha.cpu.compile"]
    assert str(folder) in caplog.text


# -- what is needed --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [path.name for path in PATHS])
def test_every_listed_kernel_is_one(path: str) -> None:
    from alpha.cpu import engine  # noqa: F401  (its modules name their kernels)

    trainings = json.loads(ahead.TRAININGS.read_text("utf-8"))[path]
    assert trainings.keys() == {"resnet18", "gpt"}
    for kernels in trainings.values():
        assert len(kernels) > 5
        for name, signature in kernels:
            assert name in COMPILERS
            assert signatures._written(signatures._read(signature)) == signature


def test_signatures_as_text() -> None:
    record = types.NamedTuple((int64, float32), signatures.Kernel)
    kinds = (int64, int64, float32, types.boolean, record, types.Array(float32, 2, "C"), types.UniTuple(int64, 3))
    written = signatures._written((*kinds, types.Tuple((int64, record))))
    assert written[:3] == ["2 int64", "float32", "bool"]
    assert signatures._read(json.loads(json.dumps(written))) == (*kinds, types.Tuple((int64, record)))
    twin = types.NamedTuple((int64, int64), signatures.Kernel)  # Numba's own choice is a NamedUniTuple
    for kind in (types.unicode_type, types.Array(float32, 2, "C", readonly=True), types.literal(3), twin):
        with pytest.raises(signatures.Unwritable):
            signatures._written((kind,))
    assert signatures.kernel_of(tiny, (int64,)) is None, "no kernel of the engine's"


def test_what_is_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c, d, other = (Kernel(name, "[]") for name in "abcde")
    monkeypatch.setattr(ahead, "trainings", lambda: {"one": [a, b, d], "two": [a, c, d]})
    assert ahead.likely([]) == ahead.likely([other]) == []
    assert ahead.likely([a]) == [a, d], "what both have"
    assert ahead.likely([a, b]) == ahead.likely([other, b]) == [a, b, d]
    assert ahead.likely([a, b, c]) == [a, d] and ahead.likely([a, c, d]) == [a, c, d]


@pytest.mark.parametrize("content", ["", "{", "{}"])
def test_a_list_that_cannot_be_read_is_empty(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "TRAININGS", tmp_path / "list.json")
    assert ahead.trainings.__wrapped__() == {}
    (tmp_path / "list.json").write_text(content)
    assert ahead.trainings.__wrapped__() == {}


# -- helpers ---------------------------------------------------------------------------------------------------------

_LIST = [*map(tuple, (WRITE, SLEEPER)), ("alpha.cpu.none.none", "[]")]
HELPER = f"""
import os, sys
from alpha.cpu import ahead
ahead.trainings = lambda: {{"one": [ahead.Kernel(*one) for one in {_LIST!r}]}}
ahead._IDLE_SECONDS = float(sys.argv[2])
os.dup2(2, 1)
ahead.main("0", sys.argv[1])
"""


def helper(given: str | None = None, idle: float = 60.0) -> Process:
    """A helper that has a short list, the last of which is no kernel."""
    return Process(HELPER, given or machine(), str(idle), ALPHA_COMPILE_AHEAD="0")


def kept(folder: Path) -> list[str]:
    """Names of the kernels that are kept."""
    return sorted(path.name.rsplit("-")[0] for path in folder.glob("*.kernel")) if folder.exists() else []


def reaches(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether a condition comes to hold."""
    latest = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > latest:
            return False
        time.sleep(0.02)
    return True


def test_a_helper_compiles_what_will_be_needed(folder: Path) -> None:
    with helper(idle=0.1) as process:
        assert process.process.poll() is None
        process.tell(json.dumps(WRITE))
        assert process.process.wait(60) == 0
    assert kept(folder) == ["_initialize_sleeper", "_write"]


def test_a_helper_leaves_to_others_what_they_compile(folder: Path) -> None:
    with helper(idle=0.1) as process:
        process.tell(json.dumps(WRITE))
        process.process.wait(60)
    names = {name.rsplit("-")[0]: name for name in os.listdir(folder)}
    shutil.rmtree(folder)
    here = Claims("cpu")
    assert here.take(names["_write"])
    with helper(idle=0.1) as process:
        process.tell(json.dumps(WRITE))
        assert process.process.wait(60) == 0
    here.release(names["_write"])
    assert kept(folder) == ["_initialize_sleeper"]


def test_a_helper_ends_with_the_pipe(folder: Path) -> None:
    with helper() as process:
        process.tell(json.dumps(WRITE))
        assert reaches(lambda: kept(folder) == ["_initialize_sleeper", "_write"])
        assert process.process.poll() is None and process.process.stdin is not None
        process.process.stdin.close()
        assert process.process.wait(60) == 0
        process.process.stdin = None


def test_a_helper_ends_with_its_process_though_the_pipe_stays(folder: Path) -> None:
    """As where a child of the process has inherited the pipe."""
    parent = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {HELPER!r}, *sys.argv[1:]]); "
    with Process(parent + "print(p.pid, flush=True); p.wait()", machine(), "60") as process:
        pid = int(process.hear())
        process.tell(json.dumps(WRITE))
        assert reaches(lambda: kept(folder) == ["_initialize_sleeper", "_write"])
        process.process.kill()
        assert reaches(lambda: not is_running(pid))


def test_a_helper_that_could_not_help_ends_at_once(folder: Path) -> None:
    with helper("another machine") as process:
        assert process.process.wait(60) == 0
    places = Claims("helpers")
    assert places.take(ahead._place(0))
    with helper() as process:
        assert process.process.wait(60) == 0
    assert kept(folder) == []


def is_running(pid: int) -> bool:
    """Whether a process runs: one that has ended, and that nobody has waited for, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


PROGRAM = """
import os, sys
from alpha.cpu import ahead, base, workers
base.available_threads = lambda: 2
import numpy as np
workers._write(np.zeros(1, np.int64).ctypes.data, 7)
(helper,) = ahead._helpers._processes
if os.fork() == 0:
    assert not ahead._helpers._processes and not ahead._helpers._pipes
    ahead._helpers.start()
    os._exit(bool(ahead._helpers._processes))
assert os.wait()[1] == 0 and helper.poll() is None
print(helper.pid, flush=True)
sys.stdin.readline()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("how", ["returns", "is killed"])
def test_helpers_end_with_the_process_that_they_help(how: str, folder: Path) -> None:
    with Process(PROGRAM, ALPHA_COMPILE_AHEAD="1") as process:
        pid = int(process.hear())
        assert is_running(pid)
        if how == "returns":
            process.tell("")
            assert process.process.wait(60) == 0 and not is_running(pid)
        else:
            process.process.kill()
            assert reaches(lambda: not is_running(pid))


class Started:
    """What is started in place of a process."""

    count = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        Started.count += 1

    def kill(self) -> None:
        """Does nothing."""

    def wait(self) -> None:
        """Does nothing."""


def started(kernel: Kernel) -> int:
    """How many helpers are started by a process that needs a kernel."""
    Started.count = 0
    helpers = ahead._Helpers()
    if kernel in ahead.likely([kernel]):
        helpers.start()
        helpers.start()
    helpers.stop()
    helpers.forget()
    return Started.count


def test_when_helpers_are_started(folder: Path, monkeypatch: pytest.MonkeyPatch, claimant: Process) -> None:
    monkeypatch.setattr(ahead.subprocess, "Popen", Started)
    monkeypatch.setattr(ahead, "trainings", lambda: {"one": [WRITE]})
    monkeypatch.setattr("alpha.cpu.base.available_threads", lambda: 3)
    monkeypatch.delenv("ALPHA_COMPILE_AHEAD")
    assert started(WRITE) == 2 and started(SLEEPER) == 0
    for target, name, value in (
        ("alpha.cpu.base", "available_threads", lambda: 1),
        ("alpha.cpu.claims", "fcntl", None),
        ("sys", "executable", None),
        ("multiprocessing", "parent_process", object),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(f"{target}.{name}", value)
            assert started(WRITE) == 0, name
    with monkeypatch.context() as changed:
        changed.setattr(sys, "frozen", True, raising=False)
        assert started(WRITE) == 0
        changed.delattr(sys, "frozen")
        changed.setenv("ALPHA_COMPILE_AHEAD", "0")
        assert started(WRITE) == 0
    monkeypatch.setattr("alpha.cpu.base.available_threads", lambda: 64)
    assert started(WRITE) == ahead.MOST_HELPERS
    monkeypatch.setattr(claims.fcntl, "lockf", no_locks)
    assert started(WRITE) == 0, "many processes would start some"


def no_locks(*_: object) -> None:
    """What a network drive may answer."""
    raise OSError(errno.ENOLCK, "no locks")


@pytest.mark.skipif(os.name != "posix", reason="a limit on files stands in for a full disk")
def test_no_helpers_where_nothing_can_be_kept(tmp_path: Path) -> None:
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "from alpha.cpu import ahead, base, workers\nbase.available_threads = lambda: 2\nimport numpy as np\n"
        "workers._write(np.zeros(1, np.int64).ctypes.data, 7)\nprint(len(ahead._helpers._processes), flush=True)"
    )
    for folder, expected in ((tmp_path, "0"), (Path("/proc/none"), "0")):
        with Process(program, ALPHA_COMPILE_AHEAD="1", ALPHA_CACHE=str(folder)) as process:
            assert process.hear() == expected


def test_one_set_of_helpers_per_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead.subprocess, "Popen", Started)
    monkeypatch.setattr(ahead, "trainings", lambda: {"one": [WRITE]})
    monkeypatch.setattr("alpha.cpu.base.available_threads", lambda: 3)
    monkeypatch.delenv("ALPHA_COMPILE_AHEAD")
    program = CLAIMANT.replace('"cpu"', '"helpers"').replace("line.split()", "line.strip().split(' ', 1)")
    with Process(program) as other:
        assert other.ask(f"take {ahead._place(0)}") == "True"
        assert started(WRITE) == 1


def test_a_system_without_processes_costs_only_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr(ahead.subprocess, "Popen", refuse)
    monkeypatch.setattr(ahead, "trainings", lambda: {"one": [WRITE]})
    monkeypatch.setattr("alpha.cpu.base.available_threads", lambda: 2)
    monkeypatch.delenv("ALPHA_COMPILE_AHEAD")
    helpers = ahead._Helpers()
    helpers.start()
    helpers.tell(WRITE)
    helpers.stop()
    helpers.forget()


def test_a_full_pipe_stops_nobody() -> None:
    """As where a helper is stopped, or has ended."""
    helpers = ahead._Helpers()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    helpers._pipes.append((reading, writing))
    for _ in range(2000):
        helpers.tell(Kernel("name", "[" + 50 * '"int64", ' + "]"))
    helpers.forget()

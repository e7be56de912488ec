"""What each rank of ``python -m alpha.distributed.run`` runs: it connects to the launcher, and becomes the program.

It is run by its path, since a module's packages would be imported before it: NumPy counts the cores when it is
imported, and a rank has only its share of them.
"""

from __future__ import annotations

import atexit
import builtins
import importlib.util
import io
import os
import runpy
import signal
import sys
import time
import traceback
import types
import zipfile
from importlib.machinery import SourceFileLoader
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alpha.distributed import lifeline as lifeline_module

RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
LOCAL_RANKS = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
LOCAL_SIZES = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")
"""Variables by which MPI libraries tell a process which rank it is, which of those on its machine, and of how many."""

_NOTED_SECONDS = 2.0
_LOOK_SECONDS = 0.001


def _found(names: tuple[str, ...]) -> int | None:
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdecimal()), None)


def share(cores: list[int], local: int, ranks: int) -> list[int]:
    """The cores of one of several ranks on a machine: a part of them, or one where there are fewer than ranks."""
    if len(cores) < ranks:
        return [cores[local % len(cores)]]
    return cores[local * len(cores) // ranks : (local + 1) * len(cores) // ranks]


def _pin() -> None:
    """Keeps this process to its share of the cores, unless --threads says how many threads it has."""
    local, ranks = _found(LOCAL_RANKS), _found(LOCAL_SIZES)
    threads = os.environ.get("ALPHA_DISTRIBUTED_THREADS")
    if threads is not None:
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, threads)
    elif local is not None and ranks is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, share(sorted(os.sched_getaffinity(0)), local, ranks))


def _alone(name: str) -> types.ModuleType:
    """A module of alpha, without its packages."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    path = os.path.join(root, *name.split(".")) + ".py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- the program -----------------------------------------------------------------------------------------------------


def run(arguments: list[str]) -> None:
    """Runs ``script args...`` or ``-m module args...`` as Python itself would."""
    main = types.ModuleType("__main__")
    vars(main).update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = main
    if arguments[0] == "-m":
        sys.argv = ["-m", *arguments[2:]]
        _set_first_folder(os.getcwd())
        _run_module(arguments[1], True)
        return
    script = arguments[0]
    sys.argv = arguments
    if os.path.isdir(script) or zipfile.is_zipfile(script):
        sys.path.insert(0, script) if sys.flags.safe_path else _set_first_folder(script)
        _run_module("__main__", False)
        return
    _set_first_folder(os.path.dirname(os.path.realpath(script)))
    path = os.path.abspath(script)
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    vars(main).update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))
    exec(code, vars(main))


def _set_first_folder(folder: str) -> None:
    if not sys.flags.safe_path:
        sys.path[0] = folder


def _run_module(name: str, takes_name: bool) -> None:
    """What ``python -m`` itself calls."""
    run_as_main: Any = runpy._run_module_as_main  # type: ignore[attr-defined]
    run_as_main(name, takes_name)


# -- its end ---------------------------------------------------------------------------------------------------------


class _Program:
    """This process's program and its end, as the launcher is told of it."""

    def __init__(self, line: lifeline_module.Lifeline) -> None:
        self._line, self._status = line, 0
        atexit.register(self._leave)  # the first registered is the last that is called

    def run(self, arguments: list[str]) -> None:
        try:
            self._line.take_output()
            run(arguments)
        except SystemExit as error:
            if os.getpid() != self._line.process:
                raise
            self._exit(error.code)
        except BaseException as error:
            if os.getpid() != self._line.process:  # a child that the program forked
                raise
            self._fail(error)

    def _exit(self, code: Any) -> None:
        if code is None or code == 0:
            sys.exit(code)
        is_number = isinstance(code, int)
        self._report("SystemExit", str(code), "", (code & 0xFF or 1) if is_number else 1)

    def _fail(self, error: BaseException) -> None:
        trace = _trimmed(error.__traceback__)
        text = "" if sys.excepthook is not sys.__excepthook__ else _traceback(error, trace)
        status = 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
        self._report(type(error).__name__, _message(error), text, status, sys.excepthook, error, trace)

    def _report(self, kind: str, message: str, text: str, status: int, hook: Any = None, *error: Any) -> None:
        """Tells of an error, and then ends this process as Python does."""
        self._line.over = True
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._status = status
        self._line.send(error=kind, message=message, trace=text, status=status)
        self._line.noted.wait(_NOTED_SECONDS)
        if hook is not None and not text:
            hook(type(error[0]), *error)
        sys.exit(status)

    def _leave(self) -> None:
        """At this process's end, after all that the program has registered."""
        if os.getpid() != self._line.process:
            return
        self._line.over = True
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # there is nothing left to interrupt
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):  # closed, or there is none
                continue
        self._line.send(goodbye=self._status)
        if self._status:  # MPI's end would wait for all ranks; the launcher says when this one is to end
            self._wait()
        mpi: Any = sys.modules.get("mpi4py.MPI")
        if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
            _finalize(mpi)

    def _wait(self) -> None:
        while True:
            signal.pause()


def _finalize(mpi: Any) -> None:
    """Takes leave of MPI together with all ranks. While it waits for them, the lifeline's thread goes on."""
    request = mpi.COMM_WORLD.Ibarrier()
    while not request.Test():
        time.sleep(_LOOK_SECONDS)
    mpi.Finalize()


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "<an error whose text cannot be had>"


def _trimmed(trace: types.TracebackType | None) -> types.TracebackType | None:
    """A traceback without the frames of what runs the program."""
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
        trace = trace.tb_next
    return trace


def _traceback(error: BaseException, trace: types.TracebackType | None) -> str:
    try:
        return "".join(traceback.format_exception(type(error), error, trace))
    except Exception:
        return f"{type(error).__name__}\n"


def _leave_stdin() -> None:
    """Gives this process an empty stdin: the one that mpiexec gives to rank 0 may never end."""
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)


def main() -> None:
    """Becomes a rank, and runs its program."""
    lifeline: Any = _alone("alpha.distributed.lifeline")
    rank = _found(RANKS)
    address, token = os.environ.get(lifeline.ADDRESS), os.environ.pop(lifeline.TOKEN, None)
    if rank is None or address is None or token is None:
        sys.exit("[launched] expected to be started by python -m alpha.distributed.run, got another start: use that")
    _pin()
    _leave_stdin()
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    signal.signal(signal.SIGINT, signal.default_int_handler)  # MPI's processes may inherit that it is ignored
    _alone("alpha.interrupts").send_lost_again()
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    try:
        line = lifeline.connect(address, token, rank)
    except OSError as error:
        sys.exit(f"[launched] expected the launcher at {address} to answer, got {error}: is it reachable from here?")
    _Program(line).run(sys.argv[1:])


if __name__ == "__main__":
    main()

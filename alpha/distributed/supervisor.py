"""Supervisor: one start of a program on several ranks, watched to its end, whatever that is."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alpha.distributed import lifeline, processes
from alpha.distributed.connections import CHUNK, Connections, Message
from alpha.distributed.mpiexec import Mpiexec, remove_files
from alpha.distributed.passing import Writer
from alpha.distributed.starts import Options, Outcome

_END_SECONDS = 2.0  # from the word that ranks are to end to their being killed
_KILL_SECONDS = 1.0  # from mpiexec's being asked to end to its being killed
_HOOK_SECONDS = 1.0  # that a rank which has failed has for what it registered for its end
_LOST_SECONDS = 0.5  # in which the system tells how a rank ended whose connection has closed
_JOIN_SECONDS = 60.0  # from the first rank's start to the last's
_FINISH_SECONDS = 30.0  # from the last program's end to the end of all processes
_MOST_WORDS = 30  # lines of mpiexec that are shown


@dataclass
class _Rank:
    """What is known of a rank.

    Attributes:
        pid: on this machine, else 0; ``watched``: a descriptor that tells when it ends.
        error: the status that its error stands for, once it has told one.
        is_interrupted: whether that error was a KeyboardInterrupt, or its status 130.
        has_left: whether its program is at its end.
        lost: when its connection closed before its program's end.
    """

    number: int
    connection: socket.socket
    pid: int
    watched: int | None
    error: int = 0
    is_interrupted: bool = False
    has_left: bool = False
    is_gone: bool = False
    lost: float | None = None
    told_to_end: bool = False

    def send(self, **message: Any) -> None:
        with suppress(OSError):
            self.connection.sendall(json.dumps(message).encode() + b"\n")


class Supervisor:
    """Starts a program on so many ranks, and watches them.

    Ranks connect to it: one connection for what they tell, and one for each of stdout and stderr, so that mpiexec's own
    words are never among theirs. A connection that closes before a goodbye is a rank's sudden end.
    """

    def __init__(self, mpiexec: Mpiexec, size: int, restart: int, options: Options, writer: Writer) -> None:
        self.size, self.options, self.writer = size, options, writer
        self.outcome = Outcome()
        self.signals: list[int] = []  # that came and were not yet looked at
        self._ranks: dict[int, _Rank] = {}
        self._words = b""  # mpiexec's
        self._asked: int | None = None  # the signal by which all were asked to end
        self._asked_at = self._ending = float("inf")  # when they were asked to end, and when made to
        self._finished: float | None = None  # when all programs had come to their ends
        self._exited: float | None = None  # when mpiexec had
        self._joined = 0.0  # when the first rank had connected
        self._is_done = False
        self._is_terminated = False
        self._began = time.time()
        is_local = options.hosts is None and int(os.environ.get("SLURM_JOB_NUM_NODES") or 1) <= 1
        self._connections = Connections(is_local, self._welcome, writer)
        self._start(mpiexec, restart)

    def _start(self, mpiexec: Mpiexec, restart: int) -> None:
        ours = {
            lifeline.ADDRESS: self._connections.address,
            lifeline.TOKEN: self._connections.token,
            lifeline.RESTART: str(restart),
            **({} if self.options.threads is None else {lifeline.THREADS: str(self.options.threads)}),
            **({} if self.options.timeout is None else {lifeline.TIMEOUT: repr(self.options.timeout)}),
        }
        launched = str(Path(__file__).with_name("launched.py"))
        program = [sys.executable, launched, *self.options.program]
        self._mpiexec = subprocess.Popen(
            mpiexec.command(self.size, program, list(ours), self.options.hosts),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **ours},
            start_new_session=True,  # a terminal's Ctrl-C is for the launcher alone
        )
        assert self._mpiexec.stdout is not None
        os.set_blocking(self._mpiexec.stdout.fileno(), False)
        self._connections.watch(self._mpiexec.stdout, self._hear_mpiexec)

    # -- the loop --------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Watches until all processes are gone."""
        try:
            while not self._is_over():
                self._turn(0.05)
            self._drain()
            if not self.outcome.status and self._words.strip():
                self.writer.write(2, _indented(self._words).encode())
        finally:
            self._clean_up()
        return self.outcome

    def _turn(self, seconds: float) -> None:
        """Takes what has come, from ranks' lifelines first, and then does what is due."""
        self._connections.hear(seconds)
        self._find_ended()
        self._connections.pass_on()
        self._take_signals()
        if self._ending == float("inf"):
            self._look_for_the_end()
        else:
            self._go_on_ending()

    def _is_over(self) -> bool:
        if self._mpiexec.poll() is None:
            return False
        processes.reap(self._mpiexec.pid)
        return self._is_done or (self._ending < float("inf") and not processes.descendants())

    def _drain(self) -> None:
        """Passes on what has been written and is not yet read; what an ended program's children write is left."""
        end = time.monotonic() + 1.0
        while self._connections.pass_on(0.05) and time.monotonic() < end:
            continue
        self.writer.release()

    def _clean_up(self) -> None:
        self._kill_all()
        with suppress(subprocess.TimeoutExpired):
            self._mpiexec.wait(_KILL_SECONDS)
        for rank in self._ranks.values():
            rank.connection.close()
            if rank.watched is not None:
                os.close(rank.watched)
        self._connections.close()
        if self._mpiexec.stdout is not None:
            self._mpiexec.stdout.close()
        if self.outcome.status:
            remove_files(self._mpiexec.pid)
            processes.unlink_unused_segments(self._began)

    # -- what ranks tell -------------------------------------------------------------------------------------------

    def _welcome(self, connection: socket.socket, message: Message) -> Callable[[Message | None], None]:
        """Takes in a rank; returns what hears from it."""
        is_here = message["host"] == lifeline.machine()
        pid = int(message["pid"]) if is_here else 0
        rank = _Rank(int(message["rank"]), connection, pid, processes.watch(pid) if is_here else None)
        self._joined = self._joined if self._ranks else time.monotonic()
        self._ranks[rank.number] = rank
        for other in self._ranks.values():
            if other.has_left:
                rank.send(left=other.number)
        if self._ending < float("inf"):
            self._end(rank)
        elif self._asked is not None:
            rank.send(interrupt=self._asked)
        return lambda said: self._hear(rank, said)

    def _hear_mpiexec(self, pipe: Any) -> None:
        try:
            data = os.read(pipe.fileno(), CHUNK)
        except BlockingIOError:
            return
        self._words += data
        if not data:
            self._connections.ignore(pipe)

    def _hear(self, rank: _Rank, message: Message | None) -> None:
        if message is None:
            self._connections.ignore(rank.connection)
            rank.is_gone = True
            if not rank.has_left and not rank.told_to_end:
                rank.lost = time.monotonic()
                self.writer.hold()
        elif "facts" in message:
            self.outcome.facts.update(message["facts"])
        elif "error" in message:
            self._take_error(rank, message)
        elif "goodbye" in message:
            self._take_leave(rank)

    def _take_error(self, rank: _Rank, message: Message) -> None:
        rank.error = int(message["status"])
        rank.is_interrupted = message["error"] == "KeyboardInterrupt" or rank.error == 128 + signal.SIGINT
        text = " ".join(str(message["message"]).split())
        reason = f"rank {rank.number}: {message['error']}{': ' if text else ''}{text}"
        if self._asked is None:
            self._fail(reason, rank.error, message["trace"])
        elif not rank.is_interrupted:  # others may be saving what they have
            self.writer.say(f"{reason}\n{message['trace']}")
        rank.send(noted=True)

    def _take_leave(self, rank: _Rank) -> None:
        """A rank's program is at its end: it waits, if it ended by an error, and those who wait for it hear of it."""
        rank.has_left = True
        for other in self._ranks.values():
            if other is not rank and not other.is_gone:
                other.send(left=rank.number)
        if self._ending < float("inf"):
            self._end(rank)

    def _find_ended(self) -> None:
        """Finds out how ranks ended whose connections have closed; the first of them is the failure."""
        for rank in sorted(self._ranks.values(), key=lambda rank: rank.lost or 0.0):
            if rank.lost is None:
                continue
            status = processes.wait_status(rank.pid, rank.watched)
            if status is None and time.monotonic() - rank.lost < _LOST_SECONDS:
                return
            rank.lost = None
            how = "gone without a word" if status is None else processes.described(status)
            if status is not None and not os.waitstatus_to_exitcode(status):
                how += ", without its program's end"
            self._fail(f"rank {rank.number}: {how}", (processes.exit_status(status) if status else 0) or 1)

    # -- ends ------------------------------------------------------------------------------------------------------

    def _fail(self, reason: str, status: int, trace: str = "", can_restart: bool = True) -> None:
        """Ends all ranks; the first reason is told first, and is the outcome's."""
        if self._ending < float("inf"):
            self.writer.release()
            return
        self.writer.say(f"{reason}\n{trace}")
        self.writer.release()
        self.outcome.reason, self.outcome.status = reason, status
        self.outcome.can_restart = can_restart and self._asked is None
        self._end_all()

    def _end_all(self) -> None:
        self._ending = time.monotonic()
        for rank in self._ranks.values():
            if not rank.error or rank.has_left:
                self._end(rank)

    def _end(self, rank: _Rank) -> None:
        if not rank.told_to_end:
            rank.told_to_end = True
            rank.send(end=rank.error or 1)

    def _take_signals(self) -> None:
        while self.signals:
            number = self.signals.pop(0)
            name = "interrupted" if number == signal.SIGINT else f"got {processes.signal_name(number)}"
            if self._ending < float("inf"):
                continue
            if self._asked is None:
                self._asked, self._asked_at = number, time.monotonic()
                self.writer.say(
                    f"[run] {name}: ranks have {self.options.grace:g} s to end; once more ends them at once"
                )
                for rank in self._ranks.values():
                    rank.send(interrupt=number)
            else:
                self._fail(f"[run] {name} again: ending all ranks at once", 128 + self._asked)

    def _look_for_the_end(self) -> None:
        """What follows once all programs are at their ends, or mpiexec is, or time is over."""
        ranks = list(self._ranks.values())
        has_mpiexec = self._mpiexec.poll() is None
        if not has_mpiexec and self._exited is None:
            self._exited = time.monotonic()
        are_through = (len(ranks) == self.size or not has_mpiexec) and all(rank.has_left for rank in ranks)
        if self._asked is not None and not ranks:
            self._fail("[run] no rank had started", 128 + self._asked)
        elif ranks and are_through and any(rank.error for rank in ranks):
            self._end_asked(ranks)
        elif self._asked is not None and not are_through and time.monotonic() - self._asked_at > self.options.grace:
            late = self._named(rank for rank in ranks if not rank.has_left)
            self._fail(f"[run] {late} did not end within {self.options.grace:g} s: killed", 128 + self._asked)
        elif not has_mpiexec:
            self._look_without_mpiexec(ranks)
        elif 0 < len(ranks) < self.size and time.monotonic() - self._joined > _JOIN_SECONDS:
            reason = f"[run] expected {self.size} ranks to start within {_JOIN_SECONDS:g} s of the first"
            self._fail(f"{reason}, got {len(ranks)}", 1, _indented(self._words), False)
        elif are_through:
            self._finished = self._finished or time.monotonic()
            if time.monotonic() - self._finished > _FINISH_SECONDS:
                late = self._named(rank for rank in ranks if not rank.is_gone)
                self._fail(f"[run] {late} did not end within {_FINISH_SECONDS:g} s of its program's end", 1)

    def _look_without_mpiexec(self, ranks: list[_Rank]) -> None:
        """Whether mpiexec has ended when it should, after all ranks."""
        code = self._mpiexec.returncode
        status, how = (128 - code, f"killed by signal {-code}") if code < 0 else (code, f"ended with status {code}")
        is_recent = time.monotonic() - (self._exited or 0.0) < _LOST_SECONDS  # what ranks have sent may not be read yet
        is_started = len(ranks) == self.size
        if is_started and all(rank.has_left and rank.is_gone for rank in ranks):
            self._is_done = not status
            if status:
                self._fail(f"[run] mpiexec {how}, after all programs' ends", status, _indented(self._words), False)
        elif not is_recent and is_started:
            self._fail(f"[run] mpiexec: {how}", status or 1, _indented(self._words))
        elif not is_recent:
            reason = f"[run] expected {self.size} ranks to start, got {len(ranks)}, and mpiexec {how}"
            self._fail(reason, status or 1, _indented(self._words), False)

    def _named(self, ranks: Iterable[_Rank]) -> str:
        numbers = [str(rank.number) for rank in ranks]
        return f"rank{'s' * (len(numbers) != 1)} {', '.join(numbers) or 'that have not started'}"

    def _end_asked(self, ranks: list[_Rank]) -> None:
        """All programs have ended, some as Ctrl-C does: their status is that of the signal."""
        assert self._asked is not None
        errors = [rank.error for rank in ranks if rank.error]
        self.outcome.status = 128 + self._asked if any(rank.is_interrupted for rank in ranks) else errors[0]
        self._end_all()

    def _go_on_ending(self) -> None:
        """Ends what is left after the word, by and by with more force."""
        passed = time.monotonic() - self._ending
        if passed > _HOOK_SECONDS:
            for rank in self._ranks.values():
                self._end(rank)
        if passed > _END_SECONDS and not self._is_terminated:
            self._is_terminated = True
            for rank in self._ranks.values():
                if rank.pid and not rank.is_gone:
                    with suppress(OSError):
                        os.kill(rank.pid, signal.SIGKILL)
            if self._mpiexec.poll() is None:
                self._mpiexec.terminate()  # it then removes its files
        if passed > _END_SECONDS + _KILL_SECONDS:
            self._kill_all()

    def _kill_all(self) -> None:
        """Kills all that is left; nothing where all went well, since a program may leave a process on purpose."""
        if self.outcome.status or self._mpiexec.poll() is None:
            groups = [rank.pid for rank in self._ranks.values() if rank.pid]
            processes.kill([*groups, *([self._mpiexec.pid] if self._mpiexec.poll() is None else [])])


def _indented(words: bytes) -> str:
    """mpiexec's words, each line marked as such."""
    lines = [line for line in words.decode(errors="replace").splitlines() if line.strip("-= ")][-_MOST_WORDS:]
    return "".join(f"mpiexec: {line}\n" for line in lines)

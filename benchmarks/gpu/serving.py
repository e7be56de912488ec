"""The child's end of ``children``: requests as they come, answers, and an end with the command's."""

from __future__ import annotations

import json
import os
import queue
import signal
import threading
from collections.abc import Iterator
from typing import Any


class Channel:
    """Takes this process's standard input and output for itself; what is printed goes to the standard error.

    When the command is gone, by whatever end, the input ends, and so does this process, with all that it started: in
    the middle of what it does, for that may be a kernel that never comes to an end.
    """

    def __init__(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command ends its children itself
        self._requests: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._input = os.fdopen(os.dup(0), encoding="utf-8")
        self._output = os.fdopen(os.dup(1), "w", encoding="utf-8")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        self._ending = False
        threading.Thread(target=self._receive, name="requests", daemon=True).start()

    def _receive(self) -> None:
        for line in self._input:
            message = json.loads(line)
            if message.get("end"):
                self._ending = True
                self._requests.put(None)
                return
            self._requests.put(message)
        if os.getpgrp() == os.getsid(0):  # the group that the command made for us
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os._exit(1)

    def requests(self) -> Iterator[dict[str, Any]]:
        """Requests until the command says that there are no more."""
        while (message := self._requests.get()) is not None:
            yield message

    def answer(self, **message: Any) -> None:
        """Sends an answer."""
        self._output.write(json.dumps(message) + "\n")
        self._output.flush()

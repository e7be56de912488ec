"""The launcher's connections: ranks' lifelines, from which it hears, and their output, which it passes on."""

from __future__ import annotations

import hmac
import json
import os
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from alpha.distributed.passing import Writer

Message = dict[str, Any]

CHUNK = 1 << 16
_MOST_LINE = 1 << 24


def _received(connection: socket.socket) -> bytes | None:
    """What has come, nothing at the connection's end; None where nothing has come yet."""
    try:
        return connection.recv(CHUNK)
    except BlockingIOError:
        return None
    except OSError:
        return b""


class Lines:
    """Takes a connection's messages apart.

    Attributes:
        function: gets the connection, a message, or None at the connection's end, and what came after it.
        most: so many messages are taken; what follows is the function's.
    """

    def __init__(
        self, function: Callable[[socket.socket, Message | None, bytes], None], most: float = float("inf")
    ) -> None:
        self.function, self.most, self._data = function, most, b""

    def __call__(self, connection: socket.socket) -> None:
        data = _received(connection)
        if data is None:
            return
        is_sound = self.take(connection, data)
        if self.most and not (data and is_sound):
            self.function(connection, None, b"")

    def take(self, connection: socket.socket, data: bytes) -> bool:
        """Takes in data; returns whether it was made of messages."""
        self._data += data
        while self.most and b"\n" in self._data:
            line, _, self._data = self._data.partition(b"\n")
            try:
                message = json.loads(line)
            except ValueError:
                return False
            if not isinstance(message, dict):
                return False
            self.most -= 1
            self.function(connection, message, self._data)
        return len(self._data) <= _MOST_LINE


class Connections:
    """A port that ranks connect to, and all that comes from them.

    Each rank has three connections: its lifeline, stdout and stderr. What does not show the secret is closed.

    Args:
        is_local: whether all ranks are on this machine, whose other users then cannot even connect from elsewhere.
        joined: gets a rank's lifeline and its first message; returns who gets the others, and None at the end.
        writer: takes what ranks write.

    Attributes:
        address: the host and port for ranks.
        token: the secret.
    """

    def __init__(
        self,
        is_local: bool,
        joined: Callable[[socket.socket, Message], Callable[[Message | None], None]],
        writer: Writer,
    ) -> None:
        self.token = os.urandom(16).hex()
        self._joined, self._writer = joined, writer
        self._selector, self._outputs = selectors.DefaultSelector(), selectors.DefaultSelector()
        self._selector.register(self._outputs, selectors.EVENT_READ, None)
        self._listener = socket.create_server(("127.0.0.1" if is_local else "", 0), backlog=4096)
        self._listener.setblocking(False)
        host = "127.0.0.1" if is_local else socket.gethostname()
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        self.watch(self._listener, self._accept)

    def watch(self, source: Any, function: Callable[[Any], None]) -> None:
        """Lets a function be called with a source whenever that can be read."""
        self._selector.register(source, selectors.EVENT_READ, function)

    def ignore(self, source: Any) -> None:
        """Ends ``watch``."""
        self._selector.unregister(source)

    def hear(self, seconds: float) -> None:
        """Takes what ranks tell, in the order in which it came; waits so long for something to come."""
        is_full = self._writer.is_full
        events = [key for key, _ in self._selector.select(seconds) if key.data is not None]
        if is_full and not events:
            time.sleep(0.01)
        for key in events:
            key.data(key.fileobj)

    def pass_on(self, seconds: float = 0.0) -> bool:
        """Passes on what ranks have written; returns whether any rank may write more."""
        if not self._writer.is_full:
            for key, _ in self._outputs.select(seconds):
                self._pass_on(key)
        return bool(self._outputs.get_map())

    def close(self) -> None:
        """Closes all that is not the caller's."""
        for key in list(self._outputs.get_map().values()):
            self._outputs.unregister(key.fileobj)
            key.fileobj.close()  # type: ignore[union-attr]
        self._listener.close()
        self._outputs.close()
        self._selector.close()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            made, _ = listener.accept()
            made.setblocking(False)
            self.watch(made, Lines(self._greet, 1))

    def _greet(self, connection: socket.socket, message: Message | None, rest: bytes) -> None:
        self.ignore(connection)
        is_known = message is not None and hmac.compare_digest(str(message.get("token")).encode(), self.token.encode())
        if message is None or not is_known:
            connection.close()
        elif message["hello"] == "lifeline":
            connection.setblocking(True)
            hears = self._joined(connection, message)
            lines = Lines(lambda _, said, rest: hears(said))
            self.watch(connection, lines)
            lines.take(connection, rest)
        else:
            descriptor = 1 if message["hello"] == "stdout" else 2
            self._outputs.register(connection, selectors.EVENT_READ, descriptor)
            if rest:
                self._writer.write(descriptor, rest)

    def _pass_on(self, key: selectors.SelectorKey) -> None:
        """Passes on what a rank has written, as it is."""
        connection: Any = key.fileobj
        data = _received(connection)
        if data is None:
            return
        if data and key.data not in self._writer.closed:
            self._writer.write(key.data, data)
        else:  # the rank has ended, or nobody reads: then it gets the error that it would get without a launcher
            self._outputs.unregister(connection)
            connection.close()

"""Ctrl-C that comes at a moment at which Python drops errors.

Python calls signal handlers between any two instructions. If these are of a finalizer or of a weak reference's
callback (tqdm's bars and weak dictionaries have such), then the KeyboardInterrupt is printed as ignored, and the
program goes on as if nobody had asked it to stop.
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

_SECONDS_UNTIL_SENT_AGAIN = 0.01


def send_lost_again() -> None:
    """From now on a KeyboardInterrupt that Python would drop comes again, a moment later. For programs, not libraries:
    it replaces ``sys.unraisablehook``, and calls the one before for all other errors."""
    outer = sys.unraisablehook

    def hook(dropped: Any) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            # Another thread sends it: sent from here, it would be dropped here.
            again = threading.Timer(_SECONDS_UNTIL_SENT_AGAIN, _send)
            again.daemon = True
            again.start()
        else:
            outer(dropped)

    sys.unraisablehook = hook


def _send() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

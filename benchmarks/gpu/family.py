"""Launches each kernel of a family once or more, for compute-sanitizer to look at; a child of ``make gpu-tests``.

``python -m benchmarks.gpu.family NAME``; ``--list`` answers with the families' names.
"""

from __future__ import annotations

import sys

from benchmarks.gpu.serving import Channel


def main() -> int:
    """Runs one family."""
    channel = Channel()
    from tests.cuda_on_cpu.checked import CASES

    if "--list" in sys.argv:
        channel.answer(families=list(CASES))
        return 0
    import alpha

    engine = alpha.engine("cu32")
    function, _ = CASES[sys.argv[1]]
    function(engine)
    engine.synchronize()
    return 0


if __name__ == "__main__":
    sys.exit(main())

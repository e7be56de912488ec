"""What a command finds on its machine: packages, a device, kernels; and what its children are told of them."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from benchmarks.gpu.journal import PASSED, ROOT
from benchmarks.gpu.session import PYTHON, Missing, Session, last_line

PACKAGES = ROOT / "build" / "gpu"
"""Where the wheels' packages are put."""


def environment(options: argparse.Namespace) -> dict[str, str]:
    """The environment for children: this process's, with the wheels' packages, and only the requested GPU."""
    paths = [str(PACKAGES), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    found = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        "ALPHA_TEST_ENGINES": "cu32",
        "ALPHA_TEST_DRIVER": "real",
    }
    _, _, ordinal = options.engine.partition(":")
    if ordinal:  # whoever uses a GPU, tests and PyTorch too, then has it as the first one
        visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        found["CUDA_VISIBLE_DEVICES"] = visible[int(ordinal)] if int(ordinal) < len(visible) else ordinal
    if options.cubins is not None:
        found["ALPHA_CUBINS"] = str(options.cubins.resolve())
    return found


def install(session: Session, wheels: Path) -> None:
    """Puts a folder's wheels where the children find them; Missing where that cannot be."""
    files = [str(file) for file in sorted(wheels.glob("*.whl"))]
    if not files:
        raise Missing(f"expected wheels in {wheels}, got none: name their folder as WHEELS=DIR")
    pip = [PYTHON, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--upgrade", "--target", str(PACKAGES)]
    state, _, note = session.run("wheels", [*pip, *files], 60)
    if state != PASSED:
        raise Missing(f"expected wheels that can be installed in {wheels}, got {note}: see the log")


def build(session: Session) -> None:
    """Compiles ahead what is not compiled yet, for this device; nothing where small sizes are asked for."""
    if session.options.small:
        return
    state, seconds, note = session.run("build", [PYTHON, "-m", "alpha.cu32.build"], session.options.build_limit)
    session.say(f"kernels compiled ahead: {state} in {seconds:.0f} s{f' ({note})' if note else ''}")


def identify(session: Session) -> None:
    """Learns driver and device, which the results hold for; Missing where there is none."""
    child = session.module("device", "benchmarks.gpu.smoke", "--versions")
    message = session.answer(child, 60)
    if message is None or "device" not in message:
        raise Missing(f"expected a GPU that answers, got {last_line(child.tail()) if message is None else message}")
    session.end(child)
    session.journal.identity = replace(session.journal.identity, driver=message["driver"], device=message["device"])
    session.say(f"{message['device']}; {'; '.join(f'{key} {value}' for key, value in message['versions'].items())}")

"""Runs tests one by one as the command asks for them; a child of ``make gpu-tests``.

``python -m benchmarks.gpu.test_worker PATH...`` collects the tests below the paths once. After each test it waits for
the device, so that what a kernel broke is that test's, whenever the device would have told.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import pytest

from benchmarks.gpu.journal import FAILED, PASSED, ROOT, SKIPPED
from benchmarks.gpu.serving import Channel


def is_for_the_device(item: pytest.Item) -> bool:
    """Whether a test is of the CUDA engine: it has the engine as a fixture or parameter, or lies in its folder."""
    if item.path.is_relative_to(ROOT / "tests" / "cu32"):
        return True
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    fixtures = getattr(item, "fixturenames", ())
    return "cu32" in fixtures or ("engine" in fixtures and parameters.get("engine") != "cpu")


def name_of(item: pytest.Item) -> str:
    """What a test is called: its file from the repository's root, whatever is collected beside it, and its name."""
    return f"{os.path.relpath(item.path, ROOT)}::{item.nodeid.partition('::')[2]}"


def _line(text: str) -> str:
    return " ".join(text.split())[:300]


class Serving:
    """A pytest plugin: what is collected is served over the channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._reports: list[pytest.TestReport] = []
        self._broken: list[tuple[str, str]] = []
        self._left_out = 0

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Notes files that cannot be collected."""
        if report.failed:
            self._broken.append((report.nodeid, _line(str(report.longrepr).strip().splitlines()[-1])))
            print(report.longrepr, file=sys.stderr)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leaves out the tests of the CPU engine."""
        chosen = [item for item in items if is_for_the_device(item)]
        left_out = [item for item in items if not is_for_the_device(item)]
        self._left_out = len(left_out)
        config.hook.pytest_deselected(items=left_out)
        items[:] = chosen

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps a test's reports."""
        self._reports.append(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Serves."""
        items = {name_of(item): item for item in session.items}
        self._channel.answer(ready=True)
        for request in self._channel.requests():
            if "list" in request:
                self._channel.answer(tests=list(items), broken=self._broken, left_out=self._left_out)
            elif request["test"] not in items:
                self._channel.answer(state=FAILED, seconds=0.0, note="not found when collected again", lost=False)
            else:
                self._channel.answer(**self._run(items[request["test"]], items.get(request["next"])))
        return True

    def _run(self, item: pytest.Item, following: pytest.Item | None) -> dict[str, Any]:
        """State, seconds, note, and whether the device's context is lost."""
        self._reports = []
        start = time.perf_counter()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        lost = _wait_for_device()
        seconds = time.perf_counter() - start
        failed = [report for report in self._reports if report.failed]
        skipped = [report for report in self._reports if report.skipped and not hasattr(report, "wasxfail")]
        for report in failed:
            print(f"{report.nodeid}: {report.when}\n{report.longreprtext}", file=sys.stderr, flush=True)
        if failed:
            crash = getattr(failed[0].longrepr, "reprcrash", None)
            text = crash.message if crash is not None else failed[0].longreprtext
            return {"state": FAILED, "seconds": seconds, "note": _line(text), "lost": bool(lost)}
        if lost:
            return {"state": FAILED, "seconds": seconds, "note": lost, "lost": True}
        if skipped:
            reason = skipped[0].longrepr
            text = str(reason[2]) if isinstance(reason, tuple) else str(reason)
            return {"state": SKIPPED, "seconds": seconds, "note": _line(text), "lost": False}
        return {"state": PASSED, "seconds": seconds, "note": "", "lost": False}


def _wait_for_device() -> str:
    """What the device says of the work so far: empty where all is well, or no test has used it."""
    driver = sys.modules.get("alpha.cu32.driver")
    if driver is None or driver.device.cache_info().currsize == 0:
        return ""
    try:
        driver.device(0).synchronize()
    except Exception as error:  # an EngineError, or whatever the driver's binding raises once the context is gone
        return _line(f"{type(error).__name__}: {error}")
    return ""


def main() -> int:
    """Collects, then serves."""
    channel = Channel()
    settings = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-p", "no:cacheprovider"]
    words = [*settings, "-m", "not slow", *sys.argv[1:]]
    return int(pytest.main(words, plugins=[Serving(channel)]))


if __name__ == "__main__":
    sys.exit(main())

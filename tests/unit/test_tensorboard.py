"""alpha.utils.tensorboard: the events that PyTorch's writer writes, read back by TensorBoard's own reader."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.errors import AlphaError

pytestmark = pytest.mark.needs("torch", "tensorboard")


def events(folder: Path) -> list[Any]:
    """All events of a folder's files, without the times; those with hyper-parameters without the random parts."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    found = []
    for path in sorted(folder.rglob("events.*")):
        for raw in RawEventFileLoader(str(path)).Load():
            event = Event.FromString(raw)
            event.wall_time = 0
            event.ClearField("source_metadata")
            found.append((str(path.parent.relative_to(folder)), event))
    return found


def write(writer: Any, make: Callable[[Any], Any]) -> None:
    """Some of everything; ``make`` makes a tensor of an array."""
    rng = np.random.default_rng(0)
    writer.add_scalar("loss", make(np.array([0.5], np.float32)), 3, walltime=7)
    writer.add_scalar("loss", 0.25, np.int64(4))
    writer.add_scalar("new", 0.1, 1, new_style=True)
    writer.add_scalar("double", 0.1, 1, new_style=True, double_precision=True)
    writer.add_scalars("a/b", {"x": 1.5, "y": make(np.float32(2))}, 2)
    for values in (rng.standard_normal(1000), np.zeros(3), np.array([-3.0, 1e-13, 8.0])):
        writer.add_histogram("h", make(values.astype(np.float32)), 1)
    writer.add_histogram("h2", np.arange(100), 1, bins="auto", max_bins=3)
    writer.add_histogram("h3", rng.standard_normal(50), 1, bins=10)
    writer.add_text("t", "a **b** \u00e9", 1)
    labels = rng.integers(0, 2, 60)
    writer.add_pr_curve("pr", labels, rng.random(60), 1, num_thresholds=20, weights=rng.random(60))
    writer.add_pr_curve("pr", make(labels), make(rng.random(60)), 1, num_thresholds=1000)
    domains = {"lr": [0.1, 0.2], "name": ["x", "y"]}
    writer.add_hparams({"lr": 0.1, "name": "x", "n": 3, "none": None}, {"hp/acc": 0.5}, domains, "run", 6)


def test_events_are_those_of_pytorch(tmp_path: Path) -> None:
    import torch
    from torch.utils.tensorboard import SummaryWriter

    from alpha.utils import tensorboard

    with SummaryWriter(tmp_path / "theirs") as theirs:
        write(theirs, torch.tensor)
    with tensorboard.SummaryWriter(tmp_path / "ours") as ours:
        write(ours, alpha.tensor)
    expected, found = events(tmp_path / "theirs"), events(tmp_path / "ours")
    assert len(found) == len(expected) > 20
    for (folder, one), (other_folder, other) in zip(found, expected, strict=True):
        assert folder == other_folder
        for value, wanted in zip(one.summary.value, other.summary.value, strict=True):
            if value.HasField("histo"):
                for name in ("min", "max", "num", "sum", "sum_squares"):
                    assert getattr(value.histo, name) == pytest.approx(getattr(wanted.histo, name), rel=1e-6)
                assert list(value.histo.bucket) == list(wanted.histo.bucket)
                assert list(value.histo.bucket_limit) == pytest.approx(list(wanted.histo.bucket_limit), rel=1e-12)
            elif value.tag.startswith("_hparams_"):
                assert value.tag == wanted.tag
                assert value.metadata.plugin_data.content == wanted.metadata.plugin_data.content
            else:
                assert value == wanted
        assert one.step == other.step


@pytest.mark.parametrize(
    ("shape", "dataformats"),
    [((3, 4, 5), "CHW"), ((4, 5, 3), "HWC"), ((4, 5), "HW"), ((1, 4, 5), "CHW"), ((4, 4, 5), "CHW"),
     ((11, 3, 4, 5), "NCHW"), ((2, 4, 5, 1), "NHWC"), ((9, 4, 5), "NHW")],
)  # fmt: skip
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_pictures_are_those_of_pytorch(tmp_path: Path, shape: tuple[int, ...], dataformats: str, kind: Any) -> None:
    import torch
    from PIL import Image
    from torch.utils.tensorboard import SummaryWriter

    from alpha.utils import tensorboard

    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, shape).astype(np.uint8) if kind is np.uint8 else rng.random(shape, np.float32) * 1.2
    if dataformats == "NHW":  # which PyTorch does not take
        expected = None
    else:
        with SummaryWriter(tmp_path / "theirs") as theirs:
            function = theirs.add_images if "N" in dataformats else theirs.add_image
            function("x", torch.tensor(pixels), 1, dataformats=dataformats)
        expected = events(tmp_path / "theirs")[-1][1].summary.value[0].image
    with tensorboard.SummaryWriter(tmp_path / "ours") as ours:
        function = ours.add_images if "N" in dataformats else ours.add_image
        function("x", alpha.tensor(pixels), 1, dataformats=dataformats)
    found = events(tmp_path / "ours")[-1][1].summary.value[0].image
    picture = np.asarray(Image.open(io.BytesIO(found.encoded_image_string)))
    assert picture.shape[:2] == (found.height, found.width)
    if expected is None:
        assert picture.shape == (8, 40, 3) and (picture[4:, 5:] == 0).all()
    else:
        assert (found.height, found.width, found.colorspace) == (expected.height, expected.width, expected.colorspace)
        assert np.array_equal(picture, np.asarray(Image.open(io.BytesIO(expected.encoded_image_string))))


def test_figures_folders_and_steps_to_forget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib import pyplot

    from alpha.utils.tensorboard import SummaryWriter

    monkeypatch.chdir(tmp_path)
    writer = SummaryWriter(comment="_c", purge_step=5)
    assert Path(writer.get_logdir()).parent.name == "runs" and writer.get_logdir().endswith("_c")
    figure, _ = pyplot.subplots(figsize=(2, 1), dpi=50)
    writer.add_figure("f", figure, 5)
    writer.flush()
    writer.close()
    writer.add_scalar("after", 1.0)  # to a new file
    writer.close()
    found = [event for _, event in events(tmp_path)]
    assert [event.session_log.status for event in found if event.HasField("session_log")] == [1]
    pictures = [event.summary.value[0].image for event in found if event.summary.value]
    assert (pictures[0].width, pictures[0].height) == (100, 50) and not pyplot.fignum_exists(figure.number)


def test_what_cannot_be_shown_says_so(tmp_path: Path) -> None:
    from alpha.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(tmp_path)
    before = len(events(tmp_path))
    calls: list[Callable[[], Any]] = [
        lambda: writer.add_scalar("x", alpha.ones(2)),
        lambda: writer.add_scalar("x", "one"),
        lambda: writer.add_scalars("x", 3),  # type: ignore[arg-type]
        lambda: writer.add_histogram("x", alpha.zeros(0)),
        lambda: writer.add_histogram("x", [1.0, float("nan")]),
        lambda: writer.add_image("x", alpha.ones(3, 4, 5), dataformats="HW"),
        lambda: writer.add_image("x", alpha.ones(2, 4, 5)),
        lambda: writer.add_image("x", alpha.ones(3, 4, 5), dataformats="CWX"),
        lambda: writer.add_text("x", 3),  # type: ignore[arg-type]
        lambda: writer.add_pr_curve("x", [0, 1], [0.5]),
        lambda: writer.add_hparams({"a": object()}, {}),
        lambda: writer.add_hparams({"a": 1}, {}, {"a": ["x"]}),
        lambda: writer.add_hparams([], {}),  # type: ignore[arg-type]
        lambda: SummaryWriter(tmp_path, purge_step=1.5),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(AlphaError, match=r"^\[\w+\] expected .*, got "):
            call()
    writer.flush()
    assert len(events(tmp_path)) == before
    for bins in ("no rule", [3.0, 2.0], [2.0, 3.0]):
        with pytest.raises(AlphaError, match=r"^\[add_histogram\] expected "):
            writer.add_histogram("x", [1.0], bins=bins)
    writer.close()

"""PyTorch's .pt files: all that its weights and states hold is read, and nothing that they name is run."""

from __future__ import annotations

import io
import os
import pickle
import struct
import time
import tracemalloc
import zipfile
from collections import Counter, OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.engine import Engine
from alpha.errors import ArgumentError, CheckpointError

pytestmark = pytest.mark.needs("torch")

FORMS: list[dict[str, Any]] = [
    {},
    {"_use_new_zipfile_serialization": False},
    {"pickle_protocol": 4},
    {"pickle_protocol": 5},
]
DTYPES = ["float32", "float64", "uint8", "int32", "int64", "bool"]


def written(value: Any, **form: Any) -> io.BytesIO:
    """A file of ``torch.save``."""
    import torch

    file = io.BytesIO()
    torch.save(value, file, **form)
    file.seek(0)
    return file


def equal(found: Any, theirs: Any) -> bool:
    """Whether a tensor has PyTorch's shape, strides, dtype, values and need of a gradient."""
    same = found.shape == tuple(theirs.shape) and str(theirs.dtype) == f"torch.{found.dtype.name}"
    strides = theirs.numel() == 0 or found.stride() == theirs.stride()
    values = np.array_equal(np.asarray(found), theirs.detach().numpy())
    return same and strides and values and found.requires_grad == theirs.requires_grad


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_of_every_dtype_and_layout(engine: Engine, form: dict[str, Any], dtype: str) -> None:
    import torch

    base = (torch.arange(24) % 5).to(getattr(torch, dtype)).reshape(2, 3, 4)
    value = {
        "base": base, "transposed": base.permute(2, 0, 1), "part": base[1, ::2, 1:], "zero": base[0, 0, 1],
        "empty": base[:0],
        "expanded": base[:1].expand(5, 3, 4), "alone": base.clone(), "scalar": torch.tensor(3).to(base.dtype),
        "channels_last": base[None].contiguous(memory_format=torch.channels_last),
    }  # fmt: skip
    found = alpha.load(written(value, **form), engine)
    assert list(found) == list(value) and all(equal(found[name], theirs) for name, theirs in value.items())
    assert all(tensor.engine is engine for tensor in found.values())
    views = [found[name].storage for name in ("base", "transposed", "part", "zero", "expanded")]
    assert all(storage is views[0] for storage in views) and found["alone"].storage is not views[0]
    found["part"].fill_(1 if dtype != "bool" else True)
    assert found["base"][1, 2, 3].item() == 1
    alone = alpha.load(written(base, **form))
    assert equal(alone, base)


@pytest.mark.parametrize("form", FORMS)
def test_values_beside_tensors(form: dict[str, Any]) -> None:
    import torch

    value = [
        None, True, -3, 2**70, 0.1, float("-inf"), "text \u00e9", b"bytes\0", bytearray(b"xy"), (1, (2,)), [], {},
        {"a": {1: [2]}},
        OrderedDict(b=1, a=2), Counter("aab"), defaultdict(list, {"x": [1]}), {1, "a"}, frozenset({1}), 1 - 2j,
        slice(None, 3),
        range(1, 9, 2), np.float32(0.1), np.int8(3), np.arange(6).reshape(2, 3).T, np.zeros((0, 2), np.float16),
        np.ones(3, bool),
    ]  # fmt: skip
    found = alpha.load(written(value, **form), weights_only=False)
    for ours, theirs in zip(found, value, strict=True):
        assert (
            type(ours) is type(theirs) and np.array_equal(ours, theirs)
            if isinstance(theirs, np.ndarray)
            else ours == theirs
        )
    assert found[15].default_factory is list
    other = [torch.Size([2, 3]), torch.float32, torch.float16, torch.bool, torch.device("cuda:1"), torch.device("cpu")]
    expected = [(2, 3), alpha.float32, np.dtype("float16"), alpha.bool_, alpha.device("cuda:1"), alpha.device("cpu")]
    assert alpha.load(written(other, **form)) == expected
    shared = [1]
    first, second = alpha.load(written([shared, shared], **form))
    assert first is second


@pytest.mark.parametrize("form", FORMS)
def test_states_of_modules_and_optimizers(tmp_path: Path, form: dict[str, Any]) -> None:
    import torch

    theirs = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(16, 2)
    )
    optimizer = torch.optim.Adam(theirs.parameters(), lr=0.1)
    theirs(torch.ones(2, 3, 4, 4)).sum().backward()
    optimizer.step()
    state = {"model": theirs.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3,
    "rng": torch.get_rng_state(),
             "parameters": list(theirs.parameters()), "numpy": np.random.RandomState(0).get_state()}  # fmt: skip
    torch.save(state, tmp_path / "c.pth", **form)
    found = alpha.load(tmp_path / "c.pth", map_location="cpu", weights_only=True)
    assert isinstance(found["model"], OrderedDict) and list(found["model"]) == list(state["model"])
    assert found["model"]._metadata[""] == {"version": 1}
    assert all(equal(found["model"][name], tensor) for name, tensor in state["model"].items())
    assert found["optimizer"]["param_groups"] == state["optimizer"]["param_groups"]
    assert equal(found["optimizer"]["state"][0]["exp_avg"], state["optimizer"]["state"][0]["exp_avg"])
    assert equal(found["rng"], state["rng"]) and np.array_equal(found["numpy"][1], state["numpy"][1])
    assert all(
        type(p) is nn.Parameter and equal(p, q) for p, q in zip(found["parameters"], state["parameters"], strict=True)
    )
    alpha.set_image_layout("NCHW")
    try:
        ours = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))
        ours.load_state_dict(found["model"])
        x = np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(np.float32)
        expected = theirs.eval()(torch.tensor(x)).detach().numpy()
        np.testing.assert_allclose(ours.eval()(alpha.tensor(x)).detach().numpy(), expected, rtol=1e-5, atol=1e-5)
    finally:
        alpha.set_image_layout("NHWC")


def test_filters_of_pytorch_are_not_taken_for_ours() -> None:
    """Where the shapes agree by chance, nothing else tells that the axes are in another order."""
    import torch

    theirs = torch.nn.Conv2d(3, 3, 3)
    ours, state = nn.Conv2d(3, 3, 3), alpha.load(written(theirs.state_dict()))
    with pytest.raises(CheckpointError, match="got a tensor of PyTorch, whose filters are"):
        ours.load_state_dict(state)
    ours.load_state_dict(nn.models.from_torch(state, ours))
    x = np.random.default_rng(0).standard_normal((1, 5, 5, 3)).astype(np.float32)
    expected = theirs(torch.tensor(x).permute(0, 3, 1, 2)).permute(0, 2, 3, 1).detach().numpy()
    np.testing.assert_allclose(ours(alpha.tensor(x)).detach().numpy(), expected, rtol=1e-5, atol=1e-5)


def test_memory_is_the_files_alone(engine: Engine) -> None:
    """Storages are read once, whoever views them; and the file's copy is gone when they are."""
    import torch

    file = written({"a": torch.zeros(1_000_000), "b": [torch.zeros(1)] * 100})
    before = engine.memory.in_use
    found = alpha.load(file, engine)
    # Engines may keep some more by now, but not a second copy.
    assert 4_000_000 <= engine.memory.in_use - before < 7_000_000
    assert len({id(x.storage) for x in found["b"]}) == 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "int16", "complex64", "uint16", "float8_e4m3fn"])
@pytest.mark.parametrize("form", FORMS[:2])
def test_other_dtypes_say_which(dtype: str, form: dict[str, Any]) -> None:
    import torch

    if dtype in {str(known) for known in alpha.dtypes.TABLE}:
        pytest.skip("a dtype of ours")
    with pytest.raises(CheckpointError, match=rf"^\[load\] expected .*{dtype}"):
        alpha.load(written({"w": torch.zeros(2).to(getattr(torch, dtype))}, **form))


class Harmful:
    """Runs a function when a usual unpickler meets it."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], self.call[1:]


@pytest.mark.parametrize("form", FORMS)
def test_code_is_refused_by_name_and_not_run(tmp_path: Path, form: dict[str, Any]) -> None:
    import torch

    target = tmp_path / "made"
    net = torch.nn.Sequential(torch.nn.Linear(2, 2))
    for value, name in (
        (net, r"torch\.nn\.modules\.container\.Sequential"),
        ({"model": net, "epoch": 1}, r"torch\.nn\.modules\.container\.Sequential"),
        (Harmful(os.mkdir, str(target)), r"(posix|nt)\.mkdir"),
        (Harmful(eval, f"__import__('os').mkdir({str(target)!r})"), r"\w+\.eval"),
        (Harmful(getattr, (), "__class__"), r"\w+\.getattr"),
        (Harmful(np.load, str(target)), r"numpy\.load"),
        (Harmful(np.fromfile, str(target)), r"numpy\.fromfile"),
        (Harmful(torch.load, str(target)), r"torch\.serialization\.load"),
        (Path("x"), r"pathlib\.\w+"),
        (OrderedDict, None),
    ):
        file = written({"a": torch.ones(2), "b": value}, **form)
        if name is None:
            assert alpha.load(file)["a"].tolist() == [1, 1]
            continue
        message = rf"^\[load\] expected tensors and plain values, got the BytesIO given, which wants to import {name}: "
        for weights_only in (True, False):
            file.seek(0)
            with pytest.raises(CheckpointError, match=message):
                alpha.load(file, weights_only=weights_only)
    assert not target.exists()


# -- hostile archives --------------------------------------------------------------------------------------------------


def members(file: io.BytesIO) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(content: dict[str, bytes], kind: int = zipfile.ZIP_STORED) -> io.BytesIO:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    file.seek(0)
    return file


def refused(file: io.BytesIO, message: str = "") -> None:
    """Loading fails with one line, soon, and without much memory."""
    tracemalloc.start()
    start = time.perf_counter()
    try:
        with pytest.raises(CheckpointError, match=rf"^\[load\] expected .*{message}") as caught:
            alpha.load(file)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600
    assert time.perf_counter() - start < 10 and peak < 100 << 20


def test_archives_that_lie_are_refused() -> None:
    import torch

    right = members(written({"w": torch.arange(6.0)}))
    folder = next(iter(right)).partition("/")[0]
    data = f"{folder}/data/0"
    assert alpha.load(packed(right))["w"].tolist() == [0, 1, 2, 3, 4, 5]
    refused(packed({**right, data: right[data][:-4]}), "storage '0' of 6 elements with 20 bytes")
    refused(packed({**right, data: right[data] + b"more"}), "with 28 bytes")
    refused(
        packed({name: content for name, content in right.items() if name != data}),
        "none of its members called 'data/0'",
    )
    refused(packed({**right, f"{folder}/byteorder": b"big"}), "big-endian")
    refused(packed(right, zipfile.ZIP_DEFLATED), "compressed")
    refused(packed({**right, data: b"\0" * (1 << 26)}, zipfile.ZIP_DEFLATED), "compressed")  # a bomb
    refused(packed({**right, "other/data.pkl": b""}), "something else")
    refused(packed({"a": b"b"}), "something else")
    refused(packed({}), "a truncated or corrupt one|something else|safetensors")
    refused(packed({f"{folder}/data.pkl": b""}), "truncated or damaged pickle")
    refused(packed({**right, f"{folder}/constants.pkl": b""}), "torch.jit.save")
    whole = packed(right).getvalue()
    for length in (4, 30, len(whole) // 2, len(whole) - 1):
        refused(io.BytesIO(whole[:length]))
    for place in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[place] ^= 0x41
        try:
            alpha.load(io.BytesIO(bytes(damaged)))
        except CheckpointError as error:
            assert "\n" not in str(error)
    overlapping = packed({**right, data: b"x" * 1000})
    directory = bytearray(overlapping.getvalue())
    struct.pack_into("<I", directory, directory.rindex(b"PK\1\2") + 42, 0)  # the last member at the first one's place
    refused(io.BytesIO(bytes(directory)))


PERSISTENT = b"(X\x07\x00\x00\x00storagectorch\n%sStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK%ctQ"


def archive_of(code: bytes, data: bytes = b"\1" * 24) -> io.BytesIO:
    """An archive with a pickle and one storage of 24 bytes."""
    return packed({"a/data.pkl": b"\x80\2" + code + b".", "a/data/0": data, "a/byteorder": b"little"})


def tensor_code(
    offset: int = 0, shape: Any = (6,), strides: Any = (1,), kind: bytes = b"Float", elements: int = 6
) -> bytes:
    items = b"".join(pickle.dumps(value, 2)[2:-1] for value in (offset, shape, strides, False, None))
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + PERSISTENT % (kind, elements) + items + b"tR"


def test_tensors_beyond_their_storage_are_refused() -> None:
    assert alpha.load(archive_of(tensor_code())).shape == (6,)
    assert alpha.load(archive_of(tensor_code(1, (2, 2), (2, 1)))).shape == (2, 2)
    assert alpha.load(archive_of(tensor_code(0, (2**40,), (0,)))).shape == (2**40,)  # broadcast: no memory
    for options in (
        {"offset": 1}, {"offset": -1}, {"offset": 2**70}, {"offset": 0.0}, {"offset": True}, {"shape": (7,)},
        {"shape": (-1,)},
        {"strides": (2,)}, {"strides": (-1,), "offset": 5}, {"strides": (2**62,)}, {"shape": [6]}, {"shape": (6, 1)},
        {"shape": (2.0,)},
        {"shape": (2**40, 2**40), "strides": (0, 0)}, {"shape": (1,) * 65, "strides": (1,) * 65}, {"kind": b"Double"},
        {"kind": b"Bool", "elements": 24, "shape": (24,)} | {"kind": b"Long"}, {"elements": 5}, {"elements": 7},
        {"kind": b"Half", "elements": 11},
        {"kind": b"No"},
    ):  # fmt: skip
        refused(archive_of(tensor_code(**options)))  # type: ignore[arg-type]
    refused(archive_of(tensor_code(kind=b"Bool", elements=24), b"\2" * 24), "no bool")


BINARY = {
    "a string longer than the file": b"\x8d\xff\xff\xff\xff\xff\xff\xff\x00a",
    "bytes longer than the file": b"B\xff\xff\xff\x7fa",
    "a list that was never begun": b"a",
    "no mark": b"t",
    "a get of nothing": b"h\x09",
    "a call of a list": b"])R",
    "a call of a string": b"X\x01\x00\x00\x00a)R",
    "arguments in a list": b"ccollections\nOrderedDict\n]R",
    "items for a number": b"K\x01(K\x02K\x03u",
    "elements for a number": b"K\x01(K\x02e",
    "half a pair": b"}(K\x01u",
    "a list as a key": b"}]K\x01s",
    "a tensor as a key": b"}" + tensor_code() + b"K\x01s",
    "a state for a list": b"]}b",
    "a state for a tensor": tensor_code() + b"}b",
    "an extension": b"\x82\x01",
    "an object of a class": b"(cos\nsystem\nX\x01\x00\x00\x00ao",
    "an instance": b"(X\x01\x00\x00\x00aios\nsystem\n",
    "a persistent text": b"Pabc\n",
    "a persistent number": b"K\x01Q",
    "another persistent tuple": b"(X\x06\x00\x00\x00moduleK\x01K\x01K\x01K\x01tQ",
    "a tensor of no storage": b"ctorch._utils\n_rebuild_tensor_v2\n(K\x01K\x00K\x01\x85K\x01\x85\x89NtR",
    "a parameter of no tensor": b"ctorch._utils\n_rebuild_parameter\n(K\x01\x89NtR",
    "a gradient of whole numbers": b"ctorch._utils\n_rebuild_parameter\n(" + tensor_code(shape=(3,), kind=b"Long",
    elements=3) + b"\x88NtR",
    "an array of objects": b"cnumpy\ndtype\n(X\x01\x00\x00\x00OtR",
    "an array of another size": b"cnumpy._core.multiarray\n_reconstruct\n(NNNtR(K\x01K\x05\x85"
    b"cnumpy\ndtype\n(X\x02\x00\x00\x00f4tR\x89C\x01at" + b"b",
    "a huge list of a range": b"c__builtin__\nlist\n(c__builtin__\nrange\n(J\xff\xff\xff\x7ftRtR",
    "many bytes of a number": b"c__builtin__\nbytearray\n(J\xff\xff\xff\x7ftR",
    "text in another encoding": b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x03\x00\x00\x00rottR",
    "no value but a mark": b"(",
    "a shape of text": b"ctorch\nSize\n(X\x01\x00\x00\x00atR",
    "a device that is none": b"ctorch\ndevice\n(K\x01tR",
    "a number of endless digits": b"I" + b"9" * 6000 + b"\n",
    "nothing": b"",
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_pickles_that_lie_are_refused(name: str) -> None:
    refused(archive_of(BINARY[name]))


def test_small_files_do_not_grow() -> None:
    """Lists within lists, each twice, and copies of copies: what a few bytes can ask for without end."""
    laughs = b"]" + b"q\x00" + b"".join(b"](h%ch%ceq%c" % (n, n, n + 1) for n in range(60))
    found = alpha.load(archive_of(laughs))
    for _ in range(60):
        found = found[0]
    assert found == []
    keys = b"K\x01q\x00" + b"".join(b"h%ch%c\x86q%c" % (n, n, n + 1) for n in range(60))
    refused(archive_of(keys + b"}h%cK\x01s" % 60), "a key of the type tuple")
    assert alpha.load(archive_of(b"Nr\xff\xff\xff\xff")) is None  # a place far out in the machine's memory
    copies = b"(" + b"C\xff" + b"x" * 255 + b"q\x00" + b"c__builtin__\nbytes\n(h\x00tR" * 5000 + b"t"
    assert len(alpha.load(archive_of(copies))) == 5001
    long = (
        b"("
        + b"B"
        + struct.pack("<I", 1 << 20)
        + b"x" * (1 << 20)
        + b"q\x00"
        + b"c__builtin__\nbytes\n(h\x00tR" * 5000
        + b"t"
    )
    refused(archive_of(long), "more copies")


def test_legacy_files_that_lie_are_refused() -> None:
    import torch

    whole = written({"w": torch.arange(6.0)}, _use_new_zipfile_serialization=False).getvalue()
    assert alpha.load(io.BytesIO(whole))["w"].shape == (6,)
    for length in (1, 2, 10, 20, 100, len(whole) - 24, len(whole) - 1):
        refused(io.BytesIO(whole[:length]))
    place = len(whole) - 32
    assert whole[place : place + 8] == struct.pack("<q", 6)
    for count in (5, 7, -1, 2**62):
        refused(io.BytesIO(whole[:place] + struct.pack("<q", count) + whole[place + 8 :]), "storage of")
    refused(io.BytesIO(whole.replace(b"M\xe9\x03", b"M\xea\x03")), "another version")
    refused(io.BytesIO(whole.replace(b"little_endianq\x02\x88", b"little_endianq\x02\x89")), "byte order")
    refused(io.BytesIO(pickle.dumps({"a": 1})), "a pickle of something else")
    refused(io.BytesIO(pickle.dumps(Harmful(os.getcwd))), r"wants to import|a pickle|one that names")


@pytest.mark.parametrize(
    ("map_location", "name"),
    [
        ("numpy", "numpy"),
        ({"cpu": "numpy"}, "numpy"),
        ({"cuda:0": "numpy"}, "cpu"),
        (lambda storage, place: storage, "cpu"),
    ],
)
def test_places(map_location: Any, name: str) -> None:
    import torch

    for form in FORMS[:2]:
        assert alpha.load(written([torch.ones(2)], **form), map_location)[0].engine.name == name
    with pytest.raises(ArgumentError, match=r"^\[load\] expected map_location"):
        alpha.load(written([torch.ones(2)]), 2.5)


def test_paths_in_an_archive_lead_nowhere(tmp_path: Path) -> None:
    """Members are read, never written: names with dots do no harm."""
    code = tensor_code().replace(b"X\x01\x00\x00\x000", b"X\x07\x00\x00\x00../../x")
    content = {"a/data.pkl": b"\x80\2" + code + b".", "a/data/../../x": b"\1" * 24}
    before = sorted(tmp_path.iterdir())
    assert alpha.load(packed(content)).shape == (6,)
    assert sorted(tmp_path.iterdir()) == before

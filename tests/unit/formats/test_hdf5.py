"""HDF5: read and written as h5py does, without leaving the file."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
import ztensor.numpy
from tests.hdf5_files import made
from tests.refusals import refused
from tests.unit.formats.exporting import exported
from ztensor.errors import Reason
from ztensor.testing.builder import draft

CORPUS = Path(__file__).parents[2] / "corpus" / "foreign"
GOLDEN = [CORPUS / f"accept/hdf5/{name}.h5" for name in ("earliest", "latest", "user_block")]
WITHOUT = "h5py, which reads HDF5, is not installed"


@pytest.fixture
def h5py() -> Any:
    return pytest.importorskip("h5py", reason=WITHOUT)


def encoding_of(reader: ztensor.Reader, name: str) -> str:
    return reader.metadata(name).components["data"].encoding


# --- Reading --------------------------------------------------------------------------------


def test_without_h5py_files_are_read_and_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    reader = ztensor.open(GOLDEN[0])
    assert reader["chunked/lzf"].sum() == np.arange(40).sum()
    with pytest.raises(ztensor.MissingDependencyError):
        exported("hdf5", reader)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
@pytest.mark.parametrize("how", ["path", "bytes", "file object"])
def test_a_golden_file(path: Path, how: str) -> None:
    expected = json.loads(path.with_name("expected.json").read_text("utf-8"))
    data = path.read_bytes()
    source: Any = {"path": path, "bytes": data, "file object": io.BytesIO(data)}[how]
    with ztensor.open(source) as reader:
        assert reader.format == "hdf5"
        assert reader.attributes == {
            "backend": "jax",
            "numbers": [1, 2],
            "/layers/dense": {"name": "dense_1"},
        }
        assert {name: reader[name].tolist() for name in expected} == expected
        assert reader["complex"].tolist() == [1 + 2j]
        assert reader["layers/dense/vars/1"].dtype == np.int16
        assert reader["none"].shape == (0, 4)
        for name in ("chunked/gzip", "chunked/lzf", "chunked/plain"):
            assert np.array_equal(reader[name], np.arange(40).reshape(8, 5))
        assert reader["alias"].tolist() == expected["layers/dense/vars/0"]
        assert len(reader) == 10
        assert not reader.verify().problems


def test_bfloat16_as_others_store_it(h5py: Any) -> None:
    array = np.array([1.5, -2, 3], ml_dtypes.bfloat16)

    def fill(file: Any) -> None:
        keras = file.create_dataset("keras", data=array.view("V2"))
        keras.attrs["dtype"] = "bfloat16"
        kind = h5py.h5t.IEEE_F32LE.copy()
        kind.set_fields(15, 7, 8, 0, 7)
        kind.set_size(2)
        kind.set_ebias(127)
        space = h5py.h5s.create_simple((3,))
        custom = h5py.h5d.create(file.id, b"custom", kind, space)
        custom.write(h5py.h5s.ALL, h5py.h5s.ALL, array.astype("f4"))

    reader = ztensor.open(made(fill))
    for name in ("keras", "custom"):
        assert encoding_of(reader, name) == "raw"
        assert reader[name].dtype == ml_dtypes.bfloat16
        assert reader[name].tolist() == [1.5, -2, 3]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_nothing_outside_the_file_is_opened(h5py: Any, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "model.h5", "w") as file:
        file["external link"] = h5py.ExternalLink("other.h5", "/x")
        file.create_dataset("external", (2,), "f4", external=[("other.bin", 0, 8)])
        layout = h5py.VirtualLayout((2,), "f4")
        layout[:] = h5py.VirtualSource("other.h5", "x", (2,))
        file.create_virtual_dataset("virtual", layout)
        file["through"] = h5py.SoftLink("/external link")
        file["beyond"] = h5py.SoftLink("/external link/x")
    for name in ("other.h5", "other.bin"):
        os.mkfifo(tmp_path / name)  # opening it would block
    code = (
        "import ztensor\n"
        "f = ztensor.open('model.h5')\n"
        "for n in f:\n"
        "    try: f[n]\n"
        "    except ztensor.UnsupportedError: print(n)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert {"external link", "external", "virtual", "through"} <= set(done.stdout.splitlines())
    assert "beyond" not in done.stdout


def test_two_dots_in_a_soft_link_are_a_name(h5py: Any) -> None:
    # HDF5 has no way up: for h5py the link leads nowhere.
    def fill(file: Any) -> None:
        file["a/x"] = 1
        file["up"] = h5py.SoftLink("/a/../a/x")
        file["here"] = h5py.SoftLink("/a/./x")

    assert ztensor.open(made(fill)).keys() == ["a/x", "here"]


# --- Filters --------------------------------------------------------------------------------


# The filter, the stored bytes of a chunk of 64 bytes, and the reason of the refusal.
GZIP, LZF, SUM = {"compression": "gzip"}, {"compression": "lzf"}, {"fletcher32": True}
BAD_CHUNKS: dict[str, tuple[dict[str, Any], bytes, Reason]] = {
    "short": ({}, b"x" * 60, Reason.ENCODING_MALFORMED),
    "deflate, short": (GZIP, zlib.compress(b"x" * 60), Reason.ENCODING_MALFORMED),
    "deflate, long": (GZIP, zlib.compress(bytes(1000)), Reason.DECODED_LONG),
    "deflate, no stream": (GZIP, b"no stream", Reason.ENCODING_MALFORMED),
    "deflate, cut": (GZIP, zlib.compress(b"cut")[:-2], Reason.ENCODING_TRUNCATED),
    "sum that differs": (SUM, b"abcd0000", Reason.ENCODING_MALFORMED),
    "no sum": (SUM, b"ab", Reason.ENCODING_MALFORMED),
    "lzf, short": (LZF, b"\7abcdefgh", Reason.ENCODING_MALFORMED),  # eight literals
    "lzf, cut": (LZF, b"\xff\xff\xff", Reason.ENCODING_MALFORMED),
    "lzf, copy from before": (LZF, b"\0a\x20\x05", Reason.ENCODING_MALFORMED),
    "lzf, long": (LZF, b"\0a" + b"\xe0\xff\0" * 9, Reason.ENCODING_MALFORMED),
}


@pytest.mark.parametrize(("how", "stored", "reason"), BAD_CHUNKS.values(), ids=list(BAD_CHUNKS))
def test_a_damaged_chunk_is_refused(how: Any, stored: bytes, reason: Reason) -> None:
    """libhdf5 returns the memory after a short one."""

    def fill(file: Any) -> None:
        data = file.create_dataset("a", (64,), "u1", chunks=(64,), **how)
        data.id.write_direct_chunk((0,), stored)

    with refused(ztensor.FormatError, reason):
        ztensor.open(made(fill)).read("a")


def test_numbers_in_some_of_the_bits(h5py: Any) -> None:
    kind = h5py.h5t.STD_I16LE.copy()
    kind.set_precision(12)

    def fill(file: Any) -> None:
        for name, behind in (("plain", None), ("packed", 1)):
            how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            how.set_chunk((4,))
            if behind is not None:
                how.set_filter(behind, 0, (4,) if behind == 1 else ())
            space = h5py.h5s.create_simple((8,))
            data = h5py.h5d.create(file.id, name.encode(), kind, space, how)
            data.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(-4, 4, dtype="i2"))

    reader = ztensor.open(made(fill))
    for name in reader:
        assert reader[name].dtype == np.int16
        assert reader[name].tolist() == list(range(-4, 4))


@pytest.mark.parametrize(
    ("code", "dtype", "parameters", "name"),
    [
        *((6, kind, (0 if kind[1] == "f" else 2, 3), "scale-offset")
          for kind in ("<i4", ">i4", "<f8", ">f4")),
        *((5, kind, (), "n-bit") for kind in ("<i2", ">u4")),
    ],
)  # fmt: skip
def test_data_behind_a_filter_that_is_not_undone_is_listed(
    h5py: Any,
    code: int,
    dtype: str,
    parameters: tuple[int, ...],
    name: str,
    tmp_path: Path,
) -> None:
    def fill(file: Any) -> None:
        how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        how.set_chunk((4,))
        how.set_filter(code, 0, parameters)
        kind, space = h5py.h5t.py_create(np.dtype(dtype)), h5py.h5s.create_simple((8,))
        data = h5py.h5d.create(file.id, b"packed", kind, space, how)
        data.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(8, dtype=dtype))
        file.create_dataset("plain", data=np.arange(3))

    reader = ztensor.open(made(fill))
    assert reader.metadata("packed").shape == (8,)
    with pytest.raises(ztensor.UnsupportedError) as caught:
        reader.read("packed")
    assert caught.value.object_name == "packed"
    assert name in str(caught.value)
    assert reader["plain"].tolist() == [0, 1, 2]
    report = ztensor.convert(reader, tmp_path / "new.zt", check=True)
    assert [loss.object_name for loss in report.lost] == ["packed"]


def test_what_follows_the_stream_of_a_chunk_is_not_read(h5py: Any) -> None:
    """libhdf5 reads such a chunk: it was kept in a longer room than it needed."""
    numbers = np.arange(64, dtype="u1")

    def fill(file: Any) -> None:
        data = file.create_dataset("a", (64,), "u1", chunks=(64,), compression="gzip")
        data.id.write_direct_chunk((0,), zlib.compress(numbers.tobytes()) + b"more")

    content = made(fill)
    with h5py.File(io.BytesIO(content)) as file:
        assert np.array_equal(file["a"][()], numbers)
    assert np.array_equal(ztensor.open(content)["a"], numbers)


@pytest.mark.parametrize(
    "content",
    [
        bytes(5000),
        b"0123456789" * 900,
        bytes(range(256)) * 40,
        np.random.default_rng(1).integers(0, 3, 9000, np.uint8).tobytes(),
    ],
    ids=["one long run", "overlapping copies", "copies from afar", "short tokens"],
)
def test_lzf_expands_to_what_h5py_compressed(content: bytes) -> None:
    array = np.frombuffer(content, np.uint8)
    data = made(
        lambda file: file.create_dataset("a", data=array, chunks=array.shape, compression="lzf")
    )
    assert len(data) < len(content)
    assert np.array_equal(ztensor.open(data)["a"], array)


# --- Writing --------------------------------------------------------------------------------


TENSORS: dict[str, Any] = {
    "dense/kernel.0": np.arange(12, dtype="f4").reshape(3, 4),
    "dense/flags": np.array([True, False]),
    "complex": np.array([1 + 2j], "c8"),
    "scalar": np.float16(3),
    "none": np.zeros((0, 2), "i8"),
    "large": np.arange(1 << 15, dtype="u4"),
}


def test_what_is_written_is_read_by_h5py(h5py: Any) -> None:
    attributes = {"text": "ä", "list": [1, 2], "texts": ["a", "b"], "flag": True, "none": None}
    buffer = io.BytesIO()
    with ztensor.Writer(buffer, attributes=attributes, compression=True) as writer:
        for name, array in TENSORS.items():
            writer.write(name, array)
    data, lost = exported("hdf5", ztensor.open(buffer.getvalue()))
    assert lost == []
    with h5py.File(io.BytesIO(data)) as file:
        for name, array in TENSORS.items():
            assert file[name].dtype == np.asarray(array).dtype
            assert np.array_equal(file[name][...], array)
            assert file[name].chunks is None
        assert file.attrs["text"] == "ä"
    again = ztensor.open(data)
    assert again.attributes == attributes
    for name, array in TENSORS.items():
        assert encoding_of(again, name) == "raw"
        assert np.array_equal(again[name], array)
    assert again.location("large").offset % 64 == 0


def test_losses_are_reported(h5py: Any, tmp_path: Path) -> None:
    sparse = ztensor.Tensor.csr([5.0], [1], [0, 1, 1], (2, 3))
    tensors = {
        "bf": np.array([1, 2], ml_dtypes.bfloat16),
        "f8": np.array([1, 2], ml_dtypes.float8_e4m3fn),
        "f4": np.array([1, 2, 3], ml_dtypes.float4_e2m1fn),
        "bf/below": np.zeros(2),
        "a//b": np.zeros(2),
        "./x": np.zeros(2),
    }
    with ztensor.Writer(tmp_path / "a.zt", attributes={"map": {"a": 1}}) as writer:
        for name, array in tensors.items():
            writer.write(name, array)
        writer.write("sparse", sparse, attributes={"q": 1.5})
    with ztensor.open(tmp_path / "a.zt") as reader:
        data, lost = exported("hdf5", reader)
    assert {name for name, _ in lost} == {*tensors, "sparse", None}
    again = ztensor.open(data)
    for name in ("bf", "f8"):  # the attribute has the type of the bits
        assert again[name].dtype == tensors[name].dtype
        assert np.array_equal(again[name], tensors[name])
        assert again.metadata(name).attributes == {}
    assert again["sparse/values"].tolist() == [5]
    assert again.attributes["/sparse"]["ztensor.format"] == "sparse_csr"
    assert not {"bf/below", "a//b", "./x"} & set(again)


@pytest.mark.parametrize(
    ("key", "value", "back"),
    [
        ("k", [True, 1], [1, 1]),
        ("k", [1, 2.5], [1.0, 2.5]),
        ("k", b"", ""),
        ("k", [b"a"], ["a"]),
        ("k", {"a": 1}, None),
        ("a\0b", 1, None),
        ("/", {"a": 1}, None),
    ],
)
@pytest.mark.parametrize("of", ["file", "object"])
def test_attributes_that_change_are_reported(
    h5py: Any, key: str, value: Any, back: Any, of: str
) -> None:
    given, buffer = {key: value}, io.BytesIO()
    with ztensor.Writer(buffer, attributes=given if of == "file" else None) as writer:
        writer.write("w", np.ones(2), attributes=given if of == "object" else None)
    data, lost = exported("hdf5", ztensor.open(buffer.getvalue()))
    assert [name for name, _ in lost] == [None if of == "file" else "w"]
    with ztensor.open(data) as again:
        found = again.attributes if of == "file" else again.metadata("w").attributes
    assert found == ({} if back is None else {key: back})


@pytest.mark.parametrize("role", ["", ".", "a/b", "data/", "../../up", "a\0b"])
def test_components_whose_roles_are_not_names_are_left_out(h5py: Any, role: str) -> None:
    made = draft("1.2.0")
    made.add("t", [4], {"data": ({"dtype": "f32"}, bytes(16)), role: ({"dtype": "u8"}, b"123")})
    data, lost = exported("hdf5", ztensor.open(made.to_bytes()))
    assert any(name == "t" and "left out" in what for name, what in lost)
    assert [name for name in ztensor.open(data) if name.startswith("t/")] == ["t/data"]

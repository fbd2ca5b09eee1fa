"""`verify` says "ok" of other formats only where every byte was held to a sum."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.extent import sample
from ztensor.errors import ZTensorError
from ztensor.numpy import save

onnx = pytest.importorskip("onnx")
h5py = pytest.importorskip("h5py")
ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)


def npz(*, compressed: bool) -> bytes:
    buffer = io.BytesIO()
    write = np.savez_compressed if compressed else np.savez
    write(buffer, x=ARRAY, y=ARRAY.T)
    return buffer.getvalue()


def pt(*, method: int = zipfile.ZIP_STORED) -> bytes:
    """Return the file of `torch.save` of NumPy arrays and plain values."""
    state = {"epoch": 1234, "name": "abc", "x": ARRAY, "day": np.zeros(2, "M8[s]")}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(state, protocol=2))
        archive.writestr("archive/version", b"3\n")
    return buffer.getvalue()


WITH_SUMS: dict[str, Callable[[], bytes]] = {
    "npz": lambda: npz(compressed=False),
    "npz, compressed": lambda: npz(compressed=True),
    "pt": pt,
    "pt, deflated": lambda: pt(method=zipfile.ZIP_DEFLATED),
    "zt 1.2": lambda: save({"x": ARRAY}, version="1.2"),
    "zt 2.1": lambda: save({"x": ARRAY}, version="2.1"),
}


def content(data: bytes) -> tuple[str, dict[str, Any]]:
    """Return the outcome of `verify`, and the contents of a file."""
    with ztensor.open(data) as reader:
        found: dict[str, Any] = {"": repr(reader.attributes)}
        for name in reader:
            one = reader.metadata(name)
            found[name] = one.shape, one.format, repr(one.attributes)
            try:
                components = reader.read(name).components
            except ZTensorError as error:
                found[name] += (type(error),)
                continue
            found[name] += tuple((role, a.dtype, a.tobytes()) for role, a in components.items())
        return reader.verify().outcome, found


@pytest.mark.parametrize("kind", WITH_SUMS)
def test_no_changed_byte_is_ok_and_something_else(kind: str) -> None:
    data = WITH_SUMS[kind]()
    right = content(data)
    assert right[0] == "ok"
    for place in sample(range(len(data)), 400):
        damaged = bytearray(data)
        damaged[place] ^= 0x11
        try:
            found = content(bytes(damaged))
        except ZTensorError:
            continue
        assert found[0] == "damaged" or found == right, place


def external(folder: Path) -> Path:
    """Return an ONNX model with all tensors in another file."""
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[2, 3], data_location=1)
    tensor.external_data.add(key="location", value="w.bin")
    (folder / "w.bin").write_bytes(ARRAY.tobytes())
    graph = onnx.GraphProto(name="g", initializer=[tensor])
    (folder / "m.onnx").write_bytes(onnx.ModelProto(ir_version=8, graph=graph).SerializeToString())
    return folder / "m.onnx"


def words_of_onnx(folder: Path) -> Path:
    tensor = onnx.TensorProto(name="w", data_type=8, dims=[2], string_data=[b"a", b"b"])
    graph = onnx.GraphProto(name="g", initializer=[tensor])
    (folder / "m.onnx").write_bytes(onnx.ModelProto(ir_version=8, graph=graph).SerializeToString())
    return folder / "m.onnx"


def words_of_hdf5(folder: Path) -> Path:
    with h5py.File(folder / "m.h5", "w") as file:
        file["w"] = np.array([b"ab", b"c"])
    return folder / "m.h5"


def chained(folder: Path) -> Path:
    """Return a file of the older form, without an archive: nothing in it has a sum."""
    magic, version = 0x1950A86A20F9469CFC6C, 1001
    about = {"protocol_version": version, "little_endian": True}
    parts: tuple[object, ...] = (magic, version, about, {"w": ARRAY}, [])
    data = b"".join(pickle.dumps(part, protocol=2) for part in parts)
    (folder / "m.pt").write_bytes(data)
    return folder / "m.pt"


MADE = [external, words_of_onnx, words_of_hdf5, chained]


@pytest.mark.parametrize("made", MADE)
def test_bytes_that_are_not_looked_at_are_not_ok(
    made: Callable[[Path], Path], tmp_path: Path
) -> None:
    """They are in another file, of an unread type, or in a pickle."""
    with ztensor.open(made(tmp_path)) as reader:
        report = reader.verify()
    assert (report.outcome, set(report.unchecked)) == ("unchecked", {"w"})


def test_words_that_are_compressed_are_held_to_their_sum() -> None:
    """They are not read here, but damage of their bytes is reported."""
    buffer = io.BytesIO()
    words = np.array([f"{number:04}" for number in range(500)])
    np.savez_compressed(buffer, w=words)
    data = bytearray(buffer.getvalue())
    with ztensor.open(bytes(data)) as reader:
        assert reader.verify().outcome == "ok"
    for place in range(300, len(data) - 300, 100):
        data[place] ^= 0x11
        with ztensor.open(bytes(data)) as reader:
            assert reader.verify().outcome == "damaged"
        data[place] ^= 0x11


@pytest.mark.parametrize(("most", "unchecked"), [(24, set()), (23, {"y"})])
def test_what_may_not_be_decoded_is_not_ok(most: int, unchecked: set[str]) -> None:
    """An array in Fortran order is decoded as a whole, the other one in chunks."""
    with ztensor.open(npz(compressed=True), limits=ztensor.Limits(decoded_bytes=most)) as reader:
        report = reader.verify()
    assert set(report.unchecked) == unchecked
    assert {problem.object_name for problem in report.unsupported} == unchecked
    assert report.outcome == ("unchecked" if unchecked else "ok")

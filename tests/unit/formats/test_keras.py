"""Keras archives: the weights are read in place."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.refusals import refused
from ztensor.errors import Reason

WITHOUT = "h5py, which reads HDF5, is not installed"
KERNEL = np.arange(12, dtype="<f4").reshape(3, 4)
CHUNKED = np.arange(40, dtype="<i4").reshape(8, 5)
# As the directory has it, in the wrong place.
ENTRY = b"PK\1\2" + bytes(24) + b"\x10\0" + bytes(16) + b"model.weights.h5"
CONFIG = '{"class_name": "Sequential"}'


@pytest.fixture
def weights() -> bytes:
    """Return a file as Keras 3 writes its weights, and one dataset more that is deflated."""
    h5py = pytest.importorskip("h5py", reason=WITHOUT)
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file["layers/dense/vars/0"] = KERNEL
        file["layers/dense/vars"].attrs["name"] = "dense"
        for name, options in (("deflated", {"compression": "gzip"}), ("plain", {})):
            file.create_dataset(f"chunked/{name}", data=CHUNKED, chunks=(3, 2), **options)
        file["alias"] = h5py.SoftLink("/layers/dense/vars/0")
    return buffer.getvalue()


def archive(weights: bytes | None, method: int = zipfile.ZIP_STORED, **others: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        file.writestr("metadata.json", b"{}")
        file.writestr("config.json", others.pop("config", CONFIG.encode()))
        if weights is not None:
            file.writestr("model.weights.h5", weights)
        for name, data in others.items():
            file.writestr(name, data)
    return buffer.getvalue()


@pytest.mark.parametrize("how", ["path", "copied path", "bytes"])
def test_the_weights_are_read_in_their_archive(how: str, weights: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    path.write_bytes(archive(weights))
    source: Any = path.read_bytes() if how == "bytes" else path
    with ztensor.open(source, mmap=how != "copied path") as reader:
        assert reader.format == "keras"
        names = ["layers/dense/vars/0", "chunked/deflated", "chunked/plain", "alias"]
        assert sorted(reader) == sorted(names)
        assert reader.attributes == {
            "/layers/dense/vars": {"name": "dense"},
            "config.json": CONFIG,
            "metadata.json": "{}",
        }
        for name in names:
            expected = CHUNKED if name.startswith("chunked") else KERNEL
            assert np.array_equal(reader[name], expected)
            assert np.array_equal(reader.get_slice(name)[1:], expected[1:])
        place = reader.location("alias")
        assert path.read_bytes()[place.offset :][: place.length] == KERNEL.tobytes()
        assert reader.metadata("alias").components["data"].encoding == "raw"
        assert not reader.verify().problems


def test_a_copy_into_our_format_has_the_same(weights: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.keras").write_bytes(archive(weights))
    report = ztensor.convert(tmp_path / "model.keras", tmp_path / "model.zt", check=True)
    assert report.is_lossless
    assert ztensor.open(tmp_path / "model.zt").attributes["config.json"] == CONFIG


@pytest.mark.parametrize(
    ("make", "kind", "reason"),
    [
        (
            lambda h5: archive(h5, zipfile.ZIP_DEFLATED),
            ztensor.UnsupportedError,
            Reason.UNKNOWN_LAYOUT,
        ),
        (
            lambda _: archive(None, config=ENTRY),
            ztensor.UnsupportedError,
            Reason.UNKNOWN_LAYOUT,
        ),
        (lambda h5: archive(h5) + b"more", ztensor.FormatError, Reason.TRUNCATED),
        (
            lambda h5: archive(h5).replace(b"model.weights.h5", b"m0del.weights.h5"),
            ztensor.FormatError,
            Reason.NOT_ZTENSOR,
        ),
        (lambda h5: archive(h5[:-200]), ztensor.FormatError, Reason.FIELD_VALUE),
        (lambda h5: archive(b""), ztensor.FormatError, Reason.FIELD_VALUE),
        (lambda h5: archive(h5, config=b"\xff"), ztensor.FormatError, Reason.FIELD_VALUE),
    ],
    ids=[
        "deflated",
        "entry in a text",
        "behind the end",
        "another name",
        "cut",
        "empty",
        "no text",
    ],
)
def test_other_archives_are_refused(
    make: Callable[[bytes], bytes], kind: type[ztensor.ZTensorError], reason: Reason, weights: bytes
) -> None:
    with refused(kind, reason):
        ztensor.open(make(weights))


def test_names_in_texts_do_not_decide_the_format(weights: bytes) -> None:
    assert ztensor.open(archive(weights, config=b'{"data": "x.npy"}')).format == "keras"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file, file.open("model.weights.h5.npy", "w") as member:
        np.save(member, KERNEL)
    assert ztensor.open(buffer.getvalue()).format == "npz"

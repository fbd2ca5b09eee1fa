"""What of an object can be copied as it is stored, and what has to be decoded."""

from __future__ import annotations

import pytest

from ztensor.errors import Reason, UnsupportedError
from ztensor.io.contents import open_file
from ztensor.io.reading.file import FileObjects
from ztensor.io.reading.portable import portable_chunks, portable_object, stored_object
from ztensor.io.source.memory import MemorySource
from ztensor.numpy import save
from ztensor.spec.container import FORM_1, Form
from ztensor.spec.container.v2.emit import FORM_2
from ztensor.spec.model.manifest import Component, Manifest, TensorObject
from ztensor.testing.builder import VERSIONS, draft, stored, zstd_frame


@pytest.mark.parametrize("version", ["1.1.0", "1.2.0"])
def test_a_copy_of_compressed_bytes_tells_their_decoded_length(version: str) -> None:
    file = open_file(draft(version).to_bytes())
    found = stored_object(file, "packed")
    assert found is not None
    assert found.components["data"].decoded_length == 6
    for name in ("matrix", "scalar", "flags", "rows", "groups"):
        assert stored_object(file, name) == file.object(name)
        assert portable_object(file, name) == file.object(name)


def test_booleans_of_any_byte_are_decoded() -> None:
    file = open_file(draft("0.1.0").to_bytes())
    assert stored_object(file, "flags") is None
    assert portable_object(file, "flags").components["data"].nonzero_is_true is False
    assert b"".join(portable_chunks(file, "flags", "data")) == b"\1\0\1\1"
    assert stored_object(file, "matrix") is not None


@pytest.mark.parametrize(
    ("version", "form", "is_copied"),
    [(version, FORM_1, True) for version in VERSIONS if version != "0.1.0"]
    + [("1.2.0", FORM_2, False)],
)
def test_bytes_are_copied_within_a_form(version: str, form: Form, is_copied: bool) -> None:
    file = open_file(draft(version).to_bytes())
    assert (stored_object(file, "matrix", form) is not None) is is_copied
    assert portable_object(file, "matrix", form).components["data"].is_exact is not is_copied


@pytest.mark.parametrize("form", [FORM_1, FORM_2], ids=["1", "2"])
def test_objects_of_2_are_copied_within_it(form: Form) -> None:
    file = open_file(save({"w": [1.5, 2.5]}, version="2.1"))
    assert (stored_object(file, "w", form) is not None) is (form is FORM_2)
    part = portable_object(file, "w", form).components["data"]
    assert part.is_exact is (form is FORM_2)


def test_an_unknown_encoding_is_kept_within_a_form() -> None:
    made = draft("1.2.0")
    made.component("packed")["encoding"] = "lz4"
    file = open_file(made.to_bytes())
    assert portable_object(file, "packed") == file.object("packed")
    with pytest.raises(UnsupportedError) as caught:  # 2.x has a digest of what it decodes to
        portable_object(file, "packed", FORM_2)
    assert caught.value.reason is Reason.UNKNOWN_ENCODING


@pytest.mark.parametrize("digest", [None, "crc32c:0x00000000"])
def test_the_digests_of_other_formats_are_not_copied(digest: str | None) -> None:
    objects = {"w": TensorObject((4,), "dense", {"data": Component("u8", 0, 4, digest=digest)})}
    file = FileObjects(MemorySource(bytes(4)), Manifest("", objects, None), format="other")
    assert stored_object(file, "w") == (objects["w"] if digest is None else None)


@pytest.mark.parametrize("dtype", ["i32", "u64", "i16", "u8"])
def test_indices_become_those_of_the_form(dtype: str) -> None:
    made = draft("1.1.0")
    made.component("rows", "indices")["dtype"] = dtype
    made.component("rows", "indices")["encoding"] = "zstd"
    made.blobs["rows", "indices"] = zstd_frame(stored(dtype, 0, 2, 2))
    file = open_file(made.to_bytes())
    assert b"".join(portable_chunks(file, "rows", "indices")) == stored("u64", 0, 2, 2)
    assert portable_object(file, "rows").components["indices"].dtype == "u64"
    assert (stored_object(file, "rows") is not None) is (dtype == "u64")

"""Which components are copied as stored, and which have to be decoded."""

from __future__ import annotations

import pytest

from tests.refusals import refused
from ztensor.errors import Reason, UnsupportedError
from ztensor.ext import (
    Component,
    FileObjects,
    Manifest,
    Portable,
    TensorObject,
    open_file,
    source_of,
)
from ztensor.spec.container.v2.emit import Emitter21
from ztensor.testing.builder import draft


@pytest.mark.parametrize("version", ["1.1.0", "1.2.0"])
def test_a_copy_of_compressed_bytes_has_their_decoded_length(version: str) -> None:
    file = open_file(draft(version).to_bytes())
    found = Portable().stored(file, "packed")
    assert found is not None
    assert found.components["data"].decoded_length == 6
    for name in ("matrix", "scalar", "flags", "rows", "groups"):
        assert Portable().stored(file, name) == file.object(name)
        assert Portable().decoded(file, name) == file.object(name)


def test_an_unknown_encoding_is_kept_within_a_form() -> None:
    made = draft("1.2.0")
    made.component("packed")["encoding"] = "lz4"
    file = open_file(made.to_bytes())
    assert Portable().decoded(file, "packed") == file.object("packed")
    # digests of 2.x cover decoded bytes
    with refused(UnsupportedError, Reason.UNKNOWN_ENCODING):
        Portable(Emitter21.form).decoded(file, "packed")


@pytest.mark.parametrize("digest", [None, "crc32c:0x00000000"])
def test_the_digests_of_other_formats_are_not_copied(digest: str | None) -> None:
    objects = {"w": TensorObject((4,), "dense", {"data": Component("u8", 0, 4, digest=digest)})}
    file = FileObjects(
        source_of(bytes(4), mapped=True), Manifest("", objects, None), format="other"
    )
    assert Portable().stored(file, "w") == (objects["w"] if digest is None else None)

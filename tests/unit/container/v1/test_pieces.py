"""Small manifests of 1.x are cut into pieces: which of them are, and which are not."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from ztensor.container.framing import TAIL_BYTES, Container, Frame
from ztensor.container.v1 import schema
from ztensor.errors import ManifestError
from ztensor.limits import DEFAULT_LIMITS, Budget
from ztensor.model.manifest import Manifest
from ztensor.model.table import TableObjects
from ztensor.testing.builder import head, item

END = 1 << 20  # where the blobs of these files end
OTHER_DIGESTS = {"crc32c": "crc32c:0x0A1B2C3D", "sha256": "sha256:" + "4f" * 32, "none": None}


def parse(data: bytes, *, in_pieces: bool = True) -> Manifest:
    frame = Frame(Container.V1, END, len(data), END + len(data) + TAIL_BYTES)
    with (
        mock.patch.object(schema, "PIECES_BYTES", schema.PIECES_BYTES if in_pieces else -1),
        mock.patch.object(schema, "REGULAR_BYTES", 1 << 60),
    ):
        return schema.parse_manifest(data, frame, Budget(DEFAULT_LIMITS, frame.file_size))


def entry(shape: list[int], digest: str | None = None, **fields: Any) -> bytes:
    data = {"dtype": "u8", "offset": 64, "length": 8, **fields}
    if digest is not None:
        data["digest"] = digest
    return item({"shape": shape, "format": "dense", "components": {"data": data}})


def root(names: list[bytes], entries: list[bytes]) -> bytes:
    """Return a manifest; the names are items already."""
    pairs = b"".join(name + one for name, one in zip(names, entries, strict=True))
    return b"\xa2" + item("version") + item("1.2.0") + item("objects") + head(5, len(names)) + pairs


def in_pieces_as_item_by_item(data: bytes) -> bool:
    """Return whether a manifest was cut, which reads as it does item by item."""
    found, expected = parse(data), parse(data, in_pieces=False)
    assert type(expected.objects) is dict
    assert list(found.objects.items()) == list(expected.objects.items())
    assert found == expected
    return isinstance(found.objects, TableObjects)


NAMES = [item(name) for name in ("a", "b", "c", "d")]


@pytest.mark.parametrize("digest", OTHER_DIGESTS)
@pytest.mark.parametrize(
    "fields",
    [{}, {"encoding": "raw"}, {"uncompressed_length": 8, "encoding": "zstd", "length": 5}],
    ids=["bare", "raw", "zstd"],
)
def test_objects_of_each_digest_are_cut(digest: str, fields: dict[str, Any]) -> None:
    entries = [entry([8], OTHER_DIGESTS[digest], **fields)] * 4
    assert in_pieces_as_item_by_item(root(NAMES, entries))


def test_objects_of_several_digests_are_read_item_by_item() -> None:
    entries = [entry([8], digest) for digest in (*OTHER_DIGESTS.values(), None)]
    assert not in_pieces_as_item_by_item(root(NAMES, entries))


@pytest.mark.parametrize("length", [0, 64, 128])
def test_a_blob_may_end_where_the_manifest_begins(length: int) -> None:
    last = entry([length], offset=END - length, length=length)
    assert in_pieces_as_item_by_item(root(NAMES, [*[entry([8])] * 3, last]))


def test_one_byte_more_lies_over_the_manifest() -> None:
    entries = [entry([8])] * 3 + [entry([65], offset=END - 64, length=65)]
    with pytest.raises(ManifestError, match="before the manifest"):
        parse(root(NAMES, entries))


@pytest.mark.parametrize("length", [0, 1, 22, 23, 24, 25, 119, 120, 255, 256])
def test_names_of_every_length_with_heads_of_every_length(length: int) -> None:
    heads = [head(3, length)]
    heads += [
        bytes([0x77 + width.bit_length()]) + length.to_bytes(width, "big")
        for width in (1, 2, 4, 8)
        if not length >> 8 * width
    ]
    for first in heads:
        for at in (0, 3):
            names = list(NAMES)
            names[at] = first + b"n" * length
            assert in_pieces_as_item_by_item(root(names, [entry([8])] * 4))


@pytest.mark.parametrize(
    "name",
    [
        b"\x58\x18" + b"n" * 24,
        b"\x41n",
        b"\x98\x18" + b"\0" * 24,
        b"\x78\x18" + b"n" * 25,
        b"\x78\x1a" + b"n" * 25,
        b"\x62nnn",
        b"\x64nnn",
        b"\x78\x18" + b"\xff" * 24,
        b"\x61\xff",
        b"",
    ],
    ids=lambda name: name[:3].hex(),
)
@pytest.mark.parametrize("at", [0, 2])
def test_a_name_that_is_no_text_is_refused_in_the_same_words(name: bytes, at: int) -> None:
    names = list(NAMES)
    names[at] = name
    data = root(names, [entry([8])] * 4)
    found = []
    for in_pieces in (True, False):
        with pytest.raises(ManifestError) as caught:
            parse(data, in_pieces=in_pieces)
        found.append((caught.value.reason, str(caught.value)))
    assert found[0] == found[1]

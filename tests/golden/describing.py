"""A file as lines of text: each run of its bytes, and each field of its manifest.

Nothing of the library is used, so that a fault of its reader hides no change of its bytes. A line
has a run's offset, length, meaning and bytes in hexadecimal: all bytes of a short run, otherwise
the first ones and a digest. Bytes that depend on a compressor's version are left out.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import cbor2
import numpy as np

SHOWN_BYTES = 32
OURS = {b"ZTEN0001", b"ZTEN1000", bytes.fromhex("895A54320D0A1A0A")}
HDF5 = b"\x89HDF\r\n\x1a\n"
ZSTD = ("zstd", "zt.zstd-seekable/1")
SKIPPABLE = range(0x184D2A50, 0x184D2A60)
# Fields of manifests that follow from how long compressed bytes became.
PLACES = {"offset", "blob", "commit"}
OF_STORED_BYTES = {"length", "size", "digest", "checksum"}


class Blob(NamedTuple):
    """A run of bytes that a manifest names; `encoding` is "" for raw."""

    offset: int
    length: int
    name: str
    encoding: str


def describe(name: str, data: bytes) -> list[str]:
    """Return a file's lines; they differ if its bytes do, except for those of a compressor.

    Args:
        name: its path, by whose suffix some formats are known.
        data: its bytes.
    """
    first, lines = f"{len(data)} bytes, sha256 {_digest(data)}", _lines
    if data[:8] in OURS:
        manifest = _manifest(data)
        if any(blob.encoding for blob in manifest.blobs):
            first, lines = "lengths and places are those of a compressor", _compressed
        else:
            lines = _ours
    elif data.startswith(HDF5):
        first, lines = "as read by h5py, whose version decides the bytes", _hdf5
    elif data.startswith(b"PK\3\4"):
        lines = _zip
    elif data.startswith(b"\x93NUMPY"):
        lines = _npy
    elif name.endswith(".safetensors"):
        lines = _safetensors
    return [f"--- {name}: {first}", *lines(data)]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:24]


def _shown(data: bytes) -> str:
    """Return a run's bytes: all, or the first ones and a digest."""
    if not any(data):
        return "zeros" if data else "empty"
    if len(data) <= SHOWN_BYTES:
        return data.hex(" ", 8)
    return f"{data[: SHOWN_BYTES // 2].hex(' ', 8)} ... sha256 {_digest(data)}"


def _run(offset: int | str, data: bytes, name: str) -> str:
    return f"{offset:>7} +{len(data)} {name}: {_shown(data)}"


# --- zTensor files ----------------------------------------------------------------------------


class Manifest(NamedTuple):
    """The extent of a manifest, its content, and the bytes of the file's tail."""

    offset: int
    length: int
    tail: int
    fields: Any
    blobs: list[Blob]


def _manifest(data: bytes) -> Manifest:
    if data[:4] == b"ZTEN":
        tail = 8 if data[:8] == b"ZTEN0001" else 16
        length = int.from_bytes(data[-tail:][:8], "little")
        offset = len(data) - tail - length
    else:
        tail, footer = 40, data[-40:]
        offset, length = (int.from_bytes(footer[at : at + 8], "little") for at in (0, 8))
    fields = cbor2.loads(data[offset : offset + length]) if length else {}
    return Manifest(offset, length, tail, fields, sorted(set(_blobs(fields, ""))))


def _ours(data: bytes) -> Iterator[str]:
    """Yield all runs of bytes in the order of the file, but zeros between them."""
    manifest = _manifest(data)
    known = [*manifest.blobs, Blob(0, 8, "magic", "")]
    known.append(Blob(len(data) - manifest.tail, manifest.tail, "tail", ""))
    if manifest.length:
        known.append(Blob(manifest.offset, manifest.length, "manifest", ""))
    end = 0
    for blob in sorted(known):
        if any(data[end : blob.offset]):
            yield _run(end, data[end : blob.offset], "between")
        stored = data[blob.offset : blob.offset + blob.length]
        end = max(end, blob.offset + blob.length)
        if blob.name == "manifest":
            yield f"{blob.offset:>7} +{blob.length} manifest, sha256 {_digest(stored)}"
            yield from _fields(manifest.fields, "", is_masked=False)
        else:
            yield _run(blob.offset, stored, blob.name)


def _compressed(data: bytes) -> Iterator[str]:
    """Yield blobs as decoded, and a manifest without what follows from their stored lengths."""
    manifest = _manifest(data)
    for blob in manifest.blobs:
        stored = data[blob.offset : blob.offset + blob.length]
        yield from _frames(stored, blob.name) if blob.encoding else [_run("", stored, blob.name)]
    yield "        manifest"
    yield from _fields(manifest.fields, "", is_masked=True)


def _blobs(value: Any, name: str) -> Iterator[Blob]:
    """Yield the extents that a manifest of any version names: offset and length in one map."""
    if isinstance(value, dict):
        place = None
        if isinstance(value.get("blob"), list) and "shard" not in value:
            place = value["blob"]
        elif "offset" in value and ("length" in value or "size" in value):
            place = [value["offset"], value.get("length", value.get("size"))]
        if place is not None:
            encoding = value.get("encoding", "")
            label = f"{name} {value['name']!r}" if "name" in value else _short(name)
            yield Blob(place[0], place[1], label, encoding if encoding in ZSTD else "")
        for key, inner in value.items():
            if key != "attributes":
                yield from _blobs(inner, f"{name}/{key}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _blobs(inner, f"{name}/{number}")


def _short(name: str) -> str:
    """Return the place of a component in a manifest as its object and role."""
    return name.removeprefix("/objects/").replace("/components/", " ").replace("/parts/", " ")


def _fields(value: Any, name: str, *, is_masked: bool) -> Iterator[str]:
    """Yield a manifest's values in the order of the file; a map of plain values is one line."""
    if isinstance(value, dict) and is_masked:
        hidden = PLACES | (OF_STORED_BYTES if value.get("encoding") in ZSTD else set())
        value = {key: "*" if key in hidden else inner for key, inner in value.items()}
    inner: dict[object, Any] = {}
    if isinstance(value, dict):
        inner = {key: item for key, item in value.items() if _is_nested(item)}
    elif isinstance(value, list) and _is_nested(value):
        inner = dict(enumerate(value))
    if isinstance(value, bytes):
        yield f"        {name!r}: {len(value)} bytes, {_shown(value)}"
    elif not inner:
        yield f"        {name!r}: {value!r}"
    elif isinstance(value, dict) and len(inner) < len(value):
        plain = {key: item for key, item in value.items() if key not in inner}
        yield f"        {name!r}: {plain!r}"
    for key, item in inner.items():
        label = key if isinstance(key, str) else repr(key)
        yield from _fields(item, f"{name}/{label}", is_masked=is_masked)


def _is_nested(value: Any) -> bool:
    """Return whether a value of a map or a list gets lines of its own."""
    if isinstance(value, list):
        return any(_is_nested(item) for item in value)
    return isinstance(value, (dict, bytes)) and len(value) > 0


def zstd(data: bytes) -> Iterator[bytes | int]:
    """Yield the decoded bytes of each frame; of a skippable one its length alone."""
    try:
        decoder: Callable[[], Any] = importlib.import_module("compression.zstd").ZstdDecompressor
    except ImportError:
        decoder = importlib.import_module("zstandard").ZstdDecompressor().decompressobj
    while data:
        if int.from_bytes(data[:4], "little") in SKIPPABLE:
            length = 8 + int.from_bytes(data[4:8], "little")
            yield length
            data = data[length:]
        else:
            frame = decoder()
            yield frame.decompress(data)
            data = frame.unused_data


def _frames(stored: bytes, name: str) -> Iterator[str]:
    for number, frame in enumerate(zstd(stored)):
        label = f"{name} frame {number}"
        if isinstance(frame, int):
            yield f"        {label}: skippable, {frame} bytes"
        else:
            yield _run("", frame, label)


# --- Other formats ------------------------------------------------------------------------------


def _lines(data: bytes) -> Iterator[str]:
    """Yield text as its lines, other bytes 32 to a line; lines of zeros are counted."""
    if b"\0" not in data:
        yield from (f"    {line!r}" for line in data.decode().splitlines(keepends=True))
        return
    zeros = 0
    for offset in range(0, len(data), 32):
        line = data[offset : offset + 32]
        if not any(line):
            zeros += len(line)
            continue
        if zeros:
            yield f"{offset - zeros:>7} +{zeros} zeros"
            zeros = 0
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)
        yield f"{offset:>7} {line.hex(' ', 8)}  {letters}"
    if zeros:
        yield f"{len(data) - zeros:>7} +{zeros} zeros"


def _safetensors(data: bytes) -> Iterator[str]:
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    yield _run(0, data[:8], "length")
    yield _run(8, data[8:start], "header")
    yield from _fields(header, "", is_masked=False)
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (start + offset for offset in entry["data_offsets"])
            yield _run(begin, data[begin:end], repr(name))


def _npy(data: bytes) -> Iterator[str]:
    start = 10 + int.from_bytes(data[8:10], "little")
    yield _run(0, data[:10], "magic, version, length")
    yield f"     10 header: {data[10:start]!r}"
    yield _run(start, data[start:], "elements")


def _zip(data: bytes) -> Iterator[str]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member in archive.infolist():
            start = member.header_offset
            names = int.from_bytes(data[start + 26 : start + 28], "little")
            head = 30 + names + int.from_bytes(data[start + 28 : start + 30], "little")
            yield _run(start, data[start : start + head], f"head of {member.filename!r}")
            inner = archive.read(member)
            yield from _npy(inner) if inner.startswith(b"\x93NUMPY") else _lines(inner)
        yield _run(archive.start_dir, data[archive.start_dir :], "directory")


def _hdf5(data: bytes) -> Iterator[str]:
    """Yield the content of the file: the bytes depend on the version of h5py."""
    import h5py

    lines: list[str] = []

    def add(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            stored = item[()].tobytes()
            layout = (item.chunks, item.compression, item.fillvalue.tolist(), item.is_virtual)
            lines.append(f"    {name!r} {item.dtype} {item.shape} {layout}: {_shown(stored)}")
        else:
            lines.append(f"    {name!r} group")
        for key, value in sorted(item.attrs.items()):
            lines.append(f"      {key!r}: {np.asarray(value).tolist()!r}")

    with h5py.File(io.BytesIO(data)) as file:
        add("/", file)
        file.visititems(add)
    yield from lines

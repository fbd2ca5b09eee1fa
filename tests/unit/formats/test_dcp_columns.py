"""Long runs of records in `.metadata` are read as columns, with the same result as one by one."""

from __future__ import annotations

import pickle
import random
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.unit.formats.test_dcp import RECORD

torch = pytest.importorskip("torch")
from torch.distributed.checkpoint import filesystem, metadata  # noqa: E402

TENSORS, CHUNKS = 3, 40
NUMBERS = np.arange(TENSORS * CHUNKS * 6, dtype=np.float32).reshape(TENSORS, 2 * CHUNKS, 3)
with ztensor.open(RECORD) as _reader:
    FIRST = _reader.location("tensor").offset


def name_of(number: int) -> str:
    """Return a name; some have letters of two bytes, some are longer than a short text."""
    return f"layers.{number}.wéight" + "x" * (300 * (number % 3 == 2))


def record(numbers: Any) -> bytes:
    """Return the record of a chunk of (2, 3) numbers."""
    old, new = RECORD[FIRST : FIRST + 24], numbers.tobytes()
    old_sum, new_sum = (zlib.crc32(data).to_bytes(4, "little") for data in (old, new))
    return RECORD.replace(old, new).replace(old_sum, new_sum)


def checkpoint(**changed: Any) -> metadata.Metadata:
    """Return the contents of `.metadata`; one place in the middle of a run may be changed."""
    shared = torch.Size((0, 0))
    held: dict[str, Any] = {}
    places: dict[Any, Any] = {}
    for number in range(TENSORS):
        name, boxes = name_of(number), []
        for chunk in range(CHUNKS):
            offsets = torch.Size((2 * chunk, 0)) if chunk else shared
            boxes += [metadata.ChunkStorageMetadata(offsets, torch.Size((2, 3)))] * (
                1 + (chunk % 9 == 8)  # two processes may have one chunk
            )
            if chunk % 5 == 4:  # and some have nothing of it
                boxes.append(metadata.ChunkStorageMetadata(offsets, torch.Size((0, 3))))
            index = {"fqn": name, "offset": torch.Size(offsets), "index": chunk or None}
            info: dict[str, Any] = {
                "relative_path": f"{chunk % 3}.distcp",
                "offset": (number * CHUNKS + chunk) * len(RECORD),
                "length": len(RECORD),
            }
            if (number, chunk) == (1, 20):
                index |= {key: value for key, value in changed.items() if key in index}
                info |= {key: value for key, value in changed.items() if key not in index}
                info["offset"] = info.pop("start", info["offset"])
            places[metadata.MetadataIndex(**index)] = filesystem._StorageInfo(**info)
        properties = metadata.TensorProperties(dtype=torch.float32)
        held[name] = metadata.TensorStorageMetadata(properties, torch.Size((2 * CHUNKS, 3)), boxes)
    return metadata.Metadata(held, storage_data=places)


def pickled(value: object) -> bytes:
    """Return a pickle without its frame, which has a length."""
    data = pickle.dumps(value, 4)
    return data[:2] + data[11:]


def by_rows(data: bytes) -> bytes:
    """Return a pickle with one more instruction, which prevents columns.

    It puts the first value of the memo into the place that it has already.
    """
    at = data.index(b"\x94") + 1
    return data[:at] + b"q\0" + data[at:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of three files, each with the records of all chunks."""
    made = tmp_path_factory.mktemp("step")
    for number in range(3):
        body = b"".join(record(one) for one in NUMBERS.reshape(-1, 2, 3))
        (made / f"{number}.distcp").write_bytes(body)
    return made


def outcome(folder: Path, data: bytes) -> Any:
    """Return the contents of a folder with this `.metadata`, or the error."""
    (folder / ".metadata").write_bytes(data)
    try:
        with ztensor.open(folder) as reader:
            return [(name, *read(reader, name)) for name in reader]
    except ztensor.ZTensorError as error:
        return type(error), re.sub(r"byte \d+|\d+ bytes", "a place", str(error))


def read(reader: ztensor.Reader, name: str) -> tuple[object, ...]:
    try:
        return reader.metadata(name).shape, reader[name].tobytes()
    except ztensor.ZTensorError as error:
        return type(error), str(error)


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_every_chunk_is_read_from_its_place(folder: Path, protocol: int) -> None:
    data = pickle.dumps(checkpoint(), protocol) if protocol != 4 else pickled(checkpoint())
    expected = [
        (name_of(number), (2 * CHUNKS, 3), one.tobytes()) for number, one in enumerate(NUMBERS)
    ]
    assert outcome(folder, data) == expected
    if protocol == 4:
        assert outcome(folder, by_rows(data)) == expected


EDGES = [0, 1, 255, 256, 65535, 65536, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32]
EDGES += [(1 << bits) + more for bits in (39, 40, 47, 55, 62) for more in (-1, 0)]
EDGES += [(1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 80]
EDGES += [-(1 << bits) for bits in (0, 7, 15, 31, 39, 40, 47, 63)]
CHANGES: dict[str, dict[str, Any]] = {
    **{f"start {value}": {"start": value} for value in EDGES},
    **{f"name of {count}": {"relative_path": "n" * count} for count in (1, 255, 256)},
    **{
        f"{field}: {other!r}": {field: other}
        for field in ("fqn", "relative_path", "start", "length")
        for other in (None, 5, "text", torch.Size((7,)))
    },
    **{
        f"offset: {other!r}": {"offset": other}
        for other in (None, torch.Size((7,)), torch.Size((80, 0)), torch.Size((2, 0)))
    },
}


@pytest.mark.parametrize("name", CHANGES)
def test_one_place_of_many_may_be_another(folder: Path, name: str) -> None:
    """In the middle of a run, after rows that are read as columns."""
    data = pickled(checkpoint(**CHANGES[name]))
    assert outcome(folder, data) == outcome(folder, by_rows(data))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_pickle_is_read_as_without_columns(folder: Path, seed: int) -> None:
    draw, good = random.Random(seed), pickled(checkpoint())
    parts = [b"h\0", b"j\0\0\0\0", b"N", b"K\1", b"\x8c\1a\x94", b"ub", b"(", b")", b"u", b"e"]
    parts += [b"\x95" + bytes(8), b"2", b"0", b"h\5", b"\x94", b")\x81\x94}\x94(", b"h\x05)\x81"]
    parts += [b"q\5", b"q\2", b"q\x50", b"r\2\0\0\0", b"p2\n"]  # of the memo
    opened = 0
    for _ in range(40):
        data = bytearray(good)
        for _ in range(draw.randint(1, 2)):
            at = draw.randrange(300, len(data))
            kind = draw.randrange(3)
            if kind == 0:
                data[at] = draw.randrange(256)
            elif kind == 1:
                data[at:at] = draw.choice(parts)
            else:
                del data[at : at + draw.randint(1, 4)]
        found = outcome(folder, bytes(data))
        assert found == outcome(folder, by_rows(bytes(data)))
        opened += isinstance(found, list)
    assert opened

"""Checkpoints of many processes: torch's pickle, and roots of ours with a false table."""

from __future__ import annotations

import numpy as np

import ztensor.numpy
from tests.attacks.shapes import WIDE, Made, add, shape, widening

_MODULE = b"torch.distributed.checkpoint.metadata"
_FILES = b"torch.distributed.checkpoint.filesystem"
_PROTO = b"\x80\x04"


def _named(module: bytes, name: bytes) -> bytes:
    return b"c" + module + b"\n" + name + b"\n"


def _text(data: bytes) -> bytes:
    return b"X" + len(data).to_bytes(4, "little") + data


def _memo(place: int) -> bytes:
    return b"j" + place.to_bytes(4, "little")


# Places of the memo that `_HEADER` fills: what rows get from it.
_CHUNK, _INDEX, _INFO, _SIZE, _OFFSETS, _SIZES, _FQN, _OFFSET, _PATH, _LENGTH = map(
    _memo, range(10)
)
_HEADER = b"".join(
    value + b"\x94" + b"0"
    for value in (
        _named(_MODULE, b"ChunkStorageMetadata"),
        _named(_MODULE, b"MetadataIndex"),
        _named(_FILES, b"_StorageInfo"),
        _named(b"torch", b"Size"),
        *map(_text, (b"offsets", b"sizes", b"fqn", b"offset", b"relative_path", b"length")),
    )
)
_TENSOR = (
    _named(_MODULE, b"TensorStorageMetadata") + b")\x81}("
    + _text(b"properties") + _named(_MODULE, b"TensorProperties") + b")\x81("
    + _named(b"torch", b"float32") + b"N\x89K\x00\x89tb"
    + _text(b"size") + _SIZE + b"J\xff\xff\xff\x7f\x85\x85R" + _text(b"chunks")
)  # fmt: skip


def _numbers(number: int) -> bytes:
    """Return a `torch.Size` of one number, remembered as the newest picklers do."""
    return _SIZE + b"J" + number.to_bytes(4, "little") + b"\x85\x94\x85\x94R\x94"


def _metadata(tensors: bytes, places: bytes = b"") -> bytes:
    root = _named(_MODULE, b"Metadata") + b")\x81}(" + _HEADER
    root += _text(b"state_dict_metadata") + b"}(" + tensors + b"u"
    root += _text(b"storage_data") + b"}(" + places + b"u"
    return _PROTO + root + b"ub."


def _chunk(number: int, size: int = 1) -> bytes:
    return (
        _CHUNK + b")\x81\x94}\x94("
        + _OFFSETS + _numbers(number) + _SIZES + _numbers(size) + b"ub"
    )  # fmt: skip


def _place(number: int) -> bytes:
    return (
        _INDEX + b")\x81\x94}\x94(" + _FQN + b"\x8c\x01w\x94" + _OFFSET + _numbers(number) + b"ub"
        + _INFO + b")\x81\x94}\x94(" + _PATH + b"\x8c\x01f\x94" + _OFFSET + b"K\x00" + _LENGTH
        + b"K\x01ub"
    )  # fmt: skip


def _rows(length: int, row: bytes) -> int:
    return max(1, length // len(row))


@shape("dcp")
def _chunks_of_a_tensor(length: int) -> bytes:
    count = _rows(length, _chunk(0))
    return _metadata(_text(b"w") + _TENSOR + b"](" + b"".join(map(_chunk, range(count))) + b"eub")


@shape("dcp")
def _one_chunk_many_times(length: int) -> bytes:
    count = _rows(length, _chunk(0))
    return _metadata(_text(b"w") + _TENSOR + b"](" + _chunk(0) * count + b"eub")


@shape("dcp")
def _places_of_nothing(length: int) -> bytes:
    count = _rows(length, _place(0))
    return _metadata(b"", b"".join(map(_place, range(count))))


def _of_one_list(length: int, prefix: bytes) -> bytes:
    shared = _TENSOR + b"](" + b"".join(map(_chunk, range(20))) + b"e\x94ub\x94"
    record = _memo(10 + 20 * 8 + 1)  # behind the names and what 20 chunks leave
    names = (
        _text(prefix + b"%06d" % number)
        for number in range(_rows(length, _text(prefix + b"%06d" % 0) + record))
    )
    return _metadata(_text(b"w") + shared + b"".join(name + record for name in names))


@shape("dcp")
def _rows_that_almost_match(length: int) -> bytes:
    row = _INDEX + b")\x81\x94}\x94(" + (_FQN + b"\x8c\xff" + b"a" * 255 + b"\x94") * 2 + b"u0"
    return _metadata(b"", row * _rows(length, row))


@shape("dcp")
def _columns_with_one_that_is_got_again(length: int) -> bytes:
    """A record of a long run is got from the memo at the end: all is read once more."""
    places = b"".join(map(_place, range(_rows(length, _place(0)))))
    return _metadata(b"", places + b"u0" + _memo(18) + b"}(")


@shape("dcp")
def _places_with_wide_names(length: int) -> bytes:
    name = b"\x8c\xcc" + (WIDE + "a" * 200).encode()
    places = (_place(number).replace(b"\x8c\x01w", name) for number in range(length // 300 + 1))
    return _metadata(b"", b"".join(places))


def _root(length: int, *, names: int, compression: bool, prefix: bytes = b"") -> bytes:
    """Return a root with a table of about so many stored bytes."""
    count = max(1, length // (3 if compression else 16))
    record = {
        "version": 1, "writer": "", "kinds": [["f32", "", "dense"]], "encodings": ["raw"],
        "algorithm": "",
        "files": {"names": ["00000-00000000.zt"], "sizes": [1 << 40], "digests": [""]},
    }  # fmt: skip
    chunk = np.arange(count, dtype=np.uint32)
    tensors = min(names, count)
    columns = {
        "tensors/names": np.frombuffer(
            b"".join(prefix + b"%08d" % one for one in range(tensors)), np.uint8
        ),
        "tensors/name_lengths": np.full(tensors, len(prefix) + 8, np.uint8),
        "tensors/kind": np.zeros(tensors, np.uint8),
        "tensors/rank": np.ones(tensors, np.uint8),
        "tensors/shape": np.full(tensors, count, np.uint32),
        "chunks/tensor": np.zeros(count, np.uint8),
        "chunks/file": np.zeros(count, np.uint8),
        "chunks/offsets": chunk,
        "chunks/sizes": np.ones(count, np.uint8),
        "chunks/at": np.zeros(count, np.uint8),
        "chunks/length": np.full(count, 4, np.uint8),
    }
    return ztensor.numpy.save(columns, compression=compression, metadata={"divided": record})


@shape("divided")
def _many_wide_names(length: int) -> Made:
    prefix = (WIDE + "a" * 200).encode()
    return _root(length // 16, names=length, compression=False, prefix=prefix)


add(
    "dcp",
    {
        "tensors of one list": lambda length: _of_one_list(length, b""),
        "tensors with wide names": lambda length: _of_one_list(length, (WIDE + "a" * 200).encode()),
        "a name that widens": lambda length: _metadata(
            _text(widening(length).encode()) + _TENSOR + b"](" + _chunk(0) + b"eub"
        ),
    },
)


add(
    "divided",
    {
        "many chunks": lambda length: _root(length, names=1, compression=False),
        "packed chunks": lambda length: _root(length, names=1, compression=True),
        "many names": lambda length: _root(length // 8, names=length // 24, compression=False),
    },
)

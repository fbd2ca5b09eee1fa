"""Archives: headers and members that cost more than they are long, and streams at odd lengths."""

from __future__ import annotations

import io
import zipfile
import zlib

import numpy as np
import pytest

import ztensor
from tests.attacks.peaks import peak_of
from tests.attacks.shapes.archives import archive, dtype_header, npy
from tests.corpus.foreign import make_pt
from tests.refusals import refused
from ztensor.errors import EncodingError, LimitError, Reason
from ztensor.formats import deflate
from ztensor.limits import MIB

PIECE = deflate.PIECE_BYTES
Stream = deflate.Stream


class Held:
    """Stored bytes in memory."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.length = len(data)

    def read(self, offset: int, length: int) -> memoryview:
        return self._data[offset : offset + length]


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


# --- What deflated members are ----------------------------------------------------------------


@pytest.mark.parametrize("k", range(60))
def test_every_format_reads_zeros_of_a_piece_and_some(k: int) -> None:
    """The same in `.pt` and `.npz`: 55 of 60 lengths were refused as 'too few' bytes."""
    length = PIECE + k
    made = io.BytesIO()
    np.savez_compressed(made, a=np.zeros(length, np.uint8))
    assert ztensor.open(made.getvalue())["a"].shape == (length,)
    body = make_pt.mapping(
        a=make_pt.tensor((length,), (1,), of=make_pt.storage("0", "torch.ByteStorage", length))
    )
    pt = make_pt.archive(body, {"0": bytes(length)}, method=zipfile.ZIP_DEFLATED)
    assert ztensor.open(pt)["a"].shape == (length,)


@pytest.mark.parametrize(
    ("packed", "size", "reason"),
    [
        (deflated(b"abc"), 2, Reason.DECODED_LONG),
        (deflated(b"abc"), 4, Reason.DECODED_SHORT),
        (deflated(b"abc")[:-1], 3, Reason.ENCODING_TRUNCATED),
        (b"", 3, Reason.ENCODING_TRUNCATED),
        (deflated(b"abc") + b"\0", 3, Reason.ENCODING_MALFORMED),
        (deflated(b"abc") + bytes(1 << 17), 3, Reason.ENCODING_MALFORMED),
        (b"\xff" * 9, 3, Reason.ENCODING_MALFORMED),
    ],
    ids=["longer", "shorter", "cut", "empty", "a byte behind", "much behind", "no deflate"],
)
def test_a_stream_has_exactly_the_declared_length(packed: bytes, size: int, reason: Reason) -> None:
    """Two readers that see two members: a stream longer, shorter, cut, or with bytes behind it."""
    with refused(EncodingError, reason):
        list(Stream(size).pieces(Held(memoryview(packed))))


# --- What reading a part takes ----------------------------------------------------------------

LONG = 80 * MIB


@pytest.mark.slow
def test_an_element_of_a_long_deflated_array_takes_little() -> None:
    """One element of a long deflated npz array decoded and kept all of it; 80 MiB of 80 kB."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        header = npy(dtype_header("'|u1'", f"({LONG},)"))
        archive.writestr("a.npy", header + bytes(LONG - 1) + b"\7")
    reader = ztensor.open(made.getvalue())
    part = reader.get_slice("a")
    peak, found = peak_of(lambda: [int(part[-1]), int(part[5]), int(part[LONG // 2])])
    assert found == [7, 0, 0]
    assert peak < 32 * MIB
    keys = slice(5, LONG, LONG // 3), [LONG - 1, 5, 7], slice(-1, -3, -1)
    peak, parts = peak_of(lambda: [part[key].tolist() for key in keys])
    assert parts == [[0, 0, 0], [7, 0, 0], [7, 0]]
    assert peak < 32 * MIB
    damaged = made.getvalue()
    at = damaged.index(b"PK\1\2") + 16  # its CRC-32
    damaged = damaged[:at] + b"\0\0\0\0" + damaged[at + 4 :]
    with refused(EncodingError, Reason.DIGEST_MISMATCH):
        ztensor.open(damaged).get_slice("a")[5]


@pytest.mark.slow
def test_elements_far_apart_in_a_deflated_storage_are_refused() -> None:
    """One byte at the end of a deflated `.pt` storage decoded all before it into memory."""
    whole = make_pt.storage("0", "torch.ByteStorage", LONG)
    body = make_pt.mapping(
        last=make_pt.tensor((1,), (1,), LONG - 1, of=whole),
        far=make_pt.tensor((3,), (LONG // 2 - 1,), 1, of=whole),
        all=make_pt.tensor((LONG,), (1,), 0, of=whole),
    )
    data = bytearray(LONG)
    data[1], data[LONG // 2], data[-1] = 1, 2, 3
    file = make_pt.archive(body, {"0": bytes(data)}, method=zipfile.ZIP_DEFLATED)
    del data
    assert len(file) < MIB
    reader = ztensor.open(file)

    def read() -> list[list[int]]:
        part = reader.get_slice("all")[LONG // 2 : LONG // 2 + 2]
        with refused(LimitError, Reason.LIMIT_DECODED) as caught:
            reader["far"]
        assert "without compression" in str(caught.value)
        return [found.tolist() for found in (reader["last"], part)]

    peak, found = peak_of(read)
    assert found == [[3], [2, 0]]
    assert peak < 32 * MIB


# --- What listing takes -----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["again", "beyond"])
def test_places_of_members_are_checked(how: str) -> None:
    """Two names for one member's bytes, or a place near 2^64: refused, whatever the order."""
    data = archive({"a.npy": npy(dtype_header("'|u1'", "(0,)")), "b.npy": b"x"})
    begin = data.index(b"PK\1\2")
    entry = data[begin : data.index(b"PK\1\2", begin + 1)]
    end = bytearray(data[data.index(b"PK\5\6") :])
    if how == "again":
        changed = entry + entry
    else:
        wide = (1).to_bytes(2, "little") + (8).to_bytes(2, "little") + b"\xff" * 8
        head = entry[:30] + len(wide).to_bytes(2, "little") + entry[32:42] + b"\xff" * 4
        changed = entry + head + entry[46:] + wide
    end[12:16] = len(changed).to_bytes(4, "little")
    with pytest.raises(ztensor.errors.ContainerError):
        ztensor.open(data[:begin] + changed + bytes(end))

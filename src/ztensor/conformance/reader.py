"""Our own reader for the protocol: it reads one file into an answer, or a line of JSON."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor import Reader
from ztensor import open as open_file
from ztensor.conformance.answer import ACCEPTED_CODE, REFUSED_CODE, Answer, Ended
from ztensor.errors import ZTensorError
from ztensor.ext import ALGORITHMS, Blocks
from ztensor.limits import Limits
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


# For quantized objects the corpora have only the parts: programs round their elements differently.
_DENSE = frozenset({"dense", "sparse_csr", "sparse_coo"})


# One file of the corpora decodes to 3 GiB of zeros, which a limit may refuse: no other needs 1 GiB.
_LIMITS = Limits(decoded_bytes=1 << 30)


def read_file(path: str) -> Answer:
    """Return the answer of this library. An exception that is not a `ZTensorError` is a bug."""
    try:
        with open_file(path, limits=_LIMITS) as reader:
            objects = {name: _read(reader, name) for name in reader}
            return Answer(Ended.ACCEPTED, "", objects, _verified(reader))
    except ZTensorError as error:
        return Answer(Ended.REFUSED, str(error))


def main(arguments: Sequence[str]) -> int:
    """Print the content of a file as JSON; return the exit code.

    Args:
        arguments: one path.
    """
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m ztensor.conformance FILE\n")
        return 2
    answer = read_file(arguments[0])
    if answer.ended is Ended.REFUSED:
        sys.stderr.write(f"{answer.why}\n")
        return REFUSED_CODE
    sys.stdout.write(json.dumps({"objects": answer.objects, "verified": answer.verified}) + "\n")
    return ACCEPTED_CODE


def _verified(reader: Reader) -> bool | None:
    """Return whether all checks passed; None if a part has an unsupported check."""
    report = reader.verify(deep=True)
    if report.problems:
        return False
    return None if report.unsupported else True


def _read(reader: Reader, name: str) -> dict[str, Any]:
    try:
        metadata = reader.metadata(name)
        tensor = reader.read(name, copy=True)
        found: dict[str, Any] = {
            "shape": list(metadata.shape),
            "components": {
                role: _sha256(reader.decoded_chunks(name, role)) for role in metadata.components
            },
        }
        if metadata.format in _DENSE:
            found["dense_sha256"] = _sha256([_elements(tensor.to_dense())])
    except ZTensorError as error:
        return {"error": str(error)}
    return found


def _elements(array: Array) -> bytes:
    """Return elements, little-endian, in C order; 4-bit elements have a byte each."""
    if array.dtype.name == "float4_e2m1fn":
        return np.ascontiguousarray(array).view(np.uint8).tobytes()
    return Blocks.whole(array).tobytes()


def _sha256(pieces: Iterable[bytes | memoryview]) -> str:
    total = ALGORITHMS["sha256"].hasher()
    for piece in pieces:
        total.update(piece)
    return total.hexdigest()

"""The encoding `shelf.turned/1`: every bit turned."""

from collections.abc import Iterator

import numpy as np

from ztensor import Limits
from ztensor.ext import Encoding, Stored


class Turned(Encoding):
    """Stores a byte as its complement."""

    name = "shelf.turned/1"
    is_written = True

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Fill a buffer with the decoded bytes."""
        del limits
        data = np.frombuffer(stored.read(0, stored.length), np.uint8)
        np.bitwise_not(data, out=np.asarray(destination))

    def encode(
        self, data: memoryview, *, level: int, frame_bytes: int | None = None
    ) -> Iterator[memoryview]:
        """Yield the stored bytes."""
        del level, frame_bytes
        yield np.bitwise_not(np.frombuffer(data, np.uint8)).data


TURNED = Turned()

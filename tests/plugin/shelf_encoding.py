"""The encoding `shelf.turned/1`: every bit turned."""

import numpy as np

from ztensor.ext import Encoding


class Turned(Encoding):
    """Stores a byte as its complement."""

    name = "shelf.turned/1"
    is_written = True

    def decode_into(self, stored, destination, limits):
        """Fill a buffer with the decoded bytes."""
        del limits
        data = np.frombuffer(stored.read(0, stored.length), np.uint8)
        np.bitwise_not(data, out=np.asarray(destination))

    def encode(self, data, *, level, frame_bytes=None):
        """Yield the stored bytes."""
        del level, frame_bytes
        yield np.bitwise_not(np.frombuffer(data, np.uint8)).data


TURNED = Turned()

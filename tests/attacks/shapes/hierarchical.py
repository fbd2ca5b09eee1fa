"""HDF5 and Keras: many groups, attributes and chunks, long heaps, headers that go on and on."""

from __future__ import annotations

import io

from tests.attacks.shapes import WIDE, add, shape, widening
from tests.attacks.shapes.archives import archive


def hdf5(length: int, fill: str, *, latest: bool = False) -> bytes:
    """Return a file with as much of something as makes it about so long, written by h5py."""
    import h5py
    import numpy as np

    made = io.BytesIO()
    with h5py.File(made, "w", libver="latest" if latest else None) as file:
        n = 1
        while made.tell() < length and n < 200_000:
            for i in range(n - 1, 2 * n - 1):
                if fill == "groups":
                    file.create_group(f"{i:x}")
                elif fill == "scalars":
                    file[f"{i:x}"] = np.uint8(0)
                elif fill == "attributes":
                    file.create_group(f"{i:x}").attrs["a"] = "b"
            n *= 2
            file.flush()
            made.seek(0, io.SEEK_END)
    return made.getvalue()


def texts(length: int) -> bytes:
    import h5py
    import numpy as np

    made = io.BytesIO()
    with h5py.File(made, "w") as file:
        values = np.array([b""] * max(length // 16, 1), object)
        file.create_dataset("a", data=values, dtype=h5py.string_dtype("ascii"))
    return made.getvalue()


def chunks(length: int) -> bytes:
    import h5py
    import numpy as np

    made = io.BytesIO()
    with h5py.File(made, "w") as file:
        n = max(length // 80, 1)
        file.create_dataset("a", data=np.zeros(n, "u1"), chunks=(1,))
    return made.getvalue()


def noted(text: str, count: int) -> bytes:
    """Return a file with an attribute of many values that are one text of the heap."""
    import h5py
    import numpy as np

    made = io.BytesIO()
    with h5py.File(made, "w") as file:
        values = np.array([text] + ["b"] * (count - 1), object)
        file.attrs.create("a", values, dtype=h5py.string_dtype())
    data = made.getvalue()
    # Each value is a length, an address and a number in the heap there, 16 bytes.
    at = data.index(len(text.encode()).to_bytes(4, "little"))
    return data[:at] + data[at : at + 16] * count + data[at + 16 * count :]


@shape("keras")
def _a_configuration_that_widens(length: int) -> bytes:
    config = widening(length).encode()
    return archive({"config.json": config, "model.weights.h5": hdf5(1, "scalars")})


@shape("keras")
def _a_long_configuration(length: int) -> bytes:
    config = b"[" + b"[]," * (length // 3) + b"0]"
    return archive({"config.json": config, "model.weights.h5": hdf5(1, "scalars")})


add(
    "hdf5",
    {
        "groups": lambda length: hdf5(length, "groups"),
        "groups of the latest version": lambda length: hdf5(length, "groups", latest=True),
        "scalars": lambda length: hdf5(length, "scalars"),
        "attributes": lambda length: hdf5(length, "attributes"),
        "empty texts": texts,
        "chunks of a byte": lambda length: chunks(min(length, 1 << 20)),
        "an attribute that widens": lambda length: noted(widening(length), 1),
        "one wide attribute many times": lambda length: noted(WIDE + "a" * length, 7),
    },
)


add(
    "keras",
    {
        "weights of groups": lambda length: archive(
            {"model.weights.h5": hdf5(length, "groups"), "config.json": b"{}"}
        ),
    },
)

"""Write `tests/corpus_planes`: files with planes for readers of any kind, made without the library.

    python -m tests.planes.make

Frames depend on the release of zstd, so files that are there already stay as they are meant to be:
run it only to add some.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import zstandard

from tests.planes import slow
from tests.planes.broken import BROKEN, DATA
from ztensor.ext import ALGORITHMS
from ztensor.testing import builder, builder_2

CORPUS = Path(__file__).parents[1] / "corpus_planes"
NAME = "pyztensor.planes/1"
WIDTHS = {"bf16": 2, "f16": 2, "f32": 4, "f64": 8, "i64": 8, "i32": 4, "i16": 2, "u8": 1}
PAGE = "docs/specification/planes.md"


class Tensor(NamedTuple):
    """A tensor and how its planes are stored; `blob` is the stored bytes, if they are wrong."""

    shape: tuple[int, ...]
    dtype: str
    data: bytes
    block: int = 1 << 17
    transform: int = 0
    choose: Callable[[bytes], slow.Stream] = slow.stream_of
    type: str | None = None
    own: dict[str, Any] = {}  # noqa: RUF012  # attributes
    blob: bytes | None = None

    @property
    def stored(self) -> bytes:
        if self.blob is not None:
            return self.blob
        transform = self.transform or (slow.FLOAT if self.dtype[0] in "bf" else slow.BYTES)
        return slow.write(self.data, transform, WIDTHS[self.dtype], self.block, self.choose)


def weights(dtype: str, *shape: int, seed: int = 0) -> bytes:
    """Return normal numbers as elements."""
    values = np.random.default_rng(seed).normal(0, 0.02, math.prod(shape))
    if dtype == "bf16":
        return (values.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    return values.astype(f"<f{WIDTHS[dtype]}").tobytes()


def rising(dtype: str, count: int) -> bytes:
    return (np.arange(count) * 3).astype(f"<{dtype[0]}{WIDTHS[dtype]}").tobytes()


def frame_of(**options: Any) -> Callable[[bytes], slow.Stream]:
    compressor = zstandard.ZstdCompressor(**options)
    return lambda plane: (slow.FRAME, compressor.compress(plane))


def streamed(plane: bytes) -> slow.Stream:
    """Return a frame with a window, as encoders of streams write it."""
    compressor = zstandard.ZstdCompressor(level=1).compressobj(size=len(plane))
    return slow.FRAME, compressor.compress(plane) + compressor.flush()


def raw(plane: bytes) -> slow.Stream:
    return slow.RAW, plane


FLOATS = {dtype: weights(dtype, 30, 20) for dtype in ("bf16", "f16", "f32", "f64")}
MATRIX = Tensor((30, 20), "f32", FLOATS["f32"])
SAME = b"\x80\x3f" * 600
ACCEPTED: dict[str, dict[str, Tensor]] = {
    "floats": {name: Tensor((30, 20), name, data) for name, data in FLOATS.items()},
    "integers": {
        name: Tensor((400,), name, rising(name, 400)) for name in ("i64", "i32", "i16", "u8")
    },
    "transforms": {
        "floats as bytes": MATRIX._replace(transform=slow.BYTES),
        "integers as floats": Tensor((400,), "i32", rising("i32", 400), transform=slow.FLOAT),
    },
    "kinds": {
        "raw": MATRIX._replace(choose=raw),
        "frames": MATRIX._replace(choose=frame_of(level=3)),
        "one byte": Tensor((30, 20), "bf16", SAME),
        "one byte as frames": Tensor((30, 20), "bf16", SAME, choose=frame_of(level=3)),
    },
    "blocks": {
        f"of {block}": MATRIX._replace(block=block) for block in (1, 20, 599, 600, 601, 1 << 22)
    },
    "frames": {
        "level 19": MATRIX._replace(choose=frame_of(level=19)),
        "with checksums": MATRIX._replace(choose=frame_of(level=1, write_checksum=True)),
        "with a window": MATRIX._replace(choose=streamed),
        "of several blocks": Tensor(
            (300_000,), "u8", bytes(300_000), 1 << 22, choose=frame_of(level=1)
        ),
    },
    "shapes": {
        "scalar": Tensor((), "f32", FLOATS["f32"][:4], choose=raw),
        "empty": Tensor((0, 5), "f32", b""),
        "no axis left": Tensor((5, 0, 1 << 40), "bf16", b""),
        "many axes": Tensor((2, 3, 1, 5, 20), "f32", FLOATS["f32"]),
    },
    "types": {
        "complex64": Tensor((15, 20), "f32", FLOATS["f32"], type="complex64"),
        "f8_e4m3fn": Tensor((20, 20), "u8", rising("u8", 400), type="f8_e4m3fn"),
    },
    "attributes": {"w": MATRIX._replace(own={"unit": "m", "scale": 0.5})},
}
REJECTED = {
    **{name: Tensor((1000,), "f32", DATA, blob=blob) for name, (blob, _) in BROKEN.items() if blob},
    "shape too short": Tensor((999,), "f32", DATA[:-4], blob=slow.write(DATA, 2, 4, 400)),
    "shape too long": Tensor((1001,), "f32", DATA + DATA[:4], blob=slow.write(DATA, 2, 4, 400)),
}
# Object fields of 1.2 that break the text.
FIELDS_OF_1_2: dict[str, dict[str, Any]] = {
    "no dtype": {"attributes": {}},
    "dtype not text": {"attributes": {"dtype": 3}},
    "type not text": {"attributes": {"dtype": "f32", "type": 3}},
}


def in_1_2(tensors: dict[str, Tensor], fields: dict[str, Any] | None = None) -> bytes:
    new = builder.Draft(
        "1.2.0", b"ZTEN1000", {"version": "1.2.0", "attributes": {}}, footer=b"ZTEN1000"
    )
    for name, tensor in tensors.items():
        if name == "sibling":
            new.add(name, list(tensor.shape), {"data": ({"dtype": tensor.dtype}, tensor.data)})
            continue
        attributes = {**tensor.own, "dtype": tensor.dtype}
        if tensor.type is not None:
            attributes["type"] = tensor.type
        entry = {"format": NAME, "attributes": attributes, **(fields or {})}
        new.add(name, list(tensor.shape), {"data": ({"dtype": "u8"}, tensor.stored)}, **entry)
    return new.to_bytes()


def in_2(tensors: dict[str, Tensor]) -> bytes:
    new, objects = builder_2.File2(), {}
    for name, tensor in tensors.items():
        stored = tensor.data if name == "sibling" else tensor.stored
        part: dict[str, Any] = {
            "dtype": tensor.dtype,
            "blob": new.blob(stored),
            "digest": ALGORITHMS["xxh3"].of([tensor.data]),
        }
        if name != "sibling":
            part |= {"encoding": NAME, "decoded_length": len(tensor.data)}
        if tensor.type is not None:
            part["type"] = tensor.type
        own = {"attributes": dict(tensor.own)} if tensor.own else {}
        objects[name] = builder_2.dense(part, tensor.shape, **own)
    return new.seal({"objects": objects})


def described(tensor: Tensor, name: str, version: str) -> dict[str, Any]:
    """Return the entry of an object, which is the dense tensor's in both versions."""
    algorithm = "crc32c" if version == "1.2.0" else "xxh3"
    is_raw = name == "sibling"
    covered = tensor.data if is_raw or version == "2" else tensor.stored
    total = hashlib.sha256(tensor.data).hexdigest()
    component = {
        "dtype": tensor.dtype, "type": tensor.type, "encoding": "raw" if is_raw else NAME,
        "digest": ALGORITHMS[algorithm].of([covered]), "digest_ok": True,
        "nbytes": len(tensor.data), "sha256": total,
    }  # fmt: skip
    return {
        "shape": list(tensor.shape), "format": "dense", "attributes": tensor.own or None,
        "components": {"data": component}, "dense_sha256": total,
    }  # fmt: skip


def main() -> None:
    """Write all files and their description."""
    shutil.rmtree(CORPUS / "accept", ignore_errors=True)
    shutil.rmtree(CORPUS / "reject", ignore_errors=True)
    entries: list[dict[str, Any]] = []

    def put(path: str, data: bytes, version: str, **fields: Any) -> None:
        target = CORPUS / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        entries.append(
            {
                "path": path,
                "bytes": len(data),
                "origin": path.partition("/")[0],
                "spec_version": version,
                **fields,
            }
        )

    sibling = Tensor((3,), "f32", weights("f32", 3))
    for version, write in (("1.2.0", in_1_2), ("2", in_2)):
        for case, tensors in ACCEPTED.items():
            objects = {name: described(one, name, version) for name, one in tensors.items()}
            put(
                f"accept/{version}/{case}.zt", write(tensors), version,
                exercises=case, expect="accept", objects=objects,
            )  # fmt: skip
        good = {"sibling": described(sibling, "sibling", version)}
        refused = {"expect": "reject", "detectable": "read", "strength": "explicit"}
        for case, tensor in REJECTED.items():
            put(
                f"reject/{version}/{case.replace(' ', '_')}.zt",
                write({"victim": tensor, "sibling": sibling}), version,
                exercises=case, **refused, stage="read", rule=f"{PAGE}, Reading", object="victim",
                objects=good,
            )  # fmt: skip
    for case, fields in FIELDS_OF_1_2.items():
        data = in_1_2({"victim": MATRIX, "sibling": sibling}, fields)
        put(
            f"reject/1.2.0/{case.replace(' ', '_')}.zt", data, "1.2.0", exercises=case,
            **refused, stage="read", rule=f"{PAGE}, In a file", object="victim", objects=good,
        )  # fmt: skip
    text = json.dumps({"corpus": 1, "files": entries}, indent=1)
    (CORPUS / "corpus.json").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()

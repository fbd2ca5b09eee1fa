"""Write `tests/corpus_types`: files with types of few bits for readers of any kind.

    python -m tests.conformance.make_types

The elements are packed here by integers, without the library: the first is in the lowest bits.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from ztensor.ext import ALGORITHMS
from ztensor.testing import builder, builder_2

CORPUS = Path(__file__).parents[1] / "corpus_types"
BITS = {
    "f8_e4m3_ieee": 8, "f8_e3m4": 8, "f6_e2m3": 6, "f6_e3m2": 6,
    "int4": 4, "uint4": 4, "int2": 2, "uint2": 2,
}  # fmt: skip
RULE = "docs/specification/versions.md, Types"


def packed(bits: int, count: int) -> bytes:
    """Return `count` elements: the patterns in order, again and again."""
    number = sum((at & (1 << bits) - 1) << bits * at for at in range(count))
    return number.to_bytes(-(-count * bits // 8), "little")


def written(version: str, name: str, count: int, data: bytes, dtype: str = "u8") -> bytes:
    """Return a file with one object of this type."""
    if version == "1.2.0":
        root = {"version": "1.2.0", "attributes": {}}
        new = builder.Draft("1.2.0", b"ZTEN1000", root, footer=b"ZTEN1000")
        new.add("x", [count], {"data": ({"dtype": dtype, "type": name}, data)})
        return new.to_bytes()
    file = builder_2.File2()
    digest = ALGORITHMS["xxh3"].of([data])
    part = {"dtype": dtype, "type": name, "blob": file.blob(data), "digest": digest}
    return file.seal({"objects": {"x": builder_2.dense(part, (count,))}})


def described(version: str, name: str, count: int, data: bytes) -> dict[str, Any]:
    """Return the entry of the object."""
    total = hashlib.sha256(data).hexdigest()
    algorithm = "crc32c" if version == "1.2.0" else "xxh3"
    component = {
        "dtype": "u8", "type": name, "encoding": "raw",
        "digest": ALGORITHMS[algorithm].of([data]), "digest_ok": True,
        "nbytes": len(data), "sha256": total,
    }  # fmt: skip
    return {
        "shape": [count], "format": "dense", "attributes": None,
        "components": {"data": component}, "dense_sha256": total,
    }  # fmt: skip


def main() -> None:
    """Write all files and their description."""
    for folder in ("accept", "reject"):
        shutil.rmtree(CORPUS / folder, ignore_errors=True)
    entries: list[dict[str, Any]] = []

    def put(case: str, version: str, data: bytes, **fields: Any) -> None:
        path = f"{fields['expect']}/{version}/{case}.zt"
        (CORPUS / path).parent.mkdir(parents=True, exist_ok=True)
        (CORPUS / path).write_bytes(data)
        facts = {"path": path, "bytes": len(data), "origin": fields["expect"]}
        entries.append({**facts, "spec_version": version, "exercises": case, **fields})

    for version in ("1.2.0", "2"):
        for name, bits in BITS.items():
            for case, count in (("every_pattern", 1 << bits), ("inside_a_byte", 5)):
                data = packed(bits, count)
                entry = described(version, name, count, data)
                file = written(version, name, count, data)
                put(f"{name}_{case}", version, file, expect="accept", objects={"x": entry})
            how: dict[str, Any] = {"expect": "reject", "detectable": "open", "stage": "open"}
            how |= {"strength": "explicit", "rule": RULE, "object": "x", "objects": {}}
            short, wrong = packed(bits, 5)[:-1], packed(bits, 5)
            put(f"{name}_too_short", version, written(version, name, 5, short), **how)
            if version == "2":  # in 1.2 it is an unknown type, which has the storage elements
                put(f"{name}_on_i8", version, written(version, name, 5, wrong, "i8"), **how)
    text = json.dumps({"corpus": 1, "files": entries}, indent=1)
    (CORPUS / "corpus.json").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()

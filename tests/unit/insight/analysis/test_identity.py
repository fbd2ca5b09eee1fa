from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.errors import DigestMismatchError, ObjectNotFoundError, UnsupportedError
from ztensor.numpy import save, save_file
from ztensor.spec.wire import cbor
from ztensor.testing.builder import draft

WEIGHT = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
TENSORS: dict[str, Any] = {
    "w": WEIGHT,
    "b": np.arange(3, dtype=np.int64),
    "flags": np.array([True, False]),
}


def hexdigest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_the_definition() -> None:
    data = np.array([1, 2, 3], "<i2").tobytes()
    part = ["i16", hashlib.sha256(data).digest()]
    tensor = hashlib.sha256(cbor.encode([[3], "dense", {"data": part}, {}]))
    whole = cbor.encode(["ztensor content 1", {"x": tensor.digest()}])
    file = save({"x": np.array([1, 2, 3], np.int16)}, {"note": "ignored"})
    assert ztensor.insight.tensor_hashes(file) == {"x": tensor.hexdigest()}
    assert ztensor.content_hash(file) == hexdigest(whole)
    with_attributes = ["ztensor content 1", {"x": tensor.digest()}, {"note": "ignored"}]
    assert ztensor.content_hash(file, attributes=True) == hexdigest(cbor.encode(with_attributes))


def test_the_id_of_a_known_file() -> None:
    """It must be the same on every machine and in every release."""
    assert ztensor.content_hash(save(TENSORS)) == (
        "57229faf92a17d8790153a17d254d851a5282b22a4ed9a14417c0f20b48b245c"
    )


@pytest.mark.parametrize(
    "options",
    [
        {"version": "0.1.0"},
        {"version": "1.1.0"},
        {"compression": True},
        {"compression": 9, "checksum": "sha256"},
        {"checksum": None},
        {"metadata": {"a": "b"}, "version": "1.2.0"},
        {"max_shard_size": 200},
        {"format": "npz"},
        {"format": "safetensors"},
    ],
    ids=str,
)
def test_storage_does_not_matter(options: dict[str, Any], tmp_path: Path) -> None:
    """Version, encoding, digests, attributes, order, shards and format."""
    path = tmp_path / "m.zt"
    save_file(dict(reversed(TENSORS.items())), path, **options)
    source = tmp_path if "max_shard_size" in options else path
    assert ztensor.content_hash(source) == ztensor.content_hash(save(TENSORS))
    ids = ztensor.insight.tensor_hashes(save(TENSORS | {"other": WEIGHT}))
    assert ids["other"] == ids["w"]  # nor does the name, to the id of one tensor
    assert ztensor.insight.tensor_hashes(source, ["w", "b"]) == {name: ids[name] for name in "wb"}
    with pytest.raises(ObjectNotFoundError):
        ztensor.insight.tensor_hashes(source, ["no"])


SEEN: dict[str, Any] = {}


@pytest.mark.parametrize(
    "changed",
    [
        {"v": WEIGHT},
        {"w": WEIGHT.reshape(4, 16)},
        {"w": WEIGHT.view(np.int32)},
        {"w": WEIGHT + np.float32(1e-7)},
        {"w": WEIGHT.astype(np.float16)},
        {"w": ztensor.Tensor.quantize(WEIGHT, bits=4, group_size=8)},
        {"w": ztensor.Tensor.quantize(WEIGHT, bits=4, group_size=4)},
        {"w": WEIGHT, "x": WEIGHT},
        {},
    ],
    ids=["name", "shape", "type", "value", "width", "quantized", "groups", "more", "less"],
)
def test_contents_matter(changed: dict[str, Any]) -> None:
    seen = SEEN.setdefault(ztensor.content_hash(save(changed)), changed)
    assert seen is changed
    assert ztensor.content_hash(save(changed)) != ztensor.content_hash(save({"w": WEIGHT}))


def test_attributes_of_dense_objects_count_on_demand(tmp_path: Path) -> None:
    for name, attributes in (("plain", None), ("noted", {"unit": "volt"})):
        with ztensor.Writer(tmp_path / name) as writer:
            writer.write("w", WEIGHT, attributes=attributes)
    plain, noted = tmp_path / "plain", tmp_path / "noted"
    assert ztensor.content_hash(plain) == ztensor.content_hash(noted)
    assert ztensor.content_hash(plain, attributes=True) != ztensor.content_hash(
        noted, attributes=True
    )


def test_big_endian_data_has_the_id_of_its_values() -> None:
    before = ztensor.content_hash(draft("0.1.0").to_bytes())
    made = draft("0.1.0")
    little = made.blobs["matrix", "data"]
    made.blobs["matrix", "data"] = np.frombuffer(little, "<i4").astype(">i4").tobytes()
    made.component("matrix")["data_endianness"] = "big"
    assert ztensor.content_hash(made.to_bytes()) == before


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_and_progress(threads: int) -> None:
    tensors = {f"t{number}": np.full((1 << 17) + number, number) for number in range(5)}
    file = save(tensors)
    seen: list[tuple[int, int]] = []
    text = ztensor.content_hash(
        file, threads=threads, progress=lambda done, total: seen.append((done, total))
    )
    assert text == ztensor.content_hash(file, threads=1)
    total = sum(array.nbytes for array in tensors.values())
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (total, total)


def test_damaged_and_unknown_data_has_no_id() -> None:
    damaged = bytearray(save({"w": WEIGHT}))
    damaged[64] ^= 1
    with pytest.raises(DigestMismatchError):
        ztensor.content_hash(damaged)
    made = draft("1.2.0")
    made.component("matrix")["encoding"] = "odd"
    with pytest.raises(UnsupportedError):
        ztensor.content_hash(made.to_bytes())

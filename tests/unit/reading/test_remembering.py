"""A manifest that was read before is given again only where it is the same to the last byte."""

from __future__ import annotations

import concurrent.futures
import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ztensor
from ztensor import Tensor
from ztensor.errors import LimitError, ZTensorError
from ztensor.limits import DEFAULT_LIMITS
from ztensor.model.manifest import Component, Manifest, Shard, TensorObject
from ztensor.numpy import save, save_file
from ztensor.reading import listing, remembering

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSIONS = ("0.1", "1.1", "1.2", "2.1")


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Yield the lengths of the manifests that were parsed."""
    found: list[int] = []
    parse = listing.parse_frame

    def counting(source: Any, frame: Any, *more: Any) -> Manifest:
        found.append(frame.manifest_length)
        return parse(source, frame, *more)

    monkeypatch.setattr(listing, "parse_frame", counting)
    remembering.forget()
    yield found
    remembering.forget()


def some(count: int, start: int = 0) -> dict[str, Any]:
    return {f"{i}": np.arange(start + i, start + i + 6.0).reshape(2, 3) for i in range(count)}


def all_of(reader: ztensor.Reader) -> list[tuple[Any, ...]]:
    """Return all that a reader tells."""
    return [
        (name, reader.metadata(name), reader[name].tobytes(), reader.read(name).components.keys())
        for name in reader
    ]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [1, 40])
def test_what_is_opened_again_is_the_same_and_is_not_parsed_again(
    parsed: list[int], tmp_path: Path, version: str, count: int
) -> None:
    more: dict[str, Any] = {} if version == "0.1" else {"attributes": {"step": "3", "by": "me"}}
    save_file(some(count), tmp_path / "a.zt", version=version, **more)
    found = []
    for _ in range(3):
        with ztensor.open(tmp_path / "a.zt") as reader:
            found.append((all_of(reader), reader.attributes, reader.version))
    assert found[0] == found[1] == found[2]
    assert len(parsed) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_another_file_under_the_name_is_read_as_it_is(tmp_path: Path, version: str) -> None:
    """Those of the same length, whose manifests differ in a digest alone, among them."""
    path = tmp_path / "a.zt"
    for start in range(12):
        save_file(some(8, start), path, version=version)
        for _ in range(2):
            with ztensor.open(path) as reader:
                assert reader.read_numpy("7", copy=True)[0, 0] == start + 7
                assert not reader.verify().problems


def test_what_users_get_is_their_own(parsed: list[int]) -> None:
    data = save(some(3), attributes={"a": 1})
    with ztensor.open(data) as reader:
        reader.attributes["a"] = 2
        reader.keys().clear()
        reader.metadata("1").components.clear()  # type: ignore[attr-defined]
    with ztensor.open(data) as reader:
        assert reader.attributes == {"a": 1}
        assert reader.keys() == ["0", "1", "2"]
        assert list(reader.metadata("1").components) == ["data"]
    assert len(parsed) == 1


@pytest.mark.parametrize(
    "more",
    [
        {"attributes": {"a": [1]}},
        {"attributes": {"a": {"b": 1}}},
    ],
    ids=["list", "map"],
)
def test_values_that_can_be_changed_are_not_kept(parsed: list[int], more: dict[str, Any]) -> None:
    data = save(some(3), **more)
    for _ in range(2):
        with ztensor.open(data) as reader:
            assert reader.attributes == more["attributes"]
    assert len(parsed) == 2


DENSE = TensorObject((2,), "dense", {"data": Component("f32", 64, 8)})


@pytest.mark.parametrize(
    "manifest",
    [
        Manifest("1.2.0", {"a": dataclasses.replace(DENSE, attributes={"a": 1})}),
        Manifest("1.2.0", {"a": dataclasses.replace(DENSE, extra={"a": []})}),
        Manifest("1.2.0", {"a": dataclasses.replace(DENSE, format="mine")}),
        Manifest("1.2.0", {"a": DENSE}, extra={"a": []}),
        Manifest("2.1", {"a": DENSE}, shards={"x": Shard("x", 1, "xxh3:00")}),
        Manifest(
            "1.2.0",
            {"a": TensorObject((2,), "dense", {"data": Component("f32", 64, 8, extra={"a": []})})},
        ),
    ],
    ids=["attributes", "extra", "layout", "file's extra", "shards", "component's extra"],
)
def test_only_plain_manifests_are_kept(manifest: Manifest) -> None:
    key: Any = (b"m", None, DEFAULT_LIMITS)
    remembering.remember(key, manifest)
    assert remembering.recall(key) is None
    remembering.remember(key, Manifest("1.2.0", {"a": DENSE}))
    assert remembering.recall(key) is not None


def test_other_caps_are_looked_at_anew() -> None:
    data = save({"a": np.zeros((1,) * 9), **some(8)})
    ztensor.open(data).close()
    with pytest.raises(LimitError):
        ztensor.open(data, limits=ztensor.Limits(manifest_bytes=64))
    ztensor.open(data).close()


def test_a_refusal_comes_each_time(parsed: list[int]) -> None:
    data = bytearray(save(some(9)))
    data[-40] ^= 0xFF  # within the manifest
    for _ in range(3):
        with pytest.raises(ZTensorError):
            ztensor.open(bytes(data))
    assert len(parsed) >= 3


def test_few_are_kept_and_none_that_is_long(parsed: list[int]) -> None:
    files = [save(some(2, start)) for start in range(50)]
    for data in files:
        ztensor.open(data).close()
    assert len(remembering._known) < 10  # as many as there are is seen nowhere else
    long = save({f"{i}": np.zeros(1) for i in range(2000)})
    kept = dict(remembering._known)
    ztensor.open(long).close()
    assert remembering._known == kept


def test_sparse_objects_are_read_each_time(parsed: list[int]) -> None:
    data = save({"a": Tensor.csr([1.0], [2], [0, 1], (1, 3)), "b": np.zeros(2)})
    for _ in range(2):
        with ztensor.open(data) as reader:
            assert reader.read("a").to_dense()[0, 2] == 1
    assert len(parsed) == 2


def test_threads_open_many_files_at_once() -> None:
    files = [save(some(7, start)) for start in range(30)]

    def first(number: int) -> float:
        with ztensor.open(files[number]) as reader:
            return float(reader["0"][0, 0])

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(first, list(range(30)) * 20)) == [*range(30)] * 20

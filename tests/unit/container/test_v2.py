"""The schema of 2.x beyond what the corpus shows: what is kept, what it costs, how it is said."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ztensor
from ztensor.container.framing import Container, locate
from ztensor.errors import LimitError, ManifestError, Reason, UnsupportedVersionError
from ztensor.limits import Limits
from ztensor.testing.builder_2 import File2, dense, footer, one_object
from ztensor.wire import cbor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def reason_of(data: bytes, **options: Any) -> Reason | None:
    with pytest.raises(ztensor.ZTensorError) as caught:
        ztensor.open(data, **options)
    return caught.value.reason


def test_the_footer_tells_where_the_manifest_is() -> None:
    data = one_object()
    frame = locate(data[:8], data[-40:], len(data))
    assert frame.container is Container.V2
    assert frame.manifest_offset % 4096 == 0
    assert cbor.decode(data[frame.manifest_offset :][: frame.manifest_length], strict=True)


@pytest.mark.parametrize("version", [0, 1, 3, 2 << 24])
def test_another_version_asks_for_a_newer_reader(version: int) -> None:
    data = one_object()[:-40] + footer(4096, 1, 0, version)
    with pytest.raises(UnsupportedVersionError, match="newer"):
        ztensor.open(data)


def test_what_a_file_says_is_kept() -> None:
    file = File2()
    part = file.part(np.arange(6, dtype=np.uint16))
    root = {
        "objects": {"w": dense(part, [2, 3], attributes={"unit": "m"})},
        "attributes": {"step": 7, "note": [None, b"x", {"y": 1.5}]},
    }
    with ztensor.open(file.seal(root)) as reader:
        assert reader.version == "2"
        assert reader.attributes == root["attributes"]
        metadata = reader.metadata("w")
        assert metadata.attributes == {"unit": "m"}
        assert metadata.components["data"].digest == part["digest"]
        assert metadata.components["data"].offset == 4096
        np.testing.assert_array_equal(reader["w"], np.arange(6).reshape(2, 3))
        assert reader.verify().outcome == "ok"


def test_unknown_fields_are_ignored_also_where_their_key_is_no_text() -> None:
    file = File2()
    part = cbor.Pairs([*file.part(np.zeros(3)).items(), (7, "x")])
    fields = {**dense({}, [3]), "new": 1, "parts": {"data": part}}
    entry = cbor.Pairs([*fields.items(), (-1, [1])])
    root = cbor.Pairs([("objects", {"w": entry}), (b"x", 1), ("later", {})])
    with ztensor.open(file.seal(cbor.encode(root))) as reader:
        assert reader["w"].shape == (3,)


def test_every_problem_is_told() -> None:
    file = File2()
    good = file.part(np.zeros(3))
    root = {"objects": {"a": dense(good | {"dtype": "f99"}, [3]), "b": dense(good, [4])}}
    with pytest.raises(ManifestError) as caught:
        ztensor.open(file.seal(root))
    assert [problem.object_name for problem in caught.value.problems] == ["a"]
    root = {"objects": {"a": dense(good | {"dtype": 1}, [3]), "b": {"shape": None}}}
    with pytest.raises(ManifestError) as caught:
        ztensor.open(file.seal(root))
    assert {problem.object_name for problem in caught.value.problems} == {"a", "b"}


def test_objects_may_share_a_blob_and_not_a_part_of_one() -> None:
    file = File2()
    part = file.part(np.arange(4, dtype=np.float32))
    tied = {"a": dense(part, [4]), "b": dense(part | {"dtype": "i32"}, [2, 2])}
    with ztensor.open(file.seal({"objects": tied})) as reader:
        assert reader["a"].tobytes() == reader["b"].tobytes()
    file = File2()
    part = file.part(np.arange(2048, dtype=np.float32))
    offset, length = part["blob"]
    inside = file.part(np.zeros(0)) | {"blob": [offset + 4096, length - 4096]}
    inside["dtype"] = "f32"
    root = {"objects": {"a": dense(part, [2048]), "b": dense(inside, [1024])}}
    assert reason_of(file.seal(root)) is Reason.BLOB_OVERLAP


@pytest.mark.parametrize("word", ["raw", "zstd"])
def test_encodings_of_1_x_mean_nothing_here(word: str) -> None:
    file = File2()
    part = file.part(np.zeros(3), encoding=word, decoded_length=24)
    with ztensor.open(file.seal({"objects": {"w": dense(part, [3])}})) as reader:
        with pytest.raises(ztensor.UnsupportedError) as caught:
            reader.read("w")
        assert caught.value.reason is Reason.UNKNOWN_ENCODING


def test_an_unknown_type_is_not_read_as_its_storage() -> None:
    file = File2()
    part = file.part(np.zeros(3, np.uint8), type="x.new/1")
    objects = {"w": dense(part, [99]), "odd": dense(part, [7], layout="acme.blocks/1")}
    with ztensor.open(file.seal({"objects": objects})) as reader:
        with pytest.raises(ztensor.UnsupportedError) as caught:
            reader.read("w")
        assert caught.value.reason is Reason.UNKNOWN_TYPE
        found = reader.read("odd").components["data"]  # no one says what it is: its bytes
        assert found.dtype == np.uint8
        assert found.tolist() == [0, 0, 0]


def test_a_bool_is_0_or_1_however_it_is_read() -> None:
    file = File2()
    part = file.part(np.array([0, 1, 2], np.uint8), type="bool")
    good = file.part(np.array([True, False]))
    data = file.seal({"objects": {"w": dense(part, [3]), "good": dense(good, [2])}})
    for mmap in (True, False):
        with ztensor.open(data, mmap=mmap) as reader:
            assert reader["good"].tolist() == [True, False]
            assert reader["good"].dtype == np.bool_
            ways: list[Callable[[], object]] = [
                functools.partial(reader.read_numpy, "w"),
                functools.partial(reader.read_numpy, "w", copy=True),
                functools.partial(reader.get_slice("w").__getitem__, slice(1, None)),
                functools.partial(reader.read_into, "w", np.zeros(3, np.bool_)),
            ]
            for read in ways:
                with pytest.raises(ztensor.FormatError) as caught:
                    read()
                assert caught.value.reason is Reason.BOOL_VALUE
            assert [problem.reason for problem in reader.verify().problems] == [Reason.BOOL_VALUE]


def test_depth_is_that_of_the_text_and_of_the_limits() -> None:
    def nested(levels: int) -> bytes:
        value: object = 1
        for _ in range(levels):
            value = [value]
        file = File2()
        return file.seal({"objects": {}, "attributes": {"x": value}})

    ztensor.open(nested(30)).close()
    assert reason_of(nested(31)) is Reason.CBOR_FORM
    assert reason_of(nested(30), limits=Limits(depth=20)) is Reason.LIMIT_DEPTH


@pytest.mark.slow
def test_what_listing_costs_is_charged() -> None:
    names = {
        f"{number:05}": dense({"dtype": "u8", "blob": [4096, 0]}, [0]) for number in range(9999)
    }
    data = File2().seal({"objects": names})
    assert len(ztensor.open(data)) == 9999
    with pytest.raises(LimitError) as caught:
        ztensor.open(data, limits=Limits(cost_floor=1 << 20, cost_factor=1))
    assert caught.value.reason is Reason.LIMIT_COST


def test_migrating_takes_all_of_it(tmp_path: Path) -> None:
    path, new = tmp_path / "m.zt", tmp_path / "n.zt"
    path.write_bytes(one_object())
    report = ztensor.migrate(path, new, version="1.2.0")
    assert not report.lost
    with ztensor.open(path) as old, ztensor.open(new) as found:
        assert found.version == "1.2.0"
        np.testing.assert_array_equal(old["w"], found["w"])
        assert str(found.metadata("w").components["data"].digest).startswith("crc32c:")

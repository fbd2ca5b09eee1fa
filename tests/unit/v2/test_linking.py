"""Roots that refer to bytes of other files: what is written, refused, and what verbs do with it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor import v2
from ztensor.cli.info import summarize
from ztensor.errors import Reason
from ztensor.testing.builder_2 import File2

W = np.arange(12, dtype=np.float32).reshape(3, 4)
ZEROS = np.zeros(10000)
EYE = ztensor.Tensor.csr(np.ones(2, "f4"), np.array([0, 1]), np.array([0, 1, 2]), (2, 2))


def base_of(path: Path) -> Path:
    with ztensor.Writer(path, version="2.1", alignment=4096, attributes={"of": "base"}) as writer:
        writer.write("w", W, attributes={"unit": "m"})
        writer.write("eye", EYE)
        writer.write("zeros", ZEROS, compress=True)
        writer.share("tied", "w")
        writer.write("on", np.array([True, False]))
    return path


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return base_of(tmp_path / "base.zt")


def linked(root: Path, base: Path, **how: Any) -> Path:
    """Write a root with an object of its own and all of another file."""
    with v2.Writer(root, canonical=False, **how) as writer:
        writer.add("own", ZEROS[:3], [3], "f64")
        writer.add_shard("b", base, "sha256")
        writer.link("b")
    return root


def calls_of(function: Callable[[], object]) -> int:
    """Return the number of functions that a function calls."""
    count = 0

    def note(frame: object, event: str, value: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    old = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(old)
    return count


def test_many_shards_take_linear_time(tmp_path: Path) -> None:
    """All files have one length, so only their digests tell which one a shard is."""
    counts = dict[str, list[int]]()
    for number in (20, 80):
        folder = tmp_path / str(number)
        folder.mkdir()
        writer = v2.Writer(folder / "root.zt", canonical=False)
        for at in range(number):
            path = folder / f"{-at % number}.zt"
            with ztensor.Writer(path, version="2.1", alignment=4096) as part:
                part.write(f"w{at:03}", np.array([at]))
            writer.add_shard(f"s{at}", path)

        def link(writer: v2.Writer = writer, number: int = number) -> None:
            for at in range(number):
                writer.link(f"s{at}")

        counts.setdefault("link", []).append(calls_of(link))
        writer.finish()

        def reopen(root: Path = folder / "root.zt") -> None:
            ztensor.open(root).close()

        counts.setdefault("open", []).append(calls_of(reopen))
    assert all(large < 4.2 * small for small, large in counts.values()), counts


def test_all_objects_of_a_file_are_linked(tmp_path: Path, base: Path) -> None:
    old = base.read_bytes()
    root = linked(tmp_path / "root.zt", base, align=4096)
    assert root.stat().st_size < 16000
    with ztensor.open(root) as reader, ztensor.open(base) as there:
        assert sorted(reader) == sorted(["own", *there])
        for name in there:
            assert reader.metadata(name).attributes == there.metadata(name).attributes
            for role, part in there.metadata(name).components.items():
                assert reader.location(name, role) == there.location(name, role)
                assert reader.metadata(name).components[role].digest == part.digest
        np.testing.assert_array_equal(reader["w"], W)
        np.testing.assert_array_equal(reader["zeros"], ZEROS)
        assert reader.read("eye").to_dense().tolist() == [[1, 0], [0, 1]]
        assert reader.verify(deep=True).outcome == "ok"
        assert reader.attributes == {}
    assert base.read_bytes() == old


CORPUS = Path(__file__).parents[2] / "corpus2"


def test_every_file_of_the_corpus_is_linked(tmp_path: Path) -> None:
    entries = json.loads((CORPUS / "corpus.json").read_text("utf-8"))["files"]
    count = 0
    for entry in entries:
        path = CORPUS / entry["path"]
        if entry["expect"] != "accept" or "shards" in entry:
            continue
        with ztensor.open(path) as there:
            if there.objects.parts()[0].manifest.shards:
                continue
            with v2.Writer(tmp_path / "root.zt", canonical=False) as writer:
                writer.add_shard("s", path)
                writer.link("s")
            with ztensor.open(tmp_path / "root.zt", resolver=lambda _: path) as reader:  # noqa: B023
                assert list(reader) == list(there)
                for name in there:
                    parts = there.metadata(name).components
                    assert reader.metadata(name).components.keys() == parts.keys()
                    for role, part in parts.items():
                        own = reader.metadata(name).components[role]
                        assert dataclasses.replace(own, shard=None, digest=part.digest) == part
                        assert reader.location(name, role) == there.location(name, role)
                assert reader.verify(deep=True).problems == there.verify().problems
        count += 1
    assert count > 50


def test_chosen_objects_are_linked_under_other_names(tmp_path: Path, base: Path) -> None:
    with v2.Writer(tmp_path / "root.zt", canonical=False) as writer:
        writer.add_shard("b", base)
        writer.link("b", {"w": "model.w"})
        writer.link("b", "on")
        writer.link("b", ["tied", "eye"])
    with ztensor.open(tmp_path / "root.zt") as reader:
        assert sorted(reader) == ["eye", "model.w", "on", "tied"]
        assert reader.metadata("model.w").components["data"].shard == "b"


def test_objects_of_ranges_are_written(tmp_path: Path, base: Path) -> None:
    store = File2()
    blob, ones = store.part(W)["blob"][0], store.part(np.ones(2, "f4"))["blob"][0]
    (tmp_path / "store").write_bytes(store.shard())  # without a manifest
    with ztensor.open(base) as reader:
        places = {role: reader.location("eye", role) for role in ("indices", "indptr")}
        zeros, on = reader.location("zeros"), reader.location("on")
    with v2.Writer(tmp_path / "root.zt", canonical=False) as writer:
        writer.add_shard("s", tmp_path / "store")
        writer.add_shard("b", base)

        def part(dtype: str, at: Any, **how: Any) -> dict[str, Any]:
            return {"dtype": dtype, "external": ("b", at.offset, at.offset + at.length), **how}

        data = {"dtype": "f32", "external": ("s", blob, blob + 48)}
        writer.add_object("w", [3, 4], {"data": data}, attributes={"a": 1})
        writer.add_object("flat", [12], {"data": data | {"dtype": "u32"}})
        writer.add_object("none", [0], {"data": data | {"external": ("s", blob, blob)}})
        writer.add_object("on", [2], {"data": part("u8", on, logical="bool")})
        eye = {
            "values": {"dtype": "f32", "external": ("s", ones, ones + 8)},  # of another shard
            "indices": part("u64", places["indices"]),
            "indptr": part("u64", places["indptr"]),
        }
        writer.add_object("eye", [2, 2], eye, layout="zt.sparse_csr/1")
        how = {"encoding": "zt.zstd-seekable/1", "decoded_length": ZEROS.nbytes}
        writer.add_object("zeros", [10000], {"data": part("f64", zeros, **how)})
    with ztensor.open(tmp_path / "root.zt") as reader:
        np.testing.assert_array_equal(reader["w"], W)
        np.testing.assert_array_equal(reader["flat"], W.view(np.uint32).ravel())
        np.testing.assert_array_equal(reader["zeros"], ZEROS)
        assert reader["on"].tolist() == [True, False]
        assert reader.read("eye").to_dense().tolist() == [[1, 0], [0, 1]]
        report = reader.verify(deep=True)
        assert (report.outcome, report.undigested) == ("unchecked", 1)  # zeros


def external(*place: Any, **how: Any) -> Callable[[v2.Writer], None]:
    part = {"dtype": "f32", "external": place, **how}
    return lambda writer: writer.add_object("x", [12], {"data": part})


def twice(writer: v2.Writer) -> None:
    writer.link("b", "w")
    writer.link("b", {"on": "w"})


def of_a_shard(writer: v2.Writer) -> None:
    writer.add_shard("c", "nested.zt")
    writer.link("c")


W_PART = {"dtype": "f32", "external": ("b", 4096, 4144)}
INDEX_PART = W_PART | {"dtype": "u32"}
ROWS = {"values": W_PART, "indices": INDEX_PART, "indptr": INDEX_PART}
# What a writer refuses, after `add_shard("b", base)`; w is at 4096, 48 bytes.
REFUSED: dict[str, tuple[Callable[[v2.Writer], object], type[Exception]]] = {
    "offset between pages": (external("b", 4100, 4148), ValueError),
    "offset 0": (external("b", 0, 48), ValueError),
    "part of a blob": (external("b", 4096, 4128, dtype="f16"), ValueError),
    "more than a blob": (external("b", 4096, 4096 + 96, dtype="f64"), ValueError),
    "into the footer": (external("b", 1 << 20, (1 << 20) + 48), ValueError),
    "beyond 64 bits": (external("b", 1 << 63, (1 << 63) + 48), ValueError),
    "ends before its start": (external("b", 8192, 4096), TypeError),
    "below 0": (external("b", -4096, -4048), TypeError),
    "no numbers": (external("b", "4096", "4144"), TypeError),
    "no range": (external("b"), TypeError),
    "no such shard": (external("c", 4096, 4144), KeyError),
    "data as well": (external("b", 4096, 4144, data=bytes(48)), TypeError),
    "another size than its shape": (external("b", 4096, 4140), ValueError),
    "fewer elements than its shape": (
        lambda writer: writer.add_object("x", [11], {"data": W_PART}), ValueError,
    ),
    "pointers of more rows": (
        lambda writer: writer.add_object("x", [3, 3], ROWS, "zt.sparse_csr/1"), ValueError,
    ),
    "a type that is none": (external("b", 4096, 4144, dtype="f31"), ValueError),
    "a digest of no form": (external("b", 4096, 4144, digest="XXH3:AB"), ValueError),
    "an encoding alone": (external("b", 4096, 4144, encoding="zt.zstd-seekable/1"), ValueError),
    "a name that is taken": (twice, ValueError),
    "an object that is not there": (lambda writer: writer.link("b", "no"), KeyError),
    "a shard that is not there": (lambda writer: writer.link("c"), KeyError),
    "the shard's name again": (lambda writer: writer.add_shard("b", "base.zt"), ValueError),
    "a name with a slash": (lambda writer: writer.add_shard("a/b", "base.zt"), ValueError),
    "two dots": (lambda writer: writer.add_shard("..", "base.zt"), ValueError),
    "no name": (lambda writer: writer.add_shard("", "base.zt"), ValueError),
    "a long name": (lambda writer: writer.add_shard("a" * 65, "base.zt"), ValueError),
    "another digest": (lambda writer: writer.add_shard("c", "base.zt", "crc32c"), ValueError),
    "a file of 1.x": (lambda writer: writer.add_shard("c", "old.zt"), ValueError),
    "another format": (lambda writer: writer.add_shard("c", "w.npz"), ValueError),
    "a damaged file": (lambda writer: writer.add_shard("c", "cut.zt"), ValueError),
    "a missing file": (lambda writer: writer.add_shard("c", "no.zt"), OSError),
    "a folder": (lambda writer: writer.add_shard("c", "."), OSError),
    "a shard's own shard": (of_a_shard, ValueError),
}  # fmt: skip


@pytest.fixture
def others(tmp_path: Path, base: Path) -> Iterator[None]:
    with contextlib.chdir(tmp_path):
        ztensor.numpy.save_file({"w": W}, "old.zt")
        np.savez("w.npz", w=W)
        Path("cut.zt").write_bytes(base.read_bytes()[:-1])
        linked(Path("nested.zt"), base)
        yield


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize("case", REFUSED)
def test_what_no_reader_would_accept_is_refused(case: str, base: Path) -> None:
    act, kind = REFUSED[case]
    with v2.Writer("root.zt", canonical=False) as writer:
        writer.add_shard("b", base)
        writer.link("b", "w")
        with pytest.raises(kind) as caught:
            act(writer)
        assert isinstance(caught.value, ztensor.ZTensorError)
    with ztensor.open("root.zt") as reader:  # the writer goes on
        assert list(reader) == ["w"]
        assert list(reader.objects.parts()[0].manifest.shards) == ["b"]


def test_a_file_is_not_its_own_shard_and_canonical_files_have_none(
    tmp_path: Path, base: Path
) -> None:
    (tmp_path / "link.zt").symlink_to(base)
    for target in (base, tmp_path / "link.zt"):
        with pytest.raises(ValueError, match="own shard"), v2.Writer(target, False) as writer:
            writer.add_shard("b", base)
    with pytest.raises(ValueError, match="canonical"), v2.Writer(tmp_path / "c.zt") as writer:
        writer.add_shard("b", base)
    assert ztensor.open(base).verify().outcome == "ok"


def test_a_later_change_of_the_shard_is_noticed(tmp_path: Path, base: Path) -> None:
    root, shard = linked(tmp_path / "root.zt", base), tmp_path / "root-b.zt"
    base.rename(shard)
    data = bytearray(shard.read_bytes())
    data[4096 + 5] ^= 1
    shard.write_bytes(data)
    with ztensor.open(root) as reader:
        problems = reader.verify(deep=True).problems
    assert {problem.reason for problem in problems} == {Reason.DIGEST_MISMATCH}
    assert ("shards", "b") in {problem.path for problem in problems}
    with ztensor.Editor(shard) as editor:
        editor.write("more", W)
    longer = shard.read_bytes()
    ztensor.numpy.save_file({"w": W}, shard)
    for other in (longer, shard.read_bytes()):
        shard.write_bytes(other)
        with pytest.raises(ztensor.FormatError) as caught:
            ztensor.open(root)
        assert caught.value.reason is Reason.SHARD_FILE


def test_info_shows_the_files_of_a_root(tmp_path: Path, base: Path) -> None:
    root = linked(tmp_path / "root.zt", base)
    facts = summarize(ztensor.open(root))
    assert facts["files"] == [str(root), str(base)]
    assert facts["nbytes"] == root.stat().st_size + base.stat().st_size
    assert facts["dead_nbytes"] == 0
    assert facts["manifest"]["nbytes"]


def test_verbs_keep_references_or_copy_bytes_and_never_touch_the_shard(
    tmp_path: Path, base: Path
) -> None:
    old, root = base.read_bytes(), linked(tmp_path / "root.zt", base)
    with v2.Writer(root, canonical=False, append=True) as writer:
        writer.add_shard("c", base)
        writer.link("c", {"w": "again"})
        writer.add("more", W, [3, 4], "f32")
    with pytest.raises(ValueError, match="taken"), v2.Writer(root, False, append=True) as writer:
        writer.add_shard("c", base)
    with ztensor.Editor(root) as editor:
        editor.remove("own")
        editor.rename({"w": "v"})
        editor.rename({"v": "w"})
    assert ztensor.repair(root).is_clean
    ztensor.compact(root)
    with ztensor.open(root) as reader:
        assert reader.metadata("w").components["data"].shard == "b"
        assert reader.verify(deep=True).outcome == "ok"
        np.testing.assert_array_equal(reader["again"], W)
    how: Any
    for target, how in (("a.zt", {}), ("b.zt", {"version": "2.1"}), ("c.safetensors", {})):
        if target == "c.safetensors":
            with ztensor.Editor(root) as editor:
                editor.remove("eye")
        ztensor.convert(root, tmp_path / target, **how)
        with ztensor.open(tmp_path / target) as reader:
            np.testing.assert_array_equal(reader["again"], W)
            assert reader.objects.paths == (str(tmp_path / target),)
    ztensor.compact(root, canonical=True)
    assert base.read_bytes() == old
    base.unlink()
    with ztensor.open(root) as reader:
        np.testing.assert_array_equal(reader["w"], W)
        assert reader.verify(deep=True).outcome == "ok"

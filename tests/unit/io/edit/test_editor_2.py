"""Changes of files of 2.x: old bytes and fields stay, and wrong changes are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

import ztensor
from tests.unit.distributed.saving import save as save_divided
from ztensor import edit
from ztensor.errors import NotRepresentableError, UsageError
from ztensor.ext import ALGORITHMS, FileObjects, Manifest, cbor, source_of
from ztensor.limits import DEFAULT_LIMITS
from ztensor.numpy import save_file
from ztensor.testing.builder_2 import File2, dense, footer

FOUR = np.arange(4, dtype=np.float32)
CORPUS = Path(__file__).resolve().parents[3] / "corpus2"
RIGHT = sorted(path for path in (CORPUS / "spec").glob("*.zt"))


def manifest_of(path: Path) -> Manifest:
    return FileObjects.manifest_in(source_of(path.read_bytes(), mapped=False), DEFAULT_LIMITS)[1]


def first(path: Path, **options: Any) -> Path:
    with ztensor.Writer(path, version="2.1", attributes={"s": "1"}, **options) as writer:
        writer.write("a", FOUR)
        writer.write("b", FOUR + 1)
    return path


@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.name)
def test_every_right_file_of_the_corpus_is_changed_and_keeps_the_rest(
    path: Path, tmp_path: Path
) -> None:
    """Every field, also those no version names, of every object but the one that is added."""
    copy = tmp_path / "m.zt"
    copy.write_bytes(path.read_bytes())
    before = manifest_of(copy)
    for atomic in (False, True):
        with ztensor.Editor(copy, atomic=atomic) as editor:
            editor.write("one more", FOUR)
        after = manifest_of(copy)
        kept = {name: one for name, one in after.objects.items() if name != "one more"}
        assert kept == dict(before.objects)
        assert repr((after.attributes, after.extra)) == repr((before.attributes, before.extra))
        assert ztensor.open(copy)["one more"].tolist() == FOUR.tolist()
        edit.remove_tensors(copy, names="one more")
        after = manifest_of(copy)
        assert dict(after.objects) == dict(before.objects)
        # A NaN does not equal itself.
        assert repr((after.attributes, after.extra)) == repr((before.attributes, before.extra))
    edit.compact(copy)
    compacted = manifest_of(copy)
    assert compacted.extra == before.extra
    assert _without_places(compacted) == _without_places(before)


def _without_places(manifest: Manifest) -> dict[str, Any]:
    return {
        name: one._replace(
            components={
                role: part._replace(offset=0, digest=None) for role, part in one.components.items()
            },
        )
        for name, one in manifest.objects.items()
    }


@pytest.mark.parametrize("alignment", [4096, 8192, 65536])
def test_the_alignment_of_the_file_is_kept(alignment: int, tmp_path: Path) -> None:
    path = first(tmp_path / "m.zt", alignment=alignment)
    changes: list[Callable[[], int]] = [
        lambda: edit.replace_tensor(path, "b", FOUR[:3]),
        lambda: edit.set_attributes(path, {"x": 1}),
        lambda: edit.compact(path),
    ]
    for change in changes:
        change()
        offsets = [int.from_bytes(path.read_bytes()[-40:-32], "little")]  # of the manifest
        with ztensor.open(path) as reader:
            offsets += [reader.location(name).offset for name in reader]
        assert all(offset % alignment == 0 for offset in offsets)
        assert alignment == 65536 or any(offset % (2 * alignment) for offset in offsets)
    assert path.stat().st_size < 4 * alignment


@pytest.mark.parametrize("version", ["1.2.0", "2.1"])
@pytest.mark.parametrize("checksum", ["sha256", True, None])
def test_the_kind_of_digest_is_kept_if_there_is_one(
    version: str, checksum: Any, tmp_path: Path
) -> None:
    path = tmp_path / "m.zt"
    save_file({"a": FOUR}, path, version=version, checksum=checksum)
    with ztensor.Editor(path) as writer:
        writer.write("b", FOUR)
        writer.write("c", FOUR, checksum=False)
    with ztensor.Editor(path, checksum="sha256") as writer:
        writer.write("d", FOUR)
    with ztensor.open(path) as reader:
        found = [str(reader.metadata(name).components["data"].digest) for name in "bcd"]
    usual = {"1.2.0": "crc32c", "2.1": "xxh3"}[version]
    expected = "sha256" if checksum == "sha256" else usual
    assert [digest.partition(":")[0] for digest in found] == [expected, "None", "sha256"]


# --- Shards ---------------------------------------------------------------------------------


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """A root with an object of its own and one in each of two shards, one of them unneeded."""
    root = File2()
    table: dict[str, Any] = {}
    objects: dict[str, Any] = {}
    for name in ("a", "b", "spare"):
        file = File2()
        file.part(FOUR)
        part = file.part(FOUR + len(table))
        shard = file.shard()
        (tmp_path / f"m-{name}.zt").write_bytes(shard)
        digest = ALGORITHMS["sha256"].of([shard])
        table[name] = {"size": len(shard), "digest": digest}
        if name != "spare":
            objects[f"in {name}"] = dense(part | {"shard": name}, [4])
    objects["here"] = dense(root.part(FOUR + 7), [4])
    path = tmp_path / "m.zt"
    path.write_bytes(root.seal({"objects": objects, "shards": table}))
    return path


@pytest.mark.parametrize("atomic", [False, True])
def test_the_root_of_shards_is_changed_and_they_are_not(
    sharded: Path, atomic: bool, tmp_path: Path
) -> None:
    shards = {path: path.read_bytes() for path in tmp_path.glob("m-*.zt")}
    with ztensor.Editor(sharded, atomic=atomic) as editor:
        editor.write("new", FOUR + 9)
        editor.rename({"in a": "still in a"})
        editor.set_attributes({"x": 1}, name="still in a")
        editor.replace("in b", FOUR + 5)
    for _ in range(2):
        with ztensor.open(sharded) as reader:
            assert reader.verify(deep=True).outcome == "ok"
            assert {name: reader[name].tolist() for name in reader} == {
                "new": (FOUR + 9).tolist(), "still in a": FOUR.tolist(),
                "in b": (FOUR + 5).tolist(), "here": (FOUR + 7).tolist(),
            }  # fmt: skip
            assert reader.metadata("still in a").attributes == {"x": 1}
            assert reader.location("still in a").path == str(tmp_path / "m-a.zt")
            assert reader.location("in b").path == str(sharded)
        # A shard that became unused is not named any more; one that never was used stays.
        assert set(manifest_of(sharded).shards) == {"a", "spare"}
        edit.compact(sharded)
    assert {path: path.read_bytes() for path in shards} == shards


def test_a_shard_without_a_manifest_is_refused(sharded: Path, tmp_path: Path) -> None:
    path = tmp_path / "m-a.zt"
    before = path.read_bytes()
    calls: list[Any] = [
        lambda: ztensor.Editor(path),
        lambda: edit.compact(path),
        lambda: edit.set_attributes(path, {"x": 1}),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="data shard") as caught:
            call()
        assert "file that names it" in str(caught.value)
    assert path.read_bytes() == before
    assert sharded.exists()


def test_blobs_behind_the_manifest_are_kept(tmp_path: Path) -> None:
    """An atomic change copies all blobs, also those behind the manifest."""
    blob = FOUR.tobytes()
    digest = ALGORITHMS["xxh3"].of([blob])
    part = {"dtype": "f32", "blob": [8192, len(blob)], "digest": digest}
    manifest = cbor.encode({"objects": {"w": dense(part, [4])}})
    file = File2()
    place = file.blob(manifest)
    assert file.blob(blob) == part["blob"]
    path = tmp_path / "m.zt"
    path.write_bytes(
        bytes(file.data) + footer(place[0], place[1], xxhash.xxh3_64_intdigest(manifest))
    )
    for dry_run in (True, False):
        with ztensor.Editor(path, atomic=True, dry_run=dry_run) as editor:
            editor.write("new", FOUR + 1)
            length = editor.finish()
    assert path.stat().st_size == length
    with ztensor.open(path) as reader:
        assert reader.verify(deep=True).outcome == "ok"
        assert reader["w"].tolist() == FOUR.tolist()
        assert reader["new"].tolist() == (FOUR + 1).tolist()


# --- Refusals -------------------------------------------------------------------------------


def test_the_root_of_a_divided_checkpoint_is_not_changed(tmp_path: Path) -> None:
    """It describes other files, and would be wrong; under another name it is a plain file."""
    save_divided(tmp_path, {"w": FOUR.reshape(2, 2)}, processes=2)
    root = tmp_path / "checkpoint.zt"
    before = root.read_bytes()
    with pytest.raises(UsageError, match="distributed checkpoint"):
        ztensor.Editor(root)
    assert root.read_bytes() == before
    other = root.with_name("other.zt")
    other.write_bytes(before)
    edit.set_attributes(other, {"x": 1})
    assert ztensor.open(other).attributes["x"] == 1
    plain = tmp_path / "plain" / "checkpoint.zt"
    plain.parent.mkdir()
    edit.set_attributes(first(plain), {"x": 1})
    assert ztensor.open(plain).attributes["x"] == 1


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 1025])
def test_names_that_2_x_does_not_take(name: str, tmp_path: Path) -> None:
    path = first(tmp_path / "m.zt")
    before = path.read_bytes()
    editor = ztensor.Editor(path)
    with pytest.raises(NotRepresentableError):
        editor.write(name, FOUR)
    with pytest.raises(NotRepresentableError):
        editor.rename({"a": name})
    with pytest.raises(NotRepresentableError):
        editor.set_attributes({name: 1})
    with pytest.raises(NotRepresentableError):
        editor.set_attributes({name: 1}, name="a")
    editor.abort()
    assert path.read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("file", ["quant_group.zt", "mx.zt", "gguf.zt", "csr.zt"])
def test_attributes_that_a_layout_needs_are_not_broken(file: str, tmp_path: Path) -> None:
    """The file could not be opened any more, with all its objects."""
    path = tmp_path / "m.zt"
    path.write_bytes((CORPUS / "spec" / file).read_bytes())
    refused = 0
    with ztensor.open(path) as reader:
        attributes = {name: reader.metadata(name).attributes for name in reader}
    for name, own in attributes.items():
        for key in [*own, "elems_per_block", "axis"]:
            for value in (5, -1, "x", None):
                before = path.read_bytes()
                found = None
                try:
                    edit.set_attributes(path, {key: value}, name=name)
                except NotRepresentableError as error:
                    found = error
                if found is not None:
                    refused += 1
                    assert found.object_name == name
                    assert path.read_bytes() == before
                with ztensor.open(path) as reader:
                    assert set(reader) == set(attributes)
                    assert reader.verify().ok
    assert refused or file in ("csr.zt", "gguf.zt")
    edit.set_attributes(path, {"mine": 1}, name=name)
    with ztensor.open(path) as reader:
        assert reader.metadata(name).attributes["mine"] == 1


# --- Compact --------------------------------------------------------------------------------


def test_a_canonical_file_is_compacted_to_the_same_bytes(sharded: Path, tmp_path: Path) -> None:
    path = tmp_path / "canonical.zt"
    save_file({"b": FOUR, "a": FOUR + 1, "aa": FOUR}, path, version="2.1", canonical=True)
    before = path.read_bytes()
    with ztensor.Editor(path) as editor:
        editor.write("new", FOUR)
        editor.replace("a", FOUR + 2)
    with ztensor.Editor(path) as editor:
        editor.replace("a", FOUR + 1)
        editor.remove("new")
    assert ztensor.insight.canonical_problems(path)
    edit.compact(path, canonical=True)
    assert path.read_bytes() == before
    edit.compact(sharded, canonical=True)  # objects in other files become part of it
    assert not ztensor.insight.canonical_problems(sharded)
    assert not manifest_of(sharded).shards
    with ztensor.open(sharded) as reader:
        assert reader["in b"].tolist() == (FOUR + 1).tolist()
        assert reader.location("in b").path == str(sharded)
    save_file({"a": FOUR}, tmp_path / "1.zt")
    with pytest.raises(ztensor.errors.ArgumentValueError):
        edit.compact(tmp_path / "1.zt", canonical=True)

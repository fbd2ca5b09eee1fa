"""New files out of finished ones: compact, merge, split."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.flipping import flip
from tests.refusals import refused
from ztensor.converting.splitting import plan_split, split
from ztensor.edit import compact, merge, names_in, remove_tensors
from ztensor.errors import (
    ArgumentValueError,
    DigestMismatchError,
    FormatError,
    NotRepresentableError,
    Reason,
    SourceError,
    UsageError,
)
from ztensor.numpy import load_file, save_file
from ztensor.options import parse_size
from ztensor.testing.builder import VALUES, build, draft, stored

FOUR = np.arange(4, dtype=np.float32)
LARGE = np.arange(30_000, dtype=np.int64)


def values(path: Path) -> dict[str, Any]:
    with ztensor.open(path) as reader:
        assert not reader.verify().problems
        return {name: reader.read(name).to_dense().tolist() for name in reader}


def described(path: Path) -> dict[str, Any]:
    """Return what a file says of its objects but where their bytes lie."""
    with ztensor.open(path) as reader:
        return {
            name: (
                metadata.shape,
                metadata.format,
                metadata.attributes,
                {
                    role: {key: part[key] for key in part if key != "offset"}
                    for role, part in metadata.components.items()
                },
            )
            for name, metadata in ((name, reader.metadata(name)) for name in reader)
        }


# --- Compact --------------------------------------------------------------------------------


@pytest.fixture
def patched(tmp_path: Path) -> Path:
    """Give a file with a past: replaced and removed objects, tied ones, a compressed one."""
    path = tmp_path / "m.zt"
    with ztensor.Writer(path, attributes={"step": 1}) as writer:
        writer.write("tied", FOUR)
        writer.share("tied too", "tied")
        writer.write("packed", LARGE, compress=True, checksum="sha256")
        writer.write("plain", FOUR, checksum=False)
        writer.write("gone", LARGE)
        writer.write("old", LARGE)
    ztensor.edit.remove_tensors(path, names="gone")
    ztensor.edit.replace_tensor(path, "old", FOUR + 1)
    return path


def test_compacting_gives_back_what_is_dead_and_keeps_the_rest(patched: Path) -> None:
    patched.chmod(0o600)
    before, size = described(patched), patched.stat().st_size
    old = values(patched)
    saved = ztensor.compact(patched)
    assert patched.stat().st_size == size - saved
    assert saved > 2 * LARGE.nbytes
    after = described(patched)
    # Who had no digest gets one: from now on damage shows.
    assert before["plain"][3]["data"].pop("digest") is None
    assert after["plain"][3]["data"].pop("digest").startswith("crc32c:")
    assert after == before
    assert values(patched) == old
    assert stat.S_IMODE(patched.stat().st_mode) == 0o600
    with ztensor.open(patched) as reader:
        assert reader.attributes == {"step": 1}
        places = [reader.metadata(name).components["data"].offset for name in ("tied", "tied too")]
        assert places[0] == places[1]
        commit = reader.objects.parts()[0].manifest.commit
        assert commit is not None
        assert commit.prev == 0
    assert os.listdir(patched.parent) == ["m.zt"]
    assert ztensor.compact(patched) == 0


@pytest.mark.parametrize("version", ["0.1.0", "1.1.0", "1.2.0"])
def test_compacting_keeps_the_version_where_it_is_written(version: str, tmp_path: Path) -> None:
    path = tmp_path / "m.zt"
    path.write_bytes(build(version))
    old = values(path)
    ztensor.compact(path)
    with ztensor.open(path) as reader:
        assert reader.version == version
    assert values(path) == old
    if version != "0.1.0":
        ztensor.edit.remove_tensors(path, names="matrix")
        assert ztensor.compact(path) > 0
        assert values(path) == {name: old[name] for name in old if name != "matrix"}


def test_progress_counts_stored_bytes_to_the_end(patched: Path) -> None:
    seen: list[tuple[int, int]] = []
    ztensor.compact(patched, progress=lambda done, total: seen.append((done, total)))
    assert seen
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]
    assert len({total for _, total in seen}) == 1


def test_a_damaged_file_is_left_as_it_is(patched: Path) -> None:
    with ztensor.open(patched) as reader:
        place = reader.metadata("tied").components["data"].offset
    data = bytearray(patched.read_bytes())
    data[place] ^= 1
    patched.write_bytes(data)
    with pytest.raises(DigestMismatchError, match="tied"):
        ztensor.compact(patched)
    assert patched.read_bytes() == data
    patched.write_bytes(data[:-5])
    with pytest.raises(FormatError):
        ztensor.compact(patched)
    assert patched.read_bytes() == data[:-5]
    assert os.listdir(patched.parent) == ["m.zt"]


# --- Merge ----------------------------------------------------------------------------------


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    """Give three files: names of their own, and one that all have."""
    paths = [tmp_path / f"{number}.zt" for number in range(3)]
    for number, path in enumerate(paths):
        tensors = {f"own {number}": FOUR + number, "all": np.full(3, number)}
        save_file(tensors, path, {"who": f"{number}", f"key {number}": "v"})
    return paths


def test_names_of_two_files_are_an_error(three: list[Path], tmp_path: Path) -> None:
    with refused(UsageError, Reason.DUPLICATE_WRITE, match="on_conflict") as caught:
        merge(three, tmp_path / "out.zt")
    assert caught.value.object_name == "all"
    assert not (tmp_path / "out.zt").exists()


@pytest.mark.parametrize(("on_conflict", "winner"), [("first", 0), ("last", 2)])
@pytest.mark.parametrize("output", ["out.zt", "0.zt", "1.zt", "2.zt"])
def test_the_first_or_the_last_wins(
    three: list[Path], tmp_path: Path, on_conflict: Any, winner: int, output: str
) -> None:
    others = {path: path.read_bytes() for path in three if path.name != output}
    size = merge(three, tmp_path / output, on_conflict=on_conflict)
    assert size == (tmp_path / output).stat().st_size
    expected = {f"own {number}": (FOUR + number).tolist() for number in range(3)}
    assert values(tmp_path / output) == {**expected, "all": [winner] * 3}
    assert all(path.read_bytes() == data for path, data in others.items())
    with ztensor.open(tmp_path / output) as reader:
        keys = {f"key {number}": "v" for number in range(3)}
        assert reader.attributes == {"who": "2", **keys}


def test_attributes_of_the_merged_file_can_be_given(three: list[Path], tmp_path: Path) -> None:
    merge(three, tmp_path / "out.zt", on_conflict="first", attributes={"a": 1})
    with ztensor.open(tmp_path / "out.zt") as reader:
        assert reader.attributes == {"a": 1}


@pytest.mark.parametrize("inputs", [0, 1])
def test_few_files_are_merged(three: list[Path], tmp_path: Path, inputs: int) -> None:
    merge(three[:inputs], tmp_path / "out.zt")
    assert len(values(tmp_path / "out.zt")) == 2 * inputs


def test_stored_bytes_are_copied_and_not_decoded(tmp_path: Path) -> None:
    with ztensor.Writer(tmp_path / "a.zt", compression=19, checksum="sha256") as writer:
        writer.write("packed", LARGE)
        writer.share("tied", "packed")
    save_file({"plain": FOUR}, tmp_path / "b.zt", checksum=None)
    before = {**described(tmp_path / "a.zt"), **described(tmp_path / "b.zt")}
    merge([tmp_path / "a.zt", tmp_path / "b.zt"], tmp_path / "out.zt", durable=False)
    after = described(tmp_path / "out.zt")
    assert before.pop("plain")[3]["data"]["digest"] is None
    assert str(after.pop("plain")[3]["data"]["digest"]).startswith("crc32c:")
    assert after == before
    assert (tmp_path / "out.zt").stat().st_size < (tmp_path / "a.zt").stat().st_size + 400


@pytest.mark.parametrize("version", ["1.1.0", "1.2.0"])
def test_every_version_is_merged_into_one(version: str, tmp_path: Path) -> None:
    paths = []
    for number, old in enumerate(["0.1.0", "1.1.0", "1.2.0"]):
        path = tmp_path / f"{number}.zt"
        path.write_bytes(build(old))
        paths.append(path)
    merge(paths, tmp_path / "out.zt", on_conflict="first", version=version)
    assert values(tmp_path / "out.zt") == VALUES
    with ztensor.open(tmp_path / "out.zt") as reader:
        assert reader.version == version


def test_big_endian_data_of_0_1_is_turned(tmp_path: Path) -> None:
    old = draft("0.1.0")
    old.objects["matrix"]["data_endianness"] = "big"
    old.blobs["matrix", "data"] = np.array(VALUES["matrix"], ">i4").tobytes()
    old.blobs["flags", "data"] = b"\x02\x00\xff\x01"
    (tmp_path / "old.zt").write_bytes(old.to_bytes())
    expected = {name: VALUES[name] for name in old.objects}
    assert values(tmp_path / "old.zt") == expected
    merge([tmp_path / "old.zt"], tmp_path / "out.zt")
    assert values(tmp_path / "out.zt") == expected
    with ztensor.open(tmp_path / "out.zt") as reader:
        place = reader.metadata("flags").components["data"].offset
    assert (tmp_path / "out.zt").read_bytes()[place : place + 4] == b"\x01\x00\x01\x01"


def test_indices_become_u64(tmp_path: Path) -> None:
    old = draft("1.2.0")
    old.component("rows", "indices")["dtype"] = "i32"
    old.blobs["rows", "indices"] = stored("i32", 0, 2, 2)
    old.component("points", "coords")["dtype"] = "u8"
    old.blobs["points", "coords"] = stored("u8", 1, 0, 0, 1)
    (tmp_path / "old.zt").write_bytes(old.to_bytes())
    merge([tmp_path / "old.zt"], tmp_path / "out.zt")
    assert values(tmp_path / "out.zt") == VALUES
    with ztensor.open(tmp_path / "out.zt") as reader:
        for name, role in (("rows", "indices"), ("points", "coords")):
            assert reader.metadata(name).components[role].dtype == "uint64"


def test_what_cannot_be_merged_leaves_no_file(tmp_path: Path) -> None:
    save_file({"a": FOUR}, tmp_path / "a.zt", {"number": 5})
    out = tmp_path / "out.zt"
    with pytest.raises(ArgumentValueError, match="on_conflict"):
        merge([tmp_path / "a.zt"], out, on_conflict="both")  # type: ignore[arg-type]  # the point
    with pytest.raises(NotRepresentableError):
        merge([tmp_path / "a.zt"], out, version="1.1.0")  # attributes are text there
    with pytest.raises(SourceError):
        merge([tmp_path / "a.zt", tmp_path / "missing.zt"], out)
    flip(tmp_path / "a.zt", 64)
    with pytest.raises(DigestMismatchError) as caught:
        merge([tmp_path / "a.zt"], out)
    assert str(tmp_path / "a.zt") in str(caught.value)
    assert caught.value.object_name == "a"
    assert os.listdir(tmp_path) == ["a.zt"]


# --- Split ----------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Give ten objects of 4,000 bytes, one large one, and one that shares bytes."""
    path = tmp_path / "model.zt"
    tensors = {f"layer.{number}": np.full(1000, number, np.float32) for number in range(10)}
    tensors["large"] = np.arange(6000, dtype=np.float32)
    tensors["tied"] = tensors["layer.9"]
    save_file(tensors, path, {"step": "1"})
    return path


def test_the_index_has_the_shape_of_the_hub(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    folder.mkdir()
    paths = split(model, folder, max_shard_size="10KB")
    assert paths[-1] == str(folder / "model.zt.index.json")
    index = json.loads((folder / "model.zt.index.json").read_text("ascii"))
    assert set(index) == {"metadata", "weight_map"}
    with ztensor.open(model) as reader:
        assert set(index["weight_map"]) == set(reader)
        assert index["metadata"]["total_size"] == sum(reader.metadata(n).nbytes for n in reader)
    shards = [os.path.basename(path) for path in paths[:-1]]
    assert shards == [
        f"model-{number:05d}-of-{len(shards):05d}.zt" for number in range(1, len(shards) + 1)
    ]
    assert sorted(set(index["weight_map"].values())) == shards
    digests = {
        shard: f"sha256:{hashlib.sha256((folder / shard).read_bytes()).hexdigest()}"
        for shard in shards
    }
    assert {
        shard: digest.replace("sha256:0x", "sha256:")
        for shard, digest in index["metadata"]["digests"].items()
    } == digests
    assert sorted(os.listdir(folder)) == [*shards, "model.zt.index.json"]


def test_shards_hold_everything_and_keep_to_the_size(model: Path, tmp_path: Path) -> None:
    old = load_file(model)
    paths = split(model, max_shard_size=10_000)
    found: dict[str, Any] = {}
    for path in paths[:-1]:
        with ztensor.open(path) as reader:
            assert reader.attributes == {"step": "1"}
            assert reader.verify().ok
            blobs = {reader.location(name) for name in reader}  # two names may share one
            assert sum(blob.length for blob in blobs) <= 10_000 or len(reader) == 1
            found.update({name: reader.read_numpy(name, copy=True) for name in reader})
    assert found.keys() == old.keys()
    assert all((found[name] == old[name]).all() for name in old)
    assert os.path.dirname(paths[0]) == str(tmp_path)
    assert values(model)  # still there


def test_shards_put_together_are_the_file(model: Path, tmp_path: Path) -> None:
    paths = split(model, max_shard_size="5kB")
    merge(paths[:-1], tmp_path / "again.zt")
    assert values(tmp_path / "again.zt") == values(model)


@pytest.mark.parametrize("version", ["0.1.0", "1.1.0", "1.2.0"])
def test_shards_are_of_the_files_version(version: str, tmp_path: Path) -> None:
    path = tmp_path / "m.zt"
    path.write_bytes(build(version))
    paths = split(path, max_shard_size=20)
    assert len(paths) >= 3
    found: dict[str, Any] = {}
    for shard in paths[:-1]:
        with ztensor.open(shard) as reader:
            assert reader.version == version
            found.update({name: reader.read(name).to_dense().tolist() for name in reader})
    assert found == values(path)


def test_one_shard_and_none(tmp_path: Path) -> None:
    save_file({"a": FOUR}, tmp_path / "a.zt")
    assert [os.path.basename(path) for path in split(tmp_path / "a.zt")] == [
        "a-00001-of-00001.zt",
        "a.zt.index.json",
    ]
    save_file({}, tmp_path / "empty")
    paths = split(tmp_path / "empty")
    assert os.path.basename(paths[0]) == "empty-00001-of-00001.zt"
    assert values(tmp_path / "empty-00001-of-00001.zt") == {}


def test_a_split_that_fails_on_the_way_leaves_no_index(model: Path, tmp_path: Path) -> None:
    with ztensor.open(model) as reader:
        place = reader.metadata("tied").components["data"].offset
    data = bytearray(model.read_bytes())
    data[place] ^= 1
    model.write_bytes(data)
    folder = tmp_path / "shards"
    folder.mkdir()
    with pytest.raises(DigestMismatchError):
        split(model, folder, max_shard_size=5000)
    left = os.listdir(folder)
    assert not any(name.endswith((".json", ".tmp")) for name in left)
    assert model.read_bytes() == data


def test_a_folder_that_is_missing_is_made(model: Path, tmp_path: Path) -> None:
    split(model, tmp_path / "missing" / "deeper")
    assert values(tmp_path / "missing" / "deeper") == values(model)


@pytest.mark.parametrize("text", ["", "x", "-5", "0", 0, -1, True, None, 1.5, "5 XB", "1e9", "0.1"])
def test_what_is_no_size(text: Any) -> None:
    with pytest.raises(ArgumentValueError):
        parse_size(text)


# --- Tied tensors ---------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["memory", "content"])
@pytest.mark.parametrize("version", ["0.1.0", "1.1.0", "1.2.0"])
def test_tied_names_are_stored_once_reported_and_read_back(
    version: str, by: Any, tmp_path: Path
) -> None:
    path = tmp_path / "m.zt"
    twin = LARGE if by == "memory" else LARGE.copy()
    tensors = {"a": LARGE, "b": twin, "c": twin[:0], "d": LARGE[:5], "e": LARGE.reshape(2, -1)}
    shared = save_file(tensors, path, version=version, deduplicate=by)
    assert shared == {"b": "a"}
    assert path.stat().st_size < 2 * LARGE.nbytes + 6000
    loaded = load_file(path, copy=True)
    assert all(np.array_equal(loaded[name], value) for name, value in tensors.items())
    with ztensor.open(path) as reader:
        assert reader.verify().ok
        reader["a"][0] = 99  # a view of the file, copied where it is written to
        with ztensor.open(path) as another:
            assert another["b"][0] == 0


def test_equal_bytes_of_another_shape_or_type_are_not_one(tmp_path: Path) -> None:
    zeros = {"f": np.zeros(8, np.float32), "i": np.zeros(8, np.int32), "g": np.zeros((2, 4), "f4")}
    assert save_file(zeros, tmp_path / "m.zt", deduplicate="content") == {}
    loaded = load_file(tmp_path / "m.zt")
    assert {name: (value.dtype, value.shape) for name, value in loaded.items()} == {
        name: (value.dtype, value.shape) for name, value in zeros.items()
    }


def test_arrays_a_mapping_makes_when_asked_are_not_taken_for_one(tmp_path: Path) -> None:
    """Their addresses are used again as soon as they are gone."""
    tensors = {f"t{number}": np.full(5000, number) for number in range(9)}
    save_file(tensors, tmp_path / "a.zt", compression=True)
    with ztensor.open(tmp_path / "a.zt") as reader:
        assert save_file(reader, tmp_path / "b.zt") == {}
    loaded = load_file(tmp_path / "b.zt")
    assert all((loaded[name] == value).all() for name, value in tensors.items())


# --- Files of other formats -----------------------------------------------------------------


def test_a_file_of_another_format_is_not_compacted(tmp_path: Path) -> None:
    """It would become one of ours under its old name, and what only it can say would be gone."""
    path = tmp_path / "m.npy"
    np.save(path, FOUR)
    before = path.read_bytes()
    with pytest.raises(UsageError, match=r": npy; `ztensor convert .*m\.npy' OUT\.zt`"):
        ztensor.compact(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("folder", [None, "out"])
def test_shards_of_another_format_are_called_zt(tmp_path: Path, folder: str | None) -> None:
    np.savez(tmp_path / "m.npz", a=FOUR, b=LARGE)
    place = tmp_path if folder is None else tmp_path / folder
    place.mkdir(exist_ok=True)
    written = ztensor.split(tmp_path / "m.npz", place)
    assert [os.path.basename(path) for path in written] == [
        "m-00001-of-00001.zt",
        "m.zt.index.json",
    ]
    assert values(place / "m.zt.index.json") == values(tmp_path / "m.npz")


def test_what_is_not_kept_is_in_no_file(three: list[Path], tmp_path: Path) -> None:
    with ztensor.open(three[0]) as reader:
        first, *others = reader
    ztensor.merge(three[:1], tmp_path / "merged.zt", keep=first.__ne__)
    assert list(ztensor.open(tmp_path / "merged.zt")) == others
    (tmp_path / "shards").mkdir()
    *_, index = ztensor.split(three[0], tmp_path / "shards", keep=first.__eq__)
    with ztensor.open(index) as reader:
        assert list(reader) == [first]
        assert reader.verify().ok


def test_only_a_single_array_without_a_name_is_called_as_its_file(tmp_path: Path) -> None:
    scipy = pytest.importorskip("scipy", reason="SciPy is optional")
    array, sparse = np.ones((2, 3)), scipy.sparse.csr_matrix(np.eye(3))
    np.save(tmp_path / "one.npy", array)
    np.savez(tmp_path / "named.npz", w=array)
    np.savez(tmp_path / "several.npz", v=array, w=array)
    save_file({"s": ztensor.Tensor.from_scipy(sparse)}, tmp_path / "ours.zt")
    for file, expected in {
        "one.npy": {"one": "array"},
        "named.npz": {"w": "w"},
        "several.npz": {"v": "v", "w": "w"},
        "ours.zt": {"s": "s"},
    }.items():
        with ztensor.open(tmp_path / file) as reader:
            assert names_in(reader) == expected
    with ztensor.open((tmp_path / "one.npy").read_bytes()) as reader:
        assert names_in(reader) == {name: name for name in reader}


@pytest.mark.parametrize("alignment", [4096, 65536])
def test_compacting_keeps_the_alignment_of_2_x(alignment: int, tmp_path: Path) -> None:
    path = tmp_path / "m.zt"
    with ztensor.Writer(path, version="2.1", alignment=alignment) as writer:
        writer.write("a", np.ones(3))
        writer.write("b", np.ones(5))
        writer.write("c", np.ones(7))
    remove_tensors(path, names=["a"])
    compact(path)
    with ztensor.open(path) as reader:
        assert [reader.location(name).offset for name in reader] == [alignment, 2 * alignment]


def test_shards_of_ours_hold_everything_or_are_not_written(tmp_path: Path) -> None:
    """Those of another format hold what it can say."""
    np.savez(tmp_path / "m.npz", text=np.array(["a"]), w=FOUR)
    out = tmp_path / "out"
    with pytest.raises(NotRepresentableError, match="text"):
        split(tmp_path / "m.npz", out)
    assert not out.exists()
    shard, _ = split(tmp_path / "m.npz", out, to="safetensors")
    with ztensor.open(shard) as reader:
        assert list(reader) == ["w"]


def test_what_is_behind_a_url_is_split_into_a_folder_that_is_told(tmp_path: Path) -> None:
    obstore = pytest.importorskip("obstore", reason="obstore reads URLs")
    store = obstore.store.MemoryStore()
    obstore.put(store, "m.zt", ztensor.numpy.save({"v": FOUR, "w": LARGE}))
    url: Any = ztensor.Remote("memory:///m.zt", store)
    with pytest.raises(UsageError, match="a URL has none"):
        plan_split(url)
    shards, index = plan_split(url, tmp_path)
    assert [shard.names for shard in shards] == [("v", "w")]
    assert index == str(tmp_path / "m.zt.index.json")

"""New files out of finished ones: compact, merge, split."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.flipping import flip
from tests.refusals import refused
from ztensor.converting.splitting import plan_split, split
from ztensor.edit import compact, merge, names_in
from ztensor.errors import (
    ArgumentValueError,
    DigestMismatchError,
    NotRepresentableError,
    Reason,
    SourceError,
    UsageError,
)
from ztensor.numpy import save_file

FOUR = np.arange(4, dtype=np.float32)
LARGE = np.arange(30_000, dtype=np.int64)


def values(path: Path) -> dict[str, Any]:
    with ztensor.open(path) as reader:
        assert not reader.verify().problems
        return {name: reader.read(name).to_dense().tolist() for name in reader}


def described(path: Path) -> dict[str, Any]:
    """Return the manifest entries of a file without offsets."""
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
    # An object without a digest gets one: from now on damage shows.
    assert before["plain"][3]["data"].pop("digest") is None
    assert after["plain"][3]["data"].pop("digest").startswith("crc32c:")
    assert after == before
    assert values(patched) == old
    assert stat.S_IMODE(patched.stat().st_mode) == 0o600
    with ztensor.open(patched) as reader:
        assert reader.attributes == {"step": 1}
        places = [reader.metadata(name).components["data"].offset for name in ("tied", "tied too")]
        assert places[0] == places[1]
    assert os.listdir(patched.parent) == ["m.zt"]
    assert ztensor.compact(patched) == 0


def test_progress_counts_stored_bytes_to_the_end(patched: Path) -> None:
    seen: list[tuple[int, int]] = []
    ztensor.compact(patched, progress=lambda done, total: seen.append((done, total)))
    assert seen
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]
    assert len({total for _, total in seen}) == 1


def test_a_damaged_file_is_not_rewritten(patched: Path, tmp_path: Path) -> None:
    with ztensor.open(patched) as reader:
        flip(patched, reader.location("tied").offset)
    before = patched.read_bytes()
    ways: list[Callable[[], object]] = [
        lambda: compact(patched),
        lambda: merge([patched], tmp_path / "new.zt"),
        lambda: split(patched, max_shard_size=5000),
    ]
    for way in ways:
        with pytest.raises(DigestMismatchError) as caught:
            way()
        assert caught.value.object_name in ("tied", "tied too")
        assert str(patched) in str(caught.value)
    assert patched.read_bytes() == before
    left = set(os.listdir(tmp_path)) - {"m.zt"}  # shards that were complete, and no index
    assert all(name.startswith("m-0") for name in left)


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
    with refused(UsageError, Reason.DUPLICATE_WRITE) as caught:
        merge(three, tmp_path / "out.zt")
    assert caught.value.object_name == "all"
    wrong: list[tuple[type[Exception], Any, dict[str, Any]]] = [
        (ArgumentValueError, three[:1], {"on_conflict": "both"}),
        (NotRepresentableError, three[:1], {"version": "1.1.0", "attributes": {"number": 5}}),
        (SourceError, [three[0], tmp_path / "missing.zt"], {}),
    ]
    for kind, inputs, options in wrong:
        with pytest.raises(kind):
            merge(inputs, tmp_path / "out.zt", **options)
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


def test_shards_hold_everything_beside_an_index_like_the_hubs(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "missing" / "deeper"  # it is made
    *paths, last = split(model, folder, max_shard_size="10KB")
    assert last == str(folder / "model.zt.index.json")
    shards = [f"model-{n:05d}-of-{len(paths):05d}.zt" for n in range(1, len(paths) + 1)]
    assert [os.path.basename(path) for path in paths] == shards
    assert sorted(os.listdir(folder)) == [*shards, "model.zt.index.json"]
    index = json.loads((folder / "model.zt.index.json").read_text("ascii"))
    assert set(index) == {"metadata", "weight_map"}
    with ztensor.open(model) as reader:
        assert set(index["weight_map"]) == set(reader)
        assert index["metadata"]["total_size"] == sum(reader.metadata(n).nbytes for n in reader)
    assert sorted(set(index["weight_map"].values())) == shards
    for path in paths:
        digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        given = index["metadata"]["digests"][os.path.basename(path)]
        assert given.replace("sha256:0x", "sha256:") == f"sha256:{digest}"
        with ztensor.open(path) as reader:
            assert reader.attributes == {"step": "1"}
            blobs = {reader.location(name) for name in reader}  # two names may share one
            assert sum(blob.length for blob in blobs) <= 10_000 or len(reader) == 1
    merge(paths, tmp_path / "again.zt")
    assert values(tmp_path / "again.zt") == values(folder) == values(model)


def test_one_shard_and_none(tmp_path: Path) -> None:
    for name, tensors in (("a.zt", {"a": FOUR}), ("empty", {})):
        save_file(tensors, tmp_path / name)
        shard, _ = split(tmp_path / name)
        assert os.path.basename(shard) == f"{name.removesuffix('.zt')}-00001-of-00001.zt"
        assert len(values(Path(shard))) == len(tensors)


# --- Files of other formats -----------------------------------------------------------------


def test_files_of_other_formats_are_split_and_not_compacted(tmp_path: Path) -> None:
    """Compacted, one would become ours under its old name, and lose what only it can say."""
    np.savez(tmp_path / "m.npz", a=FOUR, b=LARGE)
    before = (tmp_path / "m.npz").read_bytes()
    with pytest.raises(UsageError, match=r"ztensor convert .*m\.npz' OUT\.zt"):
        compact(tmp_path / "m.npz")
    assert (tmp_path / "m.npz").read_bytes() == before
    for place in (tmp_path, tmp_path / "out"):
        written = split(tmp_path / "m.npz", place)
        names = [os.path.basename(path) for path in written]
        assert names == ["m-00001-of-00001.zt", "m.zt.index.json"]
        assert values(place / "m.zt.index.json") == values(tmp_path / "m.npz")


def test_shards_of_ours_hold_everything_or_are_not_written(tmp_path: Path) -> None:
    """Shards of another format omit objects that it cannot hold."""
    np.savez(tmp_path / "m.npz", text=np.array(["a"]), w=FOUR)
    out = tmp_path / "out"
    with pytest.raises(NotRepresentableError) as caught:
        split(tmp_path / "m.npz", out)
    assert caught.value.object_name == "text"
    assert not out.exists()
    shard, _ = split(tmp_path / "m.npz", out, to="safetensors")
    with ztensor.open(shard) as reader:
        assert list(reader) == ["w"]


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


def test_a_single_path_never_replaces_a_file_unasked(tmp_path: Path) -> None:
    """`merge(a, b)` may mean two inputs: b is not lost."""
    a, b, out = (tmp_path / name for name in ("a.zt", "b.zt", "out.zt"))
    save_file({"a": np.ones(2)}, a)
    save_file({"b": np.ones(2)}, b)
    before = b.read_bytes()
    with pytest.raises(UsageError, match="merge"):
        merge(a, b)
    assert b.read_bytes() == before
    for inputs, options in (([a, b], {}), ([a, b], {}), (a, {"overwrite": True})):
        merge(inputs, out, **options)  # type: ignore[arg-type]
    assert ztensor.open(out).keys() == ["a"]

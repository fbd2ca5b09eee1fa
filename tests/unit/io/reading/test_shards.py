"""Shards of 2.x: where they are found, their checks, and links that are not followed."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.errors import DigestMismatchError, Reason
from ztensor.testing.builder_2 import File2, dense

VALUES = np.arange(4096, dtype=np.float32)


def root_of(shard: bytes, **changes: Any) -> tuple[bytes, str]:
    """Return a root with a tensor of its own and one in the shard `s`, and the shard's digest."""
    hexdigest = hashlib.sha256(shard).hexdigest()
    entry = {"size": len(shard), "digest": f"sha256:{hexdigest}"} | changes
    own = File2()
    here = own.part(np.arange(3))
    there = File2().part(VALUES) | {"shard": "s"}
    objects = {"here": dense(here, [3]), "there": dense(there, [4096])}
    return own.seal({"objects": objects, "shards": {"s": entry}}), hexdigest


def shard_of(values: np.ndarray[Any, Any] = VALUES) -> bytes:
    file = File2()
    file.part(values)
    return file.shard()


@pytest.mark.wing
def test_a_shard_beside_the_root_is_read(tmp_path: Path) -> None:
    shard = shard_of()
    path = tmp_path / "m.zt"
    path.write_bytes(root_of(shard)[0])
    (tmp_path / "m-s.zt").write_bytes(shard)
    with ztensor.open(path) as reader:
        np.testing.assert_array_equal(reader["there"], VALUES)
        np.testing.assert_array_equal(reader.get_slice("there")[7:9], VALUES[7:9])
        assert reader["here"].tolist() == [0, 1, 2]
        assert reader.location("there") == (str(tmp_path / "m-s.zt"), 4096, VALUES.nbytes)
        metadata = reader.metadata("there").components["data"]
        assert (metadata.shard, metadata.offset) == ("s", 4096)
        assert reader.metadata("here").components["data"].shard is None
        assert reader.verify(deep=True).outcome == "ok"
        again = pickle.loads(pickle.dumps(reader))
        np.testing.assert_array_equal(again["there"], VALUES)
        again.close()
    loaded = ztensor.numpy.load_file(path)
    np.testing.assert_array_equal(loaded["there"], VALUES)
    new = tmp_path / "new.zt"
    assert not ztensor.migrate(path, new, version="1.2.0").lost
    np.testing.assert_array_equal(ztensor.open(new)["there"], VALUES)


def test_a_shard_may_have_the_longest_name_of_a_file(tmp_path: Path) -> None:
    shard, stem = shard_of(), "m" * (255 - len("-s.zt"))
    (tmp_path / f"{stem}.zt").write_bytes(root_of(shard)[0])
    (tmp_path / f"{stem}-s.zt").write_bytes(shard)
    with ztensor.open(tmp_path / f"{stem}.zt") as reader:
        np.testing.assert_array_equal(reader["there"], VALUES)


def test_a_shard_may_lie_in_blobs_by_its_digest(tmp_path: Path) -> None:
    shard = shard_of()
    root, hexdigest = root_of(shard)
    path = tmp_path / "m.zt"
    path.write_bytes(root)
    folder = tmp_path / "blobs" / "sha256"
    folder.mkdir(parents=True)
    (folder / hexdigest).write_bytes(shard)
    with ztensor.open(path) as reader:
        np.testing.assert_array_equal(reader["there"], VALUES)


def test_the_digest_of_a_whole_shard_is_for_the_deep_look(tmp_path: Path) -> None:
    shard = shard_of()
    path = tmp_path / "m.zt"
    path.write_bytes(root_of(shard)[0])
    (tmp_path / "m-s.zt").write_bytes(shard[:100] + b"\1" + shard[101:])  # padding
    with ztensor.open(path) as reader:
        assert reader.verify().outcome == "ok"
        report = reader.verify(deep=True)
        assert [problem.reason for problem in report.problems] == [Reason.DIGEST_MISMATCH]
        assert report.problems[0].path == ("shards", "s")
    (tmp_path / "m-s.zt").write_bytes(shard_of(VALUES + 1))
    with ztensor.open(path, mmap=False) as reader, pytest.raises(DigestMismatchError):
        reader.read_numpy("there", copy=True)


def refusal(path: Path) -> Reason | None:
    with pytest.raises(ztensor.ZTensorError) as caught:
        ztensor.open(path)
    return caught.value.reason


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    shard = shard_of()
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "m.zt").write_bytes(root_of(shard)[0])
    (tmp_path / "away.zt").write_bytes(shard)
    (folder / "m-s.zt").symlink_to(tmp_path / "away.zt")
    assert refusal(folder / "m.zt") is Reason.SOURCE_NOT_REGULAR


def test_a_set_of_files_looks_into_their_shards_too(tmp_path: Path) -> None:
    shard = shard_of()
    (tmp_path / "m.zt").write_bytes(root_of(shard)[0])
    (tmp_path / "m-s.zt").write_bytes(shard[:100] + b"\1" + shard[101:])
    with ztensor.open([tmp_path / "m.zt"]) as reader:
        assert reader.verify().outcome == "ok"
        assert reader.verify(deep=True).outcome == "damaged"

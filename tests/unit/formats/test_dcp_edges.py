"""Checkpoints of many processes: checksums, values, stores, and unusual metadata."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.corpus.foreign.make_pt import group, named, number, numbers, text
from tests.refusals import refused
from tests.unit.formats.test_dcp import (
    EXPECTED,
    MODULE,
    RECORD,
    ROWS,
    SHARDS,
    STOCK,
    a_dict,
    a_list,
    a_place,
    a_record,
    a_tensor,
    change,
    metadata,
)
from ztensor.errors import (
    DigestMismatchError,
    FormatError,
    LimitError,
    Reason,
    UnsupportedError,
)
from ztensor.numpy import save_file

BOX: Any = ((2, 3), ((0, 0), (2, 3)))


def checkpoint(folder: Path, root: bytes, **files: bytes) -> Path:
    """Write a root and `a.distcp`, six floats in a box of (2, 3) unless it is given."""
    (folder / ".metadata").write_bytes(root)
    for name, data in {"a": RECORD, **files}.items():
        (folder / f"{name}.distcp").write_bytes(data)
    return folder


def in_store(folder: Path) -> Any:
    """Return a copy of a folder in memory, and its store."""
    store = pytest.importorskip("obstore.store").MemoryStore()
    obstore = pytest.importorskip("obstore")
    for path in folder.iterdir():
        obstore.put(store, f"x/{path.name}", path.read_bytes())
    return store


# --- Sums -----------------------------------------------------------------------------------------


def test_a_flipped_byte_of_elements_in_another_order_is_found(tmp_path: Path) -> None:
    """Unless the archive has no checksums, which torch can omit."""
    folder = Path(shutil.copytree(STOCK, tmp_path / "step"))
    stored = np.ascontiguousarray(ROWS).tobytes()
    (path,) = [path for path in folder.glob("*.distcp") if stored in path.read_bytes()]
    with ztensor.open(folder) as reader:
        assert np.array_equal(reader["transposed"], ROWS.T)
        assert np.array_equal(reader.get_slice("transposed")[1:, :2], ROWS.T[1:, :2])
    change(path, lambda data: data.__setitem__(data.index(stored), stored[0] ^ 1))
    with ztensor.open(folder) as reader:
        assert [one.object_name for one in reader.verify().problems] == ["transposed"]
        with pytest.raises(DigestMismatchError):
            reader["transposed"]
    crc = zlib.crc32(stored).to_bytes(4, "little")
    path.write_bytes(path.read_bytes().replace(crc, bytes(4)))
    with ztensor.open(folder) as reader:
        assert (reader["transposed"] != ROWS.T).sum() == 1


# --- Stores ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", [STOCK, SHARDS], ids=["stock", "hf"])
def test_a_checkpoint_in_a_store_equals_the_folder(folder: Path) -> None:
    store = in_store(folder)
    with ztensor.open("memory:///x/", storage=store) as reader, ztensor.open(folder) as local:
        assert set(reader) == set(local)
        for name in local:
            assert reader[name].tobytes() == local[name].tobytes()
        assert reader.attributes == local.attributes
        assert reader.verify().outcome == local.verify().outcome


def test_a_file_that_a_store_lacks_is_named() -> None:
    store = in_store(STOCK)
    pytest.importorskip("obstore").delete(store, "x/__0_0.distcp")
    with ztensor.open("memory:///x/.metadata", storage=store) as reader:
        assert set(reader) == set(EXPECTED)
        with pytest.raises(FormatError, match=r"__0_0\.distcp"):
            reader["rows"]
        assert reader["scalar"] == 3.5


# --- Values and places ----------------------------------------------------------------------------


def a_value() -> bytes:
    return a_record("BytesStorageMetadata")


def of_value(name: str, offset: bytes, length: int = len(RECORD)) -> bytes:
    """Return a place of a value, which has no offset as torch writes it: `N`."""
    index = a_record("MetadataIndex", text("fqn"), text(name), text("offset"), offset)
    at = (text("offset"), number(0), text("length"), number(length))
    info = a_record(
        "_StorageInfo",
        *(text("relative_path"), text("a.distcp"), *at),
        module="torch.distributed.checkpoint.filesystem",
    )
    return index + info


@pytest.mark.parametrize("place", [b"", of_value("v", numbers(()))], ids=["none", "of a scalar"])
def test_a_value_without_a_place_is_met_when_values_are_read(tmp_path: Path, place: bytes) -> None:
    """Tensors beside it are read all the same."""
    tensors = text("w") + a_tensor(*BOX) + text("v") + a_value()
    more = b"" if place else a_place("w", (0, 0), "a.distcp", 0, len(RECORD))
    if place:
        more, tensors = place, text("v") + a_value()
    with ztensor.open(checkpoint(tmp_path, metadata(tensors, more))) as reader:
        if not place:
            assert reader["w"].shape == (2, 3)
        with pytest.raises(FormatError, match="does not say where a value is"):
            _ = reader.attributes


def test_the_only_chunk_of_a_tensor_may_have_no_offset(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, metadata(text("w") + a_tensor(*BOX), of_value("w", b"N")))
    with ztensor.open(folder) as reader:
        assert reader["w"].shape == (2, 3)
    halves: Any = [((0, 0), (2, 3)), ((2, 0), (2, 3))]
    (tmp_path / ".metadata").write_bytes(
        metadata(text("w") + a_tensor((4, 3), *halves), of_value("w", b"N"))
    )
    with ztensor.open(folder) as reader, pytest.raises(FormatError, match="does not say where"):
        reader["w"]


def test_a_file_with_more_claimed_bytes_than_its_length_is_named(tmp_path: Path) -> None:
    length = len(RECORD)
    tensors = b"".join(text(name) + a_tensor(*BOX) for name in "uvw")
    places = a_place("u", (0, 0), "a.distcp", 0, length)
    for name in "vw":
        places += a_place(name, (0, 0), "b.distcp", 0, length)
    folder = checkpoint(tmp_path, metadata(tensors, places), b=RECORD)
    with refused(FormatError, Reason.OUT_OF_BOUNDS) as caught:
        ztensor.open(folder)
    assert "b.distcp" in str(caught.value.found)
    assert str(caught.value.found).startswith(str(2 * length))
    (folder / "b.distcp").write_bytes(2 * RECORD)
    with ztensor.open(folder) as reader:
        assert list(reader) == ["u", "v", "w"]


# --- What .metadata says --------------------------------------------------------------------------


def test_metadata_is_as_long_as_is_allowed() -> None:
    length = (STOCK / ".metadata").stat().st_size
    with ztensor.open(STOCK, limits=ztensor.Limits(manifest_bytes=length)) as reader:
        assert set(reader) == set(EXPECTED)
    with refused(LimitError, Reason.LIMIT_MANIFEST):
        ztensor.open(STOCK, limits=ztensor.Limits(manifest_bytes=length - 1))


def of_properties(folder: Path, state: bytes) -> Path:
    """Return a checkpoint of one tensor `w` with this state of its properties."""
    properties = named(f"{MODULE}.TensorProperties") + b")\x81" + state + b"b"
    box = a_record(
        "ChunkStorageMetadata", text("offsets"), numbers((0, 0)), text("sizes"), numbers((2, 3))
    )
    tensor = a_record(
        "TensorStorageMetadata",
        *(text("properties"), properties),
        *(text("size"), numbers((2, 3))),
        *(text("chunks"), a_list(box)),
    )
    place = a_place("w", (0, 0), "a.distcp", 0, len(RECORD))
    return checkpoint(folder, metadata(text("w") + tensor, place))


@pytest.mark.parametrize("is_first", [True, False])
def test_properties_may_be_a_dict(tmp_path: Path, is_first: bool) -> None:
    """As releases of torch wrote them that had no form of their own for it."""
    of_type = text("dtype") + named("torch.float32")
    more = text("requires_grad") + b"\x89" + text("pin_memory") + b"\x88"
    state = a_dict(of_type + more if is_first else more + of_type)
    with ztensor.open(of_properties(tmp_path, state)) as reader:
        assert reader["w"].dtype == np.float32
        assert reader["w"].shape == (2, 3)


def test_an_unknown_type_is_listed(tmp_path: Path) -> None:
    """Its shape is known; reading it is an error that names the type."""
    state = a_dict(text("dtype") + named("torch.later128"))
    with ztensor.open(of_properties(tmp_path, state)) as reader:
        assert reader.metadata("w").shape == (2, 3)
        for read in (reader.read, reader.get_slice, reader.__getitem__):
            with pytest.raises(UnsupportedError, match="later128") as caught:
                read("w")
            assert caught.value.object_name == "w"
        assert reader.verify().outcome == "unchecked"


@pytest.mark.parametrize("length", [1, 64, 65])
def test_a_name_of_very_many_keys_is_reported(tmp_path: Path, length: int) -> None:
    path = group(*[text("k")] * length)
    root = a_record(
        "Metadata",
        *(text("state_dict_metadata"), a_dict(text("w") + a_tensor(*BOX))),
        *(text("storage_data"), a_dict(a_place("w", (0, 0), "a.distcp", 0, len(RECORD)))),
        *(text("planner_data"), a_dict(text("w"), path)),
    )
    with ztensor.open(checkpoint(tmp_path, b"\x80\x02" + root + b".")) as reader:
        losses = [(one.kind, one.where) for one in reader.unrepresented]
        assert losses == ([("path of a name", "w")] if length > 64 else [])


# --- Folders of safetensors -----------------------------------------------------------------------


def shard(
    folder: Path, place: int, offsets: dict[str, Sequence[int]], arrays: Any, **more: str
) -> None:
    information = {name: {"saved_offsets": list(one)} for name, one in offsets.items()}
    path = folder / f"shard-{place:05d}-model-00001-of-00001.safetensors"
    save_file(arrays, path, {"DCP_SHARDING_INFO": json.dumps(information), **more})


def test_attributes_of_the_files_are_those_of_the_whole(tmp_path: Path) -> None:
    for place, other in ((1, "one"), (2, "two")):
        array = np.ones((1, 2), np.float32)
        shard(tmp_path, place, {"w": (place - 1, 0)}, {"w": array}, same="yes", other=other)
    with ztensor.open(tmp_path) as reader:
        assert reader["w"].shape == (2, 2)
        assert reader.attributes == {"same": "yes", "other": "one"}
        assert [(one.kind, one.where) for one in reader.unrepresented] == [
            ("attribute of one shard", "shard-00002-model-00001-of-00001.safetensors: other")
        ]


def test_a_chunk_without_offsets_is_refused(tmp_path: Path) -> None:
    shard(tmp_path, 1, {"w": (1 << 63,)}, {"w": np.ones(1, np.float32)})
    with pytest.raises(FormatError, match="has no offsets of a chunk"):
        ztensor.open(tmp_path)


def test_a_file_of_safetensors_without_the_tensor(tmp_path: Path) -> None:
    empty = (8).to_bytes(8, "little") + b"{}      "
    root = metadata(text("w") + a_tensor(*BOX), a_place("w", (0, 0), "a.distcp", 0, len(empty)))
    folder, message = checkpoint(tmp_path, root, a=empty), "the safetensors file lacks the tensor"
    with ztensor.open(folder) as reader, pytest.raises(FormatError, match=message):
        reader["w"]

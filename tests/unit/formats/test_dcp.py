"""Folders of torch.distributed.checkpoint and of its safetensors writer, read without torch."""

from __future__ import annotations

import hashlib
import itertools
import json
import pickle
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.corpus.foreign.make_pt import group, named, number, numbers, text
from ztensor.errors import (
    DigestMismatchError,
    FormatError,
    LimitError,
    Reason,
    SourceError,
    UnsupportedError,
    UsageError,
    ZTensorError,
)

FOLDERS = Path(__file__).parents[2] / "corpus" / "foreign" / "accept" / "dcp"
STOCK, SHARDS = FOLDERS / "stock", FOLDERS / "shards"
EXPECTED: dict[str, Any] = json.loads((FOLDERS / "expected.json").read_text())["tensors"]
VALUES = {
    "step": 12,
    "optimizer.lr": 0.5,
    "optimizer.betas": [0.9, 0.99],
    "optimizer.name": "adam",
}
ROWS = (np.arange(15, dtype=np.float32) / 7 - 1).reshape(5, 3)


@pytest.fixture
def stock(tmp_path: Path) -> Path:
    """Return a copy of the folder that torch's default writer wrote."""
    return Path(shutil.copytree(STOCK, tmp_path / "step-1"))


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SHARDS, tmp_path / "step-2"))


def change(file: Path, how: Callable[[bytearray], object]) -> None:
    data = bytearray(file.read_bytes())
    how(data)
    file.write_bytes(data)


# --- Contents -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "folder", [STOCK, SHARDS, STOCK / ".metadata"], ids=["stock", "hf", "file"]
)
def test_every_tensor_is_put_together(folder: Path) -> None:
    with ztensor.open(folder) as reader:
        assert type(reader) is ztensor.Reader
        assert reader.format == "dcp"
        expected = dict(EXPECTED)
        if folder == SHARDS:
            del expected["transposed"]
        assert set(reader) == set(expected)
        for name, one in expected.items():
            array = reader[name]
            assert list(array.shape) == one["shape"]
            assert array.dtype.name == one["dtype"]
            assert hashlib.sha256(array.tobytes()).hexdigest() == one["sha256"]


def test_values_are_attributes() -> None:
    with ztensor.open(STOCK) as reader:
        assert reader.attributes == VALUES
        assert [(one.kind, one.where) for one in reader.unrepresented] == [
            ("tuple", "optimizer.betas")
        ]
    with ztensor.open(SHARDS) as reader:
        assert reader.attributes == {}
        assert reader.unrepresented == ()


@pytest.mark.parametrize("folder", [STOCK, SHARDS], ids=["stock", "hf"])
def test_any_part_can_be_sliced(folder: Path) -> None:
    with ztensor.open(folder) as reader:
        for name in ("rows", "columns"):
            whole = np.asarray(reader[name])
            part = reader.get_slice(name)
            for start in range(len(whole)):
                for stop in range(start, len(whole) + 1):
                    assert np.array_equal(part[start:stop], whole[start:stop])
                    assert np.array_equal(part[start:stop, 1:3], whole[start:stop, 1:3])
            assert np.array_equal(part[-1], whole[-1])
            into = np.empty_like(whole)
            reader.read_into({name: into})
            assert np.array_equal(into, whole)


def test_checksums_of_the_archives_are_compared() -> None:
    with ztensor.open(STOCK) as reader:
        report = reader.verify()
        assert report.outcome == "ok"
        assert report.objects == 6
    with ztensor.open(SHARDS) as reader:  # which has no sums
        report = reader.verify()
        assert report.outcome == "unchecked"
        assert set(report.unchecked) == {"rows", "columns", "copied", "scalar"}


def test_a_reader_is_pickled_by_the_folder() -> None:
    with ztensor.open(STOCK) as reader, pickle.loads(pickle.dumps(reader)) as again:
        assert np.array_equal(again["rows"], reader["rows"])


def test_a_process_may_have_its_own_root(stock: Path) -> None:
    (stock / ".metadata").rename(stock / "__3.metadata")
    with ztensor.open(stock) as reader:
        assert np.array_equal(reader["rows"], ROWS)
    shutil.copy(stock / "__3.metadata", stock / "__4.metadata")
    with pytest.raises(UsageError) as caught:
        ztensor.open(stock)
    assert "__3.metadata" in str(caught.value.hint)
    with ztensor.open(stock / "__4.metadata") as reader:
        assert np.array_equal(reader["rows"], ROWS)


def test_a_folder_with_a_model_and_a_checkpoint_is_the_model(stock: Path) -> None:
    ztensor.numpy.save_file({"w": ROWS}, stock / "model.safetensors")
    with ztensor.open(stock) as reader:
        assert list(reader) == ["w"]


def test_other_files_of_the_folder_are_accounted_for(stock: Path) -> None:
    (stock / "common.pt").write_bytes(b"beside")
    (stock / "__7_0.distcp").write_bytes(b"of an older save")
    change(stock / "__0_0.distcp", lambda data: data.extend(b"and more"))
    with ztensor.open(stock) as reader:
        found = {(one.kind, one.where): one.nbytes for one in reader.unrepresented}
    assert found["file that .metadata does not name", "common.pt"] == 6
    assert found["file that .metadata does not name", "__7_0.distcp"] == 16
    assert found["bytes that .metadata does not name", "__0_0.distcp"] == 8


# --- Damage ---------------------------------------------------------------------------------------


def test_a_flipped_byte_is_found_and_named(stock: Path) -> None:
    """Of every tensor one byte of one chunk: the message has the file and the chunk."""
    first = np.float32(ROWS[0, 0]).tobytes() + np.float32(ROWS[0, 1]).tobytes()

    def flip(data: bytearray) -> None:
        at = data.index(first)
        data[at] ^= 1

    change(stock / "__0_0.distcp", flip)
    with ztensor.open(stock) as reader:
        report = reader.verify()
        assert report.outcome == "damaged"
        (problem,) = report.problems
        assert problem.object_name == "rows"
        assert problem.reason is Reason.DIGEST_MISMATCH
        assert "chunk at [0, 0]" in problem.message
        assert "__0_0.distcp" in problem.message
        with pytest.raises(DigestMismatchError):
            reader["rows"]
        assert reader["copied"].shape == (2, 2)


def test_a_flipped_byte_of_a_whole_tensor_is_found(stock: Path) -> None:
    def flip(data: bytearray) -> None:
        data[data.index(np.float32(3.5).tobytes())] ^= 1

    change(stock / "__1_0.distcp", flip)
    with ztensor.open(stock) as reader:
        assert [one.object_name for one in reader.verify().problems] == ["scalar"]
        with pytest.raises(DigestMismatchError):
            reader.read_numpy("scalar", copy=True)


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_file_that_is_not_there_or_cut_is_named(stock: Path, damage: str) -> None:
    """All tensors are listed; those without the file can be read, nothing old takes a place."""
    lost = stock / "__0_0.distcp"
    if damage == "missing":
        lost.unlink()
    else:
        change(lost, lambda data: data.__delitem__(slice(100, None)))
    with ztensor.open(stock) as reader:
        assert set(reader) == set(EXPECTED)
        for name in ("rows", "columns"):
            with pytest.raises(FormatError, match=r"__0_0\.distcp"):
                reader[name]
            with pytest.raises(FormatError, match=r"__0_0\.distcp"):
                reader.get_slice(name)[:1]
        assert reader["scalar"] == 3.5
        report = reader.verify()
        objects = {one.object_name for one in report.problems if one.object_name is not None}
        assert objects == {"columns", "rows"}
        others = [one.path for one in report.problems if one.object_name is None]
        assert others == [("attributes", "optimizer.name")]
        assert all("__0_0.distcp" in one.message for one in report.problems)


def test_values_of_a_missing_file_are_not_left_out_silently(stock: Path) -> None:
    (stock / "__0_0.distcp").unlink()
    with ztensor.open(stock) as reader, pytest.raises(FormatError, match=r"__0_0\.distcp"):
        _ = reader.attributes


def test_a_flipped_byte_of_a_value_is_found(stock: Path) -> None:
    change(stock / "__0_0.distcp", lambda data: data.__setitem__(data.index(b"adam"), 0x62))
    with ztensor.open(stock) as reader:
        for _ in range(2):
            with pytest.raises(DigestMismatchError, match=r"optimizer\.name"):
                _ = reader.attributes
        (problem,) = reader.verify().problems
        assert problem.reason is Reason.DIGEST_MISMATCH
        assert problem.path == ("attributes", "optimizer.name")
        assert reader["rows"].shape == (5, 3)


def test_a_missing_shard_shows_as_a_gap(shards: Path) -> None:
    (shards / "shard-00001-model-00001-of-00001.safetensors").unlink()
    with ztensor.open(shards) as reader:
        with pytest.raises(FormatError, match="do not cover"):
            reader["rows"]
        assert {one.object_name for one in reader.verify().problems} == {"columns", "rows"}


# --- What .metadata may claim ---------------------------------------------------------------------

MODULE = "torch.distributed.checkpoint.metadata"
MARK, DICT, LIST = b"(", b"d", b"l"


def a_dict(*pairs: bytes) -> bytes:
    return MARK + b"".join(pairs) + DICT


def a_list(*items: bytes) -> bytes:
    return MARK + b"".join(items) + LIST


def a_record(kind: str, *pairs: bytes, module: str = MODULE) -> bytes:
    return named(f"{module}.{kind}") + b")\x81" + a_dict(*pairs) + b"b"


def a_tensor(size: tuple[int, ...], *boxes: tuple[tuple[int, ...], tuple[int, ...]]) -> bytes:
    state = named("torch.float32") + b"N\x89" + number(0) + b"\x89"
    properties = named(f"{MODULE}.TensorProperties") + b")\x81" + group(state) + b"b"
    chunks = [
        a_record("ChunkStorageMetadata", text("offsets"), numbers(o), text("sizes"), numbers(s))
        for o, s in boxes
    ]
    return a_record(
        "TensorStorageMetadata",
        *(text("properties"), properties),
        *(text("size"), numbers(size)),
        *(text("chunks"), a_list(*chunks)),
    )


def a_place(name: str, offset: tuple[int, ...], file: str, at: int, length: int) -> bytes:
    index = a_record("MetadataIndex", text("fqn"), text(name), text("offset"), numbers(offset))
    info = a_record(
        "_StorageInfo",
        *(text("relative_path"), text(file)),
        *(text("offset"), number(at)),
        *(text("length"), number(length)),
        module="torch.distributed.checkpoint.filesystem",
    )
    return index + info


def metadata(tensors: bytes, places: bytes = b"") -> bytes:
    root = a_record(
        "Metadata",
        *(text("state_dict_metadata"), a_dict(tensors)),
        *(text("storage_data"), a_dict(places)),
    )
    return b"\x80\x02" + root + b"."


def record(shape: tuple[int, ...]) -> bytes:
    """Return the record of a chunk of this shape, which no other has."""
    data = (STOCK / "__1_0.distcp").read_bytes()
    ends = [match.end() for match in re.finditer(rb"PK\x05\x06.{18}", data, re.DOTALL)]
    for start, end in itertools.pairwise([0, *ends]):
        with ztensor.open(data[start:end]) as reader:
            if "tensor" in reader and reader["tensor"].shape == shape:
                return data[start:end]
    raise AssertionError(shape)


RECORD = record((2, 3))


def boxed(size: tuple[int, ...], *boxes: tuple[tuple[int, ...], tuple[int, ...]]) -> bytes:
    """Return the `.metadata` of a tensor in boxes; `a.distcp` has the same six floats for each."""
    length = len(RECORD)
    places = b"".join(
        a_place("w", offset, "a.distcp", number * length, length)
        for number, (offset, _) in enumerate(boxes)
    )
    return metadata(text("w") + a_tensor(size, *boxes), places)


WHOLE: Any = ((2, 3), ((0, 0), (2, 3)))  # the size and the box of a tensor that is one record
IMPOSSIBLE = {
    "gap": (boxed((4, 3), ((0, 0), (2, 3)), ((3, 0), (1, 3))), "do not cover"),
    "overlap": (boxed((3, 3), ((0, 0), (2, 3)), ((1, 0), (2, 3))), "overlap"),
    "overlap of the last": (
        boxed((3, 3), ((0, 0), (1, 3)), ((1, 0), (2, 3)), ((2, 0), (1, 3))),
        r"overlap.* at \[1, 0\].* at \[2, 0\]",
    ),
    "outside": (boxed((2, 3), ((0, 0), (1, 3)), ((1, 0), (2, 3))), "is outside its tensor"),
    "huge": (boxed((1 << 40, 1 << 40), ((0, 0), (1 << 40, 1 << 40))), "decoded_bytes"),
    "large": (boxed((1 << 16, 1 << 16), ((0, 0), (1 << 16, 1 << 16))), "another shape"),
    "far": (boxed((9,), (((1 << 63) - 1,), ((1 << 63) - 1,))), "is outside its tensor"),
    "shape": (boxed((3, 2), ((0, 0), (3, 2))), "another shape"),
    "no place": (metadata(text("w") + a_tensor((6,), ((0,), (6,)))), "does not say where"),
    **{
        name: (metadata(text("w") + a_tensor(*WHOLE), a_place("w", (0, 0), *place)), message)
        for name, place, message in (
            ("no file", ("b.distcp", 0, 9), "not in the folder"),
            ("cut", ("a.distcp", 0, 1 << 62), "shorter than"),
            ("no record", ("a.distcp", 9, 60), "no record"),
        )
    },
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_a_tensor_that_cannot_be_is_listed_and_refused(tmp_path: Path, name: str) -> None:
    data, message = IMPOSSIBLE[name]
    (tmp_path / ".metadata").write_bytes(data)
    (tmp_path / "a.distcp").write_bytes(2 * RECORD)
    with ztensor.open(tmp_path) as reader:
        assert list(reader) == ["w"]
        with pytest.raises(ZTensorError, match=message):
            reader["w"]
        with pytest.raises(ZTensorError):
            reader.get_slice("w")[:1]
        report = reader.verify()
        assert [one.object_name for one in (*report.problems, *report.unsupported)] == ["w"]


REFUSED = {
    "a call": (b"\x80\x02cos\nsystem\n" + group(text("true")) + b"R.", UnsupportedError),
    "a call within": (
        metadata(text("w") + named("os.system") + group(text("true")) + b"R"),
        UnsupportedError,
    ),
    "no metadata": (b"\x80\x02" + a_record("StorageMeta") + b".", FormatError),
    "out of the folder": (metadata(b"", a_place("w", (0,), "../a", 0, 1)), FormatError),
    "another root": (metadata(b"", a_place("w", (0,), "/etc/passwd", 0, 1)), FormatError),
    "hidden": (metadata(b"", a_place("w", (0,), ".ssh", 0, 1)), FormatError),
    "many fields": (
        b"\x80\x02" + a_record("Metadata", *[text("x"), number(1)] * 33) + b".",
        FormatError,
    ),
    "twice": (
        metadata(text("w") + a_tensor((0,)) + text("w") + a_tensor((0,))),
        FormatError,
    ),
    "two places": (metadata(b"", 2 * a_place("w", (0,), "a", 0, 1)), FormatError),
    "negative": (metadata(b"", a_place("w", (0,), "a", -1, 1)), FormatError),
    "a long number": (
        metadata(text("w") + a_tensor((1 << 90,))),
        FormatError,
    ),
    "ranks differ": (boxed((2, 3), ((0,), (6,))), FormatError),
    "cut": (boxed((2, 3), ((0, 0), (2, 3)))[:-9], FormatError),
    "state of its own": (
        b"\x80\x02" + named(f"{MODULE}.Metadata") + b")\x81q\x00" + b"h\x00b.",
        FormatError,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_metadata_that_no_checkpoint_has_is_refused(tmp_path: Path, name: str) -> None:
    data, kind = REFUSED[name]
    (tmp_path / ".metadata").write_bytes(data)
    with pytest.raises(kind), ztensor.open(tmp_path) as reader:
        dict(reader)


def test_one_list_of_boxes_for_many_tensors_is_charged(tmp_path: Path) -> None:
    box = a_record(
        "ChunkStorageMetadata", text("offsets"), numbers((0,)), text("sizes"), numbers((1,))
    )
    boxes = a_list(*[box] * 1000) + b"r\x00\x01\x00\x00"
    state = named("torch.float32") + b"N\x89" + number(0) + b"\x89"
    properties = named(f"{MODULE}.TensorProperties") + b")\x81" + group(state) + b"b"
    first = b"q\x01"
    tensors = b"".join(
        text(f"{n}")
        + a_record(
            "TensorStorageMetadata",
            *(text("properties"), properties + first if not n else b"h\x01"),
            *(text("size"), numbers((1,))),
            *(text("chunks"), boxes if not n else b"j\x00\x01\x00\x00"),
        )
        for n in range(600)
    )
    (tmp_path / ".metadata").write_bytes(metadata(tensors))
    with pytest.raises(LimitError):
        ztensor.open(tmp_path, limits=ztensor.Limits(cost_floor=1 << 20))


def test_metadata_without_a_folder_lists_only() -> None:
    with ztensor.open((STOCK / ".metadata").read_bytes()) as reader:
        assert set(reader) == set(EXPECTED)
        with pytest.raises(ZTensorError, match="open the folder"):
            reader["rows"]


def test_a_value_that_is_not_plain_data_is_reported(stock: Path) -> None:
    """The pickle of a value names a function, which is never looked up."""

    def rename(data: bytearray) -> None:
        at = data.index(b"X\4\0\0\0adamq\0.")
        start = data.rindex(b"\x80\2", 0, at)
        data[at : at + 11] = b"cos\nname\n)R"
        directory = data.index(b"PK\1\2", at)
        crc = zlib.crc32(data[start : at + 12])
        data[directory + 16 : directory + 20] = crc.to_bytes(4, "little")

    change(stock / "__0_0.distcp", rename)
    with ztensor.open(stock) as reader:
        assert "optimizer.name" not in reader.attributes
        kinds = {one.where: one.kind for one in reader.unrepresented}
        assert kinds["optimizer.name"] == "value that is no plain data"


# --- What verbs make of them ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["zt", "safetensors", "npz"])
@pytest.mark.parametrize("folder", [STOCK, SHARDS], ids=["stock", "hf"])
def test_a_folder_is_converted(tmp_path: Path, folder: Path, kind: str) -> None:
    out = tmp_path / f"whole.{kind}"
    report = ztensor.convert(folder, out)
    assert report.objects == (6 if folder == STOCK else 5)
    with ztensor.open(folder) as before, ztensor.open(out) as after:
        assert set(after) == set(before)
        for name in before:
            if kind == "npz" and name == "columns":
                continue  # a type that NumPy's format has no name for
            assert np.asarray(after[name]).tobytes() == np.asarray(before[name]).tobytes()
        if kind == "zt" and folder == STOCK:
            assert after.attributes == VALUES
            assert after.verify().outcome == "ok"


@pytest.mark.slow
def test_a_folder_is_converted_without_torch(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'safetensors'): sys.modules[name] = None\n"
        "import ztensor\n"
        "for folder, out in zip(sys.argv[1::2], sys.argv[2::2]): ztensor.convert(folder, out)\n"
    )
    pairs = [str(STOCK), str(tmp_path / "a.safetensors"), str(SHARDS), str(tmp_path / "b.zt")]
    subprocess.run([sys.executable, "-c", code, *pairs], check=True, timeout=60)
    with ztensor.open(tmp_path / "a.safetensors") as a, ztensor.open(tmp_path / "b.zt") as b:
        assert np.array_equal(a["rows"], ROWS)
        assert np.array_equal(b["rows"], ROWS)


def test_a_copy_has_the_strictest_permissions_of_the_folder(stock: Path) -> None:
    (stock / "__1_0.distcp").chmod(0o600)
    out = stock.parent / "whole.zt"
    ztensor.convert(stock, out)
    assert out.stat().st_mode & 0o777 == 0o600
    with ztensor.open(stock) as reader:
        assert {Path(path).name for path in reader.objects.paths} == {
            "__0_0.distcp",
            "__1_0.distcp",
        }


def test_additional_fields_of_megatron_are_reported(tmp_path: Path) -> None:
    root = a_record(
        "MCoreMetadata",
        *(text("state_dict_metadata"), a_dict(text("w") + a_tensor((2, 3), ((0, 0), (2, 3))))),
        *(text("storage_data"), a_dict(a_place("w", (0, 0), "a.distcp", 0, len(RECORD)))),
        *(text("mcore_data"), a_dict(text("w"), a_dict(text("shape"), numbers((6,))))),
        module="megatron.core.dist_checkpointing.strategies.torch",
    )
    (tmp_path / ".metadata").write_bytes(b"\x80\x02" + root + b".")
    (tmp_path / "a.distcp").write_bytes(RECORD)
    for path in (tmp_path, tmp_path / ".metadata"):
        with ztensor.open(path) as reader:
            assert reader.format == "dcp"
            assert reader["w"].shape == (2, 3)
            assert [(one.kind, one.where) for one in reader.unrepresented] == [
                ("field of .metadata", "mcore_data")
            ]


def test_folders_of_checkpoints_list_their_subfolders(tmp_path: Path) -> None:
    for name in ("model_0", "optimizer_0"):
        shutil.copytree(STOCK, tmp_path / name)
    with pytest.raises(ZTensorError) as caught:
        ztensor.open(tmp_path)
    assert "model_0" in str(caught.value.hint)
    assert "optimizer_0" in str(caught.value.hint)


def test_a_file_of_several_records_says_to_open_its_folder() -> None:
    with pytest.raises(FormatError) as caught:
        ztensor.open(STOCK / "__0_0.distcp")
    assert "folder" in str(caught.value.hint)


def test_nothing_is_written_to_a_folder(stock: Path) -> None:
    before = {path.name: path.read_bytes() for path in stock.iterdir()}
    for call in (
        lambda: ztensor.edit.remove_tensors(stock, names=["rows"]),
        lambda: ztensor.edit.rename_tensors(stock, {"rows": "r"}),
        lambda: ztensor.edit.set_attributes(stock, {"a": 1}),
        lambda: ztensor.edit.replace_tensor(stock, "rows", ROWS),
        lambda: ztensor.compact(stock),
        lambda: ztensor.repair(stock),
        lambda: ztensor.numpy.save_file({"w": ROWS}, stock),
    ):
        with pytest.raises((SourceError, UsageError), match="step-1"):
            call()
    assert {path.name: path.read_bytes() for path in stock.iterdir()} == before


def test_a_long_name_of_many_chunks_costs_no_more(tmp_path: Path) -> None:
    """A name of a megabyte in the index of each of very many chunks of one tensor."""
    box = a_record(
        "ChunkStorageMetadata", text("offsets"), numbers((0,)), text("sizes"), numbers((1,))
    )
    boxes = a_list(box + b"q\x05", *[b"h\x05"] * 60_000)
    state = named("torch.float32") + b"N\x89" + number(0) + b"\x89"
    one = a_record(
        "TensorStorageMetadata",
        *(text("properties"), named(f"{MODULE}.TensorProperties") + b")\x81" + group(state) + b"b"),
        *(text("size"), numbers((1,))),
        *(text("chunks"), boxes),
    )
    (tmp_path / ".metadata").write_bytes(metadata(text("n" * (1 << 20)) + one))
    with ztensor.open(tmp_path) as reader:  # where each chunk copied the name, it took minutes
        assert len(reader) == 1

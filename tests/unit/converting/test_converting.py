from __future__ import annotations

import errno
import io
import itertools
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.conformance.test_corpus import CORPUS, READABLE
from tests.extent import sample
from tests.refusals import refused
from ztensor.edit import split
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    FormatError,
    NotRepresentableError,
    Reason,
    SourceError,
    UnsupportedError,
    UsageError,
    ZTensorError,
)
from ztensor.ext import FORMATS
from ztensor.numpy import save_file
from ztensor.testing.builder import draft

WEIGHT = np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(64, 32)
DENSE: dict[str, np.ndarray[Any, Any]] = {
    "w": WEIGHT,
    "half": WEIGHT.astype(np.float16),
    "step": np.arange(5, dtype=np.int32),
}
VERSIONS = ["0.1.0", "1.1.0", "1.2.0"]
# Of the files of each release, and of those made after each text: some; all in the full form.
SOME = sample(READABLE, 6, lambda entry: entry["path"].rpartition("/")[0])
OF_EACH_VERSION = sample(
    [  # of those that can be rewritten in place: 2.x is only read
        entry
        for entry in READABLE
        if entry["path"].startswith(("real/", "spec/")) and not entry["path"].startswith("real/2.")
    ],
    4,
    lambda entry: entry["path"].rpartition("/")[0],
)


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    """A file every format can hold."""
    path = tmp_path / "dense.zt"
    save_file(DENSE, path)
    return path


@pytest.fixture
def rich(tmp_path: Path) -> Path:
    """A file only 1.2 can hold."""
    path = tmp_path / "rich.zt"
    tensors = {
        "w": WEIGHT,
        "brain": WEIGHT.astype(ml_dtypes.bfloat16),
        "fnuz": WEIGHT.astype(ml_dtypes.float8_e4m3fnuz),
        "sparse": ztensor.Tensor.csr(
            np.array([1.5, -2.5], np.float32), [1, 3], [0, 1, 1, 2], (3, 4)
        ),
        "int4": ztensor.Tensor.quantize(WEIGHT, bits=4, group_size=32),
        "empty": np.zeros((0, 4), np.float32),
        "scalar": np.array(7),
    }
    save_file(tensors, path, {"note": "text", "count": 3}, compression=True)
    return path


def facts(path: Path) -> dict[str, Any]:
    """Return the content of a file, without offsets and encodings."""
    with ztensor.open(path) as reader:
        objects = {
            found.name: (
                found.shape,
                found.format,
                found.attributes,
                {role: (c.dtype, c.type) for role, c in found.components.items()},
            )
            for found in reader.metadata(list(reader))
        }
        return {
            "attributes": reader.attributes,
            "objects": objects,
            "bytes": {
                (name, role): b"".join(bytes(c) for c in reader.decoded_chunks(name, role))
                for name in reader
                for role in reader.metadata(name).components
            },
        }


def encodings(path: Path) -> set[str]:
    with ztensor.open(path) as reader:
        return {
            component.encoding
            for found in reader.metadata(list(reader))
            for component in found.components.values()
        }


# --- To zTensor -----------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, False, True, 9, "zstd"], ids=repr)
def test_nothing_is_lost_from_zt_to_zt(rich: Path, tmp_path: Path, compression: Any) -> None:
    new = tmp_path / "new.zt"
    report = ztensor.convert(rich, new, compression=compression, check=True)
    assert facts(new) == facts(rich)
    assert report.is_lossless
    assert report.is_checked
    assert (report.path, report.format, report.version) == (str(new), "zt", "1.2.0")
    assert (report.objects, report.inputs) == (7, (str(rich),))
    assert (report.source_nbytes, report.nbytes) == (rich.stat().st_size, new.stat().st_size)
    # What zstd makes no smaller stays raw.
    assert encodings(new) == ({"raw"} if compression is False else {"raw", "zstd"})


@pytest.mark.parametrize("checksum", ["crc32c", "sha256", None])
def test_a_digest_is_kept_and_a_missing_one_is_made(
    rich: Path, tmp_path: Path, checksum: str | None
) -> None:
    old, new = tmp_path / "old.zt", tmp_path / "new.zt"
    save_file(DENSE, old, checksum=None)
    ztensor.convert(old, new, checksum=checksum)
    for found in ztensor.open(new).metadata(list(DENSE)):
        digest = found.components["data"].digest
        assert (digest or "").partition(":")[0] == (checksum or "")
    ztensor.convert(rich, new, checksum=checksum)
    with ztensor.open(rich) as before, ztensor.open(new) as after:
        for name in before:
            for role, component in before.metadata(name).components.items():
                assert after.metadata(name).components[role].digest == component.digest


@pytest.mark.slow
@pytest.mark.parametrize("entry", SOME, ids=lambda entry: entry["path"])
def test_every_readable_file_of_the_corpus(entry: dict[str, Any], tmp_path: Path) -> None:
    source, new = CORPUS / entry["path"], tmp_path / "new.zt"
    try:
        before = ztensor.content_hash(source)
        with_attributes = ztensor.content_hash(source, attributes=True)
    except ZTensorError:
        with pytest.raises(ZTensorError):  # what cannot be read cannot be converted and checked
            ztensor.convert(source, new, check=True)
        assert not new.exists()
        return
    with ztensor.open(source) as old:
        is_large = len(old) > 200
    for compression in (None,) if is_large else (None, False, 1):
        report = ztensor.convert(source, new, compression=compression, check=True, durable=False)
        assert report.is_lossless
        assert ztensor.content_hash(new) == before
        assert ztensor.content_hash(new, attributes=True) == with_attributes
        with ztensor.open(source) as old, ztensor.open(new) as reader:
            assert bool(old.verify().problems) == bool(reader.verify().problems)


def test_big_endian_and_bools_of_0_1_are_written_as_1_2_has_them(tmp_path: Path) -> None:
    made = draft("0.1.0")
    made.component("matrix")["data_endianness"] = "big"
    made.blobs["flags", "data"] = b"\x00\x01\x02\xff"
    ztensor.convert(made.to_bytes(), tmp_path / "new.zt", check=True)
    with ztensor.open(made.to_bytes()) as old, ztensor.open(tmp_path / "new.zt") as new:
        assert {n: old[n].tolist() for n in old} == {n: new[n].tolist() for n in new}
        assert new["flags"].view(np.uint8).tolist() == [0, 1, 1, 1]


def test_indices_become_u64(tmp_path: Path) -> None:
    made = draft("1.2.0")
    for role, count in (("indptr", 3), ("indices", 3)):
        values = np.frombuffer(made.blobs["rows", role], np.uint64)
        assert values.size >= count - 1
        made.blobs["rows", role] = values.astype(np.int32).tobytes()
        made.component("rows", role)["dtype"] = "i32"
    ztensor.convert(made.to_bytes(), tmp_path / "new.zt", check=True)
    with ztensor.open(made.to_bytes()) as old, ztensor.open(tmp_path / "new.zt") as new:
        assert new.metadata("rows").components["indices"].dtype == "uint64"
        assert new.read("rows").to_dense().tolist() == old.read("rows").to_dense().tolist()


def test_a_negative_index_is_refused(tmp_path: Path) -> None:
    made = draft("1.2.0")
    values = np.frombuffer(made.blobs["rows", "indices"], np.uint64).astype(np.int32)
    values[0] = -1
    made.blobs["rows", "indices"] = values.tobytes()
    made.component("rows", "indices")["dtype"] = "i32"
    with pytest.raises(FormatError) as caught:
        ztensor.convert(made.to_bytes(), tmp_path / "new.zt")
    assert caught.value.object_name == "rows"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("suffix", [".zt", ".safetensors"])
@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        (None, (), ["w", "half", "step"]),
        ("*", None, ["w", "half", "step"]),
        (["step", "?"], (), ["w", "step"]),
        (None, ["w", "st*"], ["half"]),
        ("[wh]*", "*f", ["w"]),
    ],
)
def test_all_or_some_of_a_set(
    tmp_path: Path, suffix: str, include: Any, exclude: Any, expected: list[str]
) -> None:
    folder, one = tmp_path / "model", tmp_path / f"one{suffix}"
    folder.mkdir()
    save_file(DENSE, folder / "m.zt", max_shard_size=4096)
    report = ztensor.convert(folder, one, check=True, include=include, exclude=exclude)
    assert len(report.inputs) > 2
    assert report.inputs[0].endswith("m.zt.index.json")
    with ztensor.open(one) as reader:
        assert {name: reader[name].tolist() for name in reader} == {
            name: DENSE[name].tolist() for name in expected
        }


def test_an_open_reader_stays_open(dense: Path, tmp_path: Path) -> None:
    with ztensor.open(dense) as reader:
        ztensor.convert(reader, tmp_path / "a.zt", include="w")
        assert set(reader) == set(DENSE)
        assert reader["w"].shape == (64, 32)


def test_unknown_fields_of_the_root_are_kept(tmp_path: Path) -> None:
    made = draft("1.2.0")
    made.root["future"] = [1, 2]
    ztensor.convert(made.to_bytes(), tmp_path / "new.zt")
    with ztensor.open(tmp_path / "new.zt") as reader:
        assert reader.objects.parts()[0].manifest.extra == {"future": [1, 2]}


# --- Older versions -------------------------------------------------------------------------

LOST = {
    "0.1.0": [None, None, "fnuz", "int4", "sparse"],
    "1.1.0": [None, "fnuz"],
    "1.2.0": [],
}


@pytest.mark.parametrize("version", VERSIONS)
def test_losses_of_a_version_are_reported(rich: Path, tmp_path: Path, version: str) -> None:
    new = tmp_path / "new.zt"
    report = ztensor.convert(rich, new, version=version, check=True)
    names = sorted((loss.object_name for loss in report.lost), key=lambda name: name or "")
    assert names == LOST[version]
    assert report.objects == 7 - len([name for name in names if name])
    assert report.is_lossless == (version == "1.2.0")
    left_out = {name for name in LOST[version] if name}
    with ztensor.open(new) as reader:
        assert reader.version == version
        assert set(reader) == set(facts(rich)["objects"]) - left_out
    assert all(
        "count" in str(loss) or loss.object_name or "note" in str(loss) for loss in report.lost
    )


@pytest.mark.parametrize(("version", "count"), [("0.1.0", 4), ("1.1.0", 1)])
def test_strict_names_the_first_and_the_count(
    rich: Path, tmp_path: Path, version: str, count: int
) -> None:
    new = tmp_path / "new.zt"
    new.write_bytes(b"old")
    with pytest.raises(NotRepresentableError, match=f"; and {count} more") as caught:
        ztensor.convert(rich, new, version=version, strict=True)
    assert caught.value.file == str(new)
    assert new.read_bytes() == b"old"


def test_0_1_drops_only_attributes_with_reserved_names(tmp_path: Path) -> None:
    old, new = tmp_path / "old.zt", tmp_path / "new.zt"
    with ztensor.Writer(old) as writer:
        writer.write("w", WEIGHT, attributes={"offset": 3, "unit": "volt"})
    (loss,) = ztensor.convert(old, new, version="0.1.0").lost
    assert loss.object_name == "w"
    assert "'offset'" in loss.sentence
    with ztensor.open(new) as reader:
        assert reader.metadata("w").attributes == {"unit": "volt"}
        assert np.array_equal(reader["w"], WEIGHT)


def test_a_version_that_can_hold_no_object_is_an_error(rich: Path, tmp_path: Path) -> None:
    with pytest.raises(NotRepresentableError):
        ztensor.convert(rich, tmp_path / "new.zt", version="0.1.0", include="int4")
    assert not (tmp_path / "new.zt").exists()


# --- To other formats -----------------------------------------------------------------------


@pytest.mark.parametrize("to", [name for name in FORMATS.written() if name not in ("zt", "npy")])
def test_there_and_back(dense: Path, tmp_path: Path, to: str) -> None:
    if to == "hdf5":
        pytest.importorskip("h5py", reason="HDF5 is written with h5py")
    other, back = tmp_path / f"other{FORMATS.written()[to][0]}", tmp_path / "back.zt"
    report = ztensor.convert(dense, other, check=True)
    assert (report.format, report.version, report.lost) == (to, "", ())
    with ztensor.open(other) as reader:
        assert reader.format == to
    ztensor.convert(other, back, check=True, strict=True)
    assert len({ztensor.content_hash(path) for path in (dense, other, back)}) == 1


def test_objects_of_unknown_types_are_left_out(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "odd.npz",
        w=WEIGHT,
        text=np.array(["a", "b"]),
        pickled=np.array([{}, 1], dtype=object),
    )
    report = ztensor.convert(tmp_path / "odd.npz", tmp_path / "new.zt", check=True)
    assert sorted(loss.object_name or "" for loss in report.lost) == ["pickled", "text"]
    with ztensor.open(tmp_path / "new.zt") as reader:
        assert list(reader) == ["w"]
    with ztensor.open(tmp_path / "odd.npz") as reader, ztensor.Writer(tmp_path / "w.zt") as writer:
        with pytest.raises(UnsupportedError) as caught:
            writer.copy("pickled", reader)
        assert caught.value.object_name == "pickled"


# --- In its place ---------------------------------------------------------------------------


@pytest.mark.parametrize(("old", "new"), list(itertools.permutations(VERSIONS, 2)))
def test_every_version_to_every_other_and_back(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "model.zt"
    save_file(DENSE | {"c": np.array([True, False])}, path, version=old)
    before = facts(path)
    assert ztensor.migrate(path, version=new).is_lossless
    with ztensor.open(path) as reader:
        assert reader.version == new
    assert facts(path) == before
    ztensor.migrate(path, version=old)
    assert facts(path) == before


@pytest.mark.parametrize("version", VERSIONS)
def test_without_a_version_the_file_keeps_its_own(tmp_path: Path, version: str) -> None:
    path = tmp_path / "model.zt"
    save_file(DENSE, path, version=version)
    for compression, found in ((True, {"raw", "zstd"}), (False, {"raw"})):
        assert ztensor.migrate(path, compression=compression).version == version
        assert encodings(path) == found


@pytest.mark.parametrize("entry", OF_EACH_VERSION, ids=lambda entry: str(entry["path"]))
def test_migrate_compact_and_split_choose_one_version(
    tmp_path: Path, entry: dict[str, Any]
) -> None:
    path = tmp_path / "model.zt"
    path.write_bytes((CORPUS / entry["path"]).read_bytes())
    try:
        version = ztensor.migrate(path, tmp_path / "new.zt").version
    except (UnsupportedError, FormatError):
        pytest.skip("it opens, but not all of it can be read")
    shard, *_ = split(path, tmp_path / "shards")
    ztensor.compact(path)
    for written in (tmp_path / "new.zt", shard, path):
        with ztensor.open(written) as reader:
            assert reader.version == version


def test_a_container_that_is_only_read_becomes_the_latest(tmp_path: Path) -> None:
    (entry, *_) = [e for e in READABLE if e["path"].startswith("real/1.0.1/")]
    assert ztensor.migrate(CORPUS / entry["path"], tmp_path / "new.zt").version == "1.2.0"


def test_migrate_in_place_refuses_losses(rich: Path, tmp_path: Path) -> None:
    before = rich.read_bytes()
    with pytest.raises(NotRepresentableError):
        ztensor.migrate(rich, version="0.1.0")
    with pytest.raises(UsageError):
        ztensor.migrate(rich, version="0.1.0", strict=False)
    assert rich.read_bytes() == before
    report = ztensor.migrate(rich, tmp_path / "new.zt", version="0.1.0", strict=False)
    assert len(report.lost) == len(LOST["0.1.0"])


def test_another_writer_keeps_the_file(dense: Path) -> None:
    with ztensor.Editor(dense), refused(SourceError, Reason.SOURCE_LOCKED):
        ztensor.migrate(dense, compression=True)


def test_migrate_is_for_our_files(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    np.savez(path, w=WEIGHT)
    with pytest.raises(UsageError):
        ztensor.migrate(path, compression=True)


# --- Faults and errors ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["new.zt", "new.safetensors"])
@pytest.mark.parametrize("fault", ["full", "flipped"])
def test_a_fault_of_the_disk_leaves_the_old_file(
    dense: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, fault: str
) -> None:
    new, write = tmp_path / name, os.write
    new.write_bytes(b"old")

    def full(descriptor: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def flipped(descriptor: int, data: Any) -> int:
        changed = bytearray(data)
        changed[len(changed) // 2] ^= 1
        return write(descriptor, changed)

    monkeypatch.setattr(os, "write", full if fault == "full" else flipped)
    with pytest.raises(SourceError if fault == "full" else FormatError) as caught:
        ztensor.convert(dense, new, check=True)
    assert caught.value.file == str(new)
    assert new.read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == sorted(["dense.zt", name])


def test_a_dry_run_writes_nothing(rich: Path, tmp_path: Path) -> None:
    for name in ("new.zt", "new.safetensors"):
        planned = ztensor.convert(rich, tmp_path / name, dry_run=True)
        assert os.listdir(tmp_path) == ["rich.zt"]
        written = ztensor.convert(rich, tmp_path / name)
        assert planned == written
        (tmp_path / name).unlink()


@pytest.mark.parametrize(
    ("target", "options", "kind"),
    [
        ("new.foo", {}, ArgumentValueError),
        ("new", {}, ArgumentValueError),
        ("new.zt", {"to": "zip"}, ArgumentValueError),
        ("new.zt", {"version": "9"}, ArgumentValueError),
        ("new.zt", {"compression": "lz4"}, ArgumentValueError),
        ("new.zt", {"compression": 99}, ArgumentValueError),
        ("new.zt", {"checksum": "md5"}, ArgumentValueError),
        ("new.zt", {"durable": "maybe"}, ArgumentValueError),
        ("new.zt", {"threads": 0}, ArgumentValueError),
        ("new.zt", {"include": "nothing*"}, ArgumentValueError),
        ("new.zt", {"exclude": ["*"]}, ArgumentValueError),
        ("no/new.zt", {}, SourceError),
        (".", {"to": "zt"}, SourceError),
        (".", {"to": "safetensors"}, SourceError),
    ],
    ids=lambda value: str(value) if isinstance(value, (str, dict)) else value.__name__,
)
def test_wrong_arguments_are_refused(
    dense: Path, tmp_path: Path, target: str, options: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        ztensor.convert(dense, tmp_path / target, **options)
    assert os.listdir(tmp_path) == ["dense.zt"]


def test_an_empty_file_is_converted(tmp_path: Path) -> None:
    save_file({}, tmp_path / "old.zt", {"a": "b"})
    report = ztensor.convert(tmp_path / "old.zt", tmp_path / "new.zt", check=True)
    assert (report.objects, report.lost) == (0, ())


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("name", ["new.zt", "new.safetensors"])
def test_progress_rises_to_its_end(dense: Path, tmp_path: Path, name: str, check: bool) -> None:
    seen: list[tuple[int, int]] = []
    ztensor.convert(
        dense, tmp_path / name, check=check, progress=lambda done, total: seen.append((done, total))
    )
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len({total for _, total in seen}) == 1
    assert seen[-1][0] == seen[-1][1]


def test_the_report_is_readable() -> None:
    assert str(ztensor.converting.Loss("a\x1b", "left out")) == "'a\\x1b': left out"
    assert str(ztensor.converting.Loss(None, "left out")) == "left out"


@pytest.mark.parametrize(
    ("suffix", "written"),
    [(".zt", 4), (".safetensors", 4), (".npz", 4), (".gguf", 1), (".h5", 3)],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_the_report_counts_the_objects_that_were_written(
    tmp_path: Path, suffix: str, written: int, dry_run: bool
) -> None:
    """One that is left out is not counted, one of several components once."""
    if suffix == ".h5":
        pytest.importorskip("h5py", reason="optional: h5py")
    tensors = {
        "plain": WEIGHT,
        "plain/below": np.ones(2, np.uint32),  # to HDF5 it is a path inside a dataset
        "flags": np.array([True, False]),
        "sparse": ztensor.Tensor.csr(np.ones(1, np.float32), [1], [0, 1, 1], (2, 4)),
    }
    save_file(tensors, tmp_path / "old.zt")
    report = ztensor.convert(tmp_path / "old.zt", tmp_path / f"new{suffix}", dry_run=dry_run)
    assert report.objects == written
    if not dry_run and suffix == ".gguf":
        assert len(ztensor.open(tmp_path / "new.gguf")) == written


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".gguf", ".h5"])
@pytest.mark.parametrize(
    "name", ["spec/1.2.0/dense_extra_component.zt", "spec/0.1.0/unknown_values.zt"]
)
def test_reported_losses_are_the_only_differences(suffix: str, name: str, tmp_path: Path) -> None:
    """Components beside the data, unknown types and layouts: said, and the rest is compared."""
    if suffix == ".h5":
        pytest.importorskip("h5py", reason="optional: h5py")
    report = ztensor.convert(CORPUS / name, tmp_path / f"new{suffix}", check=True)
    assert report.lost
    lost = {loss.object_name for loss in report.lost}
    with ztensor.open(CORPUS / name) as old, ztensor.open(report.path) as new:
        same = [name for name in old if name not in lost]
        assert ztensor.insight.tensor_hashes(old, same) == ztensor.insight.tensor_hashes(new, same)
        assert lost >= {name for name in old if name not in new}


def test_0_1_cannot_hold_an_unknown_type(tmp_path: Path) -> None:
    report = ztensor.convert(
        CORPUS / "spec/0.1.0/unknown_values.zt",
        tmp_path / "new.zt",
        version="0.1.0",
        exclude="odd_[el]*",
        check=True,
    )
    assert [loss.object_name for loss in report.lost] == ["odd_dtype"]


@pytest.mark.parametrize("suffix", [".zt", ".safetensors", ".npz", ".gguf"])
def test_the_table_of_frames_is_not_a_loss(tmp_path: Path, suffix: str) -> None:
    """A field of ours in the manifest of a compressed file, which any other file does without."""
    source = tmp_path / "a.zt"
    noise = np.random.default_rng(0).normal(size=(2000, 400)).astype(np.float32)
    save_file({"a": noise}, source, compression=True)
    with ztensor.open(source) as reader:
        assert reader.objects.part("a").object("a").components["data"].extra
    assert not ztensor.convert(source, tmp_path / f"b{suffix}").lost
    assert not ztensor.convert(source, tmp_path / "old.zt", version="0.1.0").lost


@pytest.mark.parametrize("place", ["include", "exclude"])
def test_patterns_are_text(dense: Path, tmp_path: Path, place: str) -> None:
    for patterns in ([b"w"], [None], (1,), io.BytesIO(b"w"), iter([("w",)])):
        options: Any = {place: patterns}
        with pytest.raises(ArgumentTypeError):
            ztensor.convert(dense, tmp_path / "new.zt", **options)

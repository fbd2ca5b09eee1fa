"""Deltas of other programs: their bytes, what they give, and what is refused."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.refusals import refused
from tests.unit.delta.chains import same, walk
from tests.unit.delta.test_apply import of_bits, some_changed, two_states
from ztensor import delta
from ztensor.delta import DeltaError, DeltaReason
from ztensor.ext import ENCODINGS
from ztensor.numpy import load_file, save_file

BF16 = ml_dtypes.bfloat16
OLD = {"w": np.array([1, 2, -3, 0.5], BF16)}
NEW = {"w": np.array([1, 2, -8.125, 0.5], BF16)}
NEW["w"].view(np.uint8)[:] = OLD["w"].view(np.uint8) ^ [0, 0, 0, 0, 1, 0, 0, 0]
XOR = bytes.fromhex("28b52ffd 20 08 410000 0000000001000000")
OVERWRITE = bytes.fromhex("01000000 04000000 41")
XXH3, ADLER = "ecbcf72970b12e6b92050297314fc674", "0a840240"
INDEX = "model.safetensors.index.json"
FILE = "model-00000-of-00001.safetensors"
FACTS = {
    "version": "000007",
    "base_version": "000006",
    "delta_encoding": "xor",
    "compression_format": "zstd",
    "checksum_format": "xxh3-128",
}


def frame(data: bytes) -> bytes:
    size = max(len(data), 1)
    return b"".join(ENCODINGS["zstd"].encode(memoryview(data), level=1, frame_bytes=size))


def safetensors(path: Path, tensors: dict[str, Any], metadata: dict[str, str]) -> None:
    """Write a file; bytes become vectors of bytes."""
    arrays = {
        name: np.frombuffer(value, np.uint8) if isinstance(value, bytes) else value
        for name, value in tensors.items()
    }
    save_file(arrays, path, metadata)


def place(folder: Path, dialect: str) -> Path:
    """Return the path of a delta of a dialect."""
    return folder / ("weight_v000007" if dialect == "slime" else "d.safetensors")


def version(
    folder: Path, stored: bytes = XOR, digits: str = XXH3, name: str = "w", **facts: Any
) -> Path:
    """Write a version of slime with one tensor; return its folder."""
    folder.mkdir()
    safetensors(folder / FILE, {name: stored}, {name: digits})
    index = {"metadata": FACTS | facts, "weight_map": {name: FILE}}
    (folder / INDEX).write_text(json.dumps(index))
    return folder


def applied(found: Any, folder: Path, base: dict[str, Any] = OLD) -> dict[str, Any]:
    """Return the state after a delta, which is applied to a file."""
    save_file(base, folder / "base.safetensors")
    delta.apply(found, folder / "base.safetensors", folder / "result.safetensors")
    return dict(load_file(folder / "result.safetensors", copy=True))


def reason_of(call: Callable[[], object]) -> Any:
    with pytest.raises(ztensor.ZTensorError) as caught:
        call()
    return caught.value.reason


def sparse(value: float) -> ztensor.Tensor:
    parts = {"values": np.array([value]), "coords": np.zeros((1, 1), np.uint64)}
    return ztensor.Tensor(parts, format="sparse_coo", shape=(4,))


# --- Golden bytes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "checksum", "stored", "digits"),
    [
        ("difference", True, XOR, XXH3),
        ("difference", "adler32", XOR, ADLER),
        ("new", "xxh3-128", frame(OVERWRITE), XXH3),
    ],
)
def test_a_version_of_slime_has_these_bytes(
    tmp_path: Path, values: Any, checksum: Any, stored: bytes, digits: str
) -> None:
    folder = tmp_path / "weight_v000007"
    how = {"values": values, "checksum": checksum}
    report = delta.make(OLD, NEW, folder, dialect="slime", version=7, **how)
    with ztensor.open(folder / FILE) as reader:
        assert (reader["w"].tobytes(), reader.attributes) == (stored, {"w": digits})
    word = {"difference": "xor", "new": "overwrite"}[values]
    kind = "xxh3-128" if checksum is True else checksum
    assert json.loads((folder / INDEX).read_text()) == {
        "metadata": FACTS | {"delta_encoding": word, "checksum_format": kind},
        "weight_map": {"w": FILE},
    }
    assert (report.base, report.result, report.changed) == ("version:6", "version:7", 1)
    assert report.nbytes == sum(path.stat().st_size for path in folder.iterdir())
    assert same(applied(folder, tmp_path), NEW)


def test_a_file_of_arc_has_every_tensor(tmp_path: Path) -> None:
    none: dict[str, Any] = {"empty": np.zeros((0, 2), np.float32), "same": np.arange(3)}
    path = tmp_path / "arc.safetensors"
    delta.make(OLD | none, NEW | none, path, dialect="arc")
    with ztensor.open(path) as reader:
        assert reader["w"].tobytes() == XOR
        assert reader["same"].tobytes() == frame(bytes(24))
        assert reader.attributes == {
            "w": "176423488",
            "empty": "1",
            "same": str(zlib.adler32(none["same"])),
        }
    assert same(applied(delta.open(path, dialect="arc"), tmp_path, OLD | none), NEW | none)


def test_a_patch_of_trl_has_gaps(tmp_path: Path) -> None:
    old = {"a": np.zeros(70_000, BF16), "b": np.zeros(9, BF16), "same": np.zeros(21, np.int8)}
    new = old | {"a": old["a"].copy(), "b": old["b"].copy()}
    new["a"][[2, 3, 69_000]], new["b"][[0, 8]] = 1, 2
    path = tmp_path / "patch.safetensors"
    delta.make(old, new, path, dialect="trl", version=12)
    with ztensor.open(path) as reader:
        stored = {name: (str(array.dtype), array.tolist()) for name, array in reader.items()}
        assert stored == {
            "a.idx": ("uint32", [2, 0, 68_996]),
            "a.val": ("bfloat16", [1, 1, 1]),
            "b.idx": ("uint16", [0, 7]),
            "b.val": ("bfloat16", [2, 2]),
        }
        assert reader.attributes == {
            "format": "sparse_weight_patch",
            "version": "1",
            "sparse": "True",
            "encoding": "gap_delta",
            "model_version": "12",
            "num_changed_params": "2",
            "total_changed_elements": "5",
            "total_elements": "70030",
            "sparsity": str(1 - 5 / 70_030),
        }
    assert same(applied(path, tmp_path, old), new)


# --- What they give -----------------------------------------------------------------------------


def changed_states(share: float, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two states of the types of a format, and more elements than are changed at once."""
    old, new = two_states(share)
    for name in [name for name in old if kind != ".zt" and name.startswith(("float4", "complex"))]:
        del old[name], new[name]
    dice = np.random.default_rng(5)
    old["long"] = of_bits(dice, BF16, (2, 530_001))
    new["long"] = some_changed(dice, old["long"], share)
    return old, new


@pytest.mark.parametrize("share", [0.0, 0.001, 0.6])
@pytest.mark.parametrize("kind", [".zt", ".safetensors"])
@pytest.mark.parametrize(
    ("dialect", "values"), [("slime", "difference"), ("slime", "new"), ("arc", "difference")]
)
def test_the_new_state_is_the_same_bit_for_bit(
    tmp_path: Path, share: float, kind: str, dialect: Any, values: Any
) -> None:
    old, new = changed_states(share, kind)
    a, b, result = (tmp_path / f"{name}{kind}" for name in ("a", "b", "r"))
    save_file(old, a, compression=kind == ".zt")
    save_file(new, b)
    path = place(tmp_path, dialect)
    delta.make(a, b, path, dialect=dialect, values=values, ids="xxh3-128")
    found = delta.open(path, dialect=dialect)
    delta.apply(found, a, result)
    assert same(load_file(result), dict(load_file(b)))
    live = {name: array.copy() for name, array in old.items()}
    delta.apply_to(live, found)
    assert same(live, new)


@pytest.mark.parametrize("dialect", ["slime", "arc", "trl"])
def test_a_delta_is_listed_without_its_base(tmp_path: Path, dialect: Any) -> None:
    path = place(tmp_path, dialect)
    delta.make(OLD, NEW, path, dialect=dialect, version=7)
    with delta.open(path, dialect=dialect) as found:
        assert (found.dialect, list(found), found.changed) == (dialect, ["w"], None)
        assert found.label == {"slime": "7", "arc": None, "trl": "7"}[dialect]
        assert found["w"].stored == {"slime": 17, "arc": 17, "trl": 4}[dialect]
        assert reason_of(lambda: found["w"].tensor(ztensor.Tensor(OLD["w"]))) == "delta_needs_base"
    assert delta.verify(delta.open(path, dialect=dialect)).undecoded == 1
    report = delta.verify(delta.open(path, dialect=dialect), base=OLD)
    assert (report.ok, report.undecoded) == (True, 0)


@pytest.mark.parametrize("dialect", ["slime", "arc"])
def test_a_second_time_is_refused_and_changes_nothing(tmp_path: Path, dialect: Any) -> None:
    path = place(tmp_path, dialect)
    delta.make(OLD, NEW, path, dialect=dialect, version=7)
    base = tmp_path / "base.safetensors"
    save_file(OLD, base)
    delta.apply(delta.open(path, dialect=dialect), base, in_place=True)
    after = base.read_bytes()
    again = delta.open(path, dialect=dialect)
    assert reason_of(lambda: delta.apply(again, base, in_place=True)) == "delta_applied"
    delta.apply(again, base, in_place=True, if_applied="skip")
    assert base.read_bytes() == after


def test_a_folder_of_versions_is_a_chain(tmp_path: Path) -> None:
    states = walk(6)
    updates, base = tmp_path / "updates", tmp_path / "base.zt"
    save_file(states[0], base)
    for number, (before, after) in enumerate(itertools.pairwise(states), 1):
        how: Any = {"values": "new" if number % 2 else "difference"}
        delta.make(before, after, updates / f"weight_v{number:06}", dialect="slime", **how)
    chain = delta.log(updates)
    assert chain.ok
    assert [link.result for link in chain.links] == [f"version:{n}" for n in range(1, 6)]
    for to, state in [(None, states[5]), ("3", states[3]), ("version:4", states[4])]:
        delta.apply(updates, base, tmp_path / "result.zt", to=to)
        assert same(load_file(tmp_path / "result.zt"), state)
    save_file(states[2], tmp_path / "second.zt")  # versions before it are left out
    delta.apply(updates, tmp_path / "second.zt", tmp_path / "result.zt")
    assert same(load_file(tmp_path / "result.zt"), states[5])
    delta.fold(updates, tmp_path / "all.zt", base=base)
    delta.apply(tmp_path / "all.zt", base, tmp_path / "result.zt")
    assert same(load_file(tmp_path / "result.zt"), states[5])
    assert reason_of(lambda: delta.fold(updates, tmp_path / "no.zt")) == "delta_needs_base"
    missing = [updates / f"weight_v{number:06}" for number in (1, 3)]
    assert reason_of(lambda: delta.apply(missing, base, tmp_path / "no.zt")) == "delta_chain"


@pytest.mark.parametrize("files", [1, 2])
def test_a_whole_version_replaces_any_base(tmp_path: Path, files: int) -> None:
    states = walk(3)
    whole = states[1] | {"more": np.ones(3, np.float32)}
    del whole["fixed"]
    updates, base = tmp_path / "updates", tmp_path / "base.zt"
    save_file(walk(1)[0] | {"w": np.zeros(2)}, base)
    full = updates / "weight_v000004"
    full.mkdir(parents=True)
    if files == 1:
        save_file(whole, full / "model.safetensors")
    else:
        names = sorted(whole)
        homes = {name: f"model-{names.index(name) % 2}.safetensors" for name in names}
        for file in set(homes.values()):
            part = {name: whole[name] for name in names if homes[name] == file}
            save_file(part, full / file, {"format": "pt"})
        (full / INDEX).write_text(json.dumps({"weight_map": homes}))
    last = whole | {"f32": states[2]["f32"], "more": np.zeros(3, np.float32)}
    delta.make(whole, last, updates / "weight_v000005", dialect="slime")
    delta.apply(updates, base, tmp_path / "result.zt")
    assert same(load_file(tmp_path / "result.zt"), last)


def test_a_whole_patch_of_trl_replaces_any_base(tmp_path: Path) -> None:
    notes = {"format": "sparse_weight_patch", "version": "1", "sparse": "False"}
    save_file(NEW, tmp_path / "anchor.safetensors", notes)
    base = {"w": np.zeros((2, 2), np.float32), "x": np.zeros(2)}
    assert same(applied(tmp_path / "anchor.safetensors", tmp_path, base), NEW)


def test_an_empty_version_has_only_an_index(tmp_path: Path) -> None:
    folder = tmp_path / "weight_v000001"
    delta.make(OLD, OLD, folder, dialect="slime")
    assert os.listdir(folder) == [INDEX]
    assert same(applied(folder, tmp_path), OLD)


def test_arc_v1_and_the_files_in_arc_v3_are_read(tmp_path: Path) -> None:
    mask = (OLD["w"].view(np.uint8) ^ NEW["w"].view(np.uint8)).tobytes()
    inner = tmp_path / "inner.safetensors"
    for stored in (zlib.compress(mask), XOR):
        for word in (None, "arc_v1" if stored != XOR else "arc_v2"):
            payload = stored
            if word is not None:
                safetensors(
                    inner, {"tensor": stored}, {"tensor": "176423488", "fallback_name": word}
                )
                payload = inner.read_bytes()
            safetensors(tmp_path / "d.safetensors", {"w": payload}, {"w": "176423488"})
            found = delta.open(tmp_path / "d.safetensors", dialect="arc")
            assert same(applied(found, tmp_path), NEW)


def test_a_file_that_may_be_of_arc_is_named(tmp_path: Path) -> None:
    delta.make(OLD, NEW, tmp_path / "d.safetensors", dialect="arc")
    with refused(DeltaError, DeltaReason.DIALECT) as caught:
        delta.open(tmp_path / "d.safetensors")
    assert "arc" in str(caught.value.hint)


# --- What is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialect", "old", "new", "reason"),
    [
        ("slime", OLD, {}, "delta_tensor"),
        ("arc", OLD, {}, "delta_tensor"),
        ("slime", OLD, NEW | {"v": NEW["w"]}, "delta_tensor"),
        ("trl", OLD, NEW | {"v": NEW["w"]}, "delta_tensor"),
        ("slime", OLD, {"w": NEW["w"].reshape(2, 2)}, "delta_shape"),
        ("arc", OLD, {"w": NEW["w"].astype(np.float32)}, "delta_shape"),
        ("trl", {"w": np.zeros(3, np.float16)}, {"w": np.ones(3, np.float16)}, "delta_dialect"),
        ("trl", {"x.val": np.zeros(3, BF16)}, {"x.val": np.ones(3, BF16)}, "delta_dialect"),
        ("slime", {"w": sparse(0)}, {"w": sparse(1)}, "delta_dialect"),
        ("arc", {"w": sparse(0)}, {"w": sparse(1)}, "delta_dialect"),
    ],
)
def test_a_change_that_a_dialect_lacks_is_refused(
    tmp_path: Path, dialect: Any, old: Any, new: Any, reason: str
) -> None:
    path = place(tmp_path, dialect)
    assert reason_of(lambda: delta.make(old, new, path, dialect=dialect)) == reason
    assert not (path / INDEX if dialect == "slime" else path).exists()


@pytest.mark.slow  # 8 GiB of zeros, which Windows reserves
def test_positions_of_4_gib_are_refused(tmp_path: Path) -> None:
    old, new = (np.zeros(1 << 32, np.uint8) for _ in range(2))
    new[5] = 1
    how: Any = {"dialect": "slime", "version": 1, "values": "new", "ids": "xxh3-128"}
    call = lambda: delta.make({"w": old}, {"w": new}, tmp_path / "d", **how)  # noqa: E731
    assert reason_of(call) == "delta_dialect"


@pytest.mark.parametrize(
    "options",
    [
        {"dialect": "slime", "version": 0},
        {"dialect": "slime", "version": "7"},
        {"dialect": "slime", "version": True},
        {"dialect": "slime"},
        {"dialect": "slime", "version": 1, "checksum": "sha256"},
        {"dialect": "slime", "version": 1, "effort": "small"},
        {"dialect": "arc", "label": "1"},
        {"dialect": "other"},
        {"dialect": "arc"},
        {"dialect": "trl", "version": -1},
        {"version": 7},
    ],
    ids=str,
)
def test_wrong_options_are_refused(tmp_path: Path, options: Any) -> None:
    with pytest.raises(ztensor.UsageError):
        delta.make(OLD, NEW, tmp_path / "name", **options)


def test_a_published_version_is_never_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "weight_v000001"
    delta.make(OLD, NEW, folder, dialect="slime")
    with pytest.raises(ztensor.UsageError):
        delta.make(OLD, OLD, folder, dialect="slime")
    (folder / INDEX).unlink()  # what a crash leaves
    with pytest.raises(ztensor.UsageError):
        delta.make(OLD, OLD, folder, dialect="slime")
    delta.make(OLD, NEW, folder, dialect="slime")
    assert same(applied(folder, tmp_path), NEW)


def test_blake3_without_its_library_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = version(tmp_path / "weight_v000007", checksum_format="blake3")
    monkeypatch.setitem(sys.modules, "blake3", None)  # as if absent
    assert reason_of(lambda: delta.open(folder)) == ztensor.Reason.MISSING_DEPENDENCY
    how: Any = {"dialect": "slime", "version": 1, "checksum": "blake3"}
    call = lambda: delta.make(OLD, NEW, tmp_path / "d", **how)  # noqa: E731
    assert reason_of(call) == ztensor.Reason.MISSING_DEPENDENCY


@pytest.mark.parametrize(
    ("dialect", "base", "reason"),
    [
        ("slime", {"w": np.zeros(4, BF16)}, "delta_result"),
        ("slime", {"w": np.zeros(3, BF16)}, "delta_shape"),
        ("slime", {"v": OLD["w"]}, "delta_tensor"),
        ("slime", {"w": sparse(1)}, "delta_shape"),
        ("overwrite", {"w": np.zeros(4, BF16)}, "delta_result"),
        ("overwrite", {"w": np.zeros(2, BF16)}, "delta_malformed"),
        ("overwrite", {"w": np.zeros(9, BF16)}, "delta_result"),
        ("arc", {"w": np.zeros(4, BF16)}, "delta_result"),
        ("arc", {"w": np.zeros(3, BF16)}, "delta_shape"),
        ("arc", {"v": OLD["w"]}, "delta_tensor"),
        ("arc", OLD | {"v": OLD["w"]}, "delta_tensor"),
        ("trl", {"w": np.zeros(2, BF16)}, "delta_malformed"),
        ("trl", {"w": np.zeros(4, np.float16)}, "delta_shape"),
    ],
)
def test_a_wrong_base_is_refused(tmp_path: Path, dialect: str, base: Any, reason: str) -> None:
    how: Any = {"values": "new" if dialect == "overwrite" else "difference"}
    dialect = dialect.replace("overwrite", "slime")
    path = place(tmp_path, dialect)
    delta.make(OLD, NEW, path, dialect=dialect, **how)  # type: ignore[arg-type]
    found = delta.open(path, dialect=dialect)
    save_file(base, tmp_path / "base.zt")
    with refused(DeltaError, reason) as caught:
        delta.apply(found, tmp_path / "base.zt", tmp_path / "result.zt")
    assert not (tmp_path / "result.zt").exists()
    if reason in ("delta_result", "delta_malformed"):  # without ids that may be damage, too
        assert "base" in str(caught.value)


def test_what_is_no_delta_is_refused(tmp_path: Path) -> None:
    whole = tmp_path / "model"
    whole.mkdir()
    save_file(OLD, whole / "model.safetensors")
    save_file({"w": np.ones(3)}, tmp_path / "model.npz")
    for path in (whole, whole / "model.safetensors", tmp_path / "model.npz"):
        assert reason_of(lambda: delta.open(path)) == "delta_dialect"  # noqa: B023
    assert reason_of(lambda: delta.open(whole, dialect="slime")) == "delta_malformed"
    assert reason_of(lambda: delta.open(tmp_path / "model.npz", dialect="arc")) == "delta_malformed"
    assert reason_of(lambda: delta.open(tmp_path / "model.npz", dialect="trl")) == "delta_dialect"
    assert reason_of(lambda: delta.open(tmp_path / "model.npz", dialect="zt")) == "delta_dialect"


def renamed(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    """Return a function that changes the index of a version."""

    def run(folder: Path) -> None:
        index = json.loads((folder / INDEX).read_text())
        change(index)
        (folder / INDEX).write_text(json.dumps(index))

    return run


def fact(word: str, value: object) -> Callable[[Path], object]:
    return renamed(lambda index: index["metadata"].update({word: value}))


def home(name: str, file: object) -> Callable[[Path], object]:
    return renamed(lambda index: index["weight_map"].update({name: file}))


def stored(data: Any, digits: str = XXH3, name: str = "w") -> Callable[[Path], object]:
    return lambda folder: safetensors(folder / FILE, {name: data}, {name: digits})


def twice(folder: Path) -> None:
    safetensors(folder / "model-00001-of-00002.safetensors", {"w": XOR}, {"w": XXH3})


def changed_bytes(*parts: bytes) -> Callable[[Path], object]:
    def run(folder: Path) -> None:
        stored(frame(b"".join(parts)))(folder)
        fact("delta_encoding", "overwrite")(folder)

    return run


ONE, LONG = (1).to_bytes(4, "little"), (1 << 31).to_bytes(4, "little")
BROKEN: list[tuple[str, Callable[[Path], object], str]] = [
    ("other coding", fact("delta_encoding", "add"), "delta_dialect"),
    ("no text", fact("delta_encoding", ["xor"]), "delta_dialect"),
    ("other compression", fact("compression_format", "lz4"), "delta_dialect"),
    ("other checksum", fact("checksum_format", "md5"), "delta_dialect"),
    ("version is no number", fact("version", "seven"), "delta_malformed"),
    ("version of another type", fact("base_version", {"a": 1}), "delta_malformed"),
    ("version with many digits", fact("version", "9" * 5000), "delta_malformed"),
    ("absolute path", home("w", "/etc/hostname"), "shard_index"),
    ("path to the parent", home("w", f"../{FILE}"), "shard_index"),
    ("missing file", home("w", "no.safetensors"), "source_not_found"),
    ("name too many in a file", stored(XOR, XXH3, "v"), "shard_index"),
    ("file that is not in the index", twice, "delta_malformed"),
    ("no index", lambda folder: (folder / INDEX).unlink(), "delta_malformed"),
    ("no checksum", lambda folder: safetensors(folder / FILE, {"w": XOR}, {}), "delta_malformed"),
    ("short checksum", stored(XOR, XXH3[:-1]), "delta_malformed"),
    ("checksum in upper case", stored(XOR, XXH3.upper()), "delta_malformed"),
    ("other checksum", stored(XOR, "0" * 32), "delta_result"),
    ("matrix", stored(np.zeros((1, 17), np.uint8)), "delta_malformed"),
    ("floats", stored(np.zeros(17, np.float32)), "delta_malformed"),
    ("longer frame", stored(frame(bytes(9))), "delta_shape"),
    ("shorter frame", stored(frame(bytes(7))), "delta_shape"),
    ("two frames", stored(XOR + XOR), "delta_shape"),
    ("frame that is cut off", stored(XOR[:-1]), "encoding_truncated"),
    ("no frame", stored(b"1234"), "encoding_malformed"),
    ("bomb", changed_bytes(bytes(1 << 20)), "limit_decoded"),
    ("positions without count", changed_bytes(b"12"), "delta_malformed"),
    ("count that is too large", changed_bytes(LONG, ONE, b"A"), "delta_malformed"),
    ("position behind the end", changed_bytes(ONE, LONG, b"A"), "delta_malformed"),
    ("position twice", changed_bytes(bytes([2, 0, 0, 0]), ONE, ONE, b"AB"), "delta_malformed"),
    ("a byte left over", changed_bytes(ONE, ONE, b"AB"), "delta_malformed"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "reason"), [row[1:] for row in BROKEN], ids=[r[0] for r in BROKEN]
)
def test_a_broken_version_is_refused(
    tmp_path: Path, change: Callable[[Path], object], reason: str
) -> None:
    folder = version(tmp_path / "weight_v000007")
    assert same(applied(folder, tmp_path), NEW)
    result = tmp_path / "result.safetensors"
    before = result.read_bytes()
    change(folder)
    assert reason_of(lambda: applied(folder, tmp_path)) == reason
    assert result.read_bytes() == before


PATCH = {"format": "sparse_weight_patch", "version": "1", "sparse": "True", "encoding": "gap_delta"}
VALUES = np.ones(2, BF16)
PATCHES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("other version", {"version": "2"}, {}, "delta_dialect"),
    ("encoding for a GPU", {"encoding": "nvcomp_cascaded"}, {}, "delta_dialect"),
    ("raw positions as gaps", {"encoding": "raw"}, {}, "delta_malformed"),
    ("gaps as raw positions", {}, {"w.idx": np.zeros(2, np.int32)}, "delta_malformed"),
    ("other number", {}, {"w.idx": np.zeros(3, np.uint16)}, "delta_malformed"),
    ("matrix", {}, {"w.idx": np.zeros((2, 1), np.uint16)}, "delta_malformed"),
    ("values of another type", {}, {"w.val": np.ones(2, np.float16)}, "delta_malformed"),
    ("values without positions", {}, {"v.val": VALUES}, "delta_malformed"),
    ("another tensor", {}, {"v": VALUES}, "delta_malformed"),
    ("two of another tensor", {}, {"v": VALUES, "v.val": VALUES}, "delta_malformed"),
    ("behind the end", {}, {"w.idx": np.array([0, 3], np.uint16)}, "delta_malformed"),
    ("falling", {"encoding": "raw"}, {"w.idx": np.array([1, 0], np.int32)}, "delta_malformed"),
    ("negative", {"encoding": "raw"}, {"w.idx": np.array([-1, 0], np.int32)}, "delta_malformed"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("notes", "tensors", "reason"), [row[1:] for row in PATCHES], ids=[row[0] for row in PATCHES]
)
def test_a_broken_patch_is_refused(
    tmp_path: Path, notes: dict[str, str], tensors: dict[str, Any], reason: str
) -> None:
    path = tmp_path / "patch.safetensors"
    whole = {"w.idx": np.array([0, 1], np.uint16), "w.val": VALUES} | tensors
    safetensors(path, whole, PATCH | notes)
    assert reason_of(lambda: applied(path, tmp_path)) == reason


@pytest.mark.parametrize(
    ("payload", "digits", "reason"),
    [
        (b"ARC3_ENVELOPE\0\x80\x04.", "1", "delta_dialect"),
        (XOR, "0x1", "delta_malformed"),
        (XOR, "01", "delta_malformed"),
        (XOR, str(1 << 32), "delta_result"),
        (XOR, "9" * 5000, "delta_malformed"),
        (XOR, "7", "delta_result"),
        (XOR[:-1], "1", "encoding_truncated"),
        (zlib.compress(bytes(9)), "1", "delta_shape"),
        (zlib.compress(bytes(7)), "1", "delta_shape"),
        (zlib.compress(bytes(8)) + b"1", "1", "delta_malformed"),
        (zlib.compress(bytes(1 << 20)), "1", "delta_shape"),
        (zlib.compress(bytes(8))[:-1], "1", "delta_malformed"),
        (b"x\x9cabc", "1", "delta_malformed"),
        (b"", "1", "delta_malformed"),
        ({"tensor": XOR, "digits": "2"}, "1", "delta_malformed"),
        ({"other": XOR, "digits": "1"}, "1", "delta_malformed"),
        ({"tensor": XOR, "digits": "1", "fallback_name": "arc_v4"}, "1", "delta_dialect"),
        (struct.pack("<Q", 1 << 40) + b"{", "1", "manifest_size"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_a_broken_file_of_arc_is_refused(
    tmp_path: Path, payload: Any, digits: str, reason: str
) -> None:
    path = tmp_path / "d.safetensors"
    if isinstance(payload, dict):
        notes = {"tensor": payload["digits"]}
        notes |= {key: payload[key] for key in payload if key == "fallback_name"}
        tensors = {name: payload[name] for name in payload if name in ("tensor", "other")}
        safetensors(path, tensors, notes)
        payload = path.read_bytes()
    safetensors(path, {"w": payload}, {"w": digits})
    assert reason_of(lambda: applied(delta.open(path, dialect="arc"), tmp_path)) == reason


def test_a_pickle_of_arc_v3_is_never_run(tmp_path: Path) -> None:
    class Program:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "it ran",)

    path, data = tmp_path / "d.safetensors", pickle.dumps(Program())
    for payload in (b"ARC3_ENVELOPE\0" + data, data):
        safetensors(path, {"w": payload}, {"w": "1"})
        for dialect in (None, "arc"):
            with pytest.raises(ztensor.ZTensorError):
                applied(delta.open(path, dialect=dialect), tmp_path)
    assert not (tmp_path / "it ran").exists()


# --- Patches for engines --------------------------------------------------------------------------

FLOATS = {"bf": np.arange(60, dtype=BF16), "nan": np.arange(50, dtype=np.float32)}
BEFORE = FLOATS | {"int": np.arange(900), "same": np.ones(3), "gone nan": np.array([np.nan, 1.0])}


def after() -> dict[str, Any]:
    state = {name: array.copy() for name, array in BEFORE.items()}
    state["bf"][[3, 41]], state["nan"][2], state["int"][5] = 7, np.nan, 1
    state["gone nan"][0] = 2
    return state | {"more": np.zeros((2, 2), np.float16)}


@pytest.mark.parametrize(
    "how", [{}, {"effort": "small"}, {"values": "new"}, {"ids": "xxh3-128"}], ids=str
)
def test_patches_are_positions_first_then_whole_tensors(tmp_path: Path, how: Any) -> None:
    new = after()
    delta.make(BEFORE, new, tmp_path / "d.zt", **how)
    found = list(delta.patches(tmp_path / "d.zt", base=BEFORE))
    assert [patch.indices is None for patch in found] == [False, False, True, True, True]
    assert {patch.name for patch in found[:2]} == {"bf", "gone nan"}
    assert {patch.name for patch in found[2:]} == {"int", "nan", "more"}
    for patch in found:
        array = new[patch.name]
        whole = BEFORE.get(patch.name, array).reshape(-1).copy()
        if patch.indices is None:
            whole = patch.values
        else:
            assert patch.indices.dtype == np.int32
            whole[patch.indices] = patch.values
        assert (patch.dtype, patch.shape) == (array.dtype.name, array.shape)
        assert whole.tobytes() == array.tobytes()


def test_new_values_of_floats_need_no_base(tmp_path: Path) -> None:
    old, new = {"bf": np.zeros(5000, BF16)}, {"bf": np.zeros(5000, BF16)}
    new["bf"][[0, 4999]] = 3
    delta.make(old, new, tmp_path / "d.zt", values="new")
    (patch,) = delta.patches(tmp_path / "d.zt", indices="int64")
    assert patch.indices is not None
    assert (str(patch.indices.dtype), patch.indices.tolist()) == ("int64", [0, 4999])
    delta.make(old, {"bf": new["bf"] * 2}, tmp_path / "whole.zt")
    delta.make({}, new, tmp_path / "added.zt")
    (patch,) = delta.patches(tmp_path / "added.zt")
    assert patch.indices is None


@pytest.mark.parametrize("dialect", ["slime", "arc", "trl"])
def test_patches_of_dialects_take_shapes_of_the_base(tmp_path: Path, dialect: Any) -> None:
    path = place(tmp_path, dialect)
    delta.make(OLD, NEW, path, dialect=dialect)
    with delta.open(path, dialect=dialect) as found:
        (patch,) = delta.patches(found, base=OLD)
        assert patch.indices is not None
        assert (patch.indices.tolist(), patch.values.tolist()) == ([2], NEW["w"][2:3].tolist())
        assert reason_of(lambda: list(delta.patches(found))) == "delta_needs_base"


def test_patches_that_no_engine_can_take_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.zt"
    delta.make(BEFORE, after(), path)
    assert reason_of(lambda: list(delta.patches(path))) == "delta_needs_base"
    wrong = BEFORE | {"int": np.arange(900) + 1}
    assert reason_of(lambda: list(delta.patches(path, base=wrong))) == "delta_base"
    delta.make(BEFORE, FLOATS, path)
    assert reason_of(lambda: list(delta.patches(path, base=BEFORE))) == "delta_tensor"
    delta.make({}, {"s": sparse(1)}, path)
    assert reason_of(lambda: list(delta.patches(path))) == "delta_dialect"
    with pytest.raises(ztensor.UsageError):
        delta.patches(path, indices="int16")  # type: ignore[arg-type]

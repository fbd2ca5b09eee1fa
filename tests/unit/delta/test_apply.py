"""`apply` to a file: the result is the new state bit for bit, and wrong deltas change nothing."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.refusals import refused
from tests.unit.distributed.saving import save as save_parts
from ztensor import delta
from ztensor.delta import DeltaError, DeltaReason, apply, make
from ztensor.errors import UsageError
from ztensor.ext import Place
from ztensor.numpy import load_file, save_file

_TYPES = [
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64",
    "float16", "float32", "float64", "complex64", "complex128",
    ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn,
]  # fmt: skip
_SHAPES = [(), (0,), (1,), (3, 5), (70, 40)]


def of_bits(dice: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> Any:
    """Return an array of random bits: also of NaNs with payloads, and of -0.0."""
    kind, count = np.dtype(dtype), int(np.prod(shape))
    most = {"bool": 2, "float4_e2m1fn": 16}.get(kind.name)
    if most is not None:
        return dice.integers(0, most, count, np.uint8).view(kind).reshape(shape)
    return np.frombuffer(dice.bytes(count * kind.itemsize), kind).reshape(shape)


def some_changed(dice: np.random.Generator, array: Any, share: float) -> Any:
    """Return an array with other bits in a share of its elements."""
    other = of_bits(dice, array.dtype, array.shape)
    return np.where(dice.random(array.shape) < share, other, array).astype(array.dtype)


def two_states(share: float) -> tuple[dict[str, Any], dict[str, Any]]:
    dice = np.random.default_rng(7)
    old: dict[str, Any] = {}
    new: dict[str, Any] = {}
    for dtype in _TYPES:
        for shape in _SHAPES:
            name = f"{np.dtype(dtype).name} {shape}"
            old[name] = of_bits(dice, dtype, shape)
            new[name] = some_changed(dice, old[name], share)
    old["zero"], new["zero"] = np.zeros(9, np.float32), np.full(9, -0.0, np.float32)
    return old, new


def bits(path: Path) -> dict[str, Any]:
    """Return all a file holds, bit for bit."""
    with ztensor.open(path) as reader:
        objects = {
            name: (
                tensor.format,
                tuple(tensor.shape),
                tensor.type,
                {role: (str(a.dtype), a.tobytes()) for role, a in tensor.components.items()},
                dict(tensor.attributes),
            )
            for name, tensor in reader.read(list(reader)).items()
        }
        return {"objects": objects, "attributes": reader.attributes}


@pytest.mark.parametrize(("version", "ids"), [("1.2.0", "sha256"), ("2.1", "xxh3-128")])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.9])
@pytest.mark.parametrize(
    ("effort", "values"), [("fast", "difference"), ("small", "difference"), ("fast", "new")]
)
def test_apply_gives_the_new_state(
    tmp_path: Path, version: str, ids: Any, share: float, effort: Any, values: Any
) -> None:
    old, new = two_states(share)
    a, b, delta, result = (tmp_path / name for name in ("a.zt", "b.zt", "d.zt", "r.zt"))
    save_file(old, a, version=version)
    save_file(new, b, version=version)
    make(a, b, delta, effort=effort, values=values, ids=ids)
    report = apply(delta, a, result)
    assert bits(result) == bits(b)
    assert report.result == make(b, b, delta, ids=ids).result
    with ztensor.open(result) as reader, ztensor.open(a) as base:
        assert reader.version == base.version


FORMATS = ["zt", "safetensors"]


def three_states() -> list[dict[str, Any]]:
    """Return states in a row: elements change; then tensors are added, removed and replaced."""
    dice = np.random.default_rng(3)
    big = dice.standard_normal((90, 50)).astype(np.float32)
    first = {
        "big": big,
        "tied": big,
        "half": dice.standard_normal((60, 40)).astype(ml_dtypes.bfloat16),
        "same": np.arange(9000, dtype=np.int64),
        "gone": np.arange(5, dtype=np.int8),
    }
    changed = some_changed(dice, big, 0.02)
    half = some_changed(dice, first["half"], 0.01)
    second = first | {"big": changed, "tied": changed, "half": half}
    again = some_changed(dice, changed, 0.001)
    third = second | {
        "big": again,
        "tied": again,
        "half": half.astype(np.float32),
        "added": np.full((3, 3), 7, np.uint16),
    }
    del third["gone"]
    return [first, second, third]


class Files:
    """Files of three states in a row, and the deltas between them."""

    def __init__(self, folder: Path, suffix: str = "zt", **options: Any) -> None:
        self.folder = folder
        self.states = [folder / f"{number}.{suffix}" for number in range(3)]
        notes = [{"step": "1", "old": "x"}, {"step": "1", "old": "x"}, {"step": "2", "new": "y"}]
        for path, state, attributes in zip(self.states, three_states(), notes, strict=True):
            save_file(state, path, attributes)
        self.deltas = [folder / "d1.zt", folder / "d2.zt"]
        make(self.states[0], self.states[1], self.deltas[0], label="one", **options)
        make(self.states[1], self.states[2], self.deltas[1], label="two", **options)
        self.new = folder / f"new.{suffix}"


@pytest.fixture(params=FORMATS)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return Files(tmp_path, request.param)


@pytest.mark.parametrize("verify", ["touched", "full", None])
@pytest.mark.parametrize("effort", ["fast", "small"])
@pytest.mark.parametrize("suffix", FORMATS)
def test_deltas_in_any_order_give_the_last_state(
    tmp_path: Path, suffix: str, effort: Any, verify: Any
) -> None:
    files = Files(tmp_path, suffix, effort=effort)
    for deltas in (files.deltas, files.deltas[::-1]):
        report = apply(deltas, files.states[0], files.new, verify=verify)
        assert bits(files.new) == bits(files.states[2])
        assert [Path(name) for name in report.deltas] == files.deltas
        assert report.nbytes == files.new.stat().st_size
    apply(files.deltas, files.states[0], files.new, to="one")
    assert bits(files.new) == bits(files.states[1])
    if verify is not None:
        apply(files.deltas, files.states[1], files.new)  # from the middle of the chain
        assert bits(files.new) == bits(files.states[2])


def sparse(values: list[float], columns: list[int]) -> ztensor.Tensor:
    arrays = {
        "values": np.array(values, np.float32),
        "indices": np.array(columns, np.uint64),
        "indptr": np.array([0, 1, len(values)], np.uint64),
    }
    return ztensor.Tensor(arrays, shape=(2, 50), format="sparse_csr", attributes={"of": "graph"})


def packed(codes: Any) -> ztensor.Tensor:
    arrays = {"codes": codes, "scales": np.full(4, 0.5, np.float32)}
    return ztensor.Tensor(arrays, shape=(4, 32), format="acme.codes/1", attributes={"bits": 4})


@pytest.mark.parametrize("version", ["1.2.0", "2.1"])
def test_objects_of_every_layout(tmp_path: Path, version: str) -> None:
    codes = np.random.default_rng(2).integers(0, 255, (4, 16), np.uint8)
    old = {
        "values": sparse([1, 2, 3], [7, 8, 9]),
        "longer": sparse([1, 2, 3], [7, 8, 9]),
        "codes": packed(codes),
        "noted": ztensor.Tensor(np.arange(300.0), attributes={"unit": "m"}),
        "kept": np.arange(5),
    }
    new = old | {
        "values": sparse([1, 2, -3], [7, 8, 9]),
        "longer": sparse([1, 2, 3, 4], [7, 8, 9, 10]),
        "codes": packed(codes ^ (np.arange(64).reshape(4, 16) == 9).astype(np.uint8)),
        "noted": ztensor.Tensor(np.arange(300.0) + (np.arange(300) == 3), attributes={"unit": "m"}),
    }
    a, b, delta, result = (tmp_path / name for name in ("a.zt", "b.zt", "d.zt", "r.zt"))
    save_file(old, a, version=version)
    save_file(new, b, version=version)
    make(a, b, delta)
    for verify in ("touched", "full"):
        apply(delta, a, result, verify=verify)
        assert bits(result) == bits(b)
    apply(delta, a, in_place=True)
    assert bits(a) == bits(b)


@pytest.mark.parametrize("count", [(1 << 19) - 1, 1 << 19, (1 << 20) + 1])
def test_a_chain_crosses_the_borders_of_blocks(tmp_path: Path, count: int) -> None:
    dice = np.random.default_rng(count)
    states = [dice.standard_normal(count).astype(np.float32).astype(ml_dtypes.bfloat16)]
    edges = [at for at in (0, (1 << 19) - 1, 1 << 19, count - 1) if at < count]
    profiles: list[Any] = [{"values": "new"}, {"effort": "small"}, {}, {"effort": "small"}]
    for number, options in enumerate(profiles):
        bits = states[-1].copy().view(np.uint16)
        bits[edges] ^= 1
        bits[dice.integers(0, count, 500)] ^= 3
        states.append(bits.view(ml_dtypes.bfloat16))
        make({"w": states[-2]}, {"w": states[-1]}, tmp_path / f"{number}.zt", **options)
    (tmp_path / "base").mkdir()
    base = tmp_path / "base" / "model.safetensors"
    save_file({"w": states[0]}, base)
    apply([tmp_path / f"{number}.zt" for number in range(4)], base, in_place=True)
    with ztensor.open(base) as reader:
        assert reader["w"].tobytes() == states[-1].tobytes()


def test_objects_stay_as_stored_compressed_or_shared(tmp_path: Path) -> None:
    files = Files(tmp_path)
    base = tmp_path / "compressed.zt"
    save_file(three_states()[0], base, {"step": "1", "old": "x"}, compression=True)
    apply(files.deltas[0], base, files.new)
    assert bits(files.new) == bits(files.states[1])
    with ztensor.open(files.new) as new, ztensor.open(base) as old:
        for name in ("same", "big"):
            stored = new.metadata(name).components["data"]
            assert stored.encoding == old.metadata(name).components["data"].encoding
        assert new.location("big") == new.location("tied")


def test_a_safetensors_file_keeps_the_bytes_of_its_header(tmp_path: Path) -> None:
    files = Files(tmp_path, "safetensors")
    data = files.states[0].read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + length].replace(b'"step"', b' "step"') + b" " * 3
    base = tmp_path / "other.safetensors"
    base.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length :])
    apply(files.deltas[0], base, in_place=True)
    assert base.read_bytes()[8 : 8 + len(header)] == header
    assert bits(base) == bits(files.states[1])


def test_in_place(files: Files) -> None:
    with ztensor.open(files.states[0]) as reader:
        held = {name: reader[name] for name in reader}  # views of the old state
        old = {name: array.tobytes() for name, array in held.items()}
        apply(files.deltas[0], files.states[0], in_place=True)
        assert {name: array.tobytes() for name, array in held.items()} == old
    assert bits(files.states[0]) == bits(files.states[1])
    apply(files.deltas[1], files.states[0], in_place=True)
    assert bits(files.states[0]) == bits(files.states[2])
    assert not list(files.folder.glob(".*"))


def test_a_small_change_is_one_commit_of_the_file(tmp_path: Path) -> None:
    dice = np.random.default_rng(1)
    old = {name: dice.standard_normal(5000) for name in "abcdef"}
    new = old | {"a": some_changed(dice, old["a"], 0.01), "b": np.arange(4)}
    del new["c"]
    path, after, delta = tmp_path / "a.zt", tmp_path / "b.zt", tmp_path / "d.zt"
    save_file(old, path, {"step": "1"})
    save_file(new, after, {"step": "2"})
    make(path, after, delta)
    inode, before = path.stat().st_ino, path.read_bytes()
    other = tmp_path / "linked.zt"
    other.hardlink_to(path)
    apply(delta, path, in_place=True)  # a new file: the other name keeps the old state
    assert other.read_bytes() == before
    assert path.stat().st_ino != inode
    assert bits(path) == bits(after)
    apply(delta, other, in_place=True)
    assert other.stat().st_ino == inode
    assert other.read_bytes()[: len(before) // 2] == before[: len(before) // 2]
    assert bits(other) == bits(after)


def test_a_dry_run_checks_and_writes_nothing(files: Files) -> None:
    before = files.states[0].read_bytes()
    apply(files.deltas, files.states[0], in_place=True, dry_run=True)
    apply(files.deltas, files.states[0], files.new, dry_run=True)
    assert files.states[0].read_bytes() == before
    assert not files.new.exists()
    with pytest.raises(DeltaError):
        apply(files.deltas[1], files.states[0], files.new, dry_run=True)


def test_progress_counts_tensors(files: Files) -> None:
    calls: list[tuple[int, ...]] = []
    count = lambda *numbers: calls.append(numbers)  # noqa: E731
    apply(files.deltas[0], files.states[0], files.new, progress=count)
    assert calls == [(done, len(calls)) for done in range(1, len(calls) + 1)]


# --- Other formats, and sets of files -------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["npz", "gguf"])
def test_a_base_of_another_format_gives_a_file_of_that_format(tmp_path: Path, suffix: str) -> None:
    dice = np.random.default_rng(4)
    old = {"w": dice.standard_normal((64, 32)).astype(np.float32), "b": np.arange(32, dtype="i4")}
    new = old | {"w": some_changed(dice, old["w"], 0.05)}
    a, b, delta = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}", tmp_path / "d.zt"
    save_file(old, a)
    save_file(new, b)
    make(a, b, delta)
    apply(delta, a, tmp_path / f"new.{suffix}")
    assert bits(tmp_path / f"new.{suffix}") == bits(b)
    before = a.read_bytes()
    with pytest.raises(UsageError):
        apply(delta, a, in_place=True)
    assert a.read_bytes() == before


def test_a_base_of_a_format_that_is_only_read_becomes_another_one(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pt, divided = tmp_path / "a.pt", tmp_path / "divided"
    old: dict[str, Any] = {"w": np.arange(600, dtype=np.float32).reshape(20, 30), "b": np.zeros(5)}
    torch.save({name: torch.from_numpy(array) for name, array in old.items()}, pt)
    divided.mkdir()
    save_parts(divided, old, values={"step": 3})
    new = old | {"w": old["w"] + (old["w"] == 7)}
    make(old, new, tmp_path / "d.zt")
    for base in (pt, divided):
        for target in (tmp_path / "new.zt", tmp_path / "new.safetensors"):
            if (base, target.suffix) != (divided, ".safetensors"):  # it would lose the tree
                apply(tmp_path / "d.zt", base, target)
                with ztensor.open(target) as reader:
                    assert {name: reader[name].tolist() for name in reader} == {
                        name: array.tolist() for name, array in new.items()
                    }
        wrong: list[dict[str, Any]] = [{"output": tmp_path / "new.pt"}, {"in_place": True}]
        for options in wrong:
            with pytest.raises(UsageError):
                apply(tmp_path / "d.zt", base, **options)
    assert ztensor.load_tree(tmp_path / "new.zt")["step"] == 3
    assert not (tmp_path / "new.pt").exists()


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_set_of_shards_becomes_a_new_folder(tmp_path: Path, suffix: str) -> None:
    old, _, new = three_states()
    folders = tmp_path / "old", tmp_path / "new"
    for folder, state in zip(folders, (old, new), strict=True):
        folder.mkdir()
        save_file(state, folder / f"model.{suffix}", {"step": "1"}, max_shard_size=30_000)
        (folder / "config.json").write_text("{}")
    before = {path.name: path.read_bytes() for path in folders[0].iterdir()}
    delta, result = tmp_path / "d.zt", tmp_path / "result"
    make(*folders, delta)
    apply(delta, folders[0], result)
    assert bits(result) == bits(folders[1])
    assert {path.name: path.read_bytes() for path in folders[0].iterdir()} == before
    assert {path.name for path in result.iterdir()} == before.keys()
    assert (result / "config.json").samefile(folders[0] / "config.json")
    with ztensor.open(result) as reader:
        assert not reader.verify().problems
    shared = [path.name for path in result.iterdir() if path.samefile(folders[0] / path.name)]
    assert 1 < len(shared) < len(before)
    for wrong in (result, tmp_path / "d.zt", tmp_path / "one.zt"):
        with pytest.raises(UsageError):
            apply(delta, folders[0], wrong)
    with pytest.raises(DeltaError):
        apply(delta, folders[1], tmp_path / "other")
    with pytest.raises(UsageError):
        apply(delta, folders[0], in_place=True)
    assert {path.name for path in tmp_path.iterdir()} == {"old", "new", "d.zt", "result"}


# --- Wrong on purpose -----------------------------------------------------------------------------


def in_place(files: Files, deltas: Any) -> None:
    apply(deltas, files.states[0], in_place=True)


def to_a_new_file(files: Files, deltas: Any) -> None:
    apply(deltas, files.states[0], files.new)


def to_a_folder(files: Files, deltas: Any) -> None:
    with ztensor.open(files.states[0]) as reader:
        folder = files.folder / "shards"
        folder.mkdir(exist_ok=True)
        target = folder / f"model{files.new.suffix}"
        save_file({name: reader[name] for name in reader}, target, max_shard_size=20_000)
    try:
        apply(deltas, folder, files.folder / "new")
    finally:
        shutil.rmtree(folder)


def others(files: Files) -> None:
    """Write a delta behind a gap, one of a fork, and one that is forged: its digests are valid."""
    first, second, third = three_states()
    make(third, {"end": np.arange(3)}, files.folder / "gap.zt")
    make(first, third, files.folder / "fork.zt", label="other")
    at = np.argwhere(first["big"] != second["big"])[0]
    second["big"][tuple(at)] += 3
    make(first, second, files.folder / "false.zt")
    with (
        ztensor.open(files.deltas[0]) as true,
        ztensor.open(files.folder / "false.zt") as false,
        ztensor.Writer(files.folder / "forged.zt", attributes=true.attributes) as writer,
    ):
        for name in false:
            writer.copy(name, false)


# Case to the base, of the three states; the deltas; and the reason.
WRONG: dict[str, tuple[Callable[[Any, Any, Any], Any], list[str], DeltaReason]] = {
    "a later state": (lambda a, b, c: c, ["d1"], DeltaReason.BASE),
    "an element": (
        lambda a, b, c: a | {"big": a["big"] + (a["big"] > 3)}, ["d1"], DeltaReason.BASE,
    ),
    "applied before": (lambda a, b, c: b, ["d1"], DeltaReason.APPLIED),
    "a tensor less": (
        lambda a, b, c: {name: a[name] for name in a if name != "half"}, ["d1"], DeltaReason.TENSOR,
    ),
    "an added tensor": (lambda a, b, c: b | {"added": b["same"]}, ["d2"], DeltaReason.TENSOR),
    "another shape": (
        lambda a, b, c: a | {"half": a["half"].reshape(40, 60)}, ["d1"], DeltaReason.SHAPE,
    ),
    "a gap": (lambda a, b, c: a, ["d1", "gap"], DeltaReason.CHAIN),
    "a fork": (lambda a, b, c: a, ["d1", "fork"], DeltaReason.CHAIN),
    "a forged delta": (lambda a, b, c: a, ["forged"], DeltaReason.RESULT),
}  # fmt: skip


@pytest.mark.parametrize("target", [to_a_new_file, in_place, to_a_folder])
@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize(("suffix", "effort"), [("zt", "small"), ("safetensors", "fast")])
def test_what_does_not_fit_leaves_everything_as_it_was(
    tmp_path: Path, suffix: str, effort: Any, case: str, target: Callable[[Files, Any], None]
) -> None:
    files = Files(tmp_path, suffix, effort=effort)
    others(files)
    base, names, reason = WRONG[case]
    save_file(base(*three_states()), files.states[0])
    files.new.write_bytes(b"before")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with refused(DeltaError, reason):
        target(files, [tmp_path / f"{name}.zt" for name in names])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_base_with_another_untouched_tensor_is_refused_on_demand(files: Files) -> None:
    save_file(three_states()[0] | {"same": np.arange(3)}, files.states[0])
    apply(files.deltas[0], files.states[0], files.new)
    with refused(DeltaError, DeltaReason.BASE):
        apply(files.deltas[0], files.states[0], files.new, verify="full")


def test_a_base_with_the_result_is_accepted_on_demand(files: Files) -> None:
    base = files.states[1]
    before = base.read_bytes()
    report = apply(files.deltas[0], base, in_place=True, if_applied="skip")
    assert report.tensors == 0
    assert base.read_bytes() == before
    apply(files.deltas[0], base, files.new, if_applied="skip")
    assert bits(files.new) == bits(base)


def test_a_file_that_another_writer_changes_is_refused(files: Files) -> None:
    base = files.states[0]
    before = base.read_bytes()
    lock = contextlib.closing(Place.of(base).locked())
    with lock, refused(ztensor.SourceError, ztensor.Reason.SOURCE_LOCKED):
        apply(files.deltas[0], base, in_place=True)
    assert base.read_bytes() == before
    apply(files.deltas[0], base, in_place=True)
    assert bits(base) == bits(files.states[1])


def test_wrong_arguments_are_refused(files: Files) -> None:
    base, delta = files.states[0], files.deltas[0]
    other = files.folder / ("x.safetensors" if base.suffix == ".zt" else "x.zt")
    wrong: list[Callable[[], object]] = [
        lambda: apply(delta, base),
        lambda: apply(delta, base, files.new, in_place=True),
        lambda: apply(delta, base, files.new, verify="all"),  # type: ignore[arg-type]
        lambda: apply(delta, base, files.new, if_applied="yes"),  # type: ignore[arg-type]
        lambda: apply(delta, three_states()[0], files.new),  # type: ignore[arg-type]
        lambda: apply(delta, base, other),
    ]
    for call in wrong:
        with pytest.raises(UsageError):
            call()
    assert not files.new.exists()
    assert not other.exists()


@pytest.mark.parametrize("in_place", [False, True])
def test_a_tied_tensor_does_not_stay_behind(in_place: bool, tmp_path: Path) -> None:
    """A delta of a file that left out one of two names would break the tie."""
    old, new = np.zeros((4, 3)), np.ones((4, 3))
    save_file({"w": old, "head": old, "b": old[0]}, tmp_path / "tied.zt")
    delta.make({"w": old, "b": old[0]}, {"w": new, "b": old[0]}, tmp_path / "d.zt")
    before = (tmp_path / "tied.zt").read_bytes()
    target = {"in_place": True} if in_place else {"output": tmp_path / "new.zt"}
    with refused(DeltaError, DeltaReason.BASE):
        delta.apply(tmp_path / "d.zt", tmp_path / "tied.zt", **target)
    assert (tmp_path / "tied.zt").read_bytes() == before
    assert not (tmp_path / "new.zt").exists()


def test_no_delta_is_nothing_to_do(tmp_path: Path) -> None:
    save_file({"w": np.zeros(3)}, tmp_path / "base.zt")
    (tmp_path / "none").mkdir()
    with refused(DeltaError, DeltaReason.APPLIED):
        delta.apply(tmp_path / "none", tmp_path / "base.zt", tmp_path / "new.zt")
    delta.apply(tmp_path / "none", tmp_path / "base.zt", tmp_path / "new.zt", if_applied="skip")
    assert load_file(tmp_path / "new.zt")["w"].tolist() == [0, 0, 0]

"""Changes of finished safetensors and GGUF files, held to the formats' own libraries."""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.corpus.foreign.make_gguf import ARRAY, F32, STR, U8, U32, array, gguf, info, pair, text
from ztensor import edit
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    FormatError,
    NotRepresentableError,
    ObjectNotFoundError,
    Reason,
    SourceError,
    UnsupportedError,
    UsageError,
)
from ztensor.numpy import save_file

I8 = 24
ARRAYS: dict[str, Any] = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.arange(40, dtype=np.float16),
    "c": np.arange(7, dtype=np.int8),
}


def make(path: Path, arrays: dict[str, Any] | None = None) -> Path:
    """Write a file of the format of its suffix."""
    if path.suffix == ".safetensors":
        save_file(ARRAYS if arrays is None else arrays, path, {"format": "pt", "note": "old"})
        return path
    pairs = (
        pair("general.architecture", STR, "llama"),
        pair("x.count", U32, 7),
        pair("x.scale", F32, 0.25),
        pair("x.list", ARRAY, array(U8, [1, 2])),
        pair("x.odd", STR, text(b"\xff\xfe")),
    )
    at, infos, data = 0, [], b""
    numbers = {"float32": 0, "float16": 1, "int8": I8}
    for name, value in (ARRAYS if arrays is None else arrays).items():
        infos.append(info(name, value.shape[::-1], numbers[value.dtype.name], at))
        data += value.tobytes() + bytes(-value.nbytes % 32)
        at = len(data)
    path.write_bytes(gguf(pairs, tuple(infos), data))
    return path


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return tensors and key-value pairs as the format's own library reads them."""
    if path.suffix == ".safetensors":
        library = pytest.importorskip("safetensors", reason="the format's own library")
        with library.safe_open(path, "np") as file:
            arrays = {name: file.get_tensor(name) for name in file.offset_keys()}
            return arrays, file.metadata() or {}
    library = pytest.importorskip("gguf", reason="the format's own library")
    reader = library.GGUFReader(path)
    tensors = {each.name: np.array(each.data) for each in reader.tensors}
    fields = {
        key: field.parts[field.data[0]].tobytes() if key == "x.odd" else field.contents()
        for key, field in reader.fields.items()
        if not key.startswith("GGUF.")
    }
    return tensors, fields


def same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return found.keys() == expected.keys() and all(
        found[name].dtype == expected[name].dtype
        and found[name].reshape(-1).tobytes() == expected[name].reshape(-1).tobytes()
        for name in found
    )


@pytest.fixture(params=["m.safetensors", "m.gguf"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return make(tmp_path / request.param)


# --- Edits ----------------------------------------------------------------------------------------

NEW = np.arange(10, dtype=np.int32)
EDITS: dict[str, tuple[Callable[[Path], object], Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "rename": (
        lambda path: edit.rename_tensors(path, {"a": "b", "b": "a", "c": "x.ä"}),
        lambda old: {"b": old["a"], "a": old["b"], "x.ä": old["c"]},
    ),
    "remove the first": (
        lambda path: edit.remove_tensors(path, names=["a"]),
        lambda old: {"b": old["b"], "c": old["c"]},
    ),
    "remove all": (lambda path: edit.remove_tensors(path, names=["a", "b", "c"]), lambda _: {}),
    "replace by less": (
        lambda path: edit.replace_tensor(path, "b", NEW[:3]),
        lambda old: old | {"b": NEW[:3]},
    ),
    "replace by as much": (
        lambda path: edit.replace_tensor(path, "b", 1 + ARRAYS["b"]),
        lambda old: old | {"b": 1 + old["b"]},
    ),
    "set": (lambda path: edit.set_attributes(path, {"general.name": "x" * 99}), lambda old: old),
}


@pytest.mark.parametrize("change", EDITS)
def test_an_edit_is_read_by_the_library_of_the_format(file: Path, change: str) -> None:
    edited, expected = EDITS[change]
    keys = read(file)[1]
    assert edited(file) == file.stat().st_size
    found, attributes = read(file)
    assert same(found, expected(ARRAYS))
    assert attributes == keys | ({"general.name": "x" * 99} if change == "set" else {})
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]
    with ztensor.open(file) as reader:
        assert reader.verify().problems == ()
        assert not reader.unrepresented


def test_several_changes_are_one_new_file(file: Path) -> None:
    old = file.stat()
    with edit.open_editor(file) as editor:
        assert isinstance(editor, edit.FormatEditor)
        editor.write("n", NEW)
        editor.rename({"a": "z", "n": "m"})
        editor.remove("c")
        editor.set_attributes({"x.note": "hello"})
        assert editor.keys() == ["z", "b", "m"]
        assert editor.metadata("m").shape == (10,)
        assert file.stat() == old
    found, attributes = read(file)
    assert same(found, {"z": ARRAYS["a"], "b": ARRAYS["b"], "m": NEW})
    assert attributes["x.note"] == "hello"
    assert file.stat().st_ino != old.st_ino


def test_a_reader_of_the_old_file_keeps_its_bytes(file: Path) -> None:
    with ztensor.open(file) as reader:
        view = reader["b"]
        edit.remove_tensors(file, names=["a"])
        edit.replace_tensor(file, "b", NEW)
        assert np.array_equal(view, ARRAYS["b"])


def test_nothing_is_written_without_a_change_or_on_trial(file: Path) -> None:
    before = file.read_bytes(), file.stat()
    with edit.open_editor(file) as editor:
        editor.rename({"a": "b", "b": "a"})
        editor.rename({"a": "b", "b": "a"})
    planned = edit.remove_tensors(file, names=["a"], dry_run=True)
    with pytest.raises(ObjectNotFoundError), edit.open_editor(file) as editor:
        editor.remove(["a", "none"])
    after = file.read_bytes(), file.stat()
    assert before[0] == after[0]
    assert before[1].st_ino == after[1].st_ino
    assert edit.remove_tensors(file, names=["a"]) == planned == file.stat().st_size


def test_rights_and_links_are_kept(file: Path) -> None:
    os.chmod(file, 0o640)
    link = file.with_name("link")
    link.symlink_to(file.name)
    edit.rename_tensors(link, {"a": "q"})
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640
    assert "q" in ztensor.open(file)


def test_data_stays_where_it_was_if_the_header_has_room(tmp_path: Path) -> None:
    path = make(tmp_path / "m.safetensors", {"w": np.zeros(1 << 19, np.float32)})
    edit.set_attributes(path, {"note": "n" * 300})
    with ztensor.open(path) as reader:
        start = reader.metadata("w").components["data"].offset
    edit.set_attributes(path, {"note": "m" * 3000})
    edit.rename_tensors(path, {"w": "a much longer name"})
    with ztensor.open(path) as reader:
        assert reader.metadata("a much longer name").components["data"].offset == start


def test_elements_stay_aligned(tmp_path: Path) -> None:
    path = make(tmp_path / "m.safetensors")
    with edit.open_editor(path) as editor:
        editor.write("wide", np.arange(3.0))
    with ztensor.open(path) as reader:
        for name in reader:
            part = reader.metadata(name).components["data"]
            assert part.offset % np.dtype(part.dtype).itemsize == 0


# --- Keys of GGUF ---------------------------------------------------------------------------------

Keys = dict[str, tuple[dict[str, Any], dict[str, str] | None, Any]]
SETS: Keys = {  # keys and values to set, their types, the value that is stored
    "keeps a type": ({"x.count": 9}, None, 9),
    "text of a number": ({"x.count": "9"}, None, 9),
    "rounds to its type": ({"x.scale": 0.1}, None, float(np.float32(0.1))),
    "a float from an int": ({"x.scale": 3}, None, 3.0),
    "a list": ({"x.list": [3, 4, 5]}, None, [3, 4, 5]),
    "a new list": ({"new": ["a", "ü"]}, None, ["a", "ü"]),
    "a type": ({"new": 5}, {"new": "u64"}, 5),
    "another type": ({"x.count": "five"}, {"x.count": "str"}, "five"),
    "an alignment": ({"general.alignment": 128}, None, 128),
}
REFUSED: Keys = {
    "text for a number": ({"x.count": "five"}, None, None),
    "out of range": ({"x.count": -1}, None, None),
    "too large for its type": ({"x.scale": 1e300}, None, None),
    "a dict": ({"new": {"a": 1}}, None, None),
    "an unknown type": ({"new": 1}, {"new": "u128"}, None),
    "an array of an unknown type": ({"new": [1]}, {"new": "[u128]"}, None),
    "a type without a name": ({"new": 1}, {"new": ""}, None),
    "text of a number that is too large": ({"x.scale": "1e400"}, None, None),
    "an integer beyond all floats": ({"x.scale": 10**400}, None, None),
    "alignment 3": ({"general.alignment": 3}, None, None),
    "alignment 1": ({"general.alignment": 1}, None, None),
    "alignment 2^30": ({"general.alignment": 1 << 30}, None, None),
    "another type of alignment": ({"general.alignment": 64}, {"general.alignment": "u64"}, None),
    "a key of this library": ({"GGUF.types": []}, None, None),
    "an empty key": ({"": 1}, None, None),
}


@pytest.mark.parametrize("case", [*SETS, *REFUSED])
def test_a_key_of_gguf_is_set_or_refused(tmp_path: Path, case: str) -> None:
    path = make(tmp_path / "m.gguf")
    (changed, types, stored), before = (SETS | REFUSED)[case], read(path)
    kinds = NotRepresentableError, ArgumentValueError
    how = pytest.raises(kinds) if case in REFUSED else contextlib.nullcontext()
    with how, edit.FormatEditor(path) as editor:
        editor.set_attributes(changed, types=types)
    tensors, keys = read(path)
    assert same(tensors, before[0])
    assert keys == before[1] | ({} if case in REFUSED else dict.fromkeys(changed, stored))


@pytest.mark.parametrize("arguments", [{"attributes": "x"}, {"attributes": {}, "types": "u8"}])
def test_what_is_no_mapping_is_refused(file: Path, arguments: Any) -> None:
    with pytest.raises(ArgumentTypeError) as caught, edit.FormatEditor(file) as editor:
        editor.set_attributes(**arguments)
    assert caught.value.found == repr([*arguments.values()][-1])


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("order", ["<", ">"])
def test_version_byte_order_and_unknown_types_are_kept(
    tmp_path: Path, version: int, order: str
) -> None:
    key = pair("k", ARRAY, array(5, [-1, 2], order), order)
    rows = info("known", (8,), 0, 0, order), info("future", (8,), 777, 32, order)
    data = np.arange(8, dtype=f"{order}f4").tobytes() + bytes(range(64))
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf([key], rows, data, version=version, order=order))
    edit.rename_tensors(path, {"known": "renamed"})
    edit.set_attributes(path, {"n": 5})
    after = path.read_bytes()
    assert after.startswith(b"GGUF" + struct.pack(f"{order}IQQ", version, 2, 2) + key)
    assert after.endswith(data)
    with ztensor.open(path) as reader:
        assert list(reader) == ["renamed", "future"]
        assert reader["renamed"].tolist() == list(range(8))
        assert reader.attributes["k"] == [-1, 2]
        assert reader.attributes["n"] == 5


# --- Refusals -------------------------------------------------------------------------------------


def test_errors_leave_the_file(file: Path) -> None:
    before = file.read_bytes()
    calls: dict[type[Exception], Callable[[Any], object]] = {
        ObjectNotFoundError: lambda editor: editor.remove(["a", "none"]),
        UsageError: lambda editor: editor.rename({"a": "b"}),
        NotRepresentableError: lambda editor: editor.write("s", np.array(["text"])),
    }
    for kind, call in calls.items():
        with pytest.raises(kind), edit.open_editor(file) as editor:
            call(editor)
    with pytest.raises(NotRepresentableError):
        edit.set_attributes(file, {"unit": "m"}, name="a")
    with pytest.raises(UsageError):
        edit.replace_tensor(file, "a", NEW, compression=True)
    assert file.read_bytes() == before


def test_a_second_editor_is_refused(file: Path) -> None:
    with edit.open_editor(file), pytest.raises(SourceError) as caught:
        edit.open_editor(file)
    assert caught.value.reason is Reason.SOURCE_LOCKED


def test_a_file_that_was_replaced_meanwhile_is_kept(file: Path) -> None:
    other = file.with_name(f"other{file.suffix}")
    make(other, {"a": ARRAYS["a"]})
    data = other.read_bytes()
    editor = edit.open_editor(file)
    editor.remove("b")
    os.replace(other, file)
    with pytest.raises(SourceError) as caught:
        editor.finish()
    assert caught.value.reason is Reason.SOURCE_CHANGED
    assert file.read_bytes() == data


@pytest.mark.parametrize("suffix", [".npz", ".npy"])
def test_other_formats_are_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"m{suffix}"
    save_file({"array": NEW}, path)
    for change in (edit.open_editor, edit.FormatEditor, edit.repair_format):
        with pytest.raises(UsageError):
            change(path)
    assert edit.edited_format(path) is None


def test_a_shard_is_not_made_to_differ_from_its_index(tmp_path: Path) -> None:
    path = make(tmp_path / "m-00001-of-00001.safetensors")
    index = {"metadata": {"total_size": 111}, "weight_map": dict.fromkeys(ARRAYS, path.name)}
    (tmp_path / "m.safetensors.index.json").write_text(json.dumps(index))
    before = path.read_bytes()
    changes: list[Callable[[], object]] = [
        lambda: edit.rename_tensors(path, {"a": "z"}),
        lambda: edit.remove_tensors(path, names="a"),
        lambda: edit.replace_tensor(path, "a", NEW),
    ]
    for change in changes:
        with pytest.raises(UsageError):
            change()
    assert path.read_bytes() == before
    edit.set_attributes(path, {"note": "new"})
    edit.replace_tensor(path, "a", ARRAYS["a"] + 1)
    assert ztensor.open(tmp_path / "m.safetensors.index.json").verify().problems == ()


def test_a_split_of_gguf_keeps_its_number_of_tensors(tmp_path: Path) -> None:
    path = make(tmp_path / "m-00001-of-00002.gguf")
    edit.set_attributes(path, {"split.count": 2})
    edit.rename_tensors(path, {"a": "z"})
    with pytest.raises(UsageError):
        edit.remove_tensors(path, names="z")
    os.truncate(path, path.stat().st_size - 32)
    with pytest.raises(UsageError):
        edit.repair_format(path, in_place=True, drop_lost=True)


def safetensors_of(rows: str, data: bytes, blanks: int = 0) -> bytes:
    head = f"{{{rows}}}".encode()
    head += b" " * (-len(head) % 8 + blanks)
    return struct.pack("<Q", len(head)) + head + data


def row(name: str, start: int, stop: int, more: str = "") -> str:
    fields = f'"dtype":"U8","shape":[{stop - start}],"data_offsets":[{start},{stop}]{more}'
    return f'"{name}":{{{fields}}}'


def test_unknown_content_of_safetensors_is_kept_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(safetensors_of(row("w", 0, 1, ',"extra":5'), b"x"))
    with pytest.raises(UnsupportedError) as caught:
        edit.rename_tensors(path, {"w": "v"})
    assert (caught.value.object_name, caught.value.found) == ("w", "'extra'")
    path.write_bytes(safetensors_of('"w":{"dtype":"Q7","shape":[5],"data_offsets":[0,3]}', b"xyz"))
    edit.rename_tensors(path, {"w": "v"})
    assert path.read_bytes().endswith(b"xyz")
    assert b'"v":{"dtype":"Q7","shape":[5],"data_offsets":[0,3]}' in path.read_bytes()


# --- Repair ---------------------------------------------------------------------------------------


def gguf_of(rows: dict[str, int], data: bytes) -> bytes:
    return gguf((), tuple(info(name, (2,), I8, at) for name, at in rows.items()), data)


A, B = b"ab".ljust(32, b"\0"), b"cd".ljust(32, b"\0")
FAULTS: dict[str, tuple[bytes, list[str]]] = {  # damaged files, and the kinds of their faults
    "tail.safetensors": (safetensors_of(row("w", 0, 2), b"abjunk"), ["tail"]),
    "gap.safetensors": (
        safetensors_of(f"{row('w', 0, 2)},{row('v', 5, 7)}", b"ab---cd"), ["gap"],
    ),
    "gap first.safetensors": (safetensors_of(row("w", 3, 5), b"---ab"), ["gap"]),
    "unaligned.safetensors": (safetensors_of(row("w", 0, 2), b"ab", 1), ["header"]),
    "lost.safetensors": (safetensors_of(f"{row('w', 0, 2)},{row('v', 2, 7)}", b"abc"), ["lost"]),
    "all.safetensors": (
        safetensors_of(f"{row('w', 1, 3)},{row('v', 4, 9)}", b"-ab-c"), ["gap", "gap", "lost"],
    ),
    "empty.safetensors": (safetensors_of(f"{row('w', 0, 2)},{row('v', 1, 1)}", b"ab"), ["order"]),
    "empty last.safetensors": (
        safetensors_of(f"{row('w', 0, 2)},{row('v', 9, 9)}", b"ab"), ["order"],
    ),
    "tail.gguf": (gguf_of({"w": 0}, A + b"junk".ljust(40)), ["tail"]),
    "one byte.gguf": (gguf_of({"w": 0}, A + b"x"), ["tail"]),
    "few bytes.gguf": (gguf_of({"w": 0}, A + bytes(6) + b"x"), ["tail"]),
    "padding with text.gguf": (gguf_of({"w": 0}, A[:9] + b"x"), ["tail"]),
    "gap.gguf": (gguf_of({"w": 0, "v": 64}, A + bytes(32) + B), ["gap"]),
    "order.gguf": (gguf_of({"v": 32, "w": 0}, A + B), ["order"]),
    "unaligned.gguf": (gguf_of({"w": 0, "v": 33}, A + b"-" + B), ["alignment"]),
    "lost.gguf": (gguf_of({"w": 0, "v": 64}, A + b"----"), ["gap", "lost"]),
}  # fmt: skip


TWICE = f"{row('w', 0, 2)},{row('w', 2, 4)}"
UNMENDABLE = {
    "twice.safetensors": safetensors_of(TWICE, b"abcd"),
    "metadata.safetensors": safetensors_of('"__metadata__":{"k":1}', b""),
    "overlap.safetensors": safetensors_of(f"{row('w', 0, 3)},{row('v', 2, 4)}", b"abcd"),
    "cut.safetensors": safetensors_of(row("w", 0, 2), b"")[:-9],
    "overlap.gguf": gguf_of({"w": 0, "v": 0}, A),
}


@pytest.mark.parametrize("name", [*FAULTS, *UNMENDABLE])
def test_a_hint_names_repair_where_it_helps(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(UNMENDABLE[name] if name in UNMENDABLE else FAULTS[name][0])
    hint = None
    try:
        edit.open_editor(path).abort()
    except FormatError as error:
        hint = error.hint
    else:
        assert name in FAULTS
        return
    assert ("repair" in (hint or "")) == (name in FAULTS)


@pytest.mark.parametrize("zeros", [0, 2, 30, 61])
def test_padding_is_no_tail(tmp_path: Path, zeros: int) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_of({"w": 0}, b"ab" + bytes(zeros)))
    assert [each.kind for each in edit.repair_format(path).findings] == ["tail"] * (zeros == 61)


@pytest.mark.parametrize("name", FAULTS)
def test_a_repair_lists_and_drops_what_is_wrong(tmp_path: Path, name: str) -> None:
    (data, kinds), path, mended = FAULTS[name], tmp_path / name, tmp_path / f"mended-{name}"
    path.write_bytes(data)
    report = edit.repair_format(path)
    assert [finding.kind for finding in report.findings] == kinds
    assert report.written is None
    if "lost" in kinds:
        assert report.lost == ("v",)
        with pytest.raises(FormatError):
            edit.repair_format(path, write=mended)
        assert not mended.exists()
    written = edit.repair_format(path, write=mended, drop_lost=True)
    assert path.read_bytes() == data
    assert written.written == str(mended)
    found, _ = read(mended)
    expected = {"w": b"ab", "v": b"cd"} if b"cd" in data else {"w": b"ab"}
    expected |= {"v": b""} if "empty" in name else {}
    assert {key: value.tobytes() for key, value in found.items()} == expected
    assert edit.repair_format(mended).findings == ()
    in_place = edit.repair_format(path, in_place=True, drop_lost=True)
    assert path.read_bytes() == mended.read_bytes()
    dropped = sum(finding.nbytes for finding in report.findings)
    kept = b"" if in_place.tail_path is None else Path(in_place.tail_path).read_bytes()
    assert len(kept) == dropped
    if name.endswith(".safetensors"):
        body = data[8 + int.from_bytes(data[:8], "little") :]
        assert sorted(kept + b"".join(expected.values())) == sorted(body)


def test_an_empty_tensor_may_be_behind_the_end(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    rows = info("w", (2,), I8, 0), info("none", (0,), I8, 32), info("v", (2,), I8, 64)
    path.write_bytes(gguf((), rows, b"ab--"))
    report = edit.repair_format(path, in_place=True, drop_lost=True)
    assert report.lost == ("v",)
    found = {name: value.tobytes() for name, value in ztensor.open(path).items()}
    assert found == {"w": b"ab", "none": b""}


@pytest.mark.parametrize("kind", ["safetensors", "gguf"])
def test_overlaps_and_files_without_a_header_are_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"m.{kind}"
    if kind == "gguf":
        data = gguf((), (info("a", (8,), I8, 0), info("b", (8,), I8, 0)), bytes(32))
    else:
        data = safetensors_of(f"{row('a', 0, 4)},{row('b', 0, 4)}", b"abcd")
    for content in (data, data[:40], b""):
        path.write_bytes(content)
        for call in (edit.repair_format, lambda p: edit.repair_format(p, in_place=True)):
            with pytest.raises((FormatError, UsageError)):
                call(path)
        assert path.read_bytes() == content


# --- Files of other writers -----------------------------------------------------------------------

CORPUS = Path(__file__).parents[2] / "corpus" / "foreign" / "accept"
OF_OTHERS = sorted((*CORPUS.glob("gguf/*.gguf"), *CORPUS.glob("safetensors/*.safetensors")))


def contents(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return types, shapes and stored bytes of all tensors, and the key-value pairs."""
    data, found = path.read_bytes(), {}
    with ztensor.open(path) as reader:
        for name in reader:
            metadata = reader.metadata(name)
            part = metadata.components["data"]
            stored = data[part.offset : part.offset + part.length]
            found[name] = metadata.shape, metadata.format, part.dtype, part.type, stored
        attributes = reader.attributes
    attributes.pop("GGUF.types", None)
    return found, attributes


@pytest.mark.parametrize("path", OF_OTHERS, ids=lambda path: path.name)
def test_files_of_other_writers_keep_all_that_is_not_changed(tmp_path: Path, path: Path) -> None:
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    before, keys = contents(copy)
    try:
        oracle = read(copy)[0]
    except (ValueError, KeyError, struct.error, OSError, IndexError) as error:
        oracle = {"error": error}  # of a type or version that the library cannot read
    with edit.open_editor(copy) as editor:
        editor.rename({name: f"{name[:40]}.x" for name in before})
        editor.set_attributes({"x.new": "text"})
    after, now = contents(copy)
    assert after == {f"{name[:40]}.x": value for name, value in before.items()}
    assert repr(now) == repr(keys | {"x.new": "text"})
    if "error" not in oracle:
        assert same(read(copy)[0], {f"{name[:40]}.x": value for name, value in oracle.items()})


def test_blocks_of_another_file_are_added_as_they_are_stored(tmp_path: Path) -> None:
    path, source = make(tmp_path / "m.gguf"), CORPUS / "gguf" / "quantized.gguf"
    blocks = contents(source)[0]
    with ztensor.open(source) as reader, edit.FormatEditor(path) as editor:
        for name in blocks:
            editor.copy(name, reader)
    found = contents(path)[0]
    assert {name: found[name] for name in blocks} == blocks
    assert same(read(path)[0], ARRAYS | read(source)[0])


@pytest.mark.parametrize("suffix", [".safetensors", ".gguf"])
@pytest.mark.parametrize("kind", ["csr", "int4", "complex"])
def test_what_a_format_cannot_hold_is_not_taken_apart(
    tmp_path: Path, suffix: str, kind: str
) -> None:
    path = make(tmp_path / f"m{suffix}")
    tensors = {
        "csr": ztensor.Tensor.csr([1.0], [0], [0, 1, 1], (2, 3)),
        "int4": ztensor.Tensor.quantize(np.ones((2, 32), np.float32), bits=4, group_size=32),
        "complex": np.ones(3, np.complex128),
    }
    save_file({"x": tensors[kind]}, tmp_path / "x.zt")
    before = path.read_bytes()
    lost: list[str] = []
    with (
        ztensor.open(tmp_path / "x.zt") as reader,
        pytest.raises(NotRepresentableError),
        edit.FormatEditor(path) as editor,
    ):
        editor.copy("x", reader, lose=lambda _, sentence: lost.append(sentence))
    assert (path.read_bytes(), lost) == (before, [])

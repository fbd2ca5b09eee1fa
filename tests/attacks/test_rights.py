"""A file that takes another one's place, or holds its bytes, grants more than that one did."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.attacks.users import (
    ALICE,
    BOB,
    GROUP,
    MALLORY,
    MASK,
    ON_POSIX,
    OTHER,
    OTHERS,
    OWNER,
    PROJECT,
    TWO_USERS,
    USER,
    access_list,
    act_as,
    can_read,
    common,
    list_of,
    set_list,
)
from ztensor.numpy import save_file

__all__ = ["common"]

TENSORS = {"a": np.arange(300, dtype=np.float32), "b": np.ones((4, 5))}
OTHER_TENSORS = {"c": np.zeros(7)}


def save(path: Path) -> None:
    save_file(TENSORS, path)


def torn(path: Path) -> Path:
    """Return a file beside `path` without its end."""
    source = path.with_name("torn.zt")
    save(source)
    with ztensor.Editor(source) as editor:
        editor.write("more", np.zeros(100))
    os.truncate(source, source.stat().st_size - 10)
    return source


def other(path: Path) -> Path:
    """Return a file beside `path`, open to all."""
    source = path.with_name("other.zt")
    save_file(OTHER_TENSORS, source)
    return source


def one(path: Path) -> Path:
    """Return a file of one array beside `path`."""
    source = path.with_name("one.npy")
    np.save(source, np.arange(300))
    return source


def plotted(path: Path) -> None:
    with ztensor.open(other(path)) as reader:
        picture = path.with_suffix(".svg")
        os.rename(path, picture)
        ztensor.plot(reader).save(picture)
        os.rename(picture, path)


# Functions that write a new file in place of an old one.
REPLACING: dict[str, Callable[[Path], object]] = {
    "save": save,
    "writer": lambda path: ztensor.Writer(path).finish(),
    "compact": ztensor.compact,
    "migrate": lambda path: ztensor.migrate(path, version="1.1.0"),
    "atomic": lambda path: ztensor.edit.set_attributes(path, {"k": 1}, atomic=True),
    "convert": lambda path: ztensor.convert(one(path), path, to="zt"),
    "export": lambda path: ztensor.convert(other(path), path, to="safetensors"),
    "export npz": lambda path: ztensor.convert(other(path), path, to="npz"),
    "merge": lambda path: ztensor.merge([other(path)], path),
    "merge itself": lambda path: ztensor.merge([path, other(path)], path),
    "remove": lambda path: ztensor.edit.remove_tensors(other(path), path, names=[]),
    "repair": lambda path: ztensor.repair(torn(path), write=path),
    "plot": plotted,
}


@pytest.fixture(params=["nameless", "named"], autouse=True)
def temporaries(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the nameless temporaries of Linux, and as on systems without."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    elif not hasattr(os, "O_TMPFILE"):
        pytest.skip("this system has no nameless temporaries")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- Over an old file -----------------------------------------------------------------------


@ON_POSIX
@pytest.mark.parametrize("verb", REPLACING)
@pytest.mark.parametrize("mode", [0o4777, 0o2755, 0o1666, 0o7640, 0o600])
def test_set_id_bits_are_never_carried_on(verb: str, mode: int, tmp_path: Path) -> None:
    """A file of mode 4777 is left for a richer user to save over."""
    target = tmp_path / "m.zt"
    save(target)
    target.chmod(mode)
    REPLACING[verb](target)
    assert oct(mode_of(target)) == oct(mode & 0o777)


def owned(path: Path, owner: int, group: int, mode: int | None = None) -> Path:
    """Return a saved file of another user, in a folder that everyone may write to."""
    path.parent.chmod(0o777)
    save(path)
    os.chown(path, owner, group)
    if mode is not None:
        path.chmod(mode)
    return path


def rights_of(path: Path) -> tuple[int, int, str]:
    status = path.stat()
    return status.st_uid, status.st_gid, oct(mode_of(path))


@TWO_USERS
@pytest.mark.parametrize("verb", ["save", "compact", "migrate", "merge itself"])
def test_root_leaves_a_file_to_its_owner_without_set_id_bits(verb: str, common: Path) -> None:
    """Uid 65534 leaves mode 4777; root saves over it: a program of root that anyone may write."""
    target = owned(common / "m.zt", 65534, 65534, 0o4777)
    REPLACING[verb](target)
    assert rights_of(target) == (65534, 65534, "0o777")


# Owner, group and mode before; who saves, in which further groups; the same three behind.
SAVES: dict[str, tuple[tuple[int, int, int], int, list[int], tuple[int, int, int]]] = {
    # A stranger's set-id file: what group and others both had is left.
    "stranger": ((MALLORY, MALLORY, 0o6674), ALICE, [], (ALICE, ALICE, 0o644)),
    # A save over a 0660 file of a project's group gave it the saver's group.
    **{
        f"member {mode:o}": ((ALICE, PROJECT, mode), BOB, [PROJECT], (BOB, PROJECT, mode))
        for mode in (0o660, 0o640, 0o664, 0o604)
    },
    # A saver outside the project's group gave the group's rights to another group.
    **{
        f"outsider {mode:o}": ((ALICE, PROJECT, mode), ALICE, [], (ALICE, ALICE, kept))
        for mode, kept in ((0o660, 0o600), (0o664, 0o644), (0o604, 0o600), (0o646, 0o644))
    },
}


@TWO_USERS
@pytest.mark.parametrize("case", SAVES)
def test_a_save_keeps_owner_and_group_or_narrows_the_rights(case: str, common: Path) -> None:
    """A user other than root saves over a file: it keeps its group, or grants less."""
    before, saver, groups, after = SAVES[case]
    target = owned(common / "m.zt", *before)
    act_as(saver, lambda: save(target), groups=groups)
    assert rights_of(target) == (*after[:2], oct(after[2]))
    if saver == BOB:
        assert not can_read(MALLORY, target, groups=[BOB]) or after[2] & 0o004


SHUT_OUT = {OWNER: 6, (USER, BOB): 6, (USER, MALLORY): 0, GROUP: 0, MASK: 6, OTHER: 4}


@pytest.mark.slow
@TWO_USERS
@pytest.mark.parametrize("verb", ["save", "compact", "atomic", "merge itself"])
def test_an_access_list_is_kept(verb: str, common: Path) -> None:
    """A save drops the list: its mask becomes rights of the group, the excluded can read."""
    target = owned(common / "m.zt", ALICE, PROJECT)
    set_list(target, access_list(SHUT_OUT))
    act_as(ALICE, lambda: REPLACING[verb](target), groups=[PROJECT])
    assert list_of(target) == access_list(SHUT_OUT)
    assert can_read(BOB, target)
    assert not can_read(MALLORY, target)
    assert not can_read(OTHERS, target, groups=[PROJECT])
    assert can_read(OTHERS, target)


@pytest.mark.slow
@TWO_USERS
@pytest.mark.parametrize("what", ["group", "list"])
def test_without_its_list_a_file_is_the_owners_alone(
    what: str, common: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list cannot be kept: by a saver outside the group, on a mount without lists."""
    target = owned(common / "m.zt", ALICE, PROJECT)
    set_list(target, access_list(SHUT_OUT))
    if what == "list":

        def refuse(*_: object) -> None:
            raise OSError(95, "Operation not supported")

        monkeypatch.setattr(os, "setxattr", refuse)
    act_as(ALICE, lambda: save(target), groups=[PROJECT] if what == "list" else [])
    assert oct(mode_of(target)) == "0o600"
    assert not can_read(BOB, target)
    assert not can_read(OTHERS, target, groups=[PROJECT])


@TWO_USERS
def test_a_folders_list_is_not_laid_over_an_old_file(common: Path) -> None:
    """A folder's default list lets users in that the old file kept out."""
    target = common / "m.zt"
    save(target)
    target.chmod(0o660)
    entries = {OWNER: 7, (USER, MALLORY): 7, GROUP: 7, MASK: 7, OTHER: 0}
    set_list(common, access_list(entries), kind="default")
    save(target)
    assert list_of(target) is None
    assert oct(mode_of(target)) == "0o660"
    assert not can_read(MALLORY, target)


@TWO_USERS
def test_rights_taken_away_during_a_save_stay_away(common: Path) -> None:
    """The owner closes a file while a long save is on its way, which opens it again."""
    target = common / "m.zt"
    save(target)
    writer = ztensor.Writer(target)
    writer.write("a", np.ones(3))
    target.chmod(0o600)
    writer.finish()
    assert oct(mode_of(target)) == "0o600"


@TWO_USERS
def test_no_temporary_is_wider_than_its_target(
    common: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The temporary of a private file can be opened by others for a moment."""
    target = common / "m.zt"
    save(target)
    os.chown(target, ALICE, PROJECT)
    set_list(target, access_list({OWNER: 6, (USER, BOB): 4, GROUP: 0, MASK: 4, OTHER: 0}))
    seen: list[tuple[int, int]] = []

    def watched(name: str) -> None:
        real: Any = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            result = real(*arguments, **options)
            for found in [result, *arguments]:
                if isinstance(found, int) and name in ("open", "fchown", "setxattr", "fchmod"):
                    try:
                        status = os.fstat(found)
                    except OSError:
                        continue
                    if stat.S_ISREG(status.st_mode) and status.st_size > 1000:
                        seen.append((status.st_gid, stat.S_IMODE(status.st_mode)))
            return result

        monkeypatch.setattr(os, name, call)

    for name in ("open", "fchown", "setxattr", "fchmod"):
        watched(name)
    save_file({"a": np.zeros(10_000)}, target)
    assert seen
    assert [(group, mode) for group, mode in seen if mode & 0o077 and group != PROJECT] == []
    assert {oct(mode) for _, mode in seen} <= {"0o600", "0o640"}


@ON_POSIX
def test_a_named_temporary_is_private_until_the_end(tmp_path: Path) -> None:
    """Elsewhere than on Linux the temporary has a name while it is written."""
    writer = ztensor.Writer(tmp_path / "m.zt")
    writer.write("a", np.zeros(100_000))
    assert [oct(mode_of(path)) for path in tmp_path.iterdir()] in ([], ["0o600"])
    writer.finish()
    probe = tmp_path / "probe"
    probe.touch()
    assert mode_of(tmp_path / "m.zt") == mode_of(probe)
    assert sorted(os.listdir(tmp_path)) == ["m.zt", "probe"]


# --- What holds a file's bytes --------------------------------------------------------------


def sharded(path: Path, out: Path) -> Path:
    ztensor.split(path, out.parent / "set", max_shard_size=1000)
    return out.parent / "set"


def copied(path: Path, out: Path) -> None:
    with ztensor.open(path) as reader, ztensor.Writer(out) as writer:
        writer.copy("a", reader)


def export(suffix: str) -> Callable[[Path, Path], object]:
    def work(path: Path, out: Path) -> Path:
        ztensor.convert(path, out.with_suffix(suffix), include="a")
        return out.with_suffix(suffix)

    return work


# Functions that write bytes of a file into a new one; they return its path if it is not `out`.
DERIVING: dict[str, Callable[[Path, Path], Any]] = {
    "convert": lambda path, out: ztensor.convert(path, out, check=True),
    "migrate": lambda path, out: ztensor.migrate(path, out, version="1.1.0"),
    "safetensors": export(".safetensors"),
    "npz": export(".npz"),
    "npy": export(".npy"),
    "gguf": export(".gguf"),
    "merge": lambda path, out: ztensor.merge([other(out), path], out),
    "remove": lambda path, out: ztensor.edit.remove_tensors(path, out, names="b"),
    "copy": copied,
    "repair": lambda path, out: ztensor.repair(path, write=out),
    "split": sharded,
}


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@ON_POSIX
@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("verb", DERIVING)
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o666])
def test_a_file_with_a_files_bytes_grants_no_more(verb: str, mode: int, tmp_path: Path) -> None:
    """A private file is converted beside it, and everyone can read the result."""
    path, out = tmp_path / "m.zt", tmp_path / "out.zt"
    save(path)
    path.chmod(mode)
    if verb == "split":
        (tmp_path / "set").mkdir()
    made = DERIVING[verb](path, out)
    made = made if hasattr(made, "is_dir") else out
    for file in made.iterdir() if made.is_dir() else [made]:
        assert oct(mode_of(file)) == oct(mode), file


@ON_POSIX
@pytest.mark.usefixtures("umask")
def test_a_tail_is_as_private_as_its_file(tmp_path: Path) -> None:
    """`repair` of a 0600 file writes `.tail-1` as 0644."""
    for mode in (0o600, 0o640, 0o4644):
        path = torn(tmp_path / "x")
        path.chmod(mode)
        report = ztensor.repair(path, in_place=True)
        assert report.tail_path is not None
        assert oct(os.stat(report.tail_path).st_mode & 0o7777) == oct(mode & 0o777)


@TWO_USERS
def test_a_tail_belongs_to_the_files_owner(common: Path) -> None:
    """Root repairs a user's file, and keeps the tail or gives it to others."""
    path = torn(common / "x")
    os.chown(path, ALICE, PROJECT)
    set_list(path, access_list(SHUT_OUT))
    report = ztensor.repair(path, in_place=True)
    status = os.stat(report.tail_path or "")
    assert (status.st_uid, status.st_gid) == (ALICE, PROJECT)
    assert list_of(path.with_name(f"{path.name}.tail-1")) == access_list(SHUT_OUT)


@TWO_USERS
@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize(("mode", "kept"), [(0o640, 0o600), (0o644, 0o644), (0o664, 0o644)])
def test_another_group_gets_the_rights_of_all(mode: int, kept: int, common: Path) -> None:
    """A file of a project's group is converted by root, of another group."""
    path, out = common / "m.zt", common / "out.zt"
    save(path)
    os.chown(path, ALICE, PROJECT)
    path.chmod(mode)
    ztensor.convert(path, out)
    status = out.stat()
    assert (status.st_uid, status.st_gid) == (0, os.getegid())
    assert oct(mode_of(out)) == oct(kept)


@pytest.mark.slow
@TWO_USERS
@pytest.mark.parametrize("alike", [True, False])
def test_a_list_of_the_folder_stays_where_the_source_has_it_too(alike: bool, common: Path) -> None:
    """A list keeps users out, and the converted file lets them in."""
    entries = {OWNER: 7, (USER, BOB): 7, GROUP: 0, MASK: 7, OTHER: 0}
    set_list(common, access_list(entries), kind="default")
    path, out = common / "m.zt", common / "out.zt"
    save(path)
    if not alike:
        set_list(path, access_list({**entries, (USER, BOB): 0}))
    ztensor.convert(path, out)
    assert can_read(BOB, out) is alike is can_read(BOB, path)
    assert not can_read(MALLORY, out)


@ON_POSIX
@pytest.mark.usefixtures("umask")
def test_external_data_counts_as_a_source(tmp_path: Path) -> None:
    """The model is open to all, its external data is not; converted they are one file."""
    onnx = pytest.importorskip("onnx")
    values = onnx.numpy_helper.from_array(np.arange(100, dtype=np.float32), "w")
    graph = onnx.helper.make_graph([], "g", [], [], [values])
    model = onnx.helper.make_model(graph)
    onnx.save(
        model,
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
    )
    (tmp_path / "w.bin").chmod(0o600)
    (tmp_path / "m.onnx").chmod(0o644)
    ztensor.convert(tmp_path / "m.onnx", tmp_path / "out.zt")
    assert oct(mode_of(tmp_path / "out.zt")) == "0o600"


@ON_POSIX
@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("size", ["100", "1MB"])
@pytest.mark.parametrize("before", ["file", "set"])
def test_a_set_has_the_rights_of_the_replaced_files(before: str, size: str, tmp_path: Path) -> None:
    """A private model is saved anew as shards, or shards as one file: other names, open to all."""
    path = tmp_path / "m.zt"
    save_file(TENSORS, path, max_shard_size="100" if before == "set" else None)
    for file in tmp_path.iterdir():
        file.chmod(0o600)
    save_file(TENSORS, path, max_shard_size=size)
    wrong = [file.name for file in tmp_path.iterdir() if mode_of(file) != 0o600]
    assert wrong == []
    assert set(ztensor.open(path)) == set(TENSORS)

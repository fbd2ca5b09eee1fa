"""Folders of models there and back: converted weights, unchanged other files, atomically."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.flipping import flip_object
from ztensor.errors import FormatError, SourceError, UsageError, ZTensorError
from ztensor.ext import locking

FIRST: dict[str, np.ndarray[Any, np.dtype[Any]]] = {
    "a": np.arange(6, dtype=np.float32),
    "b": np.ones((2, 3), np.float16),
}
SOURCE = str(Path(ztensor.__file__).parents[1])


def model(folder: Path, *, size: int | None = None, name: str = "model.safetensors") -> Path:
    """Make a folder with weights, a config, a tokenizer and a hidden file."""
    folder.mkdir(parents=True, exist_ok=True)
    ztensor.numpy.save_file(FIRST, folder / name, {"format": "pt"}, max_shard_size=size)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "tokenizer.json").write_bytes(bytes(range(256)))
    (folder / ".gitattributes").write_text("* -text\n")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def steps(report: ztensor.converting.FolderReport) -> dict[str, str]:
    return {step.source: step.action for step in report.steps}


@pytest.mark.parametrize("size", [None, 20], ids=["one", "shards"])
@pytest.mark.parametrize("name", ["model", "model.fp16", "adapter_model"])
def test_there_and_back(tmp_path: Path, size: int | None, name: str) -> None:
    old = model(tmp_path / "old", size=size, name=f"{name}.safetensors")
    before = contents(old)
    report = ztensor.convert_folder(old, tmp_path / "new")
    assert contents(old) == before
    names = set(contents(tmp_path / "new"))
    assert names == {one.replace(".safetensors", ".zt") for one in before}
    assert not report.lost
    assert report.objects == len(FIRST)
    place = tmp_path / "new" / (f"{name}.zt.index.json" if size else f"{name}.zt")
    with ztensor.open(place) as reader:
        assert set(reader) == set(FIRST)
        assert all(np.asarray(reader[one]).tobytes() == FIRST[one].tobytes() for one in FIRST)
        assert reader.verify().ok
    ztensor.convert_folder(tmp_path / "new", tmp_path / "back", to="safetensors")
    after = contents(tmp_path / "back")
    index = f"{name}.safetensors.index.json"
    if size:
        one, other = (json.loads(both.pop(index)) for both in (before, after))
        assert one["weight_map"] == other["weight_map"]
        assert one["metadata"]["total_size"] == other["metadata"]["total_size"]
    assert after == before


def test_subfolders_are_converted(tmp_path: Path) -> None:
    old = tmp_path / "old"
    model(old / "unet", name="diffusion_pytorch_model.safetensors", size=20)
    model(old / "vae" / "deep", name="diffusion_pytorch_model.fp16.safetensors")
    (old / "model_index.json").write_text("{}")
    (old / ".git").mkdir()
    (old / ".git" / "config").write_text("x")
    before = contents(old)
    ztensor.convert_folder(old, tmp_path / "new")
    names = {one.replace(".safetensors", ".zt") for one in before} - {".git/config"}
    assert set(contents(tmp_path / "new")) == names


def test_the_cache_of_a_hub(tmp_path: Path) -> None:
    home = tmp_path / "models--a--b"
    real = contents(model(tmp_path / "plain", size=20))
    snapshot, blobs = home / "snapshots" / "0123", home / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, (name, data) in enumerate(real.items()):
        (blobs / f"{number:040x}").write_bytes(data)
        os.symlink(f"../../blobs/{number:040x}", snapshot / name)
    ztensor.convert_folder(snapshot, tmp_path / "new")
    assert not [path for path in (tmp_path / "new").rglob("*") if path.is_symlink()]
    with ztensor.open(tmp_path / "new") as reader:
        assert set(reader) == set(FIRST)
    assert contents(snapshot) == real


def test_a_file_that_is_there_twice_is_converted_once(tmp_path: Path) -> None:
    old = model(tmp_path / "old")
    (old / "pytorch_model.bin").write_bytes(b"not looked into")
    (old / "optimizer.bin").write_bytes(b"copied")
    report = ztensor.convert_folder(old, tmp_path / "new")
    assert steps(report)["pytorch_model.bin"] == "leave"
    assert steps(report)["optimizer.bin"] == "copy"
    assert "pytorch_model.bin" not in contents(tmp_path / "new")


def test_pickles_are_converted_where_that_is_asked(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    old = tmp_path / "old"
    old.mkdir()
    torch.save({"w": torch.arange(4)}, old / "pytorch_model.bin")
    report = ztensor.convert_folder(old, tmp_path / "copied")
    assert contents(tmp_path / "copied") == contents(old)
    assert next(iter(report.steps)).sentence
    ztensor.convert_folder(old, tmp_path / "new", pickled=True)
    with ztensor.open(tmp_path / "new" / "model.zt") as reader:
        assert reader["w"].tolist() == [0, 1, 2, 3]


def test_a_dry_run_reads_no_weights_and_writes_nothing(tmp_path: Path) -> None:
    old = model(tmp_path / "old")
    (old / "model.safetensors").write_bytes(b"damaged")
    report = ztensor.convert_folder(old, tmp_path / "new", dry_run=True)
    assert report.dry_run
    assert steps(report)["model.safetensors"] == "convert"
    assert os.listdir(tmp_path) == ["old"]


# --- Errors -------------------------------------------------------------------------------------


def refused(old: Path, kind: type[ZTensorError], *parts: str, **options: Any) -> None:
    new = old.parent / "new"
    was = contents(new) if new.is_dir() else None
    with pytest.raises(kind) as caught:
        ztensor.convert_folder(old, new, **options)
    for part in parts:
        assert part in str(caught.value)
    assert (contents(new) if new.is_dir() else None) == was
    assert not [name for name in os.listdir(old.parent) if name.startswith(".")]


def test_a_folder_that_is_there_is_kept(tmp_path: Path) -> None:
    old, new = model(tmp_path / "old"), tmp_path / "new"
    new.mkdir()
    (new / "mine").write_text("x")
    refused(old, UsageError, "new")
    ztensor.convert_folder(old, new, overwrite=True)
    assert "model.zt" in contents(new)
    assert "mine" not in contents(new)
    assert sorted(os.listdir(tmp_path)) == ["new", "old"]


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    ztensor.convert_folder(model(tmp_path / "old"), tmp_path / "new")
    assert "model.zt" in contents(tmp_path / "new")


def test_neither_folder_may_be_in_the_other(tmp_path: Path) -> None:
    old = model(tmp_path / "old")
    for source, target in ((old, old), (old, old / "new"), (old, tmp_path)):
        with pytest.raises(UsageError):
            ztensor.convert_folder(source, target, overwrite=True)
    assert "model.safetensors" in contents(old)


@pytest.mark.parametrize("what", ["file", "folder", "loop", "nothing", "fifo"])
def test_links_and_special_files_are_refused(tmp_path: Path, what: str) -> None:
    old = model(tmp_path / "old")
    (tmp_path / "secret").write_text("x")
    target: dict[str, Path | str] = {
        "file": tmp_path / "secret",
        "folder": old,
        "loop": old / "x",
        "nothing": "nowhere",
    }
    if what == "fifo":
        os.mkfifo(old / "x")
    else:
        os.symlink(target[what], old / "x")
    refused(old, ZTensorError)


@pytest.mark.parametrize("where", ["../secret", "/etc/passwd", "x/../../secret", "C:\\x", ""])
def test_an_index_that_leads_out(tmp_path: Path, where: str) -> None:
    old = model(tmp_path / "old", size=20)
    ztensor.numpy.save_file(FIRST, tmp_path / "secret.safetensors")
    os.rename(tmp_path / "secret.safetensors", tmp_path / "secret")
    index = old / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(FIRST, where)}))
    refused(old, ZTensorError, "index")
    refused(old, ZTensorError, "index", dry_run=True)


def test_an_index_that_is_wrong(tmp_path: Path) -> None:
    old = model(tmp_path / "old", size=20)
    index = old / "model.safetensors.index.json"
    values = json.loads(index.read_text())
    first, second = values["weight_map"].values()
    index.write_text(json.dumps({"weight_map": {"a": second, "b": first}}))
    refused(old, FormatError, "index")
    index.write_text(json.dumps({"weight_map": {"a": "config.json"}}))
    refused(old, FormatError, "config.json")
    index.write_text("{")
    refused(old, FormatError)


def test_a_missing_shard(tmp_path: Path) -> None:
    old = model(tmp_path / "old", size=20)
    shard = sorted(old.glob("model-*"))[1]
    shard.unlink()
    refused(old, SourceError, shard.name)


def test_weights_of_another_format_are_refused(tmp_path: Path) -> None:
    old = model(tmp_path / "old")
    np.savez(tmp_path / "x.npz", **FIRST)  # type: ignore[arg-type]  # numpy's stubs
    os.replace(tmp_path / "x.npz", old / "model.safetensors")
    refused(old, FormatError, "model.safetensors")
    (old / "model.safetensors").write_bytes(b"")
    refused(old, FormatError, "model.safetensors")


def test_a_flipped_bit_is_named_with_file_and_tensor(tmp_path: Path) -> None:
    old = model(tmp_path / "old", name="model.zt")
    flip_object(old / "model.zt", "b")
    refused(old, FormatError, "model.zt", "'b'", to="safetensors")


def test_losses_are_reported_or_refused(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    with ztensor.Writer(old / "model.zt", attributes={"n": 3}) as writer:
        writer.write("a", FIRST["a"])
    refused(old, ztensor.NotRepresentableError, to="safetensors", strict=True)
    report = ztensor.convert_folder(old, tmp_path / "new", to="safetensors")
    assert [file for file, _ in report.lost] == ["model.zt"]


@pytest.mark.parametrize("to", ["npz", "", None, 3])
def test_other_formats_are_refused(tmp_path: Path, to: Any) -> None:
    refused(model(tmp_path / "old"), ZTensorError, to=to)


def test_sources_and_targets_must_be_folders(tmp_path: Path) -> None:
    old = model(tmp_path / "old")
    with pytest.raises(SourceError):
        ztensor.convert_folder(tmp_path / "nowhere", tmp_path / "new")
    for source, target in ((old, "s3://b/x"), ("s3://b/x", old), (old, old.parent / "a")):
        if target == old.parent / "a":
            (old.parent / "a").write_text("x")
        with pytest.raises(UsageError):
            ztensor.convert_folder(source, target, overwrite=True)
    with pytest.raises(SourceError):
        ztensor.convert_folder(old, tmp_path / "no" / "where")


# --- Killed ---------------------------------------------------------------------------------------

DEAD = ".new.0123456789abcdef"


def left_behind(folder: Path, *kinds: str) -> None:
    """Leave the files of a killed process: an unlocked lock file, and folders with a file each."""
    (folder / f"{DEAD}.lock").touch()
    for kind in kinds:
        (folder / f"{DEAD}.{kind}").mkdir()
        (folder / f"{DEAD}.{kind}" / kind).touch()


@pytest.mark.skipif(os.name == "nt", reason="nothing is swept on Windows")
@pytest.mark.parametrize(
    ("kinds", "is_there"),
    [(("new",), False), (("old",), True), (("new", "old"), False)],
    ids=["unfinished", "replaced", "moved away"],
)
def test_leftovers_of_a_killed_process_are_removed(
    tmp_path: Path, kinds: tuple[str, ...], is_there: bool
) -> None:
    old, new = model(tmp_path / "from"), tmp_path / "new"
    if is_there:
        new.mkdir()
    left_behind(tmp_path, *kinds)
    if kinds == ("new", "old"):  # a killed process had moved the old folder away: it comes back
        with pytest.raises(UsageError):
            ztensor.convert_folder(old, new)
        assert os.listdir(new) == ["old"]
    ztensor.convert_folder(old, new, overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["from", "new"]


@pytest.mark.skipif(os.name == "nt", reason="nothing is swept on Windows")
def test_other_files_stay(tmp_path: Path) -> None:
    """Folders of a process that lives, and names that only look alike."""
    old = model(tmp_path / "from")
    left_behind(tmp_path, "new")
    holder = os.open(tmp_path / f"{DEAD}.lock", os.O_RDWR)
    assert locking.try_acquire(holder)
    for name in (".new.0123456789abcde.new", ".news.0123456789abcdef.new", f"{DEAD}.new.txt"):
        (tmp_path / name).mkdir()
    before = set(os.listdir(tmp_path))
    ztensor.convert_folder(old, tmp_path / "new")
    assert set(os.listdir(tmp_path)) == {*before, "new"}
    os.close(holder)


# After each kill, another process reports the state, and the leftovers after its own attempt.
KILLED = """
import json, os, shutil, signal, sys
import ztensor
old, new, other = sys.argv[1:]
count = 0
def hook(event, arguments):
    global count
    if event in ("os.rename", "os.mkdir", "shutil.rmtree", "os.remove", "os.rmdir", "os.link"):
        count += 1
        if count > at:
            os.kill(os.getpid(), signal.SIGKILL)
def there():
    return sorted(os.listdir(new)) if os.path.exists(new) else None
for at in range(40):
    child = os.fork()
    if not child:
        sys.addaudithook(hook)
        ztensor.convert_folder(old, new, overwrite=True)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    at_once = there()
    try:
        ztensor.convert_folder(other, new)
    except ztensor.UsageError:
        pass
    hidden = [name for name in os.listdir(os.path.dirname(new)) if name.startswith(".")]
    print(json.dumps([status, at_once, there(), hidden]))
    if status == 0:
        break
    shutil.rmtree(new)
    os.mkdir(new)
    open(os.path.join(new, "mine"), "w").close()
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks, and kills by a signal")
def test_killed_anywhere_leaves_old_new_or_none(tmp_path: Path) -> None:
    old, other = model(tmp_path / "old"), model(tmp_path / "other")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "mine").write_text("x")
    run = subprocess.run(
        [sys.executable, "-c", KILLED, str(old), str(tmp_path / "new"), str(other)],
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=True,
    )
    whole = [".gitattributes", "config.json", "model.zt", "tokenizer.json"]
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(lines) > 5
    assert lines[-1][0] == 0
    states = [at_once for _, at_once, _, _ in lines]
    assert all(state in (None, ["mine"], whole) for state in states)
    assert None in states
    assert ["mine"] in states
    assert whole in states[:-1]
    for _, at_once, then, hidden in lines:
        assert then == (at_once or ["mine"])  # the old one, put back
        assert not hidden

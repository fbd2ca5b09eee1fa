"""Every verb on a file of every readable format."""

from __future__ import annotations

import errno
import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.unit.cli.conftest import ExitCode, Run
from ztensor.cli.main import VERBS
from ztensor.cli.parsing import load
from ztensor.numpy import save_file

Made = Callable[[str], Path]
CORPUS = Path(__file__).parents[2] / "corpus"
WEIGHT = np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32)
ARRAYS: dict[str, Any] = {
    "a.weight": WEIGHT,
    "a.half": WEIGHT.astype(np.float16),
    "step": np.array(7, np.int64),
    "empty": np.zeros((0, 4), np.float32),
}


def _zt(version: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        save_file(ARRAYS, folder / "model.zt", version=version)
        return folder / "model.zt"

    return make


def _as(suffix: str, **options: Any) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        if suffix == "h5":
            pytest.importorskip("h5py")
        save_file(ARRAYS, folder / f"model.{suffix}", **options)
        return folder / f"model.{suffix}"

    return make


def _index(folder: Path) -> Path:
    save_file(ARRAYS, folder / "model.safetensors", max_shard_size=300)
    return folder / "model.safetensors.index.json"


def _npy(folder: Path) -> Path:
    np.save(folder / "model.npy", WEIGHT)
    return folder / "model.npy"


def _deflated(folder: Path) -> Path:
    np.savez_compressed(folder / "model.npz", **ARRAYS)
    return folder / "model.npz"


def _pt(*, is_zip: bool) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        torch = pytest.importorskip("torch")
        tensors = {name: torch.from_numpy(array.copy()) for name, array in ARRAYS.items()}
        state = {"a.bf16": torch.ones(4, dtype=torch.bfloat16), **tensors, "epoch": 3}
        torch.save(state, folder / "model.pt", _use_new_zipfile_serialization=is_zip)
        return folder / "model.pt"

    return make


def _gguf(folder: Path) -> Path:
    blocks = {
        "a.Q8_0": ztensor.Tensor(
            {"data": np.arange(68, dtype=np.uint8)}, shape=(2, 32), format="gguf.q8_0"
        ),
        "a.Q6_K": ztensor.Tensor(
            {"data": np.arange(420).astype(np.uint8)}, shape=(2, 256), format="gguf.q6_k"
        ),
    }
    dense = {name: ARRAYS[name] for name in ("a.weight", "a.half")}
    save_file(dense | blocks, folder / "model.gguf")
    return folder / "model.gguf"


def _onnx(folder: Path) -> Path:
    onnx = pytest.importorskip("onnx")
    values = [onnx.numpy_helper.from_array(array, name) for name, array in ARRAYS.items()]
    output = onnx.helper.make_tensor_value_info("a.weight", onnx.TensorProto.FLOAT, [2, 32])
    graph = onnx.helper.make_graph([], "g", [], [output], initializer=values)
    onnx.save(onnx.helper.make_model(graph), folder / "model.onnx")
    return folder / "model.onnx"


MAKERS: dict[str, Callable[[Path], Path]] = {
    "zt-1.2.0": _zt("1.2.0"),
    "zt-1.1.0": _zt("1.1.0"),
    "zt-0.1.0": _zt("0.1.0"),
    "safetensors": _as("safetensors"),
    "index": _index,
    "folder": lambda folder: _index(folder).parent,
    "npy": _npy,
    "npz": _as("npz"),
    "npz-deflated": _deflated,
    "pt": _pt(is_zip=True),
    "pt-legacy": _pt(is_zip=False),
    "gguf": _gguf,
    "hdf5": _as("h5"),
    "onnx": _onnx,
}

# Files of exactly `ARRAYS`.
PLAIN = [
    *("zt-1.2.0", "zt-1.1.0", "zt-0.1.0", "safetensors", "index", "folder", "npz"),
    *("npz-deflated", "onnx", "hdf5"),
]
OF_ZTENSOR = [kind for kind in MAKERS if kind.startswith("zt-")]
OF_OTHERS = [kind for kind in MAKERS if not kind.startswith("zt-")]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Give the file of a format, made once; no test changes it."""
    files: dict[str, Path] = {}

    def make(kind: str) -> Path:
        if kind not in files:
            files[kind] = MAKERS[kind](tmp_path_factory.mktemp(kind))
        return files[kind]

    return make


@pytest.fixture
def copy(made: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Give a copy of the file of a format, with its other files, in a folder `kind`."""

    def make(kind: str) -> Path:
        path = made(kind)
        folder = path if path.is_dir() else path.parent
        shutil.copytree(folder, tmp_path / kind)
        return tmp_path / kind / path.relative_to(folder)

    return make


def name_in(kind: str) -> str:
    return "array" if kind == "npy" else "a.weight"


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# --- Verbs that look ------------------------------------------------------------------------

# Arguments after the file, and words of the printed text; `{}` is an object's name.
LOOKING: dict[str, tuple[tuple[str, ...], str]] = {
    "ls": ((), "{}"),
    "info": ((), "objects "),
    "show": (("{}",), "64 elements"),
    "stats": ((), "{}"),
    "plot": ((), "{}"),
    "diff": (("{file}",), "equal"),
    "report": ((), " tensor"),
    "view": (("--no-browser", "--seconds", "0.01"), "http://127.0.0.1:"),
    "verify": ((), " digest"),  # ok, or under no digest
    "hash": ((), "  {file}"),
}


def looking(verb: str, kind: str, file: Path) -> tuple[list[str], str]:
    def filled(text: str) -> str:
        return text.replace("{}", name_in(kind)).replace("{file}", str(file))

    more, words = LOOKING[verb]
    return [verb, str(file), *map(filled, more)], filled(words)


@pytest.mark.parametrize(
    ("verb", "kind"),
    [
        (verb, kind)
        for verb in LOOKING
        for kind in (("zt-1.2.0", "index") if verb == "view" else MAKERS)  # half a second each
    ],
)
def test_a_verb_that_looks(run: Run, made: Made, verb: str, kind: str) -> None:
    """As text, as JSON, and quiet."""
    arguments, words = looking(verb, kind, made(kind))
    ended = run(*arguments)
    assert (ended.code, ended.err) == (0, "")
    assert words in ended.out
    ended = run(*arguments, "--json")
    assert (ended.code, ended.err) == (0, "")
    assert ended.json
    assert ended.out.isascii()
    ended = run(*arguments, "--quiet")
    assert (ended.code, ended.out, ended.err) == (0, "", "")


def test_the_same_tensors_have_one_id(run: Run, made: Made) -> None:
    ended = run("hash", *map(made, PLAIN))
    assert len(ended.lines) == len(PLAIN)
    assert len({line.split()[0] for line in ended.lines}) == 1


@pytest.mark.parametrize("kind", OF_OTHERS)
def test_info_names_the_format(run: Run, made: Made, kind: str) -> None:
    word = {"index": "safetensors", "folder": "safetensors"}.get(kind, kind.partition("-")[0])
    facts = run("info", made(kind), "--json").json
    assert facts["format"] == word
    assert facts["manifest"] is facts["container"] is facts["dead_nbytes"] is None
    assert f"format   {word}" in run("info", made(kind)).out


@pytest.mark.parametrize("verb", ["ls", "stats", "plot", "diff", "verify", "hash"])
@pytest.mark.parametrize("kind", ["zt-1.2.0", "index", "gguf"])
def test_patterns_choose(run: Run, made: Made, verb: str, kind: str) -> None:
    arguments, _ = looking(verb, kind, made(kind))
    everything = run(*arguments, "--json").out
    chosen = run(*arguments, "--json", "--include", "a.*", "--exclude", "*.half")
    assert chosen.code == 0
    assert chosen.json
    assert chosen.out != everything
    for hidden in ("a.half", "step"):
        assert f'"{hidden}"' not in chosen.out


# --- Verbs that change a file in its place --------------------------------------------------

CHANGING: dict[str, tuple[str, ...]] = {
    "append": ("{array}",),
    "replace": ("{}", "{array}"),
    "rm": ("{}",),
    "mv": ("{}", "other"),
    "set": ("key=value",),
    "compact": (),
    "repair": (),
    "repair --in-place": ("--in-place",),
    "convert": ("--in-place",),
}


def changing(verb: str, kind: str, file: Path) -> list[str]:
    array = file.parent.parent / "array.npy"
    np.save(array, WEIGHT)
    filled = [text.replace("{}", name_in(kind)) for text in CHANGING[verb]]
    return [verb.split()[0], str(file), *(text.replace("{array}", str(array)) for text in filled)]


EDITED = ("safetensors", "gguf")
REFUSED = [
    (verb, kind)
    for verb in CHANGING
    for kind in OF_OTHERS
    if verb in ("compact", "convert") or kind not in EDITED
]


@pytest.mark.parametrize(("verb", "kind"), REFUSED)
def test_files_of_other_formats_are_not_changed(
    run: Run, copy: Made, tmp_path: Path, verb: str, kind: str
) -> None:
    file = copy(kind)
    before = snapshot(tmp_path / kind)
    ended = run(*changing(verb, kind, file), "--json")
    assert ended.code == ExitCode.USAGE
    assert f"ztensor convert '{file}' OUT.zt" in ended.err
    assert ended.json["error"]["type"] == "UsageError"
    assert snapshot(tmp_path / kind) == before


@pytest.mark.parametrize(
    ("verb", "kind"),
    [(v, k) for v in CHANGING for k in (*OF_ZTENSOR, *EDITED) if (v, k) not in REFUSED],
)
def test_files_of_every_version_are_changed(run: Run, copy: Made, verb: str, kind: str) -> None:
    file = copy(kind)
    arguments = changing(verb, kind, file)
    if kind == "zt-0.1.0" and "repair" in verb:
        assert run(*arguments).code == ExitCode.CORRUPT  # it has no commits to search for
        return
    before = file.read_bytes()
    planned = run(*arguments, "--dry-run")
    assert planned.code == 0
    assert planned.out
    if "repair" not in verb:
        quiet = run(*arguments, "--dry-run", "-q")
        assert (quiet.code, quiet.out) == (0, "")
    assert file.read_bytes() == before
    ended = run(*arguments, "--json")
    assert ended.code == 0
    assert ended.json
    assert ended.out.isascii()
    assert run("verify", file).code == 0


# --- Verbs that make a new file -------------------------------------------------------------

MAKING: dict[str, tuple[str, ...]] = {
    "convert": ("{in}", "{out}.zt"),
    "convert hdf5": ("{in}", "{out}.h5"),
    "merge": ("{in}", "-o", "{out}.zt"),
    "split": ("{in}", "--into", "{folder}"),
    "convert old": ("{in}", "{out}.zt", "--version", "1.1.0"),
}


def making(verb: str, file: Path, folder: Path) -> list[str]:
    out = str(folder / "new")
    texts = (text.replace("{in}", str(file)).replace("{out}", out) for text in MAKING[verb])
    return [verb.split()[0], *(text.replace("{folder}", str(folder)) for text in texts)]


def result_of(folder: Path) -> Path:
    """Return the only file of a folder, or the folder of a set."""
    files = list(folder.iterdir())
    return files[0] if len(files) == 1 else folder


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("verb", MAKING)
def test_a_new_file_of_every_format(
    run: Run, made: Made, tmp_path: Path, verb: str, kind: str
) -> None:
    """A dry run writes nothing; then all is written; and it is not written over."""
    file = made(kind)
    if verb == "convert hdf5":
        pytest.importorskip("h5py")
    folder = file if file.is_dir() else file.parent
    before = snapshot(folder)
    arguments = making(verb, file, tmp_path)
    assert run(*arguments, "--dry-run").code == 0
    assert list(tmp_path.iterdir()) == []
    ended = run(*arguments, "--json")
    assert ended.code == 0
    assert ended.json
    assert ended.out.isascii()
    expected = ztensor.insight.tensor_hashes(file)
    if verb == "convert hdf5":  # blocks of GGUF become components; dense objects are the same
        with ztensor.open(file) as reader:
            dense = [found.name for found in reader.metadata(list(reader)) if found.dtype != "bf16"]
            dense = [name for name in dense if reader.metadata(name).format == "dense"]
        expected = {name: expected[name] for name in dense if name != "a.bf16"}
        assert expected.items() <= ztensor.insight.tensor_hashes(result_of(tmp_path)).items()
    elif verb == "merge" and kind == "npy":  # the array is named as its file
        assert ztensor.insight.tensor_hashes(result_of(tmp_path)) == {"model": expected["array"]}
    elif verb == "convert old" and kind == "gguf":  # 1.1 has no blocks of GGUF
        assert ztensor.insight.tensor_hashes(result_of(tmp_path)).items() <= expected.items()
    else:
        assert ztensor.insight.tensor_hashes(result_of(tmp_path)) == expected
    written = snapshot(tmp_path)
    again = run(*arguments)
    assert again.code == ExitCode.USAGE
    assert "--force" in again.err
    assert snapshot(tmp_path) == written
    assert run(*arguments, "--force", "-q").out == ""
    assert snapshot(folder) == before


@pytest.mark.parametrize("verb", ["merge", "split", "convert"])
def test_patterns_choose_what_is_written(run: Run, made: Made, tmp_path: Path, verb: str) -> None:
    patterns = ("--include", "a.*", "--include", "step", "--exclude", "*.half")
    assert run(*making(verb, made("npz"), tmp_path), *patterns).code == 0
    assert set(ztensor.insight.tensor_hashes(result_of(tmp_path))) == {"a.weight", "step"}


@pytest.mark.parametrize("verb", ["merge", "repair"])
def test_our_files_do_not_get_the_name_of_others(
    run: Run, copy: Made, tmp_path: Path, verb: str
) -> None:
    file, out = copy("zt-1.2.0"), tmp_path / "out.safetensors"
    ended = run(verb, file, "-o", out)
    assert ended.code == ExitCode.USAGE
    assert ".zt" in ended.err
    assert not out.exists()


def test_shards_of_another_format_are_called_zt(run: Run, copy: Made, tmp_path: Path) -> None:
    """Under the old suffix they would take the place of the set that was read."""
    index = copy("index")
    before = snapshot(index.parent)
    assert run("split", index, "--force").code == 0
    after = snapshot(index.parent)
    assert before.items() < after.items()
    assert set(after) - set(before) == {"model-00001-of-00001.zt", "model.zt.index.json"}


@pytest.mark.parametrize("link", ["itself", "hard link", "symbolic link"])
@pytest.mark.parametrize("kind", ["zt-1.2.0", "safetensors"])
@pytest.mark.parametrize("verb", ["convert", "merge", "plot", "repair"])
def test_an_input_is_not_written_over(
    run: Run, copy: Made, tmp_path: Path, verb: str, kind: str, link: str
) -> None:
    file = copy(kind)
    out = file.with_name("out.svg" if verb == "plot" else "out.zt")
    if link == "itself":
        out = file
    elif link == "hard link":
        os.link(file, out)
    else:
        out.symlink_to(file)
    options = ("--to", "zt") if verb == "convert" else ()
    before = snapshot(tmp_path)
    ended = run(verb, file, "-o", out, *options, "--force")
    assert ended.code == ExitCode.USAGE
    assert ended.err.startswith("error: ")
    assert snapshot(tmp_path) == before


# --- Files that others are put into ---------------------------------------------------------


@pytest.mark.parametrize("kind", MAKERS)
def test_append_and_replace_take_any_format(
    run: Run, made: Made, tmp_path: Path, kind: str
) -> None:
    target = tmp_path / "target.zt"
    there = ztensor.Tensor(np.zeros(3), attributes={"axis": "in"})
    save_file({"there": there}, target)
    assert run("append", target, made(kind)).code == 0
    ids = ztensor.insight.tensor_hashes(made(kind))
    expected = {"model" if kind == "npy" else name: text for name, text in ids.items()}
    found = ztensor.insight.tensor_hashes(target)
    assert found.keys() == expected.keys() | {"there"}
    assert expected.items() <= found.items()
    options = ("--from", name_in(kind))
    assert run("replace", target, "there", made(kind), *options).code == 0
    with ztensor.open(target) as reader:
        assert np.array_equal(reader["there"], WEIGHT)
        assert reader.metadata("there").attributes == {"axis": "in"}
    assert run("verify", target).code == 0


def test_replace_asks_which_of_several(run: Run, made: Made, tmp_path: Path) -> None:
    target = tmp_path / "target.zt"
    save_file({"w": np.zeros(3)}, target)
    ended = run("replace", target, "w", made("npz"))
    assert ended.code == ExitCode.USAGE
    assert "--from" in ended.err
    assert run("replace", target, "w", made("npz"), "--from", "nothing").code == ExitCode.USAGE
    assert run("replace", target, "w", made("npz"), "--from", "step", "--compress").code == 0
    with ztensor.open(target) as reader:
        assert reader["w"] == 7
    assert run("replace", target, "w", made("gguf"), "--from", "a.Q8_0").code == 0
    assert (
        ztensor.insight.tensor_hashes(target)["w"]
        == ztensor.insight.tensor_hashes(made("gguf"))["a.Q8_0"]
    )


@pytest.mark.parametrize("verb", ["merge", "append"])
def test_the_array_of_a_npy_is_called_as_its_file(run: Run, tmp_path: Path, verb: str) -> None:
    target, one, two = (tmp_path / name for name in ("target.zt", "one.npy", "two.npy"))
    save_file({}, target)
    np.save(one, WEIGHT)
    np.save(two, WEIGHT)
    more = {"merge": ("-o", target, "--force"), "append": ()}[verb]
    lead = (target,) if verb == "append" else ()
    assert run(verb, *lead, one, two, *more).code == 0
    assert set(ztensor.insight.tensor_hashes(target)) == {"one", "two"}
    ended = run(verb, *lead, one, one, *more)
    assert ended.code == ExitCode.USAGE
    assert "'one'" in ended.err


def test_append_chooses_by_pattern(run: Run, made: Made, tmp_path: Path) -> None:
    target = tmp_path / "target.zt"
    save_file({"there": WEIGHT}, target)
    assert run("append", target, made("npz"), "--include", "a.*").code == 0
    assert set(ztensor.insight.tensor_hashes(target)) == {"there", "a.weight", "a.half"}
    assert run("append", target, made("npz"), "--include", "step", "--name", "epoch").code == 0
    assert "epoch" in ztensor.insight.tensor_hashes(target)


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        (("--include", "a.*"), {"step", "empty"}),
        (("--include", "*", "--exclude", "a.*"), {"a.weight", "a.half"}),
        (("step", "--include", "e*"), {"a.weight", "a.half"}),
        (("a.*", "--glob", "--exclude", "*.half"), {"a.half", "step", "empty"}),
        (("step", "--include", "step"), {"a.weight", "a.half", "empty"}),
        ((), None),
        (("--exclude", "a.*"), None),
        (("step", "--exclude", "*"), None),
        (("--include", "zzz"), None),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_rm_chooses_by_pattern(
    run: Run, copy: Made, arguments: tuple[str, ...], left: set[str] | None
) -> None:
    """To remove nothing is an error."""
    file = copy("zt-1.2.0")
    assert run("rm", file, *arguments).code == (ExitCode.USAGE if left is None else 0)
    assert set(ztensor.insight.tensor_hashes(file)) == (set(ARRAYS) if left is None else left)


# --- Objects of every kind ------------------------------------------------------------------


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("zoo") / "zoo.zt"
    objects: dict[str, Any] = {
        "scalar": np.array(7),
        "empty": np.zeros((0, 4), np.float16),
        "bool": np.array([True, False]),
        "bf16": WEIGHT.astype(ml_dtypes.bfloat16),
        "fp8": WEIGHT.astype(ml_dtypes.float8_e4m3fn),
        "fp4": WEIGHT.astype(ml_dtypes.float4_e2m1fn),
        "complex": np.array([1 + 2j, np.nan]),
        "csr": ztensor.Tensor.csr(np.array([1.5], np.float32), [1], [0, 1, 1], (2, 4)),
        "coo": ztensor.Tensor.coo(np.array([1.5], np.float32), np.array([[1], [1]]), (2, 4)),
        "int4": ztensor.Tensor.quantize(WEIGHT, bits=4, group_size=32),
        "strange": ztensor.Tensor({"codes": np.zeros(2)}, shape=(2,), format="vq"),
    }
    save_file(objects, path)
    return path


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("scalar", ("shape   []", "1 element", "first   7", "mean    7")),
        ("empty", ("shape   [0, 4]", "0 elements")),
        ("bool", ("true, false", "true    1")),
        ("bf16", ("bfloat16", "64 elements", "min     -1")),
        ("fp8", ("f8_e4m3fn, stored as uint8", "64 elements", "max     1")),
        ("fp4", ("f4_e2m1, stored as uint8", "64 elements", "max     1")),
        ("complex", ("1+2j, nan+0j", "NaN     1, infinite 0")),
        ("csr", ("sparse_csr", "1 stored value", "first   1.5")),
        ("coo", ("sparse_coo", "1 stored value", "first   1.5")),
        ("int4", ("quantized_group", "64 dequantized values", "max     1.0")),
        ("strange", ("vq", "values are not shown")),
    ],
)
def test_show_of_every_kind(run: Run, zoo: Path, name: str, facts: tuple[str, ...]) -> None:
    ended = run("show", zoo, name)
    assert (ended.code, ended.err) == (0, "")
    for fact in facts:
        assert fact in ended.out
    assert run("show", zoo, name, "--json").json["name"] == name


@pytest.mark.parametrize("more", [(), ("--json",), ("-q",)], ids=["text", "json", "quiet"])
@pytest.mark.parametrize("verb", ["ls", "info", "stats", "plot", "diff", "verify", "hash"])
def test_every_kind_is_looked_at(run: Run, zoo: Path, verb: str, more: tuple[str, ...]) -> None:
    ended = run(verb, zoo, *([zoo] if verb == "diff" else ()), *more)
    assert (ended.code, ended.err) == (0, "")
    assert bool(ended.out) == (more != ("-q",))
    if more == ("--json",):
        assert ended.json


@pytest.mark.parametrize("name", ["a.Q8_0", "a.Q6_K"])
def test_show_of_blocks_shows_dequantized_values(run: Run, made: Made, name: str) -> None:
    values = run("show", made("gguf"), name, "--json").json["values"]
    with ztensor.open(made("gguf")) as reader:
        expected = reader.read(name).dequantize().reshape(-1)
    assert values["of"] == "dequantized values"
    assert values["count"] == expected.size
    assert (values["min"], values["max"]) == (expected.min(), expected.max())


def test_show_of_a_type_that_is_unknown(run: Run) -> None:
    path = CORPUS / "spec" / "1.2.0" / "unknown_type.zt"
    assert run("show", path, "u8", "--json").json["values"] is None
    assert run("show", path, "plain", "--json").json["values"]["count"] == 20


# --- All verbs ------------------------------------------------------------------------------

ALL = [verb for verbs in VERBS.values() for verb in verbs]
MANY = ["ls", "stats", "plot", "diff", "verify", "hash", "merge", "split", "convert"]
# Arguments of the verbs that take no file of tensors.
WITHOUT_A_FILE = {
    "completions": ["bash"],
    "conformance": [str(CORPUS)],
    "ckpt": ["ls", "run"],
    "delta": ["log", "."],
}
PRIVATE_KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgAAAAAAAAAAAAAAAA
AAAAAAAAAAAAAAAAAAAAAAAAAAGhRANCAARrF9Hy4SxCR/i85uVjpEDydwN9gS3r
M6D0oTlF2JjClk/jQuL+Gn+bjufrSnwPnhYrzjNXazFezsu2QGg3v1H1
-----END PRIVATE KEY-----
"""  # the number 1: it is of no use
WRITING = [*dict.fromkeys(verb.split()[0] for verb in (*CHANGING, *MAKING)), "plot"]


def test_the_tables_name_every_verb() -> None:
    assert set(ALL) == {*LOOKING, *WRITING, *WITHOUT_A_FILE, "sign"}


@pytest.mark.parametrize(
    ("option", "verbs"),
    [
        *((option, ALL) for option in ("--json", "--quiet", "-q")),
        *((option, [*MANY, "append", "rm"]) for option in ("--include", "--exclude")),
        ("--dry-run", WRITING),
        ("--force", ["convert", "merge", "split", "plot", "repair"]),
    ],
)
def test_options_are_the_same_everywhere(option: str, verbs: list[str]) -> None:
    for verb in verbs:
        assert option in {text for one in load(verb).options for text in one.words}, verb


def arguments_of(verb: str, file: object, folder: Path) -> list[str]:
    """Return a call of a verb in which only the file may be wrong."""
    if verb == "ckpt":
        with ztensor.CheckpointManager(folder / "run", background=False) as manager:
            manager.save(1, {"w": WEIGHT})
        return [verb, "ls", str(folder / "run")]
    if verb == "delta":
        ztensor.delta.make({"w": WEIGHT}, {"w": WEIGHT + 1}, folder / "1.zt")
        return [verb, "log", str(folder)]
    if verb in WITHOUT_A_FILE:
        return [verb, *WITHOUT_A_FILE[verb]]
    if verb == "sign":
        pytest.importorskip("cryptography", reason="signatures need cryptography")
        (folder / "private.pem").write_text(PRIVATE_KEY)
        return [verb, str(file), "--key", str(folder / "private.pem")]
    other = folder / "other.zt"
    save_file({"there": WEIGHT}, other)
    if verb in LOOKING:
        more = [text.format("a.weight", file=other) for text in LOOKING[verb][0]]
        return [verb, str(file), *more]
    if verb in MAKING:
        (folder / "new").mkdir()
        return making(verb, Path(str(file)), folder / "new")
    more = [text.format("a.weight", array=other) for text in CHANGING[verb]]
    return [verb, str(file), *more]


WITH_A_FILE = [verb for verb in ALL if verb not in WITHOUT_A_FILE]


@pytest.mark.parametrize("verb", WITH_A_FILE)
def test_an_error_as_json(run: Run, tmp_path: Path, verb: str) -> None:
    """The messages for wrong files are tested in `test_wrong_inputs.py`."""
    ended = run(*arguments_of(verb, tmp_path / "missing.zt", tmp_path), "--json")
    assert ended.code == ExitCode.FAILED
    found = ended.json
    error = found["error"] if "error" in found else found["files"][0]["error"]
    assert (error["type"], error["reason"]) == ("SourceNotFoundError", "source_not_found")
    assert error["message"] in ended.err


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES)), ExitCode.FAILED),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
    ],
    ids=["denied", "interrupted"],
)
@pytest.mark.parametrize("verb", WITH_A_FILE)
def test_a_file_that_the_system_does_not_open(
    run: Run, copy: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str,
    failure: BaseException, code: ExitCode,
) -> None:  # fmt: skip
    file = copy("zt-1.2.0")
    arguments = arguments_of(verb, file, tmp_path)
    before = snapshot(tmp_path)
    real = os.open

    def failing(path: Any, *more: Any, **options: Any) -> int:
        if str(path) == str(file):  # the system denies root nothing
            raise failure
        return real(path, *more, **options)

    monkeypatch.setattr(os, "open", failing)
    ended = run(*arguments)
    monkeypatch.undo()
    assert ended.code == code
    assert "Traceback" not in ended.err
    assert (f"{file}: " in ended.err) == (code is ExitCode.FAILED)
    assert snapshot(tmp_path) == before


class Gone(io.StringIO):
    """A pipe without a reader."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize("verb", ALL)
def test_a_reader_that_goes_away_ends_every_verb_with_141(
    run: Run, copy: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str,
    more: tuple[str, ...],
) -> None:  # fmt: skip
    arguments = arguments_of(verb, copy("zt-1.2.0"), tmp_path)
    monkeypatch.setattr("sys.stdout", Gone())
    ended = run(*arguments, *more)
    assert (ended.code, ended.err) == (ExitCode.BROKEN_PIPE, "")

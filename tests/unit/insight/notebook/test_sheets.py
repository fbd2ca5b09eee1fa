"""What notebooks are shown: bounded, escaped, readable bare, and made without reading tensors."""

from __future__ import annotations

import dataclasses
import html
import html.parser
import os
import shutil
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
import ztensor.distributed
import ztensor.v2
from tests.counting import CountedFile
from tests.unit.insight.page.test_report import HOSTILE, hostile_model
from ztensor.insight.notebook.makers import MAKERS
from ztensor.numpy import save_file

W = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a file of each kind, made of hostile names and texts."""
    found: Path = tmp_path_factory.mktemp("sheets")
    hostile_model(found / "hostile.zt")
    save_file({"w": W, "z": W + 1}, found / "a.zt", {"format": "np"})
    save_file({"w": W * 2, "b": W}, found / "b.zt", {"format": "pt"})
    tensors = {f"layers.{number}": np.full(99, number, np.float32) for number in range(9)}
    save_file(tensors, found / "set.zt", max_shard_size=1000)
    names = [name for name in HOSTILE if len(name) < 1000]
    ztensor.save_tree({name: {"v": W, "text": name} for name in names}, found / "tree.zt")
    data = bytearray((found / "a.zt").read_bytes())
    data[64] ^= 1
    (found / "damaged.zt").write_bytes(data)
    with ztensor.CheckpointManager(found / "run", keep=None) as manager:
        for step in range(3):
            manager.save(step, {"model": {"w": W}, "step": step}, metrics={"<b>loss": step / 3})
    os.truncate(found / "run" / "step-00000002.zt", 60)
    (found / "divided").mkdir()
    with ztensor.distributed.PartWriter(found / "divided", process=0) as writer:
        writer.add("w", W, shape=(4, 6), offsets=(0, 0))
        record = writer.finish()
    ztensor.distributed.commit(found / "divided", [record])
    return found


def restored(folder: Path) -> Any:
    with ztensor.CheckpointManager(folder / "run", keep=None) as manager:
        return manager.restore()


def verified(folder: Path) -> Any:
    with ztensor.open(folder / "damaged.zt") as reader:
        return reader.verify()


def record(folder: Path) -> Any:
    del folder
    return ztensor.training.Record(
        "<b>module.Class", {"w": W, "<i>note": "x" * 1000, "many": [1] * 1000}
    )


# One of each class that shows itself.
THINGS: dict[str, Callable[[Path], Any]] = {
    "ObjectReader": lambda folder: ztensor.open(folder / "hostile.zt"),
    "ShardedReader": lambda folder: ztensor.open(folder / "set.zt.index.json"),
    "DividedCheckpoint": lambda folder: ztensor.distributed.open_divided(folder / "divided"),
    "safe_open": lambda folder: ztensor.safe_open(folder / "hostile.zt", "np"),
    "HandleSlice": lambda folder: ztensor.safe_open(folder / "a.zt", "np").get_slice("w"),
    "TensorSlice": lambda folder: ztensor.open(folder / "hostile.zt").get_slice(HOSTILE[0]),
    "TensorMetadata": lambda folder: ztensor.open(folder / "hostile.zt").metadata(HOSTILE[0]),
    "Tensor": lambda folder: ztensor.open(folder / "hostile.zt").read(HOSTILE[0]),
    "LazyTree": lambda folder: ztensor.open_tree(folder / "tree.zt"),
    "Record": record,
    "VerifyReport": verified,
    "StatsReport": lambda folder: ztensor.stats(folder / "hostile.zt"),
    "TensorStats": lambda folder: ztensor.stats(folder / "hostile.zt")[HOSTILE[1]],
    "DiffReport": lambda folder: ztensor.diff(folder / "a.zt", folder / "b.zt"),
    "TensorDiff": lambda folder: ztensor.diff(folder / "a.zt", folder / "b.zt").tensors[0],
    "Insight": lambda folder: ztensor.examine(folder / "hostile.zt"),
    "ConversionReport": lambda folder: ztensor.convert(
        folder / "a.zt", folder / "c.safetensors", overwrite=True
    ),
    "Checkpoint": lambda folder: ztensor.CheckpointManager(folder / "run").checkpoints()[2],
    "Restored": restored,
    "CheckpointManager": lambda folder: ztensor.CheckpointManager(folder / "run"),
}


class Bare(html.parser.HTMLParser):
    """Reads a sheet as a browser without styles does, and refuses what must not be in one."""

    ALLOWED: typing.ClassVar = {
        "div": {"class", "style", "role", "tabindex", "aria-label"},
        "p": {"style"},
        "table": {"cellpadding", "style"},
        "th": {"scope", "style"},
        "td": {"align", "style"},
    }
    STYLES = (
        "font-size:13px;line-height:1.45", "margin:0 0 4px", "margin:0", "margin:6px 0 2px",
        "text-align:left", "text-align:left;font-weight:normal", "max-height:24em;overflow:auto",
        "margin:2px 0", "white-space:nowrap", "text-align:left;white-space:nowrap",
    )  # fmt: skip

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("thead", "tbody", "tr", "code", "strong"):
            assert {name for name, _ in attrs} <= self.ALLOWED[tag], tag
            assert dict(attrs).get("style", "margin:0") in self.STYLES
        else:
            assert attrs == []
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(decl)

    def handle_pi(self, data: str) -> None:
        raise AssertionError(data)


def sheet(thing: Any) -> str:
    text: str = thing._repr_html_()
    assert len(text.encode()) < 50_000
    assert text.isprintable()
    return text


def words(thing: Any) -> str:
    return " ".join(Bare(sheet(thing)).words)


def test_every_class_that_is_shown_has_a_case(folder: Path) -> None:
    """`MAKERS` is the table of sheets, by the names of classes."""
    for name in THINGS:
        THINGS[name](folder)  # which loads its class
    assert {name.rpartition(".")[2] for name in MAKERS} == THINGS.keys()


@pytest.mark.parametrize("name", THINGS)
def test_a_sheet_reads_well_bare_and_holds_no_markup_of_a_file(name: str, folder: Path) -> None:
    thing = THINGS[name](folder)
    said = words(thing)
    assert "cannot be shown" not in said
    kind = "Reader" if name == "ObjectReader" else name
    assert kind in said
    assert 'class="ztensor-sheet tex2jax_ignore mathjax_ignore"' in sheet(thing)  # no formulas


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ObjectReader", ["zt 1.2.0", "[96, 64]", "24.6 kB", "\\u202egnp.exe", "<svg onload"]),
        ("ShardedReader", ["layers.0", "[99]", "float32"]),
        ("DividedCheckpoint", ["1 in 1 chunk", "[4, 6]"]),
        ("safe_open", ["framework", "numpy"]),
        ("TensorSlice", ["[96, 64]", "float32", "read when it is indexed"]),
        ("LazyTree", ["float32 [4, 6]", "96 B", "__proto__.text"]),
        ("Record", ["float32 [4, 6]", "list of 1,000", "<b>module.Class"]),
        ("VerifyReport", ["damaged", "digest_mismatch", "1 problem"]),
        ("TensorStats", ["kurtosis", "50%", "█"]),
        ("DiffReport", ["values", "only in a", "'np'", "'pt'"]),
        ("Insight", ["nan", "error", "hostile.zt"]),
        ("ConversionReport", ["read back and compared", "lost", "nothing"]),
        ("Checkpoint", ["damaged:"]),
        ("CheckpointManager", ["3 steps, the newest first", "damaged:", "<b>loss=0"]),
        ("Restored", ["dict of 2", "newer steps that are damaged"]),
    ],
)
def test_a_sheet_says_what_matters(name: str, expected: list[str], folder: Path) -> None:
    said = words(THINGS[name](folder))
    for text in expected:
        assert text in said


@pytest.mark.slow
def test_a_sheet_of_many_says_how_many_are_left_out(tmp_path: Path) -> None:
    few = np.zeros(1, np.float32)
    save_file({f"layers.{number}.w": few for number in range(5000)}, tmp_path / "a.zt")
    save_file({f"{number}" + "&" * 5000: few for number in range(3000)}, tmp_path / "long.zt")
    with ztensor.open(tmp_path / "a.zt") as reader:
        said = words(reader)
        assert "5,000" in said
        assert "layers.1000.w" in said
        assert said.count("layers.") < 1000
        assert f"and {5000 - said.count('layers.'):,} more" in said
    with ztensor.open(tmp_path / "long.zt") as reader:
        assert "more" in words(reader)


def test_nothing_is_read_for_a_sheet(folder: Path) -> None:
    file = CountedFile((folder / "hostile.zt").read_bytes())
    with ztensor.open(file) as reader:
        lazy = reader.get_slice(HOSTILE[0])
        before = file.reads
        for thing in (reader, lazy, reader.metadata(HOSTILE[0])):
            sheet(thing)
        assert file.reads == before
        reader.read(HOSTILE[0])
        assert file.reads > before


def test_sheets_of_closed_and_removed_files(folder: Path, tmp_path: Path) -> None:
    reader, tree = ztensor.open(folder / "a.zt"), ztensor.open_tree(folder / "tree.zt")
    several = ztensor.open(folder / "set.zt.index.json")
    divided = ztensor.distributed.open_divided(folder / "divided")
    for thing in (reader, tree, several, divided):
        thing.close()
        assert "closed; open the file again" in words(thing)
    shutil.copytree(folder / "run", tmp_path / "run")
    manager = ztensor.CheckpointManager(tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    assert "ztensor.CheckpointManager" in words(manager)
    with ztensor.open(folder / "set.zt.index.json") as other:
        assert isinstance(other, ztensor.io.ShardedReader)
        for file in other.files:
            os.rename(file, f"{file}.away")
        try:
            assert "cannot be shown" in words(other)
        finally:
            for file in other.files:
                os.rename(f"{file}.away", file)


def test_a_sheet_is_made_of_any_value() -> None:
    """Values that a file or a caller may give where another is usual."""
    stats = ztensor.insight.TensorStats("w", note="<script>")
    odd = dataclasses.replace(stats, count=10**400, min=float("nan"), max=10**5000)
    for thing in (stats, odd, ztensor.insight.StatsReport(w=odd), ztensor.training.Record("", {})):
        words(thing)
    for tree in (None, [1], {1: object(), None: W}, "x" * 10**6):
        words(ztensor.training.Restored(1, tree, {}))
    words(ztensor.training.Checkpoint(1, "p", 1, 1e300))


# --- What notebooks ask for --------------------------------------------------------------------


def test_keys_are_completed(folder: Path) -> None:
    for name in ztensor.__all__:
        kind: Any = getattr(ztensor, name)
        if {"keys", "__getitem__"} <= set(dir(kind)) and dict not in getattr(kind, "__mro__", ()):
            assert hasattr(kind, "_ipython_key_completions_"), kind
    with ztensor.open(folder / "a.zt") as reader:
        assert reader._ipython_key_completions_() == ["w", "z"]
    with ztensor.open_tree(folder / "tree.zt") as tree:
        assert "__proto__.v" in tree._ipython_key_completions_()
    source = ztensor.v2.open(folder / "b.zt")
    assert source._ipython_key_completions_() == ["b", "w"]
    source.close()
    assert source._ipython_key_completions_() == []
    found = ztensor.training.Record("C", {"x": 1})
    assert found._ipython_key_completions_() == ["x"]


def test_a_shell_shows_and_completes(folder: Path) -> None:
    pytest.importorskip("IPython")
    from IPython.core.completer import IPCompleter, provisionalcompleter
    from IPython.core.formatters import DisplayFormatter

    with ztensor.open(folder / "a.zt") as reader:
        shown, _ = DisplayFormatter().format(reader)
        assert shown["text/html"] == reader._repr_html_()
        assert shown["text/plain"] == repr(reader)
        completer = IPCompleter(namespace={"reader": reader}, use_jedi=False)
        with provisionalcompleter():
            found = {one.text.strip('"[]') for one in completer.completions('reader["', 8)}
        assert found >= {"w", "z"}


@pytest.mark.slow
def test_a_sanitized_notebook_keeps_every_word(folder: Path) -> None:
    pytest.importorskip("nbconvert")
    import nbformat
    from nbconvert.exporters import HTMLExporter

    with ztensor.open(folder / "hostile.zt") as reader:
        text = sheet(reader)
    make = nbformat.v4
    output = make.new_output("execute_result", {"text/html": text})
    cell = make.new_code_cell("reader", outputs=[output])
    book = make.new_notebook(cells=[cell])
    page, _ = HTMLExporter(sanitize_html=True, template_name="basic").from_notebook_node(book)

    class Words(html.parser.HTMLParser):
        found = ""

        def handle_data(self, data: str) -> None:
            self.found += data

    left = Words()
    left.feed(page)
    for word in Bare(text).words:
        assert word in left.found

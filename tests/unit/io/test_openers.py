"""Registries of formats and openers: ours first, then plugins; zTensor files need none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ztensor.numpy import save_file

PLUGIN = '''
"""`.one`: four letters, and one float32."""

from ztensor.io.formats import Format, Projection
from ztensor.spec.encoding import ENCODINGS
from ztensor.spec.model.manifest import Component, Manifest, TensorObject


def project(source, budget):
    data = Component("f32", 4, 4)
    objects = {"one": TensorObject((), "dense", {"data": data})}
    return Projection(Manifest("", objects), {"raw": ENCODINGS["raw"]}, tuple)


ONE = Format(
    "One", (".one",), lambda look: look.head[:4] == b"ONE!", "one_format", is_written=False
)
'''
OPENER = '''
"""Folders `*.box` with a file without a suffix."""

import os

from ztensor.io.contents import open_file


def open_box(given, *, is_missing, **options):
    if is_missing or not os.fspath(given).endswith(".box"):
        return None
    return open_file(os.path.join(given, "inside"), **options)
'''
ENTRIES = "[ztensor.formats]\ntorn = no_such_module:X\none = one_format:ONE\n"
ENTRIES += "[ztensor.openers]\ntorn = no_such_module:X\nbox = box_opener:open_box\n"
TRY = """
import sys
import ztensor
from ztensor.numpy import save_file

assert ztensor.open("ours.zt")["w"][1] == 1
assert not {"ztensor.io.formats", "ztensor.distributed", "importlib.metadata"} & set(sys.modules)
assert ztensor.open("theirs.npz")["w"][1] == 1
assert ztensor.open("folder")["w"][1] == 1
assert not {"one_format", "box_opener"} & set(sys.modules)
with ztensor.open("a.one") as reader:
    assert (reader.format, reader["one"]) == ("one", 2)
    assert reader.verify().outcome == "unchecked"
try:
    save_file({}, "b.one")
except ztensor.errors.ArgumentValueError as error:
    assert "files of One are not written here" in str(error), error
try:
    ztensor.open("nothing.bin")
except ztensor.UnsupportedError as error:
    assert "plugin 'torn' of ztensor.formats, from the distribution 'one-plugin'" in str(error)
save_file({"w": ztensor.open("ours.zt")["w"]}, "other.bin")
assert ztensor.open("other.bin")["w"][1] == 1
assert ztensor.open("a.box")["w"][1] == 1
assert ztensor.open("folder")["w"][1] == 1
try:
    ztensor.open("missing.box")
except FileNotFoundError as error:
    assert "plugin 'torn' of ztensor.openers, from the distribution 'one-plugin'" in error.hint
"""


@pytest.mark.wing
def test_plugins_are_asked_last_and_one_that_is_broken_stops_no_other_file(tmp_path: Path) -> None:
    info = tmp_path / "one_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: one-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    (tmp_path / "one_format.py").write_text(PLUGIN)
    (tmp_path / "a.one").write_bytes(b"ONE!" + np.float32(2).tobytes())
    (tmp_path / "nothing.bin").write_bytes(b"of no format")
    (tmp_path / "box_opener.py").write_text(OPENER)
    for name in ("ours.zt", "theirs.npz", "folder/model.safetensors", "a.box/inside"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        save_file({"w": np.arange(3.0)}, tmp_path / name)
    (tmp_path / "a.box" / "also").write_bytes((tmp_path / "a.box" / "inside").read_bytes())
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", TRY], check=True, cwd=tmp_path, env=environment)

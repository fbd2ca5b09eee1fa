"""The registry of openers: ours first, then plugins; zTensor files need none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ztensor.numpy import save_file

OPENER = '''
"""Folders `*.box` with a file without a suffix."""

import os

from ztensor.io.contents import open_file


def open_box(given, *, is_missing, **options):
    if is_missing or not os.fspath(given).endswith(".box"):
        return None
    return open_file(os.path.join(given, "inside"), **options)
'''
ENTRIES = "[ztensor.openers]\ntorn = no_such_module:X\nbox = box_opener:open_box\n"
TRY = """
import sys
import ztensor

assert ztensor.open("ours.zt")["w"][1] == 1
assert not {"ztensor.io.formats", "ztensor.distributed", "importlib.metadata"} & set(sys.modules)
assert ztensor.open("theirs.npz")["w"][1] == 1
assert ztensor.open("folder")["w"][1] == 1
assert "box_opener" not in sys.modules
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
    (tmp_path / "box_opener.py").write_text(OPENER)
    for name in ("ours.zt", "theirs.npz", "folder/model.safetensors", "a.box/inside"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        save_file({"w": np.arange(3.0)}, tmp_path / name)
    (tmp_path / "a.box" / "also").write_bytes((tmp_path / "a.box" / "inside").read_bytes())
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", TRY], check=True, cwd=tmp_path, env=environment)

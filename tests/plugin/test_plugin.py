"""A distribution with plugins is installed, and used by name alone: `open`, `convert`, the command.

It is made a wheel and installed into a folder of its own, without network; processes that have the
folder on their path have the plugins. `.ci/run` runs this with the slow tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
pytestmark = pytest.mark.slow


def wheel_of(folder: Path, target: Path) -> Path:
    """Build the wheel that a build backend makes of a folder of modules."""
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    name, version = project["name"].replace("-", "_"), project["version"]
    info = f"{name}-{version}.dist-info"
    groups = [
        f"[{group}]\n" + "".join(f"{key} = {place}\n" for key, place in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    texts = {path.name: path.read_text("utf-8") for path in folder.glob("shelf_*.py")}
    texts[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n"
    )
    texts[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    texts[f"{info}/entry_points.txt"] = "\n".join(groups)
    texts[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in [*texts, f"{info}/RECORD"])
    path = target / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in texts.items():
            archive.writestr(file, text)
    return path


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of a process that has the plugins."""
    folder = tmp_path_factory.mktemp("plugin")
    install = [sys.executable, "-m", "pip", "--quiet", "install", "--no-index", "--no-deps"]
    wheel = wheel_of(HERE, folder)
    subprocess.run([*install, "--target", str(folder / "site"), str(wheel)], check=True)
    path = os.pathsep.join([str(folder / "site"), *filter(None, sys.path)])
    return {**os.environ, "PYTHONPATH": path}


def python(text: str, folder: Path, environment: dict[str, str]) -> None:
    """Run a program in a folder."""
    subprocess.run(
        [sys.executable, "-c", text], check=True, cwd=folder, env={**environment, "SHELF": "."}
    )


def ztensor(
    *words: str, folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "ztensor", *words],
        cwd=folder,
        env={**environment, "SHELF": "."},
        capture_output=True,
        text=True,
        check=False,
    )


ALL_FOUR = """
import sys
import numpy as np
import ztensor
from ztensor.numpy import load_file, save_file

w = np.arange(600, dtype=np.float32)
save_file({"w": w}, "plain.zt")
assert not [name for name in sys.modules if name.startswith("shelf")]

save_file({"w": w}, "turned.zt", compression="shelf.turned/1")
assert w.tobytes() not in open("turned.zt", "rb").read()
assert np.array_equal(load_file("turned.zt")["w"], w)
with ztensor.open("shelf://turned.zt") as reader:
    assert reader.name == "shelf://turned.zt"
    assert np.array_equal(reader.get_slice("w")[3:5], w[3:5])
    assert not reader.verify().problems

save_file({"w": w}, "w.lines")
with ztensor.open("w.lines") as reader:
    assert reader.format == "lines"
    assert np.array_equal(reader["array"], w)
ztensor.convert("turned.zt", "again.lines")
assert open("again.lines", "rb").read() == open("w.lines", "rb").read()
ztensor.convert("shelf://w.lines", "back.zt", compression="shelf.turned/1")
assert np.array_equal(load_file("back.zt")["array"], w)
"""


def test_all_four_kinds_work_by_their_names(installed: dict[str, str], tmp_path: Path) -> None:
    python(ALL_FOUR, tmp_path, installed)
    counted = ztensor("count", "turned.zt", folder=tmp_path, environment=installed)
    assert (counted.returncode, counted.stdout) == (0, "1 objects\n")
    as_json = ztensor("count", "--json", "w.lines", folder=tmp_path, environment=installed)
    assert json.loads(as_json.stdout)["count"] == 1
    overview = ztensor("help", folder=tmp_path, environment=installed)
    assert "count        Count the objects of a file." in overview.stdout
    words = ["convert", "shelf://turned.zt", "out.lines"]
    assert not ztensor(*words, folder=tmp_path, environment=installed).returncode
    assert ztensor("verify", "out.lines", folder=tmp_path, environment=installed).returncode == 0


def test_a_shell_completes_its_verb(installed: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("argcomplete", reason="pip install argcomplete")
    line, answer = "ztensor cou", tmp_path / "answer"
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    asked |= {"_ARGCOMPLETE_STDOUT_FILENAME": str(answer)}
    ended = ztensor(folder=tmp_path, environment={**installed, **asked})
    assert (ended.stdout, answer.read_text().split()) == ("", ["count"])


def test_a_broken_plugin_is_named_and_stops_nothing_else(
    installed: dict[str, str], tmp_path: Path
) -> None:
    text = """
import io
import numpy as np
import ztensor
from ztensor.ext import ENCODINGS
from ztensor.numpy import save_file

assert "shelf.torn/1" not in ENCODINGS
try:
    save_file({"w": np.arange(3)}, "w.zt", compression="shelf.torn/1")
except ztensor.ZTensorError as error:
    print(type(error).__name__)
try:
    ENCODINGS["shelf.torn/1"]
except ztensor.UnsupportedError as error:
    assert "shelf.torn/1" in str(error)
    assert "ztensor-shelf" in str(error)
    assert "GONE" in str(error)
else:
    raise AssertionError
try:
    ztensor.open("torn://w.zt")
except ztensor.UnsupportedError as error:
    assert "ztensor-shelf" in str(error)
save_file({"w": np.arange(3)}, "w.zt")
assert ztensor.open("w.zt")["w"].tolist() == [0, 1, 2]
"""
    python(text, tmp_path, installed)
    ended = ztensor("torn", "w.zt", folder=tmp_path, environment=installed)
    assert ended.returncode != 0
    assert "ztensor-shelf" in ended.stderr
    assert "no_such_module_of_shelf" in ended.stderr
    assert "Traceback" not in ended.stderr

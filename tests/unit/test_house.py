"""`tools/house.py` counts a tree as it says, and fails where a committed figure is exceeded."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tools import house

FILES = {
    "src/ztensor/__init__.py": '"""Forward."""\nfrom ztensor.formats.npz import load\n',
    "src/ztensor/spec/cbor.py": '"""Parse.\n\nMore.\n"""\n\nA = 1  # one\n# two\n',
    "src/ztensor/io/opening.py": (
        "from typing import TYPE_CHECKING\n"
        "from ..spec import cbor\n"
        "if TYPE_CHECKING:\n"
        "    from ztensor.formats import npz\n"
        "TABLE = {'npz': 'ztensor.formats.npz:load'}\n"
        "def open(x):\n"
        '    """Open."""\n'
        "    import ztensor.errors\n"
        "    return x._hidden\n"
    ),
    "src/ztensor/formats/npz.py": (
        "from ztensor.spec.cbor import A\n"
        "from ztensor.spec.cbor import B\n"
        "from ztensor.remote import urls\n"
        "from ztensor.errors import Error\n"
        "def load():\n" + "    pass\n" * 60
    ),
    "src/ztensor/remote/urls.py": "",
    "src/ztensor/ext.py": '__all__ = ["Limits", "Source"]\n',
    "src/ztensor/page/page.css": "a {}\n",
    "tests/test_x.py": (
        "from ztensor import open\n"
        "from ztensor.io import opening\n"
        "def test(monkeypatch):\n"
        "    monkeypatch.setattr(opening, 'open', None)\n"
    ),
}
EXPECTED = {
    "lines": 2 + 7 + 9 + 65 + 1, "code": 1 + 1 + 8 + 65 + 1, "page": 1, "core": 1 + 1 + 8 + 1,
    "sans_io": 1, "core_to_wing": 1, "wing_to_core": 2, "wing_to_wing": 1, "ext": 2, "files": 6,
    "over_500": 0, "over_60": 1, "private": 1, "type_checking": 1, "local_imports": 1,
    "string_modules": 1, "test_lines": 4, "patches": 1, "test_internals": 1,
}  # fmt: skip


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "src" / "ztensor"


def test_each_figure_is_counted(package: Path) -> None:
    figures, _ = house.measure_tree(package)
    assert dict(figures) == EXPECTED


def test_the_committed_figures_are_all_figures() -> None:
    assert tuple(json.loads(house.COMMITTED.read_text())) == house.FIGURES


@pytest.mark.parametrize(("change", "status"), [(0, 0), (1, 0), (-1, 1)])
def test_a_figure_above_the_committed_one_fails(package: Path, change: int, status: int) -> None:
    committed = package / "house.json"
    committed.write_text(json.dumps(EXPECTED | {"code": EXPECTED["code"] + change}))
    assert house.main([str(package), "--committed", str(committed)]) == status


@pytest.mark.slow
def test_new_processes_are_measured() -> None:
    figures = house.measure_process(sys.executable)
    assert figures.keys() == {"open_modules", "open_ms", "ls_ms"}
    assert figures["open_modules"] > 0

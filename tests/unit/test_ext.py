"""The extension interface: small, documented, and loaded name by name."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import pytest

import ztensor.ext

MOST_NAMES = 70


def test_it_is_small_and_shows_what_it_has() -> None:
    names = ztensor.ext.__all__
    assert len(set(names)) == len(names) <= MOST_NAMES
    assert sorted(names) == dir(ztensor.ext)


@pytest.mark.parametrize("name", ztensor.ext.__all__)
def test_each_name_is_there_and_documented(name: str) -> None:
    thing: Any = getattr(ztensor.ext, name)
    if inspect.isclass(thing) or inspect.isfunction(thing):
        assert inspect.getdoc(thing)


def test_other_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match=r"module 'ztensor\.ext' has no attribute 'Sources'"):
        ztensor.ext.Sources  # type: ignore[attr-defined]  # noqa: B018


def test_a_name_loads_its_own_module_and_no_other_part() -> None:
    program = (
        "import sys, ztensor.ext\n"
        "assert 'numpy' not in sys.modules\n"
        "from ztensor.ext import TensorObject\n"
        "print(*sorted(n for n in sys.modules if n.startswith('ztensor.')))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    loaded = run.stdout.split()
    assert "ztensor.spec.model.manifest" in loaded
    assert not [name for name in loaded if name.startswith(("ztensor.io", "ztensor.formats"))]

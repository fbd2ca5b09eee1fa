"""Every file of the corpora, valid or not, loaded completely: a result or an error of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

import ztensor
from ztensor.numpy import load_file

FOLDERS = [Path(__file__).parent, Path(__file__).parents[1] / "corpus2"]
LIMITS = ztensor.Limits(decoded_bytes=1 << 28)  # one file is a bomb that expands to far more
FILES = [path for folder in FOLDERS for path in sorted(folder.rglob("*.zt"))]


def test_there_are_files() -> None:
    assert len(FILES) > 200


@pytest.mark.parametrize("copy", [False, True], ids=["views", "own memory"])
def test_loads_of_all_files_end_in_our_family(copy: bool) -> None:
    for path in FILES:
        try:
            load_file(path, copy=copy, verify=True, limits=LIMITS)
        except ztensor.ZTensorError:
            pass
        except Exception as error:
            raise AssertionError(f"{path.name} raises {error!r}") from error

"""Every worst shape of every format: its memory and time, wide texts, what a refusal leaves."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import ztensor
from tests.attacks.peaks import peak_of
from tests.attacks.shapes import FORMATS, SHAPES, load, write
from tests.extent import IS_FULL, amount
from ztensor.limits import Limits

KINDS = list(load())


# --- Memory and time --------------------------------------------------------------------------

# Several formats in a process, since each imports every library.
TOGETHER = 1 if IS_FULL else 6
BUDGET = Path(__file__).with_name("budget.py")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="each file is opened in a process of its own")
@pytest.mark.parametrize(
    "kinds",
    [KINDS[first : first + TOGETHER] for first in range(0, len(KINDS), TOGETHER)],
    ids=", ".join,
)
def test_no_format_costs_more_than_its_budget(kinds: list[str]) -> None:
    """Attack: files of each format that take far more memory or time than their length.

    `make suite SUITE=budget` in short: some small files of each format, under a low floor.
    """
    assert all(SHAPES[kind] for kind in kinds), "a format without a shape is not measured"
    done = subprocess.run(
        [sys.executable, str(BUDGET), "--quick", *([] if IS_FULL else ["--most", "5"]), *kinds],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr


# --- Texts in which few characters take more than a byte: all then take two or four ------------

LENGTH = 128 << 10
# Held once: buffers of files that are read in pages, tables of words, steps of columns.
ONCE = 144 << 10
WIDE = [
    (kind, name)
    for kind, shapes in SHAPES.items()
    for name in shapes
    if "wide" in name and "numbers" not in name
]


@pytest.mark.parametrize(("kind", "name"), WIDE, ids=map(" ".join, WIDE))
def test_a_wide_text_stays_in_the_budget(kind: str, name: str, tmp_path: Path) -> None:
    """Attack: one wide character makes a text four bytes for each of the file, six for a moment."""
    if kind in ("hdf5", "keras"):
        pytest.importorskip("h5py")
    path, length = write(kind, SHAPES[kind][name], LENGTH, tmp_path)

    def listed(limits: Limits) -> None:
        with ztensor.open(path, limits=limits) as reader:
            for one in reader:
                reader.metadata(one)

    peak_of(lambda: listed(Limits()))  # lazy imports are not the file's cost
    # The budget ends at each of the steps in which such a text is read.
    for quarters in range(0, 48, 3):
        limits = Limits(cost_floor=quarters * length // 4)
        peak, _ = peak_of(lambda limits=limits: listed(limits))  # type: ignore[misc]
        assert peak <= limits.cost_floor + limits.cost_factor * length + ONCE


# --- The memory of a refused file is freed with the error, without the collector ---------------


@pytest.fixture
def only_what_is_new() -> Iterator[None]:
    """Let a collection look at the objects of the test only: frameworks have a million others.

    Nothing is thawed behind it, since `conftest.py` froze what lives as long as the process.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def circles_of(path: Path, *, recover: bool) -> list[object]:
    """Return the objects of ours that a refused file leaves to the collector."""
    gc.collect()
    gc.freeze()  # what made the file is not asked about
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        was_refused = True
        with contextlib.suppress(ztensor.ZTensorError):
            ztensor.open(path, recover=recover).close()
            was_refused = False
        gc.collect()
        return [
            one
            for one in gc.garbage
            if was_refused
            and (type(one).__module__.startswith("ztensor") or isinstance(one, types.FrameType))
        ]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


@pytest.mark.slow
@pytest.mark.usefixtures("only_what_is_new")
@pytest.mark.parametrize("kind", KINDS)
def test_no_reference_cycle_keeps_a_refused_file(tmp_path: Path, kind: str) -> None:
    """Attack: one refused file after another, each kept in memory by a circle of its reader."""
    for shape, make in SHAPES[kind].items():
        path, _ = write(kind, make, amount(10, full=40) << 10, tmp_path)
        for again in (False, True) if FORMATS[kind].recover else (False,):
            kept = circles_of(path, recover=again)
            assert kept == [], f"{kind}, {shape}: {[type(one).__name__ for one in kept]}"

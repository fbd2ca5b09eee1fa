"""The field `frames`: its offset table is the one of the frame headers, or it is not used."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import ztensor
import ztensor.numpy as znumpy
from ztensor.errors import Reason
from ztensor.spec.encoding import base

LENGTHS = np.array([5, 6, 7], "<u4").tobytes()
RANDOM = np.random.default_rng(0)


def field_of(path: Path, name: str = "w") -> tuple[Any, Any]:
    with ztensor.open(path) as reader:
        component = reader.objects.part(name).object(name).components["data"]
        return component, (component.extra or {}).get(base.FRAME_FIELD)


SHAPES = [(1000, 1024), (40, 25_000), (900_000,), (3, 300_000), (1, 900_000)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("chunk_rows", [None, 300])
def test_the_listed_frames_are_those_of_the_headers(
    tmp_path: Path, shape: tuple[int, ...], chunk_rows: int | None
) -> None:
    array = RANDOM.integers(0, 1000, shape).astype(np.int32)
    with ztensor.Writer(tmp_path / "m.zt", compression=True, chunk_rows=chunk_rows) as writer:
        writer.write("w", array)
    component, field = field_of(tmp_path / "m.zt")
    with ztensor.open(tmp_path / "m.zt") as reader:
        found = reader.objects.part("w")
        stored = found.stored(component).stored()
        walked = found.encodings["zstd"].require_length(stored, array.nbytes, found.limits)
    assert walked is not None
    count = len(walked.stored) - 1
    if component.length < 1 << 20 or count < 2 or (shape == (900_000,) and chunk_rows):
        assert field is None
        return
    listed = base.runs_of_field(field, component.length, array.nbytes)
    assert listed is not None
    assert set(listed.stored) <= {*walked.stored}
    pairs = dict(zip(walked.stored, walked.decoded, strict=True))
    assert [pairs[place] for place in listed.stored] == list(listed.decoded)


def test_a_small_component_has_none(tmp_path: Path) -> None:
    znumpy.save_file({"w": np.zeros((100, 100))}, tmp_path / "m.zt", compression=True)
    assert field_of(tmp_path / "m.zt")[1] is None
    assert base.listed_frames(10, 10, [5] * 10) is None


@pytest.mark.parametrize(
    ("lengths", "is_listed"),
    [
        ([1 << 20, 1 << 10], True),
        ([1 << 20], False),  # one frame begins where the component does
        ([1 << 10] * 1024, True),
        ([1 << 10] * 1023 + [1023], False),  # below 1 MiB, it is read at once
        ([1 << 10] * 2000 + [1023], False),  # so short that the field would be long
        ([1 << 10] * 2000 + [1025], True),
    ],
)  # fmt: skip
def test_frames_are_listed_where_that_saves_requests(lengths: list[int], is_listed: bool) -> None:
    found = base.listed_frames(1 << 22, 1 << 12, lengths)
    packed = np.array(lengths, "<u4").tobytes()
    assert found == ({base.FRAME_FIELD: [1 << 22, 1 << 12, packed]} if is_listed else None)


def test_a_field_gives_the_runs_of_its_frames() -> None:
    runs = base.runs_of_field([1 << 14, 1 << 14, LENGTHS], 18, (1 << 15) + 1)
    assert runs is not None
    assert list(runs.stored) == [0, 5, 11, 18]
    assert list(runs.decoded) == [0, 1 << 14, 1 << 15, (1 << 15) + 1]


@pytest.mark.parametrize(("piece", "step"), [(4096, 1), (4095, 2), (2048, 2), (1000, 5)])
def test_short_frames_are_entered_together(piece: int, step: int) -> None:
    lengths = np.full(10, 7, "<u4").tobytes()
    found = base.runs_of_field([piece, piece, lengths], 70, 10 * piece)
    assert found is not None
    ends = [*range(step, 10, step), 10]
    assert list(found.stored) == [0, *(7 * end for end in ends)]
    assert list(found.decoded) == [0, *(piece * end for end in ends)]


BROKEN: list[Any] = [
    None,
    5,
    [],
    [10, 10],
    [10, 10, "5"],
    [10, 10, b""],
    [10, 0, LENGTHS],
    [10, 20, LENGTHS],
    [-1, -1, LENGTHS],
    [10, 10, LENGTHS[:-1]],
    [10, 10, LENGTHS[:-4]],
    [1 << 70, 1, LENGTHS],
    [10, 10, np.array([5, 13, 0], "<u4").tobytes()],
    [10, 10, np.array([5, 6, 8], "<u4").tobytes()],
    [30, 10, np.array([1 << 31, 1 << 31, 18], "<u4").tobytes()],
]


@pytest.mark.parametrize("field", BROKEN)
def test_an_impossible_field_is_not_used(field: Any) -> None:
    assert base.runs_of_field(field, 18, 30) is None


def test_verify_finds_a_wrong_field(tmp_path: Path) -> None:
    array = RANDOM.integers(0, 1000, (1000, 1024)).astype(np.int32)
    znumpy.save_file({"w": array}, tmp_path / "m.zt", compression=True)
    with ztensor.open(tmp_path / "m.zt") as reader:
        assert reader.verify().ok
        component = reader.objects.part("w").object("w").components["data"]
        assert component.extra is not None
        period, piece, lengths = cast("list[Any]", component.extra[base.FRAME_FIELD])
        numbers = np.frombuffer(lengths, "<u4").copy()
        numbers[:2] += np.array([1, -1]).astype("<u4")
        component.extra[base.FRAME_FIELD] = [period, piece, numbers.tobytes()]  # type: ignore[index]
        report = reader.verify()
    assert [problem.reason for problem in report.problems] == [Reason.FIELD_VALUE]
    assert "frames" in report.problems[0].message

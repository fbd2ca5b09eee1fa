"""The text of an index: read the same in the form that writers give it and in any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.refusals import refused
from ztensor.errors import FormatError, LimitError, Reason
from ztensor.io.shards.index import parse_index, read_index
from ztensor.limits import Limits

MAP = {"a": "1.zt", "b": "2.zt", "c": "1.zt"}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"metadata": {"total_size": 7}, "weight_map": MAP}, indent=2),
        json.dumps({"weight_map": MAP, "metadata": {"total_size": 7}}),
        '{"metadata": {"total_size": 7}, "weight_map": {"\\u0061": "1.zt", "b": "2.zt", '
        '"c": "1.zt"}}',
        json.dumps({"x": '"weight_map"', "weight_map": MAP, "metadata": {"total_size": 7}}),
    ],
)
def test_an_index_in_any_form(text: str) -> None:
    found = parse_index(text.encode())
    assert found["weight_map"] == MAP
    assert found["metadata"] == {"total_size": 7}
    assert list(found["weight_map"]) == list(MAP)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"weight_map": {"a": "1.zt", "c": "1.zt", "c": "2.zt", "b": "1.zt"}}', "c"),
        ('{"weight_map": {"a": "1.zt", "c": "1.zt", "b": "1.zt", "c": "1.zt"}}', "c"),
        ('{"x": 1, "y": 1, "y": 2, "weight_map": {"a": "1.zt"}}', "y"),
        ('{"weight_map": {"a": "1.zt"}, "metadata": {"m": 1, "n": 1, "n": 1}}', "n"),
        ('{"metadata": {}, "weight_map": {}, "weight_map": {}}', "weight_map"),
    ],
)
def test_the_name_that_comes_twice_is_told(text: str, name: str) -> None:
    with refused(FormatError, Reason.DUPLICATE_NAME) as caught:
        parse_index(text.encode())
    assert str(caught.value.found).strip("'\"") == name


@pytest.mark.parametrize(
    "text",
    [
        '{"weight_map": {"a": "1.zt"}',
        '{"weight_map": {"a": "1.zt",}}',
        '{"weight_map": {"a": "1.zt"',
        '{"weight_map": {"a": "1.zt" "b": "1.zt"}}',
        '{"weight_map": {"a": "1.zt"}} x',
        '{"weight_map": {"a": 1}}',
        '{"weight_map": []}',
        '{"metadata": []}',
        '{"metadata": [1], "weight_map": {}}',
        "[]",
        "",
    ],
)
def test_what_is_no_index(text: str) -> None:
    with refused(FormatError, Reason.SHARD_INDEX):
        parse_index(text.encode())


def test_an_index_is_charged(tmp_path: Path) -> None:
    text = json.dumps({"weight_map": {f"{number}": "1.zt" for number in range(1000)}})
    assert len(parse_index(text.encode())["weight_map"]) == 1000
    with refused(LimitError, Reason.LIMIT_COST):
        parse_index(text.encode(), Limits(cost_floor=0, cost_factor=2))
    path = tmp_path / "m.zt.index.json"
    path.write_text(text)
    (tmp_path / "1.zt").touch()
    for more in (0, 1):
        found: Any = read_index(str(path), Limits(index_bytes=len(text) + more))
        assert len(found.weight_map) == 1000
    with pytest.raises(LimitError):
        read_index(str(path), Limits(index_bytes=len(text) - 1))

"""The text of an index: read the same in the form that writers give it and in any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.refusals import refused
from ztensor import Limits
from ztensor.errors import LimitError, Reason
from ztensor.io.shards.index import parse_index, read_index

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

"""JSON headers and indexes that become far more than they are, and indexes that name nothing."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

import ztensor
from tests.attacks.peaks import calls_of
from tests.attacks.shapes.texts import ENTRY, VALUES, header, numbered, repeated
from tests.refusals import refused
from tests.tracing import traced
from ztensor.errors import LimitError, Reason, SourceError, describe
from ztensor.io.shards import index
from ztensor.limits import Budget, Limits

TIGHT = Limits(cost_floor=64 << 10)
NO_LIMIT = Limits(cost_floor=1 << 40)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_the_values_of_json_are_charged(value: str) -> None:
    """Attack: short values of JSON that take up to forty times their bytes."""
    for text in (
        f"[{repeated(20_000, value)}]",
        "{%s}" % numbered(20_000, '"%%x":%s' % value.replace("%", "%%")),
    ):
        budget = Budget(NO_LIMIT, 0)
        budget.charge_json(text.encode())
        charged = (1 << 40) - budget.bytes_left
        with traced() as memory:
            json.loads(text, object_pairs_hook=dict)
            peak = memory()[1]
        assert peak <= charged


def test_json_within_a_text_is_charged_as_a_text() -> None:
    """What trainers put into metadata is a megabyte of JSON as one text."""
    inner = json.dumps(json.dumps({f"tag {i}": [i] for i in range(2000)})).encode()
    budget = Budget(Limits(cost_floor=0), len(inner))
    budget.charge_json(inner)
    assert budget.bytes_left >= 0


@pytest.mark.parametrize("text", ['"' + '\\"' * 500_000, '"' * 1_000_001, "\\" * 1_000_000])
def test_quotes_without_an_end_are_looked_through_once(text: str) -> None:
    """Attack: a text without an end, looked for from each of its quotes: hours for a megabyte."""
    data = text.encode() + b"[" * 1000
    budget = Budget(Limits(cost_floor=0, cost_factor=2), len(data))
    with contextlib.suppress(LimitError):
        budget.charge_json(data)
    assert budget.bytes_left < 2 * len(data)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_fields_that_are_thrown_away_cost_too(value: str) -> None:
    """Attack: 8 MB of unknown fields of a header took 300 MiB."""
    data = header('{"a":{%s,"x":[%s]}}' % (ENTRY, repeated(100_000, value)))
    with refused(LimitError, Reason.LIMIT_COST):
        ztensor.open(data, limits=TIGHT)


def test_an_index_of_missing_shards_looks_for_each_once(tmp_path: Path) -> None:
    """Attack: 60,000 names of shards that are not there took 20 s, four times as many 16 times."""
    place = tmp_path / "model.safetensors.index.json"

    def refuse() -> None:
        with refused(SourceError, Reason.SOURCE_NOT_FOUND):
            ztensor.open(place)

    costs = []
    for count in (5_000, 5_000, 20_000):  # the first imports the lazy modules
        names = {f"t{i}": f"f{i}.safetensors" for i in range(count)}
        place.write_text(json.dumps({"weight_map": names}))
        costs.append(calls_of(refuse) / count)
    assert costs[2] < 1.5 * costs[1]


@pytest.mark.slow
def test_an_index_is_read_lean(tmp_path: Path) -> None:
    """The largest real indexes have 20 MB: they must fit into four times their length."""
    file = "model-%05d-of-00163.safetensors"
    entries = {
        f"model.layers.{i // 800}.mlp.experts.{i % 800}.down_proj.weight": file % (i // 1000 + 1)
        for i in range(20_000)
    }
    text = json.dumps({"metadata": {"total_size": 1}, "weight_map": entries}, indent=2)
    limits = Limits(cost_floor=4 << 20)
    assert index.parse_index(text.encode(), limits) == json.loads(text)
    with traced() as memory:
        index.parse_index(text.encode(), limits)
        peak = memory()[1]
    assert peak <= 4 * len(text) + (2 << 20)


def test_a_long_value_is_cut_before_it_is_spelled_out() -> None:
    """Attack: the text of a shape of a million dimensions took six times its memory."""
    value = [[0] * 200_000] * 3
    assert describe(value).startswith("[[0, 0, 0")
    with traced() as memory:
        describe(value)
        assert memory()[1] < 200_000
    assert describe((1, "a", {"b": [2.5]})) == "(1, 'a', {'b': [2.5]})"

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.insight.page.packing import front_coded, packed
from ztensor.numpy import save_file

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(5)


def unpacked(block: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(block, validate=True)))


@pytest.mark.parametrize(
    "names",
    [
        [],
        [""],
        ["a", "a.b", "a.b", "a.c", "b"],
        ["\U0001f600x", "\U0001f600y", "\U0001f601"],
        ["same" * 100] * 3,
    ],
)
def test_front_coded_names_come_back_as_scripts_count_letters(names: list[str]) -> None:
    shared, rest = front_coded(names)
    again, before = [], ""
    for count, piece in zip(shared, rest.split("\n"), strict=False):
        units = before.encode("utf-16-le")[: 2 * count]
        before = units.decode("utf-16-le") + piece
        again.append(before)
    assert again == names


@pytest.fixture(scope="module")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path: Path = tmp_path_factory.mktemp("packing") / "m.zt"
    tensors = {f"layers.{i}.w": RNG.standard_normal((34, 66)) for i in range(39)}
    tensors["nan"] = np.full((64, 64), np.nan)
    save_file(tensors, path)
    document = ztensor.examine(path).as_json()
    # The same 25 times, further apart than what gzip remembers.
    (model,) = document["models"]
    columns, count = model["tensors"], model["object_count"]
    tables = {"shapes", "types", "layouts", "encodings", "digests"}
    model["tensors"] = {
        name: column if name in tables else column * 25 for name, column in columns.items()
    }
    model["tensors"]["name"] = [f"{i // count}.{columns['name'][i % count]}" for i in range(1000)]
    model["detail"] = {str(i): model["detail"][str(i % count)] for i in range(1000)}
    model["object_count"] = 1000
    return document


def size_of(blocks: tuple[str, dict[str, str]]) -> int:
    return len(blocks[0]) + sum(map(len, blocks[1].values()))


def test_a_thousand_matrices_are_under_3_mb_in_full(thousand: dict[str, Any]) -> None:
    main, details = packed(thousand)
    assert size_of((main, details)) < 2_600_000
    first = unpacked(main)
    assert first["left_out"] == []
    kept = {place: one for block in details.values() for place, one in unpacked(block).items()}
    assert len(kept) == 1000
    assert kept["3"]["heat"]["shape"] == [32, 64]
    assert set(details) == {f"detail-0-{n}" for n in range(4)}


@pytest.mark.parametrize("base", [1_300_000, 250_000])
def test_details_over_the_budget_are_left_out_and_listed(
    thousand: dict[str, Any], base: int
) -> None:
    blocks = packed(thousand, base)
    assert size_of(blocks) < base - 90_000 + 20_000  # without the page's own text
    left_out = unpacked(blocks[0])["left_out"]
    assert left_out
    assert all(one["count"] > 0 and one["what"] and one["why"] for one in left_out)
    kept = {place for block in blocks[1].values() for place in unpacked(block)}
    lost = sum(one["count"] for one in left_out if one["what"] == "details of tensors")
    assert len(kept) == 1000 - lost
    if kept:
        place = thousand["models"][0]["tensors"]["name"].index("0.nan")
        assert str(place) in kept  # tensors with findings are dropped last

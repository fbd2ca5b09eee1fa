"""The text of an index: read the same in the form that writers give it and in any other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ztensor.errors import FormatError, LimitError, Reason
from ztensor.limits import Limits
from ztensor.sharded.index import FileSet, parse_index, read_index, some_of, state_of
from ztensor.source.reference import Remote

if TYPE_CHECKING:
    from pathlib import Path

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
    found = parse_index(text)
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
    with pytest.raises(FormatError) as caught:
        parse_index(text)
    assert caught.value.reason is Reason.DUPLICATE_NAME
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
    with pytest.raises(FormatError) as caught:
        parse_index(text)
    assert caught.value.reason is Reason.SHARD_INDEX


def test_a_map_of_another_name_is_none() -> None:
    """A name that is written with escapes, and one that only ends as that of the map does."""
    text = '{"weight\\u005fmap": {"b": "2.zt"}, "x\\"weight_map": {"a": "1.zt"}}'
    assert parse_index(text)["weight_map"] == {"b": "2.zt"}


def test_an_index_as_writers_give_it_takes_little_memory() -> None:
    """Less than half of what JSON of its length may take, however many objects are in a file."""
    weight_map = {
        f"model.layers.{number}.weight": f"model-{number % 3:05d}-of-00003.zt"
        for number in range(1000)
    }
    for metadata in ({}, {"metadata": {"total_size": 7}}):
        for indent in (None, 2):
            text = json.dumps({**metadata, "weight_map": weight_map}, indent=indent)
            limits = Limits(cost_floor=10 * len(text), cost_factor=0)
            assert parse_index(text, limits)["weight_map"] == weight_map


@pytest.mark.parametrize("metadata", ["null", "{}"])
def test_metadata_may_be_empty(metadata: str) -> None:
    text = f'{{"metadata": {metadata}, "weight_map": {{"a": "1.zt"}}}}'
    assert parse_index(text)["weight_map"] == {"a": "1.zt"}


def test_an_index_is_charged(tmp_path: Path) -> None:
    text = json.dumps({"weight_map": {f"{number}": "1.zt" for number in range(1000)}})
    assert len(parse_index(text)["weight_map"]) == 1000
    with pytest.raises(LimitError) as caught:
        parse_index(text, Limits(cost_floor=0, cost_factor=2))
    assert caught.value.reason is Reason.LIMIT_COST
    path = tmp_path / "m.zt.index.json"
    path.write_text(text)
    (tmp_path / "1.zt").touch()
    for more in (0, 1):
        found: Any = read_index(str(path), Limits(index_bytes=len(text) + more))
        assert len(found.weight_map) == 1000
    with pytest.raises(LimitError):
        read_index(str(path), Limits(index_bytes=len(text) - 1))


@pytest.mark.parametrize(
    ("name", "is_beneath"),
    [
        ("1.zt", True),
        ("./1.zt", True),
        ("sub/1.zt", True),
        ("sub/./1.zt", True),
        ("", False),
        ("../1.zt", False),
        ("sub/../1.zt", False),
        (".hidden", False),
        ("sub/.hidden/1.zt", False),
        ("sub\\.hidden", False),
        ("/1.zt", False),
        ("c:1.zt", False),
        ("\\1.zt", False),
        ("1\0.zt", False),
        ("\ud800.zt", False),
    ],
)
def test_a_shard_lies_beneath_the_index(tmp_path: Path, name: str, is_beneath: bool) -> None:
    (tmp_path / "sub").mkdir()
    for place in ("1.zt", "sub/1.zt", ".hidden"):
        (tmp_path / place).touch()
    path = tmp_path / "m.zt.index.json"
    path.write_text(json.dumps({"weight_map": {"a": name}}))
    if is_beneath:
        found = read_index(str(path)).weight_map or {}
        assert [str(tmp_path / name).replace("/./", "/")] == [
            one.replace("/./", "/") for one in found.values()
        ]
        return
    with pytest.raises(FormatError) as caught:
        read_index(str(path))
    assert caught.value.reason is Reason.SHARD_INDEX


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, "'0'"),
        (3, "'0', '1', '2'"),
        (4, "'0', '1', '2' and 1 more"),
        (9, "'0', '1', '2' and 6 more"),
    ],
)
def test_some_of_many_names(count: int, expected: str) -> None:
    assert some_of([str(number) for number in range(count)]) == expected


def test_the_state_of_a_file_changes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "f"
    assert state_of(None) is None
    assert state_of(str(path)) is None
    path.write_bytes(b"one")
    before = state_of(str(path))
    assert before == state_of(str(path))
    path.write_bytes(b"longer")
    assert before != state_of(str(path))


@pytest.mark.parametrize(
    ("name", "index", "is_remote", "expected"),
    [
        ("s3://b/x/", None, True, True),
        ("s3://b/x/", "s3://b/x/m.zt.index.json", True, False),
        ("s3://b/x/m-00001-of-00002.gguf", None, True, False),
        ("x/", None, False, False),
    ],
)
def test_a_folder_of_a_store_without_an_index_is_a_prefix(
    name: str, index: str | None, is_remote: bool, expected: bool
) -> None:
    remotes = {"s3://b/x/1.zt": Remote("s3://b/x/1.zt")} if is_remote else {}
    found = FileSet(name, tuple(remotes), remotes=remotes, index=index)
    assert found.is_prefix is expected

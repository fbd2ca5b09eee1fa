"""The suffix decides the format of saved dicts; misleading suffixes are refused."""

from __future__ import annotations

import functools
import io
import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    NotRepresentableError,
)
from ztensor.ext import FORMATS
from ztensor.numpy import load_file, save_file

FOREIGN = [
    (kind, suffix)
    for kind, all_of in FORMATS.written().items()
    if kind != "zt"
    for suffix in all_of
]
TENSORS: dict[str, Any] = {
    "a.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "b": np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3)),
    "h": np.arange(4).astype(np.float16),
}
LYING = [s for each in FORMATS.values() if not each.is_written for s in each.suffixes]


def chosen(kind: str) -> dict[str, Any]:
    return {"array": TENSORS["a.weight"]} if kind == "npy" else TENSORS


@pytest.mark.parametrize(("kind", "suffix"), FOREIGN)
def test_the_suffix_is_obeyed(tmp_path: Path, kind: str, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    assert save_file(chosen(kind), path) == {}
    with ztensor.open(path) as reader:
        assert reader.format == kind
        values = [np.asarray(reader[name]) for name in reader]
    for found, expected in zip(values, chosen(kind).values(), strict=True):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype


@pytest.mark.parametrize("suffix", [".safetensors", ".SafeTensors", ".h5"])
def test_format_overrides_the_suffix(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"m{suffix}"
    save_file(TENSORS, path, format="zt")
    with ztensor.open(path) as reader:
        assert reader.format == "zt"
    save_file(TENSORS, tmp_path / "plain.dat", format="npz")
    with ztensor.open(tmp_path / "plain.dat") as reader:
        assert reader.format == "npz"
    buffer = io.BytesIO()
    save_file(TENSORS, buffer, format="safetensors")
    with ztensor.open(buffer.getvalue()) as reader:
        assert reader.format == "safetensors"


@pytest.mark.parametrize("suffix", LYING)
def test_a_name_of_what_is_only_read_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"m{suffix}"
    for call in (lambda: save_file(TENSORS, path), lambda: ztensor.Writer(path)):
        with pytest.raises(ArgumentValueError):
            call()
    assert not path.exists()
    save_file(TENSORS, path, format="zt")
    ztensor.Writer(tmp_path / f"n{suffix}", format="zt").finish()


@pytest.mark.parametrize(("kind", "suffix"), FOREIGN)
def test_a_writer_names_the_function_for_the_format(tmp_path: Path, kind: str, suffix: str) -> None:
    with pytest.raises(ArgumentValueError) as caught:
        ztensor.Writer(tmp_path / f"m{suffix}")
    assert kind in str(caught.value.hint)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "warns"),
    [
        ("m", False), ("m.zt", False), ("m.ztensor", False), ("m.zt.tmp", False), ("m.ZT", False),
        ("safetensors", False), ("m.0", False), ("m-1.5", False),
        ("m.bin", True), ("m.dat", True), ("m.safetensor", True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("door", ["save_file", "Writer", "save_tree"])
def test_a_file_of_an_unknown_suffix_is_ours_and_the_caller_is_warned(
    tmp_path: Path, name: str, warns: bool, door: str
) -> None:
    def save(**options: Any) -> None:
        if door == "Writer":
            with ztensor.Writer(tmp_path / name, **options) as writer:
                writer.write("w", np.arange(3.0))
        elif door == "save_tree":
            ztensor.save_tree({"w": np.arange(3.0)}, tmp_path / name, **options)
        else:
            save_file(TENSORS, tmp_path / name, **options)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        save()
    assert [each.category for each in caught] == [UserWarning] * warns
    save(format="zt")  # says that it is meant
    with ztensor.open(tmp_path / name) as reader:
        assert reader.format == "zt"


@pytest.mark.parametrize("door", ["save_file", "convert", "convert_folder"])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("compression", True),
        ("compression", 3),
        ("checksum", "sha256"),
        ("version", "1.1.0"),
        ("alignment", 4096),
        ("canonical", True),
        ("chunk_rows", 2),
    ],
)
def test_options_of_zt_are_for_no_other_format(
    tmp_path: Path, door: str, option: str, value: Any
) -> None:
    source, target = tmp_path / "in" / "m.zt", tmp_path / "m.safetensors"
    source.parent.mkdir()
    save_file(TENSORS, source)
    if door == "convert_folder" and option != "compression":
        return  # it has no other option of these
    doors: dict[str, Any] = {
        "save_file": functools.partial(save_file, TENSORS, target),
        "convert": functools.partial(ztensor.convert, source, target),
        "convert_folder": functools.partial(
            ztensor.convert_folder, source.parent, target, to="safetensors"
        ),
    }
    with pytest.raises(ArgumentValueError, match=option):
        doors[door](**{option: value})
    assert not target.exists()


@pytest.mark.parametrize(
    ("tensors", "metadata", "options", "kind"),
    [
        (TENSORS, None, {"format": "pt"}, ArgumentValueError),
        (TENSORS, {"nested": {"a": 1}}, {}, NotRepresentableError),
        (
            {"s": ztensor.Tensor.csr([1.0], [0], [0, 1], shape=(1, 4))},
            None,
            {},
            NotRepresentableError,
        ),
        (None, None, {}, ArgumentTypeError),
    ],
    ids=["format", "metadata", "sparse", "no mapping"],
)
def test_losses_are_refused_before_anything_is_written(
    tmp_path: Path, tensors: Any, metadata: Any, options: Any, kind: type[Exception]
) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(b"old")
    with pytest.raises(kind):
        save_file(tensors, path, metadata, **options)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_shards_of_another_format(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    tensors = {f"t{number}": np.full(1000, number, np.float32) for number in range(5)}
    save_file(tensors, path, max_shard_size=9000)
    assert (tmp_path / "m.safetensors.index.json").exists()
    shards = sorted(tmp_path.glob("*.safetensors"))
    assert len(shards) == 3
    for shard in shards:
        with ztensor.open(shard) as reader:
            assert reader.format == "safetensors"
    found = load_file(path)
    for name, expected in tensors.items():
        np.testing.assert_array_equal(found[name], expected)


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_from_other_frameworks(tmp_path: Path, framework: str) -> None:
    library: Any = pytest.importorskip(framework)
    save = pytest.importorskip(f"ztensor.{framework}").save_file
    if framework == "torch":
        tensors = {"x": library.arange(6).to(library.bfloat16).reshape(2, 3)}
    else:
        tensors = {"x": library.numpy.arange(6).astype("bfloat16").reshape(2, 3)}
    save(tensors, tmp_path / "m.safetensors")
    with ztensor.open(tmp_path / "m.safetensors") as reader:
        assert reader.format == "safetensors"
        expected = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(np.asarray(reader["x"]), expected)


def test_edits_go_by_the_bytes_not_by_the_name(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file(TENSORS, path, format="zt")
    ztensor.edit.remove_tensors(path, names=["b"])
    ztensor.compact(path)
    assert sorted(load_file(path)) == ["a.weight", "h"]
    assert ztensor.migrate(path, version="1.1.0").version == "1.1.0"


def test_new_files_of_ours_get_no_other_formats_name(tmp_path: Path) -> None:
    source, target = tmp_path / "m.zt", tmp_path / "n.safetensors"
    save_file(TENSORS, source)
    for call in (
        lambda: ztensor.migrate(source, target, version="1.1.0"),
        lambda: ztensor.merge([source], target),
        lambda: ztensor.edit.remove_tensors(source, target, ["b"]),
    ):
        with pytest.raises(ArgumentValueError):
            call()
        assert not target.exists()

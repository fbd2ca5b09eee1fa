from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from ztensor.analysis.streaming import component_blocks, dequantized_blocks, in_step, share_out
from ztensor.numpy import save, save_file


def whole(blocks: Any) -> Any:
    return np.concatenate([block.copy() for block in blocks])


@pytest.mark.parametrize("version", ["0.1.0", "1.1.0", "1.2.0"])
@pytest.mark.parametrize("compression", [False, True], ids=["raw", "zstd"])
def test_blocks_make_the_component(version: str, compression: bool) -> None:
    array = np.arange(3_000_001, dtype=np.float32)
    with ztensor.open(save({"w": array}, compression=compression, version=version)) as reader:
        blocks = [block.copy() for block in component_blocks(reader.objects.part("w"), "w", "data")]
    assert len(blocks) > 1
    assert np.array_equal(np.concatenate(blocks), array)


def test_padding_is_no_element() -> None:
    array = np.array([1, 2, 3], ml_dtypes.float4_e2m1fn)
    with ztensor.open(save({"w": array})) as reader:
        assert np.array_equal(whole(component_blocks(reader.objects.part("w"), "w", "data")), array)


REAL = sorted((Path(__file__).parents[2] / "corpus" / "real").glob("**/*.zt"))
assert REAL


@pytest.mark.parametrize("path", REAL, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_files_of_every_release(path: Path) -> None:
    try:
        reader = ztensor.open(path)
    except ztensor.UnsupportedVersionError:
        assert path.parent.name == "2.1.2"
        return
    with reader:
        for name in reader:
            if reader.metadata(name).format != "dense":
                continue
            expected = reader.read_numpy(name).reshape(-1)
            found = [
                block.copy() for block in component_blocks(reader.objects.part(name), name, "data")
            ]
            joined = np.concatenate([expected[:0], *found])
            assert joined.dtype == expected.dtype
            assert joined.tobytes() == expected.tobytes()


def test_no_such_component() -> None:
    with (
        ztensor.open(save({"w": np.ones(3)})) as reader,
        pytest.raises(ztensor.ObjectNotFoundError),
    ):
        list(component_blocks(reader.objects.part("w"), "w", "values"))


@pytest.mark.parametrize("shape", [(4096, 512), (3000, 640)])
@pytest.mark.parametrize("group_axis", [0, 1])
def test_rows_dequantize_to_the_whole(shape: tuple[int, int], group_axis: int) -> None:
    weight = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    tensor = ztensor.Tensor.quantize(weight, bits=4, group_size=64, group_axis=group_axis)
    with ztensor.open(save({"w": tensor})) as reader:
        blocks = [block.copy() for block in dequantized_blocks(reader.objects.part("w"), "w")]
    assert len(blocks) > 1
    assert np.array_equal(np.concatenate(blocks), tensor.dequantize().reshape(-1))


@pytest.mark.parametrize(
    ("one", "other", "sizes"),
    [
        ([3, 3], [2, 4], [(2, 2), (1, 1), (3, 3)]),
        ([], [], []),
        ([4], [], [(4, 0)]),
        ([2], [2, 1], [(2, 2), (0, 1)]),
    ],
)
def test_in_step(one: list[int], other: list[int], sizes: list[tuple[int, int]]) -> None:
    streams = [iter([np.zeros(n) for n in lengths]) for lengths in (one, other)]
    assert [(a.size, b.size) for a, b in in_step(*streams)] == sizes


def test_work_is_shared_out_in_order(tmp_path: Path) -> None:
    assert share_out(len, {"a": 1, "bbb": 9, "cc": 3}, 2) == {"a": 1, "bbb": 3, "cc": 2}
    save_file({"w": np.ones(1)}, tmp_path / "m.zt")
    with pytest.raises(ztensor.ArgumentValueError):
        share_out(len, {"a": 1}, 0)


def test_rows_of_gguf_blocks(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    blocks = np.zeros((3000, 640 // 32, 34), np.uint8)  # q8_0: a float16 scale, and 32 integers
    blocks[..., :2] = np.array([0.5], np.float16).view(np.uint8)
    blocks[..., 2:] = rng.integers(0, 256, blocks[..., 2:].shape)
    tensor = ztensor.Tensor({"data": blocks.reshape(-1)}, shape=(3000, 640), format="gguf.q8_0")
    with ztensor.open(save({"w": tensor})) as reader:
        found = [block.copy() for block in dequantized_blocks(reader.objects.part("w"), "w")]
        assert ztensor.stats(reader)["w"].max == 63.5
        assert ztensor.diff(reader, save({"w": tensor.dequantize()}), values_only=True).ok
    assert len(found) > 1
    assert np.array_equal(np.concatenate(found), tensor.dequantize().reshape(-1))

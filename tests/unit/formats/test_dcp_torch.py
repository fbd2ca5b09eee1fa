"""Checkpoints as torch.distributed.checkpoint writes and loads them: equal bit for bit to ours."""

from __future__ import annotations

import io
import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.tracing import traced

torch = pytest.importorskip("torch")
dcp = pytest.importorskip("torch.distributed.checkpoint")
format_utils = pytest.importorskip("torch.distributed.checkpoint.format_utils")
metadata = pytest.importorskip("torch.distributed.checkpoint.metadata")
planner = pytest.importorskip("torch.distributed.checkpoint.planner")

NAMES = (
    *("float64", "float32", "float16", "bfloat16", "complex64", "complex128"),
    *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
    "float4_e2m1fn_x2",
)
DTYPES = [getattr(torch, name) for name in NAMES if hasattr(torch, name)]


class Boxed(torch.Tensor):  # type: ignore[misc, name-defined]
    """A tensor that is saved in boxes, as one spread over processes is."""

    @staticmethod
    def of(tensor: Any, boxes: list[tuple[Any, Any]]) -> Boxed:
        made = tensor.as_subclass(Boxed)
        made.boxes = boxes
        return made  # type: ignore[no-any-return]

    def _chunks(self) -> Iterator[Any]:
        for offsets, sizes in self.boxes:
            yield metadata.ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))

    def __create_write_items__(self, fqn: str, _: Any) -> list[Any]:
        return [
            planner.WriteItem(
                index=metadata.MetadataIndex(fqn, chunk.offsets),
                type=planner.WriteItemType.SHARD,
                tensor_data=planner.TensorWriteData(
                    chunk=chunk,
                    properties=metadata.TensorProperties(dtype=self.dtype),
                    size=self.size(),
                ),
            )
            for chunk in self._chunks()
        ]

    def __create_chunk_list__(self) -> list[Any]:
        return list(self._chunks())

    def __get_tensor_shard__(self, index: Any) -> Any:
        sizes = next(s for o, s in self.boxes if tuple(o) == tuple(index.offset))
        part = tuple(slice(o, o + s) for o, s in zip(index.offset, sizes, strict=True))
        return self.as_subclass(torch.Tensor)[part]


def grid(shape: tuple[int, ...], cuts: tuple[tuple[int, ...], ...]) -> list[tuple[Any, Any]]:
    """Return the boxes of a shape that is cut along each axis."""
    boxes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((), ())]
    for length, inner in zip(shape, cuts, strict=True):
        ends = [0, *inner, length]
        boxes = [
            ((*o, start), (*s, stop - start))
            for o, s in boxes
            for start, stop in itertools.pairwise(ends)
        ]
    return boxes


def some(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return a tensor of arbitrary bits; of a bool 0 and 1."""
    width = torch.empty((), dtype=dtype).element_size()
    count = int(np.prod(shape)) * width
    data = np.random.default_rng(count).integers(0, 256, max(count, 1), np.uint8)
    data %= 2 if dtype is torch.bool else 255
    if not count:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype, count=count // width).reshape(shape)


def bits(tensor: Any) -> bytes:
    plain = tensor.as_subclass(torch.Tensor).contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def save(state: dict[str, Any], folder: Path, **options: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        writer = dcp.FileSystemWriter(folder, sync_files=False, **options)
        dcp.save(state, storage_writer=writer, no_dist=True)


def require_equal(state: dict[str, Any], folder: Path) -> None:
    with ztensor.open(folder) as reader:
        tensors = {name: one for name, one in state.items() if isinstance(one, torch.Tensor)}
        assert set(reader) == set(tensors)
        for name, tensor in tensors.items():
            if "_x2" not in name:  # two in a byte; an array has one in each
                assert reader.read_numpy(name, copy=True).tobytes() == bits(tensor)
            assert b"".join(map(bytes, reader.decoded_chunks(name))) == bits(tensor)
        assert reader.verify().outcome == "ok"


@pytest.mark.slow
@pytest.mark.parametrize("single", [True, False], ids=["one file", "a file each"])
def test_every_type_in_one_box_and_in_many(tmp_path: Path, single: bool) -> None:
    state = {}
    for dtype in DTYPES:
        name = str(dtype)
        state[name] = some((3, 4), dtype)
        state[f"{name} boxed"] = Boxed.of(some((5, 6), dtype), grid((5, 6), ((2,), (1, 4))))
        state[f"{name} scalar"] = some((), dtype)
        state[f"{name} empty"] = some((0, 3), dtype)
    save(state, tmp_path, single_file_per_rank=single)
    require_equal(state, tmp_path)


SHAPES = {
    "rows": ((7, 3), ((3, 5), ())),
    "columns": ((3, 7), ((), (3, 4))),
    "cube": ((3, 4, 5), ((1,), (2,), (1, 3))),
    "last of four": ((2, 3, 2, 5), ((), (), (), (2,))),
    "one long": ((1 << 16,), ((1, 999, 50_000),)),
    "more than one piece": ((3, 1 << 19), ((1,), (1 << 18,))),
    "rows longer than a piece": ((2, 3 << 20), ((1,), (1 << 20,))),
}


@pytest.mark.parametrize("name", SHAPES)
def test_boxes_of_any_shape(tmp_path: Path, name: str) -> None:
    shape, cuts = SHAPES[name]
    tensor = some(shape, torch.float32)
    save({"w": Boxed.of(tensor, grid(shape, cuts))}, tmp_path)
    require_equal({"w": tensor}, tmp_path)
    whole = tensor.view(torch.int32).numpy()
    with ztensor.open(tmp_path) as reader:
        part = reader.get_slice("w")
        picks: list[Any] = [np.s_[1:], np.s_[:1], np.s_[-1]]
        picks += [np.s_[1:2, 1:3], np.s_[:, ::2]] if len(shape) > 1 else [np.s_[900:1100]]
        for pick in picks:
            assert np.asarray(part[pick]).tobytes() == whole[pick].tobytes()


def test_elements_in_another_order(tmp_path: Path) -> None:
    """Transposed, of one box and of several, conjugated, and in the order of channels."""
    wide = some((4, 6), torch.float32)
    state = {
        "transposed": wide.t(),
        "boxed": Boxed.of(wide.t(), [((0, 0), (6, 4))]),
        "boxes": Boxed.of(some((6, 4), torch.int16).t(), grid((4, 6), ((1,), (2,)))),
        "channels": some((2, 3, 2, 2), torch.float32).to(memory_format=torch.channels_last),
        "expanded": some((1, 3), torch.float32).expand(4, 3),
    }
    save(state, tmp_path)
    require_equal(state, tmp_path)
    conjugated = torch.tensor([1 + 2j, 3 - 1j]).conj()
    save({"conjugated": conjugated}, tmp_path / "c")
    with ztensor.open(tmp_path / "c") as reader:
        assert np.array_equal(reader["conjugated"], conjugated.resolve_conj().numpy())


def test_tensors_equal_those_that_torch_loads_and_joins(tmp_path: Path) -> None:
    state = {
        "layers": {str(n): {"w": Boxed.of(some((4, 6), torch.bfloat16), grid((4, 6), ((1,), ())))}
                   for n in range(3)},
        "optimizer": {"lr": 0.1, "betas": (0.9, 0.999), "steps": [1, 2], "none": None, "on": True},
        "big": 1 << 70,
    }  # fmt: skip
    save(state, tmp_path / "step")
    whole = tmp_path / "whole.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        format_utils.dcp_to_torch_save(tmp_path / "step", whole)
    with ztensor.open(tmp_path / "step") as ours, ztensor.open(whole) as theirs:
        assert set(ours) == set(theirs)
        for name in ours:
            assert ours.read_numpy(name, copy=True).tobytes() == theirs[name].tobytes()
        flat = {"big": theirs.attributes["big"], **{
            f"optimizer.{key}": value for key, value in theirs.attributes["optimizer"].items()
        }}  # fmt: skip
        assert ours.attributes == flat
    loaded = {f"layers.{n}.w": torch.zeros(4, 6, dtype=torch.bfloat16) for n in range(3)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(loaded, storage_reader=dcp.FileSystemReader(tmp_path / "step"), no_dist=True)
    ours_loaded = ztensor.torch.load_file(tmp_path / "step")
    for name, tensor in loaded.items():
        assert torch.equal(tensor.view(torch.int16), ours_loaded[name].view(torch.int16))


def test_a_quantized_tensor_is_read_if_it_is_one_chunk(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantized = torch.quantize_per_tensor(torch.arange(6.0).reshape(2, 3), 0.5, 1, torch.qint8)
        try:
            save({"q": quantized}, tmp_path)
        except Exception:  # noqa: BLE001  # whatever this torch refuses
            pytest.skip("this torch does not save it")
    with ztensor.open(tmp_path) as reader:
        assert np.array_equal(reader.read("q").to_dense(), quantized.dequantize().numpy())


def test_the_safetensors_form_of_the_stock_writer(tmp_path: Path) -> None:
    """Nothing of torch reads these folders; the tensors are there all the same."""
    pytest.importorskip("safetensors")
    filesystem = pytest.importorskip("torch.distributed.checkpoint.filesystem")
    if not hasattr(filesystem, "SerializationFormat"):
        pytest.skip("this torch has no such form")
    form = filesystem.SerializationFormat.SAFETENSORS
    state = {"a": some((3, 4), torch.float32), "b": some((2,), torch.int64), "step": 3}
    save(state, tmp_path, serialization_format=form)
    with ztensor.open(tmp_path) as reader:
        assert reader["a"].tobytes() == bits(state["a"])
        assert reader["b"].tobytes() == bits(state["b"])
        assert reader.attributes == {"step": 3}
        assert reader.unrepresented == ()
        assert reader.verify().outcome == "unchecked"


@pytest.mark.slow
def test_a_conversion_takes_little_memory(tmp_path: Path) -> None:
    """Tensors that are each as long as all that may be taken are joined piece by piece."""
    state = {
        name: Boxed.of(torch.zeros(4096, 4096), grid((4096, 4096), cuts))
        for name, cuts in {"rows": ((1000, 3000), ()), "columns": ((), (1000, 3000))}.items()
    }
    save(state, tmp_path / "step")
    ztensor.convert(tmp_path / "step", tmp_path / "first.safetensors")  # imports do not count
    with traced() as memory:
        ztensor.convert(tmp_path / "step", tmp_path / "whole.safetensors")
        peak = memory()[1]
    assert peak < 64 << 20


def test_a_stream_in_memory_is_its_bytes(tmp_path: Path) -> None:
    """So layers keep a state of their own, and Megatron saves it."""
    state = {"w": some((2, 3), torch.float32), "layer._extra_state": io.BytesIO(b"state")}
    save(state, tmp_path)
    with ztensor.open(tmp_path) as reader:
        assert reader.attributes == {"layer._extra_state": b"state"}
        assert [(one.kind, one.where) for one in reader.unrepresented] == [
            ("stream in memory", "layer._extra_state")
        ]

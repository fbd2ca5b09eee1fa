"""What is stored: the tensors of each workload, written once as plain bytes every process maps.

source.bin    the tensors' bytes, each at a multiple of 64
source.json   names, element types, shapes and offsets
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

MIB = 1 << 20
ALIGNMENT = 64
Array = np.ndarray[Any, np.dtype[Any]]

# A tensor to be made: name, element type, shape. bfloat16 is no NumPy type: its bits are uint16.
Plan = tuple[str, str, tuple[int, ...]]
Fill = Callable[[np.random.Generator, str, int], Array]

NAMES = ("keys", "keys-new")
PROCESSES = ("process-numpy", "process-one", "process-load", "process-ls", "process-verify")
READS = ("keys", "one", "mapped", "touched", "owned")
COLD = ("touched-cold", "owned-cold", "cat-cold")


def storage_dtype(dtype: str) -> np.dtype[Any]:
    """Return NumPy's type for an element's bits."""
    return np.dtype(np.uint16 if dtype == "bfloat16" else dtype)


def random_bits(rng: np.random.Generator, dtype: str, count: int) -> Array:
    """Return elements of random bits: what raw storage does not look at."""
    itemsize = storage_dtype(dtype).itemsize
    words = rng.integers(0, 1 << 64, -(-count * itemsize // 8), np.uint64)
    return words.view(np.uint8)[: count * itemsize].view(storage_dtype(dtype))


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """Tensors and what is done with them.

    Attributes:
        name: how it is asked for.
        title: how it is shown.
        plan: makes the list of tensors for a size; the sizes are below.
        full: the size of a full run.
        quick: that of a quick one; 0 leaves the workload out.
        operations: what is measured.
        full_operations: what only a full run measures.
        fill: makes the content.
        stored_by: the peer's function that writes the file which is read.
        weight: its share of a limited time.
        only_serious: leaves out the slower peers; all files have to fit into the page cache.
    """

    name: str
    title: str
    plan: Callable[[int], Iterator[Plan]]
    full: int
    quick: int
    operations: tuple[str, ...]
    full_operations: tuple[str, ...] = ()
    fill: Fill = random_bits
    stored_by: str = "save"
    weight: float = 1.0
    only_serious: bool = False

    def size(self, *, is_full: bool) -> int:
        """Return the argument of `plan`."""
        return self.full if is_full else self.quick

    def chosen(self, *, is_full: bool) -> tuple[str, ...]:
        """Return the operations of a full or a quick run."""
        return self.operations + (self.full_operations if is_full else ())


# --- Shapes -----------------------------------------------------------------------------------


def _large(mebibytes: int) -> Iterator[Plan]:
    count = mebibytes // 50
    return ((f"tensor_{index:03}", "float32", (50 * MIB // 4,)) for index in range(count))


def _small(mebibytes: int) -> Iterator[Plan]:
    count = mebibytes * MIB // 10240
    return ((f"model.blocks.{index:05}.weight", "float32", (40, 64)) for index in range(count))


def _many(count: int) -> Iterator[Plan]:
    return ((f"model.blocks.{index:05}.weight", "float32", (8, 8)) for index in range(count))


def _layer(index: int, dtype: str) -> Iterator[Plan]:
    """Yield one layer of Llama-3.2-1B."""
    hidden, narrow, wide = 2048, 512, 8192
    shapes = {
        "input_layernorm": (hidden,),
        "mlp.down_proj": (hidden, wide),
        "mlp.gate_proj": (wide, hidden),
        "mlp.up_proj": (wide, hidden),
        "post_attention_layernorm": (hidden,),
        "self_attn.k_proj": (narrow, hidden),
        "self_attn.o_proj": (hidden, hidden),
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.v_proj": (narrow, hidden),
    }
    for part, shape in shapes.items():
        yield f"model.layers.{index}.{part}.weight", dtype, shape


def _mixed(layers: int) -> Iterator[Plan]:
    for index in range(layers):
        yield from _layer(index, "bfloat16" if index % 2 == 0 else "float16")


def _llama(layers: int) -> Iterator[Plan]:
    # With the output matrix stored, as in checkpoints that do not tie it.
    yield "lm_head.weight", "float16", (128256, 2048)
    yield "model.embed_tokens.weight", "float16", (128256, 2048)
    for index in range(layers):
        yield from _layer(index, "float16")
    yield "model.norm.weight", "float16", (2048,)


def _llama_part(layers: int) -> Iterator[Plan]:
    """Yield all of it, or a few layers without the two large matrices."""
    if layers == 16:
        return _llama(layers)
    return itertools.chain.from_iterable(_layer(index, "float16") for index in range(layers))


def _experts(count: int) -> Iterator[Plan]:
    every = (
        (f"model.layers.{layer}.mlp.experts.{expert}.{part}_proj.weight", "float16", (4, 2))
        for layer in itertools.count()
        for expert in range(512)
        for part in ("down", "gate", "up")
    )
    return itertools.islice(every, count)


def _tiny(count: int) -> Iterator[Plan]:
    return ((f"layer.{index}.weight", "float32", (16, 16)) for index in range(count))


def _floats(mebibytes: int) -> Iterator[Plan]:
    return _large(mebibytes)


def _bytes(mebibytes: int) -> Iterator[Plan]:
    count = mebibytes // 50
    return ((f"tensor_{index:03}", "int8", (50 * MIB,)) for index in range(count))


# --- Content ----------------------------------------------------------------------------------


def _normal(rng: np.random.Generator, dtype: str, count: int) -> Array:
    return rng.standard_normal(count, np.float32).astype(dtype, copy=False)


def _pruned(rng: np.random.Generator, dtype: str, count: int) -> Array:
    values = _normal(rng, dtype, count)
    values[rng.random(count, np.float32) < 0.8] = 0
    return values


def _ternary(rng: np.random.Generator, dtype: str, count: int) -> Array:
    return (rng.integers(-1, 2, count, np.int8) * np.float32(0.0371)).astype(dtype, copy=False)


def _four_bits(rng: np.random.Generator, dtype: str, count: int) -> Array:
    return rng.integers(-8, 8, count, np.int8).astype(dtype, copy=False)


def _pruned_half(rng: np.random.Generator, dtype: str, count: int) -> Array:
    """Return elements of either half type, 80 % zeros; of bfloat16 as bits."""
    values = _pruned(rng, "float32", count)
    if dtype == "bfloat16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(dtype)


# --- The table --------------------------------------------------------------------------------

_ZSTD = ("zstd-load",), ("zstd-save", "zstd-slice")

_ALL = (
    Workload(
        "tiny", "10 tensors of 1 KiB", _tiny, 10, 0, (), ("start", "first", "keys", "one", "save"),
        weight=0.3,
    ),
    Workload(
        "singles", "5,000 tensors of 1 KiB", _tiny, 5000, 5000,
        ("again", "each", "each-slice"), ("each-owned", "each-described", "verify"), weight=0.5,
    ),
    Workload(
        "names-20", "20 tensors of 1 KiB", _tiny, 20, 20, ("keys-new",), ("keys",), weight=0.3
    ),
    Workload(
        "names-147", "147 tensors of 1 KiB", _tiny, 147, 147, (*NAMES, *PROCESSES), weight=1.0
    ),
    Workload(
        "names-300", "300 tensors of 1 KiB", _tiny, 300, 300, ("keys-new",), ("keys",), weight=0.3
    ),
    Workload(
        "names-1000", "1,000 tensors of 1 KiB", _tiny, 1000, 1000, ("keys-new",), ("keys",),
        weight=0.3,
    ),
    Workload(
        "tensors-10000", "10,000 tensors of 256 bytes", _many, 10_000, 10_000, ("mapped-new",),
        weight=0.4,
    ),
    Workload(
        "large", "f32 tensors of 50 MiB", _large, 512, 256,
        ("owned", "save", "slice"),
        (
            *(operation for operation in READS if operation != "owned"), "save-crc32c",
            "save-sha256", "verify", "append", *COLD, "keys-cold", "one-cold",
        ),
        weight=4.0,
    ),
    Workload(
        "mixed", "layers of Llama-3.2-1B, bf16 and f16", _mixed, 4, 2,
        ("owned", "save"),
        (
            "mapped", "touched", "save-sha256", *COLD, "one-cold", "keys", "one", "save-crc32c",
            "verify", "keys-cold",
        ),
        weight=2.5,
    ),
    Workload(
        "small", "f32 tensors of 10 KiB", _small, 512, 128,
        ("owned", "save"),
        ("keys", "mapped", "touched", "one", "verify", "append", *COLD), weight=2.5,
    ),
    Workload(
        "many", "f32 tensors of 256 bytes", _many, 50_000, 50_000,
        (*NAMES, "owned", "save"),
        (
            "mapped", "touched", "one", "save-crc32c", "save-sha256", "verify", "append",
            "keys-cold",
        ),
        weight=2.5,
    ),
    Workload(
        "moe", "manifest of 100,000 digested objects", _experts, 100_000, 100_000, ("keys",),
        stored_by="save_crc32c", weight=0.6,
    ),
    Workload(
        "llama", "Llama-3.2-1B, f16", _llama, 16, 0,
        ("keys", "mapped", "touched", "owned", "save", "touched-cold"), weight=6.0,
        only_serious=True,
    ),
    Workload(
        "zstd-random", "normal f32", _floats, 200, 100, *_ZSTD, fill=_normal,
        stored_by="save_zstd",
    ),
    Workload(
        "zstd-pruned", "f32, 80 % zeros", _floats, 200, 100, *_ZSTD, fill=_pruned,
        stored_by="save_zstd",
    ),
    Workload(
        "zstd-ternary", "f32 of three values", _floats, 200, 100, *_ZSTD, fill=_ternary,
        stored_by="save_zstd",
    ),
    Workload(
        "zstd-many", "f32 tensors of 256 bytes", _many, 50_000, 50_000, ("zstd-load",), ("verify",),
        fill=_pruned, stored_by="save_zstd",
    ),
    Workload(
        "zstd-small", "f32 tensors of 10 KiB", _small, 256, 64, ("zstd-load",), fill=_pruned,
        stored_by="save_zstd",
    ),
    Workload(
        "zstd-mixed", "layers of Llama-3.2-1B, 80 % zeros", _mixed, 2, 1, *_ZSTD,
        fill=_pruned_half, stored_by="save_zstd",
    ),
    Workload(
        "zstd-int4", "int8 holding 4 bits", _bytes, 200, 100, *_ZSTD, fill=_four_bits,
        stored_by="save_zstd",
    ),
)  # fmt: skip

WORKLOADS = {workload.name: workload for workload in _ALL}

# Files of other libraries, each read by its own and by us.
FOREIGN = {
    workload.name: workload
    for workload in (
        Workload(
            "llama", "Llama-3.2-1B, f16; quick: two layers", _llama_part, 16, 2,
            ("start", *READS), weight=6.0,
        ),
        Workload("many", "f32 tensors of 256 bytes", _many, 50_000, 5_000, READS, weight=3.0),
        Workload("pruned", "f32, 80 % zeros", _floats, 200, 100, ("owned",), fill=_pruned),
        Workload(
            "2.x-many", "f32 tensors of 256 bytes", _many, 50_000, 50_000,
            ("keys", "mapped", "save", "verify"), weight=3.0,
        ),
        Workload(
            "2.x-large", "f32 tensors of 50 MiB", _large, 1600, 200,
            ("mapped", "save", "verify"), weight=3.0,
        ),
        Workload(
            "2.x-zstd", "f32, 80 % zeros", _floats, 200, 100, ("zstd-load",), fill=_pruned,
            stored_by="save_zstd",
        ),
    )
}  # fmt: skip


# --- The source files -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """The tensors of a workload as they lie on disk.

    Attributes:
        folder: where `source.bin` and `source.json` are.
        names: of the tensors, in order.
        dtypes: their element types.
        shapes: their shapes.
        offsets: where each begins.
        nbytes: of all tensors.
    """

    folder: Path
    names: list[str]
    dtypes: list[str]
    shapes: list[tuple[int, ...]]
    offsets: list[int]
    nbytes: int

    def tensors(self, bfloat16: np.dtype[Any] | None = None) -> dict[str, Array]:
        """Return the tensors as read-only views of the file.

        Args:
            bfloat16: the element type to give bfloat16; None gives its bits as uint16.
        """
        data = np.memmap(self.folder / "source.bin", np.uint8, "r").view(np.ndarray)
        tensors: dict[str, Array] = {}
        rows = zip(self.names, self.dtypes, self.shapes, self.offsets, strict=True)
        for name, dtype, shape, offset in rows:
            is_other = dtype == "bfloat16" and bfloat16 is not None
            element = bfloat16 if is_other else storage_dtype(dtype)
            tensors[name] = np.ndarray(shape, element, data.data, offset)
        return tensors


def stored_bytes(plan: Iterator[Plan]) -> int:
    """Return how many bytes a list of tensors has."""
    return sum(math.prod(shape) * storage_dtype(dtype).itemsize for _, dtype, shape in plan)


def write_source(workload: Workload, size: int, folder: Path, seed: int) -> Source:
    """Make the tensors of a workload; the same seed makes the same bytes."""
    rng = np.random.default_rng([seed, sum(workload.name.encode())])
    names, dtypes, shapes, offsets = [], [], [], []
    nbytes = 0
    with (folder / "source.bin").open("wb") as file:
        for name, dtype, shape in workload.plan(size):
            values = workload.fill(rng, dtype, math.prod(shape))
            names.append(name)
            dtypes.append(dtype)
            shapes.append(shape)
            offsets.append(file.tell())
            nbytes += values.nbytes
            file.write(values.data)
            file.write(bytes(-values.nbytes % ALIGNMENT))
    record = {"names": names, "dtypes": dtypes, "shapes": shapes, "offsets": offsets}
    (folder / "source.json").write_text(json.dumps(record), encoding="utf-8")
    return Source(folder, names, dtypes, shapes, offsets, nbytes)


def read_source(folder: Path) -> Source:
    """Return what `write_source` made."""
    record = json.loads((folder / "source.json").read_text(encoding="utf-8"))
    shapes = [tuple(shape) for shape in record["shapes"]]
    plan = zip(record["names"], record["dtypes"], shapes, strict=True)
    nbytes = stored_bytes(plan)
    return Source(folder, record["names"], record["dtypes"], shapes, record["offsets"], nbytes)

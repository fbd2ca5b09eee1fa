"""Save every element type from every framework in every layout, load it in all, compare the bits.

    python tests/interop/frameworks.py     the table for the frameworks that are installed

A row is an element type, a column a framework and a layout. `=` says that what was saved from
there came back in every framework that has the type, bit for bit; `-` that the framework itself
has no such elements, and that loading them says so; `.` that the layout holds no such elements.
`!` is a fault: it is shown below the table, and the status is 1.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, NamedTuple, Protocol

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

import ztensor.numpy
from ztensor import Tensor, ZTensorError
from ztensor.errors import LayoutError
from ztensor.ext import LOGICAL_TYPES, STORAGE_TYPES, numpy_dtype
from ztensor.typing import Array

# The specification's word for each element type, and NumPy's.
TYPES = {storage.name: storage.long_name for storage in STORAGE_TYPES.values()}
TYPES |= {logical.name: logical.long_name for logical in LOGICAL_TYPES.values()}
LAYOUTS = {
    "dense": "dense",
    "csr": "sparse_csr",
    "coo": "sparse_coo",
    "quantized": "quantized_group",
}
NAME = "layer.weight"
PACKED = "float4_e2m1fn"
# Elements of less than a byte, which take one in memory: the mask of their bits.
NARROW = {
    logical.long_name: (1 << logical.bits) - 1
    for logical in LOGICAL_TYPES.values()
    if logical.elements_per_storage > 1 and logical.long_name != PACKED
}
INDICES = ("indices", "indptr", "coords")
# Remedies named in messages.
WAYS_OUT = ("read_numpy", "ztensor.numpy", "to_dense")
# What frameworks raise for elements they have not.
REFUSALS = (AttributeError, RuntimeError, TypeError, ValueError)


class Sample(NamedTuple):
    """An object as NumPy has its parts."""

    format: str
    shape: tuple[int, ...]
    parts: Mapping[str, Array]
    attributes: Mapping[str, object]


class Seen(NamedTuple):
    """The content in all frameworks: the shape, and the type and bytes of each part."""

    shape: tuple[int, ...]
    parts: Mapping[str, tuple[str, bytes]]


# --- Samples --------------------------------------------------------------------------------


def patterns(kind: str) -> bytes:
    """Return elements of a type: all there are up to two bytes, else some, with odd NaNs."""
    if kind == "bool":
        return bytes([0, 1, 1, 0] * 64)
    if kind in NARROW:
        return bytes(number & NARROW[kind] for number in range(256))
    width = numpy_dtype(kind).itemsize
    if width <= 2:
        return np.arange(1 << 8 * width, dtype=f"u{width}").tobytes()
    width = width // 2 if kind.startswith("complex") else width
    words = np.random.default_rng(0).integers(0, 1 << 8 * width, 256, f"u{width}")
    signalling = 0x7F800001 if width == 4 else 0x7FF0000000000001
    words[:4] = 0, 1 << (8 * width - 1), (1 << 8 * width) - 1, signalling
    return words.tobytes()


def typed(kind: str, data: bytes) -> Array:
    """Return a flat array of elements of a type; 4-bit elements are pairs, the low half first."""
    if kind != PACKED:
        return np.frombuffer(data, numpy_dtype(kind))
    pairs = np.frombuffer(data, np.uint8)
    return np.stack([pairs & 15, pairs >> 4], 1).reshape(-1).view(numpy_dtype(kind))


def unpacked(kind: str, data: bytes) -> Array:
    """Return the elements of stored bytes of a type in `NARROW`, the first in the lowest bits."""
    width = NARROW[kind].bit_length()
    stream = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    count = stream.size // width
    codes = np.packbits(stream[: count * width].reshape(count, width), 1, bitorder="little")
    return codes[:, 0].copy().view(numpy_dtype(kind))


def bits(array: Array) -> tuple[str, bytes]:
    """Return an array's element type and bytes; `typed` the other way around."""
    if array.dtype.name in NARROW:  # JAX extends the sign into the other bits
        array = (array.view(np.uint8) & NARROW[array.dtype.name]).view(array.dtype)
    if array.dtype.name != PACKED:
        return array.dtype.name, array.tobytes()
    codes = array.reshape(-1).view(np.uint8)
    return PACKED, (codes[::2] | codes[1::2] << 4).tobytes()


def sample(kind: str, layout: str) -> Sample:
    """Return an object of a layout whose elements are of a type.

    For a quantized object an integer type is of the packed words, any other of the scales.
    """
    values = typed(kind, patterns(kind))
    count = values.size
    if layout == "dense":
        shape = (count // 4, 4)
        return Sample(layout, shape, {"data": values.reshape(shape)}, {})
    if layout == "quantized_group":
        table = values.reshape(-1, 4)
        if values.dtype.kind in "iu":
            scales = np.ones((1, 4), np.float32)
            parts = {"packed_weight": table, "scales": scales, "zeros": scales}
            shape, group = (len(table) * values.itemsize, 4), -1
        else:
            words = np.arange(count, dtype=np.uint8).reshape(-1, 4)
            parts = {"packed_weight": words, "scales": table, "zeros": words.astype(np.float32)}
            shape, group = table.shape, 1
        return Sample(layout, shape, parts, {"bits": 8, "group_size": group})
    rows, each = 16, count // 16  # every other column is empty
    columns = np.tile(np.arange(1, 2 * each, 2), rows)
    if layout == "sparse_csr":
        indices = {"indices": columns, "indptr": np.arange(rows + 1) * each}
    else:
        indices = {"coords": np.stack([np.repeat(np.arange(rows), each), columns])}
    return Sample(layout, (rows, 2 * each), {**indices, "values": values}, {})


def expected(of: Sample) -> Seen:
    """Return the content of a sample that every framework should show."""
    return Seen(of.shape, {role: part(role, array) for role, array in of.parts.items()})


def part(role: str, array: Array) -> tuple[str, bytes]:
    """Return the comparable content of one part; indices may have any width."""
    return bits(array.astype(np.int64)) if role in INDICES else bits(array)


# --- Frameworks -----------------------------------------------------------------------------


class Framework(Protocol):
    """One framework: values made of samples, saved, loaded, and seen by its own means."""

    name: str
    layouts: tuple[str, ...]

    def __hash__(self) -> int: ...

    def make(self, of: Sample) -> Any:
        """Return the framework's value; one of `REFUSALS` where it has no such elements."""
        ...

    def save(self, value: Any, path: Path) -> None: ...

    def load(self, path: Path) -> Any: ...

    def seen(self, value: Any) -> Seen:
        """Return the content of a value by the framework alone."""
        ...


class NumPy:
    """Arrays; a sparse or quantized object is a `Tensor` of them."""

    name = "numpy"
    layouts: tuple[str, ...] = tuple(LAYOUTS.values())

    def make(self, of: Sample) -> Any:
        if of.format == "dense":
            return of.parts["data"]
        return Tensor(of.parts, shape=of.shape, format=of.format, attributes=of.attributes)

    def save(self, value: Any, path: Path) -> None:
        ztensor.numpy.save_file({NAME: value}, path)

    def load(self, path: Path) -> Any:
        return ztensor.numpy.load_file(path)[NAME]

    def seen(self, value: Any) -> Seen:
        if isinstance(value, np.ndarray):
            return Seen(value.shape, {"data": bits(value)})
        return Seen(value.shape, {role: part(role, a) for role, a in value.components.items()})


class SciPy:
    """Sparse arrays; a `Tensor` is made of one, and gives one."""

    name = "scipy"
    layouts: tuple[str, ...] = ("sparse_csr", "sparse_coo")

    def make(self, of: Sample) -> Any:
        from scipy import sparse

        values, shape = of.parts["values"], of.shape
        if of.format == "sparse_csr":
            indices = of.parts["indices"], of.parts["indptr"]
            matrix: Any = sparse.csr_array((values, *indices), shape=shape)  # type: ignore[arg-type]
        else:
            matrix = sparse.coo_array((values, tuple(of.parts["coords"])), shape=shape)
        matrix.toarray()  # some types are taken and then refused by every operation
        return matrix

    def save(self, value: Any, path: Path) -> None:
        ztensor.numpy.save_file({NAME: Tensor.from_scipy(value)}, path)

    def load(self, path: Path) -> Any:
        found: Any = ztensor.numpy.load_file(path)[NAME]
        return found.to_scipy()

    def seen(self, value: Any) -> Seen:
        if value.format == "csr":
            indices = {"indices": value.indices, "indptr": value.indptr}
        else:
            indices = {"coords": np.stack([value.row, value.col])}
        parts = {**indices, "values": value.data}
        return Seen(value.shape, {role: part(role, array) for role, array in parts.items()})


class Torch:
    """Tensors, dense and sparse; a quantized object is a `Tensor` of them."""

    name = "torch"
    layouts = NumPy.layouts

    def vector(self, array: Array) -> Any:
        import torch

        name, data = bits(array)
        if name in NARROW:
            raise TypeError(f"torch has a name {name}, and can do nothing with its elements")
        kind = getattr(torch, f"{name}_x2" if name == PACKED else name)
        flat = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(kind)
        return flat.reshape(*array.shape[:-1], -1)

    def make(self, of: Sample) -> Any:
        import torch

        parts = {role: self.vector(array) for role, array in of.parts.items()}
        if of.format == "dense":
            return parts["data"]
        if of.format == "quantized_group":
            return Tensor(parts, shape=of.shape, format=of.format, attributes=of.attributes)
        with warnings.catch_warnings(action="ignore"):  # "in beta state"
            if of.format == "sparse_csr":
                return torch.sparse_csr_tensor(
                    parts["indptr"],
                    parts["indices"],
                    parts["values"],
                    of.shape,
                    check_invariants=True,
                )
            return torch.sparse_coo_tensor(
                parts["coords"], parts["values"], of.shape, is_coalesced=True
            )

    def save(self, value: Any, path: Path) -> None:
        import ztensor.torch

        ztensor.torch.save_file({NAME: value}, path)

    def load(self, path: Path) -> Any:
        import ztensor.torch

        with warnings.catch_warnings(action="ignore"):
            return ztensor.torch.load_file(path)[NAME]

    def seen(self, value: Any) -> Seen:
        import torch

        if isinstance(value, Tensor):
            return NumPy().seen(value)
        if value.layout is torch.sparse_csr:
            parts = {"indptr": value.crow_indices(), "indices": value.col_indices()}
        elif value.layout is torch.sparse_coo:
            parts = {"coords": value.indices()}
        else:
            parts = {}
        parts["values" if parts else "data"] = value.values() if parts else value
        shape = tuple(value.shape)
        if value.dtype is getattr(torch, f"{PACKED}_x2", None):
            shape = (*shape[:-1], 2 * shape[-1])
        return Seen(shape, {role: self.bits(one) for role, one in parts.items()})

    def bits(self, tensor: Any) -> tuple[str, bytes]:
        import torch

        name = str(tensor.dtype).removeprefix("torch.").removesuffix("_x2")
        return name, tensor.contiguous().view(torch.uint8).numpy().tobytes()


class Jax:
    """Arrays, BCSR and BCOO, with elements of 64 bits; a quantized object is a `Tensor` of them."""

    name = "jax"
    layouts = NumPy.layouts

    def make(self, of: Sample) -> Any:
        from jax.experimental import sparse

        with wide():
            parts = {role: self.vector(array) for role, array in of.parts.items()}
            if of.format == "dense":
                return parts["data"]
            if of.format == "quantized_group":
                return Tensor(parts, shape=of.shape, format=of.format, attributes=of.attributes)
            if of.format == "sparse_csr":
                arrays = parts["values"], parts["indices"], parts["indptr"]
                return sparse.BCSR(arrays, shape=of.shape)
            return sparse.BCOO((parts["values"], parts["coords"].T), shape=of.shape)

    def vector(self, array: Array) -> Any:
        import jax.numpy as jnp

        return jnp.asarray(array)

    def save(self, value: Any, path: Path) -> None:
        import ztensor.jax

        with wide():
            ztensor.jax.save_file({NAME: value}, path)

    def load(self, path: Path) -> Any:
        import ztensor.jax

        with wide():
            return ztensor.jax.load_file(path)[NAME]

    def seen(self, value: Any) -> Seen:
        from jax.experimental import sparse

        if isinstance(value, Tensor):
            return NumPy().seen(value)
        with wide():
            if isinstance(value, sparse.BCSR):
                parts = {"indices": value.indices, "indptr": value.indptr, "values": value.data}
            elif isinstance(value, sparse.BCOO):
                parts = {"coords": value.indices.T, "values": value.data}
            else:
                parts = {"data": value}
            arrays = {role: np.asarray(one) for role, one in parts.items()}
        return Seen(value.shape, {role: part(role, array) for role, array in arrays.items()})


@contextlib.contextmanager
def wide() -> Iterator[None]:
    """Let JAX keep elements of 64 bits, which it narrows otherwise."""
    import jax

    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


FRAMEWORKS: tuple[Framework, ...] = (NumPy(), Torch(), Jax(), SciPy())


def is_installed(framework: Framework) -> bool:
    """Return whether the framework can be imported here."""
    return importlib.util.find_spec(framework.name) is not None


# --- The table ------------------------------------------------------------------------------


@functools.cache
def has(framework: Framework, kind: str, layout: str) -> bool:
    """Return whether the framework itself has such elements in such a layout."""
    if layout not in framework.layouts:
        return False
    of = sample(kind, layout)
    try:
        made = framework.make(of)
    except REFUSALS:
        return False
    found = framework.seen(made)
    assert found == expected(of), f"{framework.name} changes its arguments"
    return True


def cell(kind: str, framework: Framework, layout: str, folder: Path) -> str:
    """Return a cell of the table.

    Args:
        kind: NumPy's name of the element type.
        framework: where the object is saved from; it is loaded in all that are installed.
        layout: one of the framework's layouts.
        folder: where the file goes.

    Raises:
        AssertionError: something came back different, or was refused without a way out.
    """
    of = sample(kind, layout)
    if layout == "quantized_group":
        try:
            NumPy().make(of).dequantize()
        except LayoutError:
            return "."
    path = folder / "object.zt"
    if not has(framework, kind, layout):
        NumPy().save(NumPy().make(of), path)
        if layout == "quantized_group":  # a `Tensor` of arrays in every framework
            assert framework.seen(framework.load(path)) == expected(of), "other bits"
            return "="
        require_advice(framework, path)
        return "-"
    framework.save(framework.make(of), path)
    with ztensor.open(path) as reader:
        metadata = reader.metadata(NAME)
    assert (metadata.format, metadata.shape) == (layout, of.shape), f"stored as {metadata}"
    for other in FRAMEWORKS:
        if is_installed(other) and has(other, kind, layout):
            found = other.seen(other.load(path))
            assert found == expected(of), f"{other.name} gives other bits"
    return "="


def require_advice(framework: Framework, path: Path) -> None:
    """Check that loading an unsupported type is refused, with the place and a remedy.

    `Tensor.to_scipy`, a call on the tensor itself, knows no place.
    """
    refusal = None
    try:
        framework.load(path)
    except ZTensorError as error:
        refusal = error
    assert refusal is not None, f"{framework.name} has no such elements, and they were loaded"
    named = refusal.object_name == NAME or framework.name == "scipy"
    assert named, f"the error names no tensor: {refusal}"
    assert any(way in str(refusal) for way in WAYS_OUT), f"no way out is named: {refusal}"


def main() -> int:
    """Print the table; return 1 where a cell is wrong."""
    shown = [one for one in FRAMEWORKS if is_installed(one)]
    titles = {layout: title for title, layout in LAYOUTS.items()}
    heads = {one.name: "  ".join(titles[layout] for layout in one.layouts) for one in shown}
    print_row("", [f"{name:{len(head)}}" for name, head in heads.items()])
    print_row("type", heads.values())
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        for word, kind in TYPES.items():
            row = []
            for framework in shown:
                signs = []
                for layout in framework.layouts:
                    try:
                        sign = cell(kind, framework, layout, Path(folder))
                    except (AssertionError, ZTensorError) as error:
                        sign = "!"
                        faults.append(f"{word}, {framework.name}, {titles[layout]}: {error}")
                    signs.append(f"{sign:{len(titles[layout])}}")
                row.append("  ".join(signs))
            print_row(word, row)
    missing = [one.name for one in FRAMEWORKS if not is_installed(one)]
    if missing:
        faults.append(f"not installed: {', '.join(missing)}")
    for fault in faults:
        print(fault)
    return 1 if len(faults) > bool(missing) else 0


def print_row(first: str, cells: Iterable[str]) -> None:
    """Print a row of the table, its cells filled up to the width of their columns."""
    print("    ".join([f"{first:12}", *cells]).rstrip())


if __name__ == "__main__":
    sys.exit(main())

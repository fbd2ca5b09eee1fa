"""What the format does, shown on a checkpoint: saved, mapped, sliced, verified, damaged, noticed.

Nothing here prints: `ztensor demo` does. Every step is real: loaded tensors are compared with the
original ones bit for bit, and the damaged copy must be refused; `Outcome.failures` says where not.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import (
    ArgumentValueError,
    DigestMismatchError,
    SourceError,
    describe,
)
from ztensor.layout.elements import numpy_dtype
from ztensor.model.dtype import element_count
from ztensor.numpy import load_file, save_file
from ztensor.opening import Reader
from ztensor.opening import open as open_file
from ztensor.source.paths import path_text
from ztensor.source.removal import remove_file, stamp_of
from ztensor.tensor import Tensor
from ztensor.threads import Pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from ztensor.layout.base import Array

    Progress = Callable[[int, int], None]
    Action = Callable[[Progress | None], Any]
    # Given what is being done, a place to report how far it is.
    Watch = Callable[[str], AbstractContextManager[Progress | None]]

_BLOCK_BYTES = 16 << 20
_SLACK_BYTES = 16 << 20


# --- A checkpoint to play with --------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointShape:
    """The sizes of a GPT-2; those of the smallest published one by default.

    Attributes:
        vocabulary: rows of the token embedding.
        context: rows of the position embedding.
        width: columns of both.
        layers: how many blocks.
    """

    vocabulary: int = 50257
    context: int = 1024
    width: int = 768
    layers: int = 12

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of every tensor."""
        n = self.width
        shapes: dict[str, tuple[int, ...]] = {
            "wte.weight": (self.vocabulary, n),
            "wpe.weight": (self.context, n),
        }
        for layer in range(self.layers):
            block = {
                "ln_1.weight": (n,),
                "ln_1.bias": (n,),
                "attn.c_attn.weight": (n, 3 * n),
                "attn.c_attn.bias": (3 * n,),
                "attn.c_proj.weight": (n, n),
                "attn.c_proj.bias": (n,),
                "ln_2.weight": (n,),
                "ln_2.bias": (n,),
                "mlp.c_fc.weight": (n, 4 * n),
                "mlp.c_fc.bias": (4 * n,),
                "mlp.c_proj.weight": (4 * n, n),
                "mlp.c_proj.bias": (n,),
            }
            shapes.update({f"h.{layer}.{name}": shape for name, shape in block.items()})
        return shapes | {"ln_f.weight": (n,), "ln_f.bias": (n,)}

    @property
    def parameters(self) -> int:
        """Return how many numbers the tensors hold: 124 million by default."""
        return sum(element_count(shape) for shape in self.tensors().values())


def build_checkpoint(
    shape: CheckpointShape | None = None, *, seed: int = 0, progress: Progress | None = None
) -> dict[str, Any]:
    """Return a bfloat16 checkpoint of random weights, the same for the same seed.

    Three of its matrices are there a second time: pruned to a tenth as `sparse_csr`, as fp8, and
    quantized to four bits.

    Args:
        shape: its sizes; GPT-2 small by default, 249 MB.
        seed: of the random numbers.
        progress: called with the bytes made so far and those to make.
    """
    shapes = (shape or CheckpointShape()).tensors()
    bfloat16 = numpy_dtype("bfloat16")
    total = sum(element_count(one) * bfloat16.itemsize for one in shapes.values())
    tensors: dict[str, Any] = {}

    def make(item: tuple[int, str]) -> Array:
        index, name = item
        # A generator for each tensor: whichever thread makes it, the numbers are the same.
        return _weights(np.random.Generator(np.random.SFC64([seed, index])), name, shapes[name])

    with Pool(min(4, os.cpu_count() or 1)) as pool:
        done = 0
        for name, array in zip(shapes, pool.map(make, enumerate(shapes)), strict=True):
            tensors[name] = array
            done += array.nbytes
            if progress is not None:
                progress(done, total)

    dense = tensors["h.0.mlp.c_fc.weight"].astype(np.float32)
    rows, columns = np.nonzero(np.abs(dense) >= np.quantile(np.abs(dense), 0.9))
    values = tensors["h.0.mlp.c_fc.weight"][rows, columns]
    pointers = np.searchsorted(rows, np.arange(dense.shape[0] + 1))
    tensors["h.0.mlp.c_fc.weight.sparse"] = Tensor.csr(values, columns, pointers, dense.shape)
    fp8 = numpy_dtype("float8_e4m3fn")
    projection = tensors["h.0.attn.c_proj.weight"].astype(np.float32)
    tensors["h.0.attn.c_proj.weight.fp8"] = projection.astype(fp8)
    weight = tensors["h.0.mlp.c_proj.weight"].astype(np.float32)
    tensors["h.0.mlp.c_proj.weight.int4"] = Tensor.quantize(weight, bits=4, group_size=128)
    return tensors


def _weights(random: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    array = np.empty(shape, numpy_dtype("bfloat16"))
    if name.endswith("bias"):
        array[...] = 0
        return array
    flat = array.reshape(-1)
    block = np.empty(min(flat.size, 1 << 20), np.float32)
    for start in range(0, flat.size, block.size):
        piece = block[: flat.size - start]
        random.standard_normal(out=piece, dtype=np.float32)
        piece *= np.float32(0.02)
        flat[start : start + piece.size] = piece
    if ".ln_" in name or name.startswith("ln_"):
        array += 1
    return array


# --- A checkpoint of the user's -------------------------------------------------------------


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tensors and the attributes of a file of any known format, or of a set of files.

    Raises:
        SourceError: it cannot be read.
        FormatError: it is damaged, or of no known format.
        UnsupportedError: it has elements that are unknown here.
        MissingDependencyError: the library of its format is not installed.
    """
    with open_file(path) as reader:
        return {name: reader[name] for name in reader}, reader.attributes


# --- The demonstration ----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """Something that was done.

    Attributes:
        operation: what.
        seconds: how long it took.
        nbytes: bytes it was about, or None.
        moved: whether all of those bytes were read or written, so that a rate has a meaning.
    """

    operation: str
    seconds: float
    nbytes: int | None = None
    moved: bool = True

    @property
    def rate(self) -> float | None:
        """Return bytes per second, or None where it has no meaning."""
        return self.nbytes / self.seconds if self.nbytes and self.moved and self.seconds else None


@dataclasses.dataclass(slots=True)
class Outcome:
    """What the demonstration showed.

    Attributes:
        tensors: how many there are.
        nbytes: their bytes in memory.
        raw_nbytes: size of the raw file.
        compressed_nbytes: size of the compressed file.
        first_tensor_seconds: from the closed file to the first tensor.
        damaged_object: the object in whose copy a bit was flipped, or None.
        verify_message: what verifying said of the damaged copy.
        read_message: what a copying read said of it.
        steps: everything that was timed.
        failures: what is not as it should be; empty where all is well.
    """

    tensors: int
    nbytes: int
    raw_nbytes: int = 0
    compressed_nbytes: int = 0
    first_tensor_seconds: float = 0.0
    damaged_object: str | None = None
    verify_message: str | None = None
    read_message: str | None = None
    steps: list[Step] = dataclasses.field(default_factory=list)
    failures: list[str] = dataclasses.field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Return whether everything is as it should be."""
        return not self.failures


@contextlib.contextmanager
def _unwatched(_doing: str) -> Iterator[None]:
    yield None


def run(
    tensors: Mapping[str, Any],
    *,
    attributes: Mapping[str, object] | None = None,
    folder: str | os.PathLike[str] | None = None,
    report: Callable[[Step], None] | None = None,
    watch: Watch = _unwatched,
) -> Outcome:
    """Save tensors raw and compressed, load them in every way, compare, damage a copy.

    Args:
        tensors: names to arrays or `Tensor`s.
        attributes: the file's own key-value pairs.
        folder: where a temporary folder is made and removed again; the system's by default.
        report: called with each step as it is done.
        watch: called with what begins; gives a function for the bytes done so far and in all.

    Raises:
        ArgumentValueError: there are no tensors.
        SourceError: there is not enough free space, or files cannot be written.
        NotRepresentableError: a tensor cannot be stored; the message says what would work.
    """
    if not tensors:
        raise ArgumentValueError("there are no tensors to show anything with")
    with _temporary_folder(folder) as place:
        _require_space(place, sum(tensor.nbytes for tensor in tensors.values()))
        demonstration = _Demonstration(tensors, dict(attributes or {}), place, report, watch)
        demonstration.save()
        demonstration.load()
        demonstration.read_slice()
        demonstration.verify()
        demonstration.damage()
        return demonstration.outcome


@contextlib.contextmanager
def _temporary_folder(folder: str | os.PathLike[str] | None) -> Iterator[Path]:
    place = path_text(tempfile.gettempdir() if folder is None else folder)
    try:
        # Windows keeps files that are still mapped; the system's cleaning takes them later.
        made = tempfile.TemporaryDirectory(
            prefix="ztensor-demo-", dir=place, ignore_cleanup_errors=True
        )
    except OSError as error:
        raise SourceError.from_os(error, "cannot make a temporary folder", place) from error
    with made as path:
        yield Path(path)


def _require_space(folder: Path, nbytes: int) -> None:
    needed = 2 * nbytes + _SLACK_BYTES  # two files at a time, neither larger than the tensors
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise SourceError.from_os(error, "cannot look at the disk", str(folder)) from error
    if free < needed:
        raise SourceError(
            "not enough free space for the demo; set TMPDIR to a folder with more",
            file=str(folder.parent),
            expected=f"{needed:,} bytes",
            found=f"{free:,}",
        )


class _Demonstration:
    """The steps, in the order of the methods."""

    def __init__(
        self,
        tensors: Mapping[str, Any],
        attributes: dict[str, object],
        folder: Path,
        report: Callable[[Step], None] | None,
        watch: Watch,
    ) -> None:
        self.outcome = Outcome(len(tensors), sum(tensor.nbytes for tensor in tensors.values()))
        self._tensors = tensors
        self._attributes = attributes
        self._raw = folder / "raw.zt"
        self._compressed = folder / "compressed.zt"
        self._damaged = folder / "damaged.zt"
        self._report = report
        self._watch = watch

    def _step(
        self,
        operation: str,
        action: Action,
        nbytes: int | None = None,
        *,
        moved: bool = True,
    ) -> Any:
        """Return what `action` returns, and report how long it took."""
        with self._watch(operation) as progress:
            begin = time.perf_counter()
            result = action(progress)
            step = Step(operation, time.perf_counter() - begin, nbytes, moved)
        self.outcome.steps.append(step)
        if self._report is not None:
            self._report(step)
        return result

    def _fail(self, failure: str) -> None:
        self.outcome.failures.append(failure)

    def save(self) -> None:
        """Save raw and compressed."""

        def saving(path: Path, *, compression: bool) -> Action:
            return lambda progress: save_file(
                self._tensors,
                path,
                self._attributes or None,
                compression=compression,
                progress=progress,
            )

        nbytes = self.outcome.nbytes
        self._step("save raw, crc32c", saving(self._raw, compression=False), nbytes)
        self._step("save compressed, zstd", saving(self._compressed, compression=True), nbytes)
        self.outcome.raw_nbytes = self._raw.stat().st_size
        self.outcome.compressed_nbytes = self._compressed.stat().st_size

    def load(self) -> None:
        """Load in every way, and compare each time."""
        self._step("open, get the first tensor", self._first_tensor, moved=False)
        self.outcome.first_tensor_seconds = self.outcome.steps[-1].seconds

        def loading(path: Path, *, copy: bool) -> Action:
            return lambda progress: load_file(path, copy=copy)

        nbytes = self.outcome.nbytes
        map_file = loading(self._raw, copy=False)
        mapped = self._step("load mapped, nothing read yet", map_file, nbytes, moved=False)
        self._step("touch every byte of it", functools.partial(_touch, mapped), nbytes)
        self._compare("mapped", mapped)
        mapped = None  # its pages count as memory
        for how, path in (("raw", self._raw), ("compressed", self._compressed)):
            copies = self._step(f"load copies of {how}, checked", loading(path, copy=True), nbytes)
            self._compare(how, copies)
            copies = None

    def _first_tensor(self, _progress: Progress | None) -> object:
        with Reader(self._raw) as reader:
            return reader[next(iter(reader))]

    def _compare(self, how: str, loaded: Mapping[str, Any]) -> None:
        differing = self._step(
            f"compare with the original ({how})",
            lambda progress: differences(self._tensors, loaded),
            self.outcome.nbytes,
        )
        for name in differing:
            self._fail(f"loaded {how}, {describe(name)} differs from the original")

    def read_slice(self) -> None:
        """Read eight rows out of the middle of the largest dense tensor."""
        dense = [
            (array.nbytes, name)
            for name, array in self._tensors.items()
            if isinstance(array, np.ndarray) and array.ndim and array.size
        ]
        if not dense:
            return
        name = max(dense)[1]
        whole = self._tensors[name]
        middle = whole.shape[0] // 2
        rows = slice(middle, middle + 8)

        def read(_progress: Progress | None) -> Array:
            with Reader(self._raw, mmap=False) as reader:  # reads, so that bytes move
                found: Array = reader.get_slice(name)[rows]
                return found

        part = self._step("open, read 8 rows of the largest", read, whole[rows].nbytes, moved=False)
        if not _same(whole[rows], part):
            self._fail(f"a slice of {describe(name)} differs")

    def verify(self) -> None:
        """Verify both files."""
        for how, path in (("raw", self._raw), ("compressed", self._compressed)):
            found = self._step(f"verify {how}", _verifying(path), path.stat().st_size)
            for problem in found.problems:
                self._fail(f"verify finds a problem in a good file: {problem}")

    def damage(self) -> None:
        """Flip one bit in a copy of the raw file; verifying and reading must notice."""
        remove_file(str(self._compressed), stamp_of(str(self._compressed)))
        with Reader(self._raw) as reader:
            length, name, role = max(
                (component.length, found.name, role)
                for found in reader.metadata(list(reader))
                for role, component in found.components.items()
            )
            if not length:
                return  # no bit to flip
            offset = reader.location(name, role).offset + length // 2
        _copy_with_flipped_bit(self._raw, self._damaged, offset)
        self.outcome.damaged_object = name

        size = self.outcome.raw_nbytes
        found = self._step("verify a copy, one bit flipped", _verifying(self._damaged), size)
        noticed = [problem for problem in found.problems if problem.object_name == name]
        if len(noticed) == len(found.problems) == 1:
            self.outcome.verify_message = noticed[0].message
        else:
            self._fail(f"verify should have named {describe(name)} as the one damaged object")

        def refusal(_progress: Progress | None) -> str | None:
            try:
                with Reader(self._damaged) as reader:
                    reader.read(name, copy=True)
            except DigestMismatchError as error:
                return str(error)
            return None

        self.outcome.read_message = self._step("read the damaged tensor", refusal, length)
        if self.outcome.read_message is None:
            self._fail(f"reading {describe(name)} gave damaged bytes")


def _copy_with_flipped_bit(source: Path, target: Path, offset: int) -> None:
    try:
        shutil.copyfile(source, target)
        with target.open("r+b") as file:
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ 1]))
    except OSError as error:
        raise SourceError.from_os(error, "cannot copy", str(target)) from error


def _verifying(path: Path) -> Action:
    def verify(progress: Progress | None) -> Any:
        with Reader(path) as reader:
            return reader.verify(progress=progress)

    return verify


# --- Comparing ------------------------------------------------------------------------------


def differences(original: Mapping[str, Any], loaded: Mapping[str, Any]) -> list[str]:
    """Return the names that are missing on one side, or whose tensors differ in any bit."""
    names = [*original, *(name for name in loaded if name not in original)]
    return [
        name
        for name in names
        if name not in original or name not in loaded or not _same(original[name], loaded[name])
    ]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return (
            isinstance(one, Tensor)
            and isinstance(other, Tensor)
            and (one.shape, one.format) == (other.shape, other.format)
            and one.components.keys() == other.components.keys()
            and all(
                _same(array.reshape(-1), other.components[role].reshape(-1))
                for role, array in one.components.items()
            )
        )
    if one.shape != other.shape:
        return False
    if one.dtype.newbyteorder("=") != other.dtype.newbyteorder("="):
        # Indices of sparse tensors are stored as u64, whatever they were.
        return one.dtype.kind in "iu" and other.dtype.kind in "iu" and bool((one == other).all())
    pairs = zip(_byte_blocks(one), _byte_blocks(other), strict=True)
    return all(np.array_equal(left, right) for left, right in pairs)


def _byte_blocks(array: Array) -> Iterator[Array]:
    """Yield an array's bytes in C order, native byte order, a block at a time."""
    if array.flags.c_contiguous and array.dtype.isnative:
        flat = array.reshape(-1).view(np.uint8)
        for start in range(0, flat.size, _BLOCK_BYTES):
            yield flat[start : start + _BLOCK_BYTES]
        return
    native = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    yield from _byte_blocks(native.reshape(array.shape))


def _touch(tensors: Mapping[str, Any], _progress: Progress | None) -> int:
    """Return the largest byte, for which every byte has to be looked at."""
    largest = 0
    for tensor in tensors.values():
        arrays = tensor.components.values() if isinstance(tensor, Tensor) else (tensor,)
        for array in arrays:
            for block in _byte_blocks(array):
                largest = max(largest, int(block.max(initial=0)))
    return largest

"""Make files of every format with its own library, and hold ours to what that library reads.

    python tests/interop/formats.py     the table for the libraries that are installed

A row is a kind of file, a column something that is done with it:

- read equal: every tensor and attribute is what the library reads, bit for bit;
- slices: a part of each tensor is the same part of the whole;
- verify: good files are clean; cut ones are refused, and so are flipped bits where there is a
  checksum;
- convert in: as a `.zt` file they hold the same, with the same content id;
- export: written in their format again, the library reads the same from them;
- hostile: so many samples made to do harm, and each is an error of ours.

`=` means that it is so, `.` that the format is not written. `!` is a fault: it is shown below the
table, and the status is 1.
"""

from __future__ import annotations

import functools
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

import ztensor.numpy
from tests.interop.format_files import FORMATS, Format, Gguf, Held, Place, missing
from tests.interop.frameworks import NumPy, Seen, bits
from ztensor import Reader, Tensor, UsageError, ZTensorError
from ztensor.testing.promise import is_same
from ztensor.typing import Array

# --- Columns --------------------------------------------------------------------------------


class Sample:
    """The good files of a row, made once, and their content by the library.

    Args:
        format: the row.
        folder: an empty one, where all the row's files go.
    """

    def __init__(self, format: Format, folder: Path) -> None:  # it is one
        self.format = format
        self.folder = folder

    @functools.cached_property
    def files(self) -> list[Path]:
        good = self.folder / "good"
        good.mkdir()
        return self.format.make(good)

    @functools.cached_property
    def held(self) -> list[Held]:
        """Read each file by the library."""
        return [self.format.read(path) for path in self.files]

    def new(self, what: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{what}-", dir=self.folder))


def seen(value: Any) -> Seen:
    """Return our view of an object; blocks that we decode also as floats."""
    if isinstance(value, Tensor) and value.format.startswith("gguf."):
        found = NumPy().seen(value)
        if value.format.removeprefix("gguf.").upper() in Gguf.DECODED:
            return Seen(found.shape, {**found.parts, "dense": bits(value.to_dense())})
        return found
    return NumPy().seen(value)


def require_equal(reader: Reader, held: Held) -> None:
    """Check that a reader has the content that the library read."""
    assert set(reader) == set(held.tensors), f"other names: {set(reader) ^ set(held.tensors)}"
    for name, expected in held.tensors.items():
        assert seen(reader.read(name)) == expected, f"{name!r} is different"
        notes = dict(reader.metadata(name).attributes)
        assert notes == held.notes.get(name, {}), f"{name!r} has other attributes: {notes}"
    found = reader.attributes
    assert found == held.attributes, f"other attributes: {found}, not {held.attributes}"


def read_equal(sample: Sample) -> str:
    """Check every tensor and attribute, lazily read and all at once, mapped and copied."""
    assert any(held.tensors for held in sample.held), "nothing was made"
    for path, held in zip(sample.files, sample.held, strict=True):
        with ztensor.open(path) as reader:
            require_equal(reader, held)
        for copy in (False, True):
            loaded = ztensor.numpy.load_file(path, copy=copy)
            assert set(loaded) == set(held.tensors), "other names are loaded"
            for name, expected in held.tensors.items():
                found, parts = seen(loaded[name]), dict(expected.parts)
                if isinstance(loaded[name], np.ndarray):  # without components beside the data
                    parts = {"data": parts["data"]}
                assert found == Seen(expected.shape, parts), f"{name!r} is loaded different"
    return "="


def slices(sample: Sample) -> str:
    """Check parts against the same parts of the whole."""
    for path in sample.files:
        with ztensor.open(path) as reader:
            for name in reader:
                for key, expected in parts_of(reader.read(name)):
                    found = reader.get_slice(name)[key]
                    if isinstance(found, Tensor):
                        found = flat_part(found)
                    same = found.dtype == expected.dtype and is_same(np.asarray(found), expected)
                    assert same, f"{name!r}[{key}] is different"
    return "="


def parts_of(whole: Tensor) -> Iterator[tuple[Any, Array]]:
    """Yield indices and the expected results; for other layouts than dense, rows."""
    if whole.format == "dense":
        array = whole.numpy()
        keys: list[Any] = [..., (), None]
        if array.nbytes > 1 << 20:
            keys = [np.s_[5:-5:97, 3], np.s_[-2:, ::-3]]
        elif array.ndim:
            keys += [np.s_[1:], np.s_[::2], np.s_[2:1], np.s_[::-1], np.s_[..., :1]]
            if len(array) > 1:
                keys += [0, -1, [1, 0], np.arange(len(array)) % 2 == 1]
            if array.ndim > 1:
                keys += [np.s_[1:, 1:], np.s_[:, ::-2]]
        for key in keys:
            yield key, np.asarray(array[key])
    elif whole.format in ("sparse_csr", "sparse_coo") or whole.format.startswith("gguf."):
        rows = flat_part(whole)
        if whole.format.startswith("gguf."):
            rows = rows.reshape(whole.shape[0], -1)
        for key in (np.s_[1:], np.s_[::2], np.s_[1:1]):
            part = rows[key]
            yield key, part.reshape(-1) if whole.format.startswith("gguf.") else part


def flat_part(tensor: Tensor) -> Array:
    """Return a part as an array: blocks as bytes, others dense."""
    if tensor.format.startswith("gguf."):
        return tensor.components["data"].reshape(-1)
    return tensor.to_dense()


def verify(sample: Sample) -> str:
    """Check that good files are clean, that cut ones are noticed, and flipped bits where asked."""
    for path, held in zip(sample.files, sample.held, strict=True):
        with ztensor.open(path) as reader:
            report = reader.verify()
        assert not report.problems, f"{path.name} is not clean: {report.problems[0]}"
        assert report.objects == len(held.tensors), f"{report.objects} objects were walked"
        places = [place for place in sample.format.places(path) if place.length]
        damaged = sample.new("damaged")
        for file in {path, *(place.path for place in places)}:
            shutil.copy(file, damaged)
        for file in {place.path for place in places}:
            inside = [place for place in places if place.path == file]
            require_noticed(damaged / path.name, damaged / file.name, inside)
        shutil.rmtree(damaged)
    return "="


def require_noticed(path: Path, file: Path, places: list[Place]) -> None:
    """Check that damage to a file is noticed where another, or itself, is opened."""
    good = file.read_bytes()
    last = max(place.offset + place.length for place in places)
    for size in {last - 1, last // 2, 12}:
        file.write_bytes(good[:size])
        assert noticed(path), f"{file.name} was cut to {size} bytes, and nothing said so"
    checked = [place for place in places if place.has_checksum]
    file.write_bytes(flipped(good, checked))
    found = noticed(path)
    if "*" in found:  # refused as a whole: one after the other, then
        for place in checked:
            file.write_bytes(flipped(good, [place]))
            found |= {place.name} if noticed(path) else set()
    lost = {place.name for place in checked} - found
    assert not lost, f"bits were flipped, and nothing said so: {sorted(lost)[:8]}"
    file.write_bytes(good)


def flipped(data: bytes, places: list[Place]) -> bytes:
    """Return a file with a bit flipped in the middle of each place."""
    changed = bytearray(data)
    for at in {place.offset + place.length // 2 for place in places}:
        changed[at] ^= 1
    return bytes(changed)


def noticed(path: Path) -> set[str]:
    """Return the objects in which verifying a file finds problems; `*` where it is refused."""
    try:
        with ztensor.open(path) as reader:
            report = reader.verify()
    except ZTensorError:
        return {"*"}
    return {problem.object_name or "*" for problem in (*report.problems, *report.unsupported)}


def convert_in(sample: Sample) -> str:
    """Check the content of a `.zt` file converted from each."""
    for number, (path, held) in enumerate(zip(sample.files, sample.held, strict=True)):
        made = sample.new("in") / f"{number}.zt"
        report = ztensor.convert(path, made)
        assert report.is_lossless, f"{path.name} loses: {report.lost[0]}"
        with ztensor.open(made) as reader:
            assert (reader.format, reader.version) == ("zt", "1.2.0")
            require_equal(reader, held)
            assert not reader.verify().problems, "the converted file is damaged"
        same = ztensor.content_hash(path, attributes=True) == ztensor.content_hash(
            made, attributes=True
        )
        assert same, f"{path.name} has another content id"
        shutil.rmtree(made.parent)
    return "="


def export(sample: Sample) -> str:
    """Check exports to the format with its library, from a `.zt` file and from itself."""
    to = sample.format.written_as
    if to is None:
        return "."
    for path, held in zip(sample.files, sample.held, strict=True):
        folder = sample.new("out")
        ztensor.convert(path, folder / "between.zt")
        for source in (path, folder / "between.zt"):
            made = folder / "made"
            ztensor.convert(source, made, to=to, version=sample.format.version)
            found = sample.format.read(made)
            assert found.tensors.keys() == held.tensors.keys(), f"{path.name}: other names"
            for name, expected in held.tensors.items():
                assert found.tensors[name] == expected, f"{name!r} is written different"
                same = found.notes.get(name, {}) == held.notes.get(name, {})
                assert same, f"{name!r} is written with other attributes"
            assert found.attributes == held.attributes, f"{path.name}: other attributes"
        shutil.rmtree(folder)
    return "="


def hostile(sample: Sample) -> str:
    """Check that samples give errors of ours alone, and return how many there are."""
    samples = sample.format.hostile(sample.new("hostile"))
    assert samples, "no samples"
    for path in samples:
        try:
            ztensor.numpy.load_file(path, copy=True, verify=True)
        except UsageError as error:
            raise AssertionError(f"{path.name} is said to be the caller's fault") from error
        except ZTensorError:
            pass
        except Exception as error:
            raise AssertionError(f"{path.name} raises {error!r}") from error
        else:
            assert sample.format.is_left_to_verify(path), f"{path.name} was read"
        assert noticed(path), f"{path.name} is said to be good"
    return f"= {len(samples)}"


COLUMNS: Mapping[str, Callable[[Sample], str]] = {
    "read equal": read_equal,
    "slices": slices,
    "verify": verify,
    "convert in": convert_in,
    "export": export,
    "hostile": hostile,
}


# --- The table ------------------------------------------------------------------------------


def main() -> int:
    """Print the table; return 1 where a cell is wrong."""
    print_row("format", COLUMNS)
    faults, absent = [], []
    for format_ in FORMATS:
        if needed := missing(format_):
            absent.append(f"left out, not installed: {', '.join(needed)}: {format_.title}")
            continue
        signs = []
        with tempfile.TemporaryDirectory() as folder:
            sample = Sample(format_, Path(folder))
            for column, check in COLUMNS.items():
                try:
                    sign = check(sample)
                except Exception as error:  # noqa: BLE001  # any is a fault, and the rest goes on
                    sign = "!"
                    faults.append(f"{format_.title}, {column}: {type(error).__name__}: {error}")
                signs.append(f"{sign:{len(column)}}")
        print_row(format_.title, signs)
    for line in (*faults, *absent):
        print(line)
    return 1 if faults else 0


def print_row(first: str, cells: Iterable[str]) -> None:
    print("  ".join([f"{first:20}", *cells]).rstrip())


if __name__ == "__main__":
    sys.exit(main())

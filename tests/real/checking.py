"""One real file: read, compared with its own library, converted, and its account held to both."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import ztensor
from tests.real.libraries import theirs
from ztensor import Reader
from ztensor.ext import FORMATS
from ztensor.io.losses import MOST_ENTRIES
from ztensor.quantization.gguf_blocks import GGUF_LAYOUTS


@dataclasses.dataclass
class Row:
    """The results of one file.

    Attributes:
        package: the package it is from; the first of several.
        member: its path there.
        format: what kind of file it is, finer than `Reader.format` says.
        nbytes: how long it is.
        objects: how many objects it has.
        equal: how many of them are equal to the values of the format's own library.
        ours_alone: objects that are read here and not by that library.
        theirs_alone: objects that the library reads as numbers, and that are listed only here.
        unread: objects that are listed, and refused when they are read, by kind.
        value_nbytes: bytes of the values that were compared.
        left: the other losses in the loss report, by kind.
        reason: why the file is refused, or "".
        message: the same in words.
        faults: descriptions of faults.
    """

    package: str
    member: str
    format: str = ""
    nbytes: int = 0
    objects: int = 0
    equal: int = 0
    ours_alone: int = 0
    theirs_alone: int = 0
    unread: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    value_nbytes: int = 0
    left: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    reason: str = ""
    message: str = ""
    faults: list[str] = dataclasses.field(default_factory=list)


def check(path: Path, package: str, member: str) -> Row:
    """Return the results of a file; all errors are among the row's faults."""
    row = Row(package, member, nbytes=path.stat().st_size)
    try:
        with ztensor.open(path) as reader:
            _check_reader(reader, path, row)
    except ztensor.ZTensorError as error:
        if error.reason is ztensor.Reason.UNFORESEEN or row.format:
            row.faults.append(f"{type(error).__name__}: {error}")
        row.reason, row.message = str(error.reason or ""), error.message
        row.format = row.format or "refused"
    except Exception as error:  # noqa: BLE001  # the other files are to be looked at, too
        row.faults.append(f"{type(error).__name__}: {error}")
    return row


def _check_reader(reader: Reader, path: Path, row: Row) -> None:
    row.format, row.objects = _kind(reader, path), len(reader)
    reported = 0
    for one in reader.unrepresented:
        if one.kind.startswith("unread "):
            reported += one.count
        else:
            row.left[one.kind] += one.count
    unread = {name for name in reader if not _is_read(reader, name)}
    row.unread.update(str(reader.metadata(name).dtype) for name in unread)
    if reported < len(unread) and len(reader.unrepresented) <= MOST_ENTRIES:
        row.faults.append(f"{len(unread)} objects cannot be read, the loss report has {reported}")
    _compare(reader, path, row, unread)
    if unread and len(unread) == len(reader):
        _refuse(path, row)
    else:
        _convert(reader, path, row, unread)
    if problems := reader.verify().problems:
        row.faults.append(f"it does not verify: {problems[0]}")


def _kind(reader: Reader, path: Path) -> str:
    if reader.format == "pt":
        return "torch.save, zip" if path.read_bytes()[:2] == b"PK" else "torch.save, legacy"
    if reader.format == "hdf5":
        keys = reader.attributes
        return "HDF5, Keras" if {"keras_version", "layer_names"} & set(keys) else "HDF5"
    names = {"npy": "npy", "npz": "npz", "gguf": "GGUF", "keras": "Keras archive", "onnx": "ONNX"}
    return names.get(reader.format, reader.format)


def _is_read(reader: Reader, name: str) -> bool:
    try:
        reader.read(name)
    except ztensor.UnsupportedError:
        return False
    return True


# --- Beside the format's own library --------------------------------------------------------


def _compare(reader: Reader, path: Path, row: Row, unread: set[str]) -> None:
    """Hold every value that either side has to the other side."""
    left: dict[str, list[str]] = {}
    for name in reader:  # in ONNX, a number distinguishes inner tensors of the same name
        left.setdefault(name.partition("#")[0] if row.format == "ONNX" else name, []).append(name)
    said = {one.where for one in reader.unrepresented} | {key.lstrip("/") for key in _texts(reader)}
    is_cut = len(reader.unrepresented) > MOST_ENTRIES
    for name, expected in theirs(reader.format, path):
        key = name.partition("#")[0] if row.format == "ONNX" else name
        names = left.get(key, [])
        if not names:
            if expected is not None:
                row.faults.append(f"{name!r} is in the file, and not listed here")
            elif name not in said and not is_cut:
                row.faults.append(f"{name!r} is in the file, and in no account of it")
            continue
        if expected is None:
            found = next((one for one in names if one in unread), names[0])
            names.remove(found)
            row.ours_alone += found not in unread
            continue
        same = next((n for n in names if n not in unread and _is_same(reader, n, expected)), None)
        if same is not None:
            names.remove(same)
            if not _are_rows_same(reader, same, expected):
                row.faults.append(f"rows of {same!r} differ")
            row.equal += 1
            row.value_nbytes += _nbytes(expected)
        elif names[0] in unread:
            names.pop(0)
            row.theirs_alone += 1
        else:
            found = names.pop(0)
            row.faults.append(
                f"{found!r} differs: {_told(_value(reader, found))} for {_told(expected)}"
            )
    rest = [name for names in left.values() for name in names if name not in unread]
    row.faults += [f"{name!r} is read here, and the library has none" for name in rest]


def _texts(reader: Reader) -> Iterable[str]:
    """Yield the paths of texts and attributes that are the file's attributes."""
    for key, value in reader.attributes.items():
        yield key
        if isinstance(value, dict):
            yield from (f"{key}/{inner}" for inner in value)


def _value(reader: Reader, name: str) -> Any:
    """Return an object as its own library has it."""
    tensor = reader.read(name)
    if tensor.format == "dense":
        return tensor.numpy()
    if tensor.format in GGUF_LAYOUTS:
        return tensor.dequantize()
    return tensor.to_scipy()


def _are_rows_same(reader: Reader, name: str, expected: Any) -> bool:
    """Return whether a lazy slice of an object is the same part of the whole."""
    if not isinstance(expected, np.ndarray) or reader.metadata(name).format != "dense":
        return True  # rows of other layouts are not compared
    if not expected.ndim:
        return is_equal(np.asarray(reader.get_slice(name)[()]), expected)
    key = slice(len(expected) // 3, len(expected) // 3 + 2)
    return is_equal(np.asarray(reader.get_slice(name)[key]), expected[key])


def _is_same(reader: Reader, name: str, expected: Any) -> bool:
    return is_equal(_value(reader, name), expected)


def is_equal(found: Any, expected: Any) -> bool:
    """Return whether two arrays, dense or sparse, are the same, bit for bit."""
    if not isinstance(expected, np.ndarray):
        return bool(
            found.format == expected.format
            and found.shape == expected.shape
            and is_equal(found.toarray(), expected.toarray())
        )
    if not isinstance(found, np.ndarray) or found.shape != expected.shape:
        return False
    native = expected.astype(expected.dtype.newbyteorder("="), copy=False)
    return bool(
        found.dtype.name == native.dtype.name
        and (np.array_equal(found, native) or found.tobytes() == native.tobytes())
    )


def _told(value: Any) -> str:
    return f"{value.dtype} {value.shape}"


def _nbytes(value: Any) -> int:
    return int(value.nbytes if isinstance(value, np.ndarray) else value.data.nbytes)


# --- As a file of ours ----------------------------------------------------------------------


def _convert(reader: Reader, path: Path, row: Row, unread: set[str]) -> None:
    target = path.with_name("converted.zt")
    report = ztensor.convert(path, target)
    try:
        whole = [
            one
            for one in reader.unrepresented
            if not (one.kind.startswith("unread ") and one.where in reader)
        ]
        if list(report.unrepresented) != whole:
            row.faults.append("the conversion's loss report differs from the reader's")
        if unread - {loss.object_name for loss in report.lost}:
            row.faults.append("the conversion leaves out objects, and does not say so")
        if report.is_lossless == bool(reader.unrepresented or unread):
            row.faults.append("the conversion says that nothing is lost, and something is")
        with ztensor.open(target) as copied:
            if set(copied) != set(reader) - unread:
                row.faults.append("the copy has other objects")
            for name in copied:
                if not is_equal_tensor(copied, reader, name):
                    row.faults.append(f"{name!r} differs in the copy")
            if copied.verify().outcome != "ok":
                row.faults.append("the copy does not verify")
            if reader.format in FORMATS.written():
                _convert_back(copied, reader.format, target, row)
    finally:
        target.unlink()


def _convert_back(copied: Reader, kind: str, target: Path, row: Row) -> None:
    """Write the copy in the format it came from, and let that format's library read it."""
    back = target.with_name(f"back{FORMATS.written()[kind][0]}")
    ztensor.convert(target, back)
    try:
        names = set(copied)
        for name, found in theirs(kind, back):
            if name in names and found is not None:
                names.remove(name)
                if not is_equal(_value(copied, name), found):
                    row.faults.append(f"{name!r} is not the same in its own format again")
        if names:
            row.faults.append(f"in its own format again {min(names)!r} is not there")
    finally:
        back.unlink()


def _refuse(path: Path, row: Row) -> None:
    """Take a file of which nothing can be read as one that is refused, as `convert` does."""
    try:
        ztensor.convert(path, path.with_name("converted.zt"))
        row.faults.append("of nothing there is a copy")
    except ztensor.NotRepresentableError as error:
        row.reason, row.message = str(error.reason), error.message


def is_equal_tensor(copied: Reader, reader: Reader, name: str) -> bool:
    """Return whether an object of a copy has the same elements, components and attributes."""
    ours, source = copied.read(name), reader.read(name)
    return (
        (ours.format, ours.shape, ours.type) == (source.format, source.shape, source.type)
        and _plain(ours.attributes) == _plain(source.attributes)
        and ours.components.keys() == source.components.keys()
        and all(
            # Indices become u64, whatever they were.
            np.array_equal(ours.components[role], part)
            or ours.components[role].tobytes() == part.tobytes()
            for role, part in source.components.items()
        )
    )


def _plain(value: Any) -> Any:
    """Return attributes in a form that compares equal even for NaN."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return repr(value)

"""The table of formats agrees with the code and the pages."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from ztensor.errors import ArgumentValueError
from ztensor.ext import FORMATS, source_of
from ztensor.io.formats import recognised
from ztensor.numpy import save_file

PAGE = (Path(__file__).parents[3] / "docs" / "guides" / "formats.md").read_text("utf-8")
ROWS = re.findall(r"^\| (.+?) \| yes \| (.*?) ?\| .*\|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_read_and_written_where_the_table_says(name: str) -> None:
    module = importlib.import_module(FORMATS[name].module)
    assert callable(module.project)
    assert hasattr(module, "export") == FORMATS[name].is_written


@pytest.mark.parametrize("name", FORMATS)
def test_the_page_has_a_row_of_each(name: str) -> None:
    one = FORMATS[name]
    words = (one.program, *(f"`{suffix}`" for suffix in one.suffixes))
    found = [bool(written) for row, written in ROWS if any(word in row for word in words)]
    assert one.is_written in found


@pytest.mark.parametrize("suffix", [s for all_of in FORMATS.written().values() for s in all_of])
def test_a_suffix_that_is_written_is_in_the_docstring(suffix: str) -> None:
    assert suffix == ".zt" or f"`{suffix}`" in (save_file.__doc__ or "")


def test_no_suffix_is_of_two_formats() -> None:
    suffixes = FORMATS.read_suffixes()
    assert len(set(suffixes)) == len(suffixes)
    assert FORMATS.named_as("a/MODEL.H5") == "hdf5"
    assert FORMATS.named_as("model.bin") is None


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("a/m.zt", True),
        ("m.SafeTensors", True),
        ("m.bin", True),
        ("m.keras", True),
        ("m.txt", False),
        ("safetensors", False),
        ("m.npz.part", False),
    ],
)
def test_files_of_some_suffixes_can_mostly_be_read(path: str, is_one: bool) -> None:
    assert FORMATS.readable([path, "m.txt"]) == [path] * is_one


def tar(name: bytes, magic: bytes = b"ustar") -> bytes:
    return name.ljust(257, b"\0") + magic + bytes(100)


HDF5 = b"\x89HDF\r\n\x1a\n"
EMPTY_ARCHIVE = b"PK\5\6".ljust(22, b"\0")
BEGINNINGS: dict[str, tuple[bytes, str | None]] = {
    "no archive member": (EMPTY_ARCHIVE, "npz"),
    "the longest comment": (EMPTY_ARCHIVE + bytes(0xFFFF), "npz"),
    "more than a comment": (EMPTY_ARCHIVE + bytes(0x10000), None),
    **{f"a tar of {word}": (tar(word.encode()), "pt") for word in ("sys_info", "pickle")},
    **{f"tar of {word}": (tar(word.encode()), "pt") for word in ("storages", "tensors")},
    "a tar of something": (tar(b"tensors.txt"), None),
    "no tar": (tar(b"tensors", b"ustaf"), None),
    **{f"pickle {one}": (b"\x80" + bytes([one]) + b"]q\0(cx", "pt") for one in (2, 3, 4, 5)},
    **{f"no pickle {one}": (b"\x80" + bytes([one]) + b"]q\0(cx", None) for one in (1, 6)},
    "another first byte": (b"\x81\2]q\0(cx", None),
    "a short frame": (b"\x80\4\x95\x09\0\0\0\0\0\0\0}", "pt"),
    "zeros without a frame": (b"\x80\2\x96\x09\0\0\0\0\0\0\0}", None),
    "HDF5": (HDF5, "hdf5"),
    "HDF5 behind 512 bytes": (bytes(512) + HDF5, "hdf5"),
    "HDF5 behind 2048 bytes": (bytes(2048) + HDF5 + bytes(9), "hdf5"),
    "HDF5 elsewhere": (bytes(1536) + HDF5 + bytes(9), None),
    "HDF5 that is cut": (bytes(512) + HDF5[:-1], None),
    **{f"ONNX with {mark!r}": (bytes([8, 7, mark, 0]), "onnx") for mark in b'\x12\x1a"(2:Br'},
    "another field behind the version": (b"\x08\x07\x13\0", None),
    "ONNX of the highest version": (b"\x08\x7f\x12\0", "onnx"),
    "a version of two bytes": (b"\x08\x80\x12\0", None),
    "version 0": (b"\x08\0\x12\0", None),
    "a version and nothing more": (b"\x08\x07", None),
    "nothing": (b"", None),
}


@pytest.mark.parametrize(("data", "name"), BEGINNINGS.values(), ids=list(BEGINNINGS))
def test_a_file_is_recognised_by_how_it_begins(data: bytes, name: str | None) -> None:
    assert recognised(source_of(data, mapped=False)) == name


def test_what_is_written_object_by_object_is_a_ztensor_file() -> None:
    FORMATS.require_ours("m.zt")
    FORMATS.require_ours("m.npz", format="zt")
    for path, format, found in (("a/m.npz", None, ".npz"), ("m.zt", "npz", "npz")):
        with pytest.raises(ArgumentValueError) as caught:
            FORMATS.require_ours(path, format)
        assert str(caught.value.found).strip("'") == found
        assert caught.value.hint is not None
        assert "save_file(tensors, path) writes npz" in caught.value.hint

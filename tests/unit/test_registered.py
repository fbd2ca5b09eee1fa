"""Layouts, encodings and types registered from outside meet the checks of built-in ones.

Each case is a file that breaks a rule, once with a built-in word and once with a registered one:
opening, reading and `verify` find the same, in 1.x and in 2.x.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from ztensor import LogicalType, Tensor, register_logical_type
from ztensor.errors import LayoutError, NotRepresentableError, Problem, Reason
from ztensor.ext import EMITTERS, ENCODINGS, LAYOUTS, LOGICAL_TYPES, Encoding, Layout
from ztensor.numpy import save_file

VERSIONS = ["1.2.0", "2.1"]  # 1.1 has no words of others


class Deflate(Encoding):
    """Bytes as zlib stores them; its errors are those of the library."""

    name = "acme.deflate"
    is_written = True

    def decode_into(self, stored: Any, destination: memoryview, limits: Any) -> None:
        data = zlib.decompress(stored.read(0, stored.length))
        self.require_equal_length(len(destination), len(data), "another length")
        destination[:] = data

    def encode(
        self, data: memoryview, *, level: int, frame_bytes: int | None = None
    ) -> Iterator[bytes]:
        yield zlib.compress(data)


class Scaled(Layout):
    """Values and one scale; the shape is of the values. A rank above 2 shows in the manifest."""

    name = "acme.scaled"
    main_role = "values"
    read_order = ("values", "scale")

    def check_object(self, tensor_object: Any) -> list[Problem]:
        problems = super().check_object(tensor_object)
        if len(tensor_object.shape) > 2:
            problems.append(Problem(Reason.LAYOUT_RANK, "expected two dimensions", ("shape",)))
        return problems

    def require_valid(self, view: Any) -> None:
        super().require_valid(view)
        if view.arrays["values"].size != np.prod(view.shape) or view.arrays["scale"].size != 1:
            raise LayoutError("the values do not make the shape", reason=Reason.SIZE_MISMATCH)

    def to_dense(self, view: Any) -> Any:
        self.require_valid(view)
        return view.arrays["values"].reshape(view.shape) * view.arrays["scale"]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    EMITTERS.named("2.1")  # what 2.x knows is loaded before
    ENCODINGS["acme.deflate"], LAYOUTS["acme.scaled"] = Deflate(), Scaled()
    register_logical_type(LogicalType("acme.f8", "u8", "float8_e4m3b11fnuz"))
    register_logical_type(LogicalType("acme.pair", "f32", "complex64", storage_per_element=2))
    yield
    del ENCODINGS["acme.deflate"], LAYOUTS["acme.scaled"]
    del LOGICAL_TYPES["acme.f8"], LOGICAL_TYPES["acme.pair"]


def scaled(shape: tuple[int, ...] = (2, 2)) -> Tensor:
    components = {"values": np.ones(4, np.float32), "scale": np.ones(1)}
    return Tensor(components, shape=shape, format="acme.scaled")


def quantized() -> Tensor:
    return Tensor.quantize(np.eye(128, 8, dtype=np.float32))


def break_rule(path: Path, change: dict[str, Any]) -> None:
    """Change the object `w` past every check of a writer."""
    with ztensor.Editor(path) as editor:
        entry = editor.draft.objects["w"]
        parts = {role: part for role, part in entry.components.items() if role != change["role"]}
        if fields := {key: change[key] for key in ("dtype", "type", "length") if key in change}:
            parts[change["role"]] = entry.components[change["role"]]._replace(**fields)
        shape = change.get("shape", entry.shape)
        editor.draft.objects["w"] = entry._replace(components=parts, shape=shape)


def outcome(path: Path) -> tuple[Any, ...]:
    """Return what opening finds; else what reading and `verify` find."""
    try:
        reader = ztensor.open(path)
    except ztensor.ZTensorError as error:
        return "open", type(error), error.reason
    with reader:
        report = reader.verify()
        found = [problem.reason for problem in (*report.problems, *report.unsupported)]
        try:
            reader.read("w").to_dense()
        except ztensor.ZTensorError as error:
            return "read", error.reason, found
    return "read", None, found


F8, PAIRS = np.ones(8, ml_dtypes.float8_e5m2), np.ones(4, np.complex64)
# What breaks a rule of a built-in word, and the like of a registered one: the value that is saved,
# and the fields that are changed. Of an encoding and of `length`, more bytes follow in the file.
CASES: dict[str, tuple[tuple[Any, dict[str, Any]], tuple[Any, dict[str, Any]]]] = {
    "a type on another storage type": (
        (F8, {"role": "data", "dtype": "u16", "type": "f8_e5m2", "shape": (4,)}),
        (F8, {"role": "data", "dtype": "u16", "type": "acme.f8", "shape": (4,)}),
    ),
    "a type whose elements do not fill the shape": (
        (PAIRS, {"role": "data", "type": "complex64", "shape": (8,)}),
        (PAIRS, {"role": "data", "type": "acme.pair", "shape": (8,)}),
    ),
    "a type whose last element is cut": (
        (PAIRS, {"role": "data", "type": "complex64", "length": 28}),
        (PAIRS, {"role": "data", "type": "acme.pair", "length": 28}),
    ),
    "a role that is missing": ((quantized(), {"role": "scales"}), (scaled(), {"role": "scale"})),
    "a component that is cut inside an element": (
        (quantized(), {"role": "scales", "length": 5}),
        (scaled(), {"role": "values", "length": 6}),
    ),
    "values that do not make the shape": (
        (np.ones((2, 2)), {"role": "data", "length": 24}),
        (scaled(), {"role": "values", "length": 12}),
    ),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", CASES)
def test_a_broken_rule_is_found_as_with_a_built_in_word(
    tmp_path: Path, case: str, version: str
) -> None:
    found = []
    for number, (value, change) in enumerate(CASES[case]):
        path = tmp_path / f"{number}.zt"
        save_file({"w": value}, path, version=version, checksum=None)
        assert outcome(path) == ("read", None, [])
        break_rule(path, change)
        found.append(outcome(path))
    if case == "values that do not make the shape":  # of this layout only the values show it
        found[0] = ("read", found[0][2], [found[0][2]])
    assert found[0] == found[1]
    assert found[0] != ("read", None, [])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("encoding", ["zstd", "acme.deflate"])
def test_stored_bytes_of_an_encoding_are_checked(
    tmp_path: Path, encoding: str, version: str
) -> None:
    path = tmp_path / "w.zt"
    save_file({"w": np.zeros(9999)}, path, version=version, compression=encoding, checksum=None)
    place, data = ztensor.open(path).location("w"), path.read_bytes()
    files = []
    for at in (0, 2, 5, place.length // 2, place.length - 1):
        files.append(bytearray(data))
        files[-1][place.offset + at] ^= 0x55
    for count in (9998, 10000):
        with ztensor.Editor(path) as editor:
            entry = editor.draft.objects["w"]
            part = entry.components["data"]._replace(decoded_length=8 * count)
            editor.draft.objects["w"] = entry._replace(shape=(count,), components={"data": part})
        files.append(bytearray(path.read_bytes()))
    for file in files:
        with ztensor.open(bytes(file)) as reader:
            assert reader.verify().outcome == "damaged"
            with pytest.raises(ztensor.FormatError):
                reader["w"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (scaled(shape=(2, 3)), LayoutError),
        (scaled(shape=(1, 2, 2)), NotRepresentableError),  # no reader would open the file
        (Tensor({"values": np.ones(4)}, shape=(2, 2), format="acme.scaled"), LayoutError),
    ],
)
def test_what_no_reader_would_accept_is_not_written(
    tmp_path: Path, value: Tensor, kind: type[Exception], version: str
) -> None:
    with pytest.raises(kind):
        save_file({"w": value}, tmp_path / "w.zt", version=version)
    assert not list(tmp_path.iterdir())

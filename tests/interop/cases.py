"""What is exchanged with the released wheels: tensors, and the files that hold them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import ztensor

OF_1 = ("0.1.4", "1.1.1", "1.2.3")
OF_2 = ("2.0.0", "2.1.0", "2.1.2")
READS = {  # which of our files a wheel should read; each of 1.x reads older versions, too
    "0.1.4": ("0.1.0",),
    "1.1.1": ("0.1.0", "1.1.0"),
    "1.2.3": ("0.1.0", "1.1.0", "1.2.0"),
    **dict.fromkeys(OF_2, ("2.1",)),
}

STORAGE = (
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8",
    "uint64", "uint32", "uint16", "uint8", "bool",
)  # fmt: skip


def dtypes() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    made = {}
    for name in STORAGE:
        kind = np.dtype(getattr(ml_dtypes, name, name))
        bits = rng.integers(0, 2 if name == "bool" else 256, (12, kind.itemsize), np.uint8)
        made[name] = bits.reshape(-1).view(kind).reshape(3, 4)
    return made


def shapes() -> dict[str, Any]:
    return {
        "scalar": np.array(1.5, np.float32),
        "scalar bool": np.array(True),
        "empty": np.zeros(0, np.int16),
        "hollow": np.zeros((2, 0, 3)),
        "one": np.ones((1, 1, 1, 1), np.uint8),
        "deep": np.arange(64, dtype=np.int8).reshape(2, 2, 2, 2, 2, 2),
        "turned": np.arange(6, dtype=np.int64).reshape(2, 3).T,
    }


def names() -> dict[str, Any]:
    found = (
        "", "plain", "a.b.c.0.weight", "../x", "/abs", " ", "e\u0301", "\u00e9", "\u65e5\u672c",
        "\U0001f600", "tab\t", "line\n", "x" * 300,
    )  # fmt: skip
    return {name: np.array([number], np.int32) for number, name in enumerate(found)}


def names_with_nul() -> dict[str, Any]:
    return {**names(), "nul\0inside": np.array([1], np.int8)}


def many() -> dict[str, Any]:
    return {f"layer.{number}": np.full(3, number, np.float16) for number in range(300)}


def large() -> dict[str, Any]:
    """Return an array of several zstd frames."""
    return {"large": np.arange(3 << 20, dtype=np.int32), "small": np.arange(3)}


ATTRIBUTES: dict[str, Any] = {
    "int": 1, "negative": -(1 << 63), "most": (1 << 63) - 1, "float": 0.1, "text": "\u00e9",
    "bytes": b"\0\xff", "true": True, "null": None, "list": [1, [2.5, "x"]], "map": {"k": {"j": 0}},
}  # fmt: skip
BEYOND = {**ATTRIBUTES, "beyond": (1 << 64) - 1}


def attributes() -> dict[str, Any]:
    return {
        "within": ztensor.Tensor(np.arange(4), attributes=ATTRIBUTES),
        "beyond": ztensor.Tensor(np.arange(3), attributes=BEYOND),
    }


def sparse() -> dict[str, Any]:
    cube = [[0, 1, 1], [2, 0, 1], [1, 1, 0]]
    return {
        "rows": ztensor.Tensor.csr(
            np.array([1, 2.5, -3], np.float32), [3, 0, 1], [0, 2, 2, 3], (3, 4)
        ),
        "no values": ztensor.Tensor.csr(np.zeros(0), [], [0, 0], (1, 4)),
        "points": ztensor.Tensor.coo(np.array([3, 4], np.int32), [[1, 0], [0, 2]], (2, 3)),
        "cube": ztensor.Tensor.coo(np.array([1, 2, 3], np.float64), cube, (2, 3, 2)),
        "dense": np.arange(3, dtype=np.float32),
    }


def quantized() -> dict[str, Any]:
    weights = np.linspace(-1, 1, 64, dtype=np.float32).reshape(16, 4)
    return {"groups": ztensor.Tensor.quantize(weights, bits=4, group_size=8)}


def logical() -> dict[str, Any]:
    """Return the types that 1.1 spells as words and 1.2 as logical types."""
    return {
        "float8_e4m3fn": np.array([1, -448], ml_dtypes.float8_e4m3fn),
        "float8_e5m2": np.array([[1], [57344]], ml_dtypes.float8_e5m2),
        "complex64": np.array([1 + 2j, 0], np.complex64),
        "complex128": np.array([[1j]], np.complex128),
    }


def logical_of_1_2() -> dict[str, Any]:
    return {
        "float8_e4m3fnuz": np.array([1, -240], ml_dtypes.float8_e4m3fnuz),
        "float8_e5m2fnuz": np.array([1, 57344], ml_dtypes.float8_e5m2fnuz),
        "float8_e8m0fnu": np.array([1, 0.5], ml_dtypes.float8_e8m0fnu),
        "packed": np.array([0, 0.5, -6, 1], ml_dtypes.float4_e2m1fn),
    }


def unknown() -> dict[str, Any]:
    parts = {"a": np.arange(3, dtype=np.int16), "b": np.ones(2, np.float16)}
    return {"later": ztensor.Tensor(parts, shape=(7,), format="of_tomorrow")}


def sparse_of_2() -> dict[str, Any]:
    """Return the same with the columns of each row in order."""
    rows = ztensor.Tensor.csr(np.array([1, 2.5, -3], np.float32), [0, 3, 1], [0, 2, 2, 3], (3, 4))
    return {**sparse(), "rows": rows}


def profiles() -> dict[str, Any]:
    mx = {
        "data": np.arange(64).astype(ml_dtypes.float8_e4m3fn),
        "scales": np.array([1, 2], ml_dtypes.float8_e8m0fnu),
    }
    group = {"data": np.arange(4, dtype=np.uint32), "scales": np.ones(4, np.float16)}
    form = {
        "bits": 4, "group_size": 8, "axis": 1, "scale_form": "f16_factors",
        "packing": {"word": "u32", "order": "lsb_first", "per_word": 8},
        "zero_point": {"form": "implied", "value": 8},
    }  # fmt: skip
    return {
        "mx": ztensor.Tensor(
            mx, shape=(2, 32), format="zt.mx/1",
            attributes={"block_size": 32, "scale_form": "e8m0_exponent"},
        ),
        "group": ztensor.Tensor(group, shape=(2, 16), format="zt.quant_group/1", attributes=form),
        "blocks": ztensor.Tensor(
            {"data": np.arange(68, dtype=np.uint8)}, shape=(64,), format="gguf.q8_0"
        ),
    }  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Case:
    """One file.

    Attributes:
        name: its subject.
        tensors: makes its contents.
        since: the first version that holds them.
        options: for our `save_file`.
        readers: wheels that read it, written by us.
        wheels: those that write it.
        compress: for the wheel's writer.
        checksum: for the wheel's writer.
        canonical: whether the wheel writes the canonical form.
    """

    name: str
    tensors: Callable[[], dict[str, Any]]
    since: str = "0.1.0"
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    readers: tuple[str, ...] = OF_1
    wheels: tuple[str, ...] = ()
    compress: int = 0
    checksum: str = "none"
    canonical: bool = False


ZSTD: dict[str, Any] = {"compression": True}
CASES: tuple[Case, ...] = (
    Case("dtypes", dtypes, wheels=OF_1),
    Case("dtypes zstd", dtypes, options=ZSTD, wheels=("1.1.1", "1.2.3"), compress=3),
    Case("dtypes sha256", dtypes, options={"checksum": "sha256"}, wheels=("1.2.3",),
         checksum="sha256"),
    Case("dtypes zstd crc32c", dtypes, readers=(), wheels=("1.2.3",), compress=19,
         checksum="crc32c"),
    Case("dtypes without digest", dtypes, options={"checksum": None}),
    Case("shapes", shapes, wheels=OF_1),
    Case("shapes zstd", shapes, options=ZSTD, wheels=("1.1.1", "1.2.3"), compress=1),
    Case("names", names, wheels=("0.1.4", "1.1.1")),
    Case("names with NUL", names_with_nul, wheels=("1.2.3",)),
    Case("many", many, wheels=OF_1),
    Case("large", large),
    Case("large zstd", large, options=ZSTD),
    Case("attributes", attributes, wheels=("1.2.3",)),
    Case("file attributes", shapes, "1.1.0", {"metadata": {"framework": "none"}}),
    Case("any file attributes", shapes, "1.2.0", {"metadata": BEYOND}),
    Case("sparse", sparse, "1.1.0", wheels=("1.1.1", "1.2.3")),
    Case("sparse zstd", sparse, "1.1.0", ZSTD),
    # 1.1.1 has no call that gives the parts of these.
    Case("quantized", quantized, "1.1.0", readers=("1.2.3",), wheels=("1.2.3",)),
    Case("quantized zstd", quantized, "1.1.0", ZSTD, readers=("1.2.3",)),
    Case("unknown layout", unknown, "1.1.0", readers=("1.2.3",), wheels=("1.2.3",)),
    Case("logical", logical, "1.1.0"),
    Case("logical of 1.2", logical_of_1_2, "1.2.0"),
)  # fmt: skip

# Tensors of files of 2.x, and whether every wheel can write them in Python.
TENSORS_OF_2: dict[str, tuple[Callable[[], dict[str, Any]], bool]] = {
    "dtypes": (dtypes, True),
    "shapes": (shapes, True),
    "names": (lambda: {name: value for name, value in names().items() if name}, True),
    "many": (many, True),
    "large": (large, True),
    "logical": (lambda: {**logical(), **logical_of_1_2()}, True),
    "sparse": (sparse_of_2, False),
    "quantized": (quantized, False),
    "profiles": (profiles, False),
    "unknown layout": (unknown, False),
}
FORMS: dict[str, dict[str, Any]] = {
    "raw": {},
    "4096": {"alignment": 4096},
    "zstd": ZSTD,
    "sha256": {"checksum": "sha256", "compression": True, "alignment": 8192},
    "no digests": {"checksum": None},
    "canonical": {"canonical": True},
}
CASES += tuple(
    Case(
        f"{name}, {form}", tensors, "2.1", options,
        readers=OF_2[1:] if form == "sha256" else OF_2,  # 2.0.0 has no such digests
        wheels=(OF_2 if is_plain else OF_2[-1:]) if form in ("raw", "zstd", "canonical") else (),
        compress=3 if form == "zstd" else 0, canonical=form == "canonical",
    )
    for name, (tensors, is_plain) in TENSORS_OF_2.items()
    for form, options in FORMS.items()
    if (name, form) != ("names", "canonical")  # one of them is not in NFC
)  # fmt: skip

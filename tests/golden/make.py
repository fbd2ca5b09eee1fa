"""Write the golden files anew: python tests/golden/make.py

Only when the bytes are meant to change: see the page beside this script.
"""

from __future__ import annotations

import collections
import sys
import tempfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))  # started by path

import ztensor  # noqa: E402
from tests.golden import describing, files, states, table  # noqa: E402, F401
from ztensor.numpy import save  # noqa: E402

DESCRIBED = HERE / "described"
VERSIONS = ("0.1.0", "1.1.0", "1.2.0")
ENCODINGS = {"raw": False, "zstd": True}


def contents(version: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return tensors that use every feature of a version, and the file's own attributes."""
    tensors: dict[str, Any] = {
        "layer.weight": np.arange(6, dtype=np.float32).reshape(2, 3) / 4,
        "layer.bias": np.array([1, -1], ml_dtypes.bfloat16),
        "step": np.array(1000, np.int64),
        "mask": np.array([True, False, True]),
        "empty": np.zeros((0, 3), np.float16),
        "\u00e9\0/..": np.array([255], np.uint8),
        "noted": ztensor.Tensor(np.array([[7]], np.uint16), attributes={"by": "hand", "at": 0.5}),
    }
    if version == "0.1.0":
        return tensors, {}
    tensors |= {
        "fp8": np.array([1, 448], ml_dtypes.float8_e4m3fn),
        "wave": np.array([1 + 2j], np.complex64),
        "rows": ztensor.Tensor.csr(np.array([1, 2.5], "f4"), [2, 0], [0, 1, 2], (2, 3)),
        "points": ztensor.Tensor.coo(np.array([3], "i4"), [[1], [0], [1]], (2, 1, 2)),
        "groups": ztensor.Tensor(
            {
                "packed_weight": np.array([[0x53]], np.uint8),
                "scales": np.array([[0.5]], np.float16),
                "zeros": np.array([[1]], np.float16),
            },
            shape=(2, 1),
            format="quantized_group",
            attributes={"bits": 4, "group_size": 2, "packing": "2_per_u8"},
        ),
    }
    if version == "1.1.0":
        return tensors, {"framework": "none"}
    tensors |= {
        "fp4": np.array([0, 0.5, -6], ml_dtypes.float4_e2m1fn),
        "later": ztensor.Tensor({"part": np.array([1], "i1")}, shape=(5,), format="of_tomorrow"),
    }
    return tensors, {"framework": "none", "steps": [1, -1, None, b"\0", {"deep": True}]}


def repeated(value: Any) -> Any:
    """Return an array with each row many times, which zstd makes smaller; others as they are."""
    is_rows = isinstance(value, np.ndarray) and value.ndim > 0
    return np.repeat(value, 100, 0) if is_rows else value


def binary_files() -> dict[str, bytes]:
    made = {}
    for version in VERSIONS:
        for name, compression in ENCODINGS.items():
            tensors, attributes = contents(version)
            if compression:
                tensors = {key: repeated(value) for key, value in tensors.items()}
            made[f"{version}-{name}.zt"] = save(
                tensors, attributes, version=version, compression=compression
            )
    return made


def described(name: str) -> list[str]:
    """Return the lines of all files that a case writes."""
    with tempfile.TemporaryDirectory() as folder:
        written = table.write(name, Path(folder))
    return [line for path, data in written.items() for line in describing.describe(path, data)]


def kept() -> dict[str, list[str]]:
    """Return the lines of all cases as they were when this script ran last."""
    found: dict[str, list[str]] = {}
    for path in sorted(DESCRIBED.glob("*.txt")):
        for text in path.read_text("utf-8").split("\n# ")[1:]:
            name, *lines = text.rstrip("\n").split("\n")
            found[f"{path.stem}/{name}"] = lines
    return found


def main() -> int:
    """Write every file; return the exit status."""
    for name, data in binary_files().items():
        path = HERE / name
        old = path.read_bytes() if path.exists() else None
        path.write_bytes(data)
        _report(name, old, data)
    before = kept()
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for name in table.CASES:
        lines = before[name] if table.missing(name) else described(name)
        _report(name, before.get(name), lines)
        group, _, title = name.partition("/")
        groups[group] += [f"# {title}", *lines]
    for path in DESCRIBED.glob("*.txt"):
        path.unlink()
    for group, lines in groups.items():
        text = "\n".join(["Made by tests/golden/make.py; README.md says what it is.", *lines, ""])
        (DESCRIBED / f"{group}.txt").write_text(text, "utf-8")
    for name in before.keys() - table.CASES.keys():
        sys.stdout.write(f"{name:40} gone\n")
    return 0


def _report(name: str, old: object, new: object) -> None:
    verdict = "new" if old is None else "same" if old == new else "CHANGED"
    sys.stdout.write(f"{name:40} {verdict}\n")


if __name__ == "__main__":
    sys.exit(main())

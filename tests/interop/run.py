"""Exchange files with the released wheels of each version, both ways, and compare every value.

    python tests/interop/run.py             wheels 0.1.4, 1.1.1 and 1.2.3
    python tests/interop/run.py --keep DIR  leave the files in DIR

Each wheel gets an environment of its own under `.venvs/`. Where a wheel is known to differ from its
text, the difference stands in `DEVIATIONS` with its row in `tests/corpus/differences.md`; any other
difference ends the run with status 1, and so does a listed one that no longer occurs.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from collections.abc import Callable, Iterable

import ml_dtypes
import numpy as np

import ztensor
from tests.interop.programs import SAME
from tests.interop.programs_1_2 import PROGRAMS
from tests.interop.wheel_side import from_json, in_json
from ztensor.numpy import save_file

ROOT = Path(__file__).resolve().parents[2]

# SciPy and ml_dtypes: with them a wheel reads sparse objects and bfloat16.
LIBRARIES = ("numpy", "scipy", "ml_dtypes")
WHEELS = ("0.1.4", "1.1.1", "1.2.3")
READS = {  # which of our files a wheel should read; each reads older versions, too
    "0.1.4": ("0.1.0",),
    "1.1.1": ("0.1.0", "1.1.0"),
    "1.2.3": ("0.1.0", "1.1.0", "1.2.0"),
}
WRITES = {"0.1.4": "0.1.0", "1.1.1": "1.1.0", "1.2.3": "1.2.0"}

STORAGE = (
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8",
    "uint64", "uint32", "uint16", "uint8", "bool",
)  # fmt: skip


# --- Known differences ----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Deviation:
    """A difference that is the wheel's, not ours.

    Attributes:
        row: its row in `tests/corpus/differences.md`.
        what: one sentence.
        wheels: those that have it.
        direction: `to` the wheel or `from` it.
        case: pattern of the cases' names.
        object_name: pattern of the objects' names; `*file*` where the whole file is concerned.
        difference: pattern the comparison's sentence must match.
    """

    row: str
    what: str
    wheels: tuple[str, ...]
    direction: str
    case: str
    object_name: str
    difference: str

    def fits(self, wheel: str, direction: str, case: str, name: str, difference: str) -> bool:
        """Return whether this is the difference that was found."""
        return (
            wheel in self.wheels
            and direction == self.direction
            and fnmatch.fnmatchcase(case, self.case)
            and fnmatch.fnmatchcase(name, self.object_name)
            and re.match(self.difference, difference) is not None
        )


DEVIATIONS = (
    Deviation(
        "21", "an integer above 2^63 - 1 is stored as a float",
        ("1.2.3",), "from", "attributes", "beyond", "attributes: beyond is 1.8446744073709552e",
    ),
    Deviation(
        "24", "the words of 1.1 for fp8 and complex are unknown: the whole file does not open",
        ("1.1.1", "1.2.3"), "to", "logical-1.1.0", "*file*", "error: .*unknown variant",
    ),
    Deviation(
        "25", "complex cannot be read",
        ("1.2.3",), "to", "logical-1.2.0", "complex*", "error: ValueError: cannot reshape",
    ),
    Deviation(
        "26", "fp8 comes as its uint8 bytes",
        ("1.2.3",), "to", "logical*", "float8*", "(data|copy): dtype uint8, expected float8",
    ),
    Deviation(
        "27", "an unknown type that packs elements is not read",
        ("1.2.3",), "to", "logical of 1.2", "packed", "error: ValueError: cannot reshape",
    ),
    Deviation(
        "32", "a scalar comes as an array of shape (1,)",
        ("1.2.3",), "to", "*", "scalar*", r"(data|copy): shape \[1\], expected \[\]",
    ),
    Deviation(
        "32", "a 0-d array is stored with shape [1]",
        WHEELS, "from", "*", "scalar*", r"shape \[1\], expected \[\]",
    ),
    Deviation(
        "51", "COO of more than two dimensions is not read",
        ("1.1.1",), "to", "sparse*", "cube", "error: ZTensorError: Scipy COO only supports 2D",
    ),
    Deviation(
        "55", "listing a name with a NUL aborts the process",
        ("0.1.4",), "to", "names with NUL", "*file*", "error: the process died",
    ),
    Deviation(
        "55", "a name with a NUL is not listed",
        ("1.1.1",), "to", "names with NUL", "nul\0*", "missing",
    ),
)  # fmt: skip


# --- Exchanged files -------------------------------------------------------------------------


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
    """

    name: str
    tensors: Callable[[], dict[str, Any]]
    since: str = "0.1.0"
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    readers: tuple[str, ...] = WHEELS
    wheels: tuple[str, ...] = ()
    compress: int = 0
    checksum: str = "none"


ZSTD: dict[str, Any] = {"compression": True}
CASES = (
    Case("dtypes", dtypes, wheels=WHEELS),
    Case("dtypes zstd", dtypes, options=ZSTD, wheels=("1.1.1", "1.2.3"), compress=3),
    Case("dtypes sha256", dtypes, options={"checksum": "sha256"}, wheels=("1.2.3",),
         checksum="sha256"),
    Case("dtypes zstd crc32c", dtypes, readers=(), wheels=("1.2.3",), compress=19,
         checksum="crc32c"),
    Case("dtypes without digest", dtypes, options={"checksum": None}),
    Case("shapes", shapes, wheels=WHEELS),
    Case("shapes zstd", shapes, options=ZSTD, wheels=("1.1.1", "1.2.3"), compress=1),
    Case("names", names, wheels=("0.1.4", "1.1.1")),
    Case("names with NUL", names_with_nul, wheels=("1.2.3",)),
    Case("many", many, wheels=WHEELS),
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


# --- Comparing ------------------------------------------------------------------------------


def tensor_of(value: Any) -> ztensor.Tensor:
    return value if isinstance(value, ztensor.Tensor) else ztensor.Tensor(value)


def sha256(array: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def of_array(label: str, found: dict[str, Any], expected: Any, shape: list[int]) -> Iterable[str]:
    if found["dtype"] != expected.dtype.name:
        yield f"{label}: dtype {found['dtype']}, expected {expected.dtype.name}"
    if found["shape"] != shape:
        yield f"{label}: shape {found['shape']}, expected {shape}"
    if found["sha256"] != sha256(expected):
        yield f"{label}: other values"


def of_attributes(found: dict[str, Any], expected: dict[str, Any]) -> Iterable[str]:
    for key in sorted({*found, *expected}):
        one, other = (json.dumps(in_json(d.get(key, "absent"))) for d in (found, expected))
        if one != other:
            yield f"attributes: {key} is {one}, expected {other}"


def of_object(
    found: dict[str, Any] | None, expected: ztensor.Tensor, *, has_attributes: bool
) -> Iterable[str]:
    """Yield differences between our file and the wheel's reading."""
    if found is None:
        yield "missing"
        return
    if "error" in found:
        yield f"error: {found['error']}"
        return
    if found["format"] != expected.format:
        yield f"format {found['format']!r}, expected {expected.format!r}"
    if found["shape"] != list(expected.shape):
        yield f"shape {found['shape']}, expected {list(expected.shape)}"
    if set(found["components"]) != set(expected.components):
        yield f"components {sorted(found['components'])}, expected {sorted(expected.components)}"
        return
    for role, array in expected.components.items():
        shape = list(expected.shape) if expected.format == "dense" else [array.size]
        yield from of_array(role, found["components"][role], array, shape)
    if found.get("copies"):
        yield from of_array(
            "copy", found["copies"], expected.components["data"], list(expected.shape)
        )
    if has_attributes:
        yield from of_attributes(
            {k: from_json(v) for k, v in from_json(found["attributes"]).items()},
            dict(expected.attributes),
        )


def of_answer(
    answer: dict[str, Any], expected: dict[str, Any], *, has_attributes: bool
) -> dict[str, list[str]]:
    """Return the differences between our file and the wheel's reading, by object."""
    if answer["error"]:
        return {"*file*": [f"error: {answer['error']}"]}
    objects = answer["objects"]
    found = {
        name: list(of_object(objects.get(name), tensor_of(value), has_attributes=has_attributes))
        for name, value in expected.items()
    }
    return found | {name: ["not written"] for name in set(objects) - set(expected)}


def of_ours(reader: ztensor.Reader, name: str, expected: ztensor.Tensor) -> Iterable[str]:
    """Yield differences between our reading and the wheel's instructions."""
    if name not in reader:
        yield "missing"
        return
    for copy in (False, True):
        found = reader.read(name, copy=copy)
        if found.format != expected.format:
            yield f"format {found.format!r}, expected {expected.format!r}"
        if found.shape != expected.shape:
            yield f"shape {list(found.shape)}, expected {list(expected.shape)}"
        if set(found.components) != set(expected.components):
            yield f"components {sorted(found.components)}, expected {sorted(expected.components)}"
            return
        for role, array in expected.components.items():
            read = found.components[role]
            if read.dtype != array.dtype or sha256(read) != sha256(array):
                yield f"{role}: other values"
        yield from of_attributes(dict(found.attributes), dict(expected.attributes))


# --- The run --------------------------------------------------------------------------------


@dataclasses.dataclass
class Run:
    """The state of a run.

    Attributes:
        folder: where the files are.
        used: deviations that occurred.
        wrong: unlisted differences.
    """

    folder: Path
    used: set[Deviation] = dataclasses.field(default_factory=set)
    wrong: list[str] = dataclasses.field(default_factory=list)

    def judge(
        self,
        wheel: str,
        direction: str,
        case: str,
        version: str,
        found: dict[str, list[str]],
    ) -> None:
        """Print one line of the table, and keep unlisted differences.

        Args:
            wheel: its release.
            direction: `to` or `from` it.
            case: the file's name.
            version: the file's version.
            found: name of the object, or `*file*`, to the differences.
        """
        rows = set()
        equal = wrong = 0
        for name, differences in found.items():
            unlisted = []
            for difference in differences:
                for known in DEVIATIONS:
                    if known.fits(wheel, direction, case, name, difference):
                        self.used.add(known)
                        rows.add(known.row)
                        break
                else:
                    unlisted.append(f"{wheel} {direction} {version} {case} {name!r}: {difference}")
            self.wrong += unlisted
            wrong += bool(unlisted)
            equal += not differences
        arrow = f"ours -> {wheel}" if direction == "to" else f"{wheel} -> ours"
        known_rows = f"row {', '.join(sorted(rows))}" if rows else ""
        verdict = "ok" if not wrong else f"{wrong} DIFFERENT"
        print(
            f"{arrow:15} {version:6} {case:22} {len(found):4} objects {equal:4} equal  "
            f"{verdict:12} {known_rows}".rstrip(),
            flush=True,
        )


def python_of(wheel: str) -> str:
    """Return the interpreter of a wheel's environment, made where it is missing."""
    folder = ROOT / ".venvs" / f"wheel-{wheel}"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = folder / "ready"
    wanted = " ".join((f"ztensor=={wheel}", *LIBRARIES))
    if not stamp.exists() or stamp.read_text("utf-8") != wanted:
        print(f"making {folder.relative_to(ROOT)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "-qq", "--disable-pip-version-check", "--retries", "5"]
        subprocess.run([*pip, "install", *wanted.split()], check=True, env=environment())
        stamp.write_text(wanted, "utf-8")
    return str(python)


def environment() -> dict[str, str]:
    """Return the environment without what would let our package in beside the wheel."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    return {key: value for key, value in os.environ.items() if key not in hidden}


def ask(python: str, *arguments: str, side: str = "wheel_side") -> Any:
    """Run the wheel's side and return its answer.

    Raises:
        subprocess.CalledProcessError: it died.
    """
    run = subprocess.run(
        [python, "-m", f"tests.interop.{side}", *arguments],
        cwd=ROOT,
        env={**environment(), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,  # wheels print warnings, and whole stacks before they die
        encoding="utf-8",
        timeout=300,
        check=True,
    )
    return json.loads(run.stdout)


def ask_to_read(python: str, paths: list[str]) -> list[Any]:
    """Let a wheel read each file; one that kills the process gives an error."""
    try:
        answers: list[Any] = ask(python, "read", *paths)
    except subprocess.CalledProcessError as error:
        if len(paths) == 1:
            return [{"error": f"the process died with {error.returncode}"}]
        return [answer for path in paths for answer in ask_to_read(python, [path])]
    return answers


def to_wheel(run: Run, wheel: str, python: str) -> None:
    """Write every case in every version the wheel reads, and compare its reading."""
    files = [
        (version, case, run.folder / f"ours-{version}-{case.name.replace(' ', '-')}.zt")
        for version in READS[wheel]
        for case in CASES
        if wheel in case.readers and case.since <= version
    ]
    for version, case, path in files:
        if not path.exists():
            save_file(case.tensors(), path, version=version, **case.options)
            with ztensor.open(path) as reader:
                assert not reader.verify().problems
                assert version == "0.1.0" or reader.objects.parts()[0].manifest.commit is not None
    answers = ask_to_read(python, [str(path) for _, _, path in files])
    for (version, case, _), answer in zip(files, answers, strict=True):
        has_attributes = wheel == "1.2.3" and version != "0.1.0"
        found = of_answer(answer, case.tensors(), has_attributes=has_attributes)
        run.judge(wheel, "to", f"{case.name}-{version}" if case.name == "logical" else case.name,
                  version, found)  # fmt: skip


def from_wheel(run: Run, wheel: str, python: str) -> None:
    """Let the wheel write every case it can, and compare what we read."""
    for case in CASES:
        if wheel not in case.wheels:
            continue
        name = f"{wheel}-{case.name.replace(' ', '-')}"
        path, spec_path = run.folder / f"{name}.zt", run.folder / f"{name}.json"
        tensors = {key: tensor_of(value) for key, value in case.tensors().items()}
        spec = {key: spec_of(tensor, case) for key, tensor in tensors.items()}
        spec_path.write_text(json.dumps(spec), "utf-8")
        (errors,) = ask(python, "write", str(spec_path), str(path))
        found: dict[str, list[str]] = {key: [f"not written: {why}"] for key, why in errors.items()}
        with ztensor.open(path) as reader:
            report = reader.verify()
            file_wrong = [f"verify: {problem}" for problem in report.problems]
            if reader.version != WRITES[wheel]:
                file_wrong.append(f"version {reader.version}")
            if case.checksum != "none" and report.undigested:
                file_wrong.append(f"{report.undigested} components without digest")
            file_wrong += [f"{key!r} was not asked for" for key in set(reader) - set(tensors)]
            if file_wrong:
                found["*file*"] = file_wrong
            for key, tensor in tensors.items():
                if key not in errors:
                    found[key] = list(of_ours(reader, key, tensor))
        run.judge(wheel, "from", case.name, WRITES[wheel], found)


def spec_of(tensor: ztensor.Tensor, case: Case) -> dict[str, Any]:
    return {
        "format": tensor.format,
        "shape": list(tensor.shape),
        "attributes": spelled(dict(tensor.attributes)),
        "compress": case.compress,
        "checksum": case.checksum,
        "components": {
            role: {
                "dtype": array.dtype.name,
                "shape": list(array.shape),
                "hex": np.ascontiguousarray(array).tobytes().hex(),
            }
            for role, array in tensor.components.items()
        },
    }


def spelled(value: dict[str, Any]) -> dict[str, Any]:
    return {key: in_json(element) for key, element in value.items()}


def edited(run: Run, wheel: str, python: str) -> None:
    """Let the wheel change files of ours, and read them again."""
    for version in ("1.1.0", "1.2.0"):
        path, output = run.folder / f"edited-{version}.zt", run.folder / f"removed-{version}.zt"
        kept = {"kept": np.arange(7), "rows": sparse()["rows"]}
        save_file(
            {"replaced": np.ones((2, 3), np.float32), "removed": np.arange(2), **kept},
            path,
            version=version,
        )
        ask(python, "edit", str(path), str(output))
        changed = {
            **kept,
            "replaced": np.full((2, 3), 9, np.float32),
            "appended": np.arange(5, dtype=np.int32),
        }
        for file, expected in ((path, {**changed, "removed": np.arange(2)}), (output, changed)):
            with ztensor.open(file) as reader:
                found = {
                    name: list(of_ours(reader, name, tensor_of(value)))
                    for name, value in expected.items()
                }
                found["*file*"] = [f"verify: {p}" for p in reader.verify().problems]
                found["*file*"] += [f"{key!r} is there" for key in set(reader) - set(expected)]
            run.judge(wheel, "from", file.stem.partition("-")[0], version, found)


def edit_steps(
    expected: dict[str, Any],
) -> list[tuple[str, Callable[[ztensor.Editor], object], Callable[[], object]]]:
    """Return changes to a file, each with its effect on the dict of its content."""
    return [
        ("append", lambda e: e.write("c", np.arange(5)),
         lambda: expected.update(c=np.arange(5))),
        ("append zstd", lambda e: e.write("d", np.arange(900), compress=True),
         lambda: expected.update(d=np.arange(900))),
        ("replace", lambda e: e.replace("a", np.full((3, 3), 7, np.int16)),
         lambda: expected.update(a=np.full((3, 3), 7, np.int16))),
        ("rename", lambda e: e.rename({"a": "b", "b": "a"}),
         lambda: expected.update(a=expected["b"], b=expected["a"])),
        ("set", lambda e: e.set_attributes({"step": "2"}), dict),
        ("remove", lambda e: e.remove("c"), lambda: expected.pop("c")),
    ]  # fmt: skip


def between_edits(run: Run, wheel: str, python: str) -> None:
    """Change a file of ours several times, and let the wheel read it after every commit."""
    for version in READS[wheel]:
        if version == "0.1.0":
            continue  # its files are rewritten, never extended
        path = run.folder / f"between-{wheel}-{version}.zt"
        expected: dict[str, Any] = {"a": np.arange(6.0), "b": np.ones((2, 3), np.float32)}
        save_file(expected, path, version=version)
        files = []
        for number, (step, change, expect) in enumerate(edit_steps(expected)):
            with ztensor.Editor(path) as editor:
                change(editor)
            expect()
            copy = path.with_name(f"{path.stem}-{number}.zt")
            shutil.copyfile(path, copy)
            files.append((f"after {step}", copy, dict(expected)))
        answers = ask_to_read(python, [str(copy) for _, copy, _ in files])
        for (case, _, values), answer in zip(files, answers, strict=True):
            found = of_answer(answer, values, has_attributes=False)
            run.judge(wheel, "to", case, version, found)


def api(run: Run, python: str) -> None:
    """Run the programs of the 1.2 API on the wheel; ours are run by the default suite."""
    (found,) = ask(python, "programs", str(run.folder / "programs"))
    skipped = [name for name, answer in found.items() if "skipped" in answer]
    different = 0
    for name, program in PROGRAMS.items():
        different += program.on_wheel is not SAME
        if name not in skipped and not program.is_right_on_wheel(found[name]):
            run.wrong.append(f"1.2.3 program {name!r}: {found[name]}, not as {program}")
    needs = sorted({PROGRAMS[name].needs for name in skipped})
    print(
        f"\n{len(found)} programs of the 1.2 API on 1.2.3, {different} of them different on ours "
        f"on purpose; {len(skipped)} skipped, for want of {', '.join(needs) or 'nothing'}"
    )


def api_2(run: Run) -> None:
    """Run the programs of the 2.x API on its wheel; ours are run by the default suite."""
    done = subprocess.run(
        [python_of("2.1.2"), "-m", "tests.interop.programs_2"],
        cwd=ROOT, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    *wrong, said = done.stdout.splitlines() or [done.stderr]
    print(f"\n{said}")
    if done.returncode:
        run.wrong.extend(f"2.1.2 program {line}" for line in wrong or [said])


def exchange(folder: Path) -> int:
    """Do it all; return the exit status."""
    run = Run(folder)
    for wheel in WHEELS:
        python = python_of(wheel)
        to_wheel(run, wheel, python)
        from_wheel(run, wheel, python)
        between_edits(run, wheel, python)
        if wheel == "1.2.3":
            edited(run, wheel, python)
            api(run, python)
    api_2(run)
    print("\nknown differences of the wheels, by row of tests/corpus/differences.md:")
    for known in DEVIATIONS:
        seen = "seen" if known in run.used else "NOT SEEN"
        direction = "reading" if known.direction == "to" else "writing"
        print(f"  {known.row:>2}  {', '.join(known.wheels):13} {direction}: {known.what} ({seen})")
        if known not in run.used:
            run.wrong.append(f"row {known.row} is listed but did not occur: {known.what}")
    print()
    for sentence in run.wrong:
        print(f"DIFFERENT  {sentence}")
    print("all equal, but for the differences listed" if not run.wrong else "not equal")
    return 1 if run.wrong else 0


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Exchange files with released wheels.")
    parser.add_argument("--keep", type=Path, help="leave the files in this folder")
    options = parser.parse_args()
    if options.keep is not None:
        options.keep.mkdir(parents=True)
        return exchange(options.keep.resolve())
    with tempfile.TemporaryDirectory() as folder:
        return exchange(Path(folder))


if __name__ == "__main__":
    sys.exit(main())

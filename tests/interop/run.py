"""Exchange files with the released wheels of each version, both ways, and compare every value.

    python tests/interop/run.py             wheels 0.1.4, 1.1.1 and 1.2.3; 2.0.0, 2.1.0 and 2.1.2
    python tests/interop/run.py --keep DIR  leave the files in DIR

Each wheel gets an environment of its own under `.venvs/`. Where a wheel is known to differ from its
text, the difference stands in `DEVIATIONS` with its row in `tests/corpus/differences.md`; any other
difference ends the run with status 1, and so does a listed one that no longer occurs. A wheel of
2.x also verifies each of our files, and every state of a chain of edits; its canonical files equal
ours of the same tensors, byte for byte.
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

import numpy as np

import ztensor
from tests.interop.cases import CASES, OF_1, OF_2, READS, Case, sparse
from tests.interop.programs import SAME
from tests.interop.programs_1_2 import PROGRAMS
from tests.interop.wheel_side import from_json, in_json
from tests.property.chains import Chain
from ztensor import v2
from ztensor.ext import spell
from ztensor.numpy import save_file
from ztensor.spec.container.v2.words import written_layout
from ztensor.spec.layout.elements import stored_form

ROOT = Path(__file__).resolve().parents[2]

# SciPy and ml_dtypes: with them a wheel reads sparse objects and bfloat16.
LIBRARIES = ("numpy", "scipy", "ml_dtypes")
WRITES = {"0.1.4": "0.1.0", "1.1.1": "1.1.0", "1.2.3": "1.2.0", **dict.fromkeys(OF_2, "2")}


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
        OF_1, "from", "*", "scalar*", r"shape \[1\], expected \[\]",
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


# --- Comparing ------------------------------------------------------------------------------


def tensor_of(value: Any) -> ztensor.Tensor:
    return value if isinstance(value, ztensor.Tensor) else ztensor.Tensor(value)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def spec_of(value: Any, wheel: str) -> dict[str, Any]:
    """Return a tensor as a wheel writes and shows it, with the bytes of its components."""
    tensor = tensor_of(value)
    layout, attributes = tensor.format, dict(tensor.attributes)
    components: dict[str, dict[str, Any]] = {}
    if wheel in OF_2:
        layout, written = written_layout(layout, attributes or None)
        attributes = dict(written or {})
    for role, array in tensor.components.items():
        data = np.ascontiguousarray(array)
        if wheel in OF_1:
            shape = tensor.shape if layout == "dense" else (array.size,)
            components[role] = {"dtype": array.dtype.name, "shape": list(shape)}
        else:
            dtype, logical = spell(array.dtype)
            words = ("u8", "bool") if dtype == "bool" else (dtype, logical)
            components[role] = {"dtype": " ".join(filter(None, words))}
            data = stored_form(array)
        components[role]["hex"] = data.tobytes().hex()
    return {
        "format": layout,
        "shape": list(tensor.shape),
        "attributes": {key: in_json(element) for key, element in attributes.items()},
        "components": components,
    }


def of_component(label: str, found: dict[str, Any], expected: dict[str, Any]) -> Iterable[str]:
    for key in expected.keys() - {"hex"}:
        if found[key] != expected[key]:
            yield f"{label}: {key} {found[key]}, expected {expected[key]}"
    if found["sha256"] != sha256(bytes.fromhex(expected["hex"])):
        yield f"{label}: other values"


def of_attributes(found: dict[str, Any], expected: dict[str, Any]) -> Iterable[str]:
    for key in sorted({*found, *expected}):
        one, other = (json.dumps(in_json(d.get(key, "absent"))) for d in (found, expected))
        if one != other:
            yield f"attributes: {key} is {one}, expected {other}"


def of_object(
    found: dict[str, Any] | None, value: Any, wheel: str, *, has_attributes: bool
) -> Iterable[str]:
    """Yield differences between our file and the wheel's reading."""
    if found is None or "error" in found:
        yield "missing" if found is None else f"error: {found['error']}"
        return
    expected = spec_of(value, wheel)
    for key in ("format", "shape"):
        if found[key] != expected[key]:
            yield f"{key} {found[key]!r}, expected {expected[key]!r}"
    components = expected["components"]
    if set(found["components"]) != set(components):
        yield f"components {sorted(found['components'])}, expected {sorted(components)}"
        return
    for role, component in components.items():
        yield from of_component(role, found["components"][role], component)
    if found.get("copies"):
        yield from of_component("copy", found["copies"], components["data"])
    if has_attributes:
        yield from of_attributes(
            {k: from_json(v) for k, v in from_json(found["attributes"]).items()},
            dict(tensor_of(value).attributes),
        )


def of_answer(
    answer: dict[str, Any], tensors: dict[str, Any], wheel: str, *, has_attributes: bool = False
) -> dict[str, list[str]]:
    """Return the differences between our file and the wheel's reading, by object."""
    if answer["error"]:
        return {"*file*": [f"error: {answer['error']}"]}
    objects = answer["objects"]
    found = {
        name: list(of_object(objects.get(name), value, wheel, has_attributes=has_attributes))
        for name, value in tensors.items()
    }
    return found | {name: ["not written"] for name in set(objects) - set(tensors)}


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
            if read.dtype != array.dtype or read.tobytes() != array.tobytes():
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


def ask(python: str, *arguments: str) -> Any:
    """Run the wheel's side and return its answer.

    Raises:
        subprocess.CalledProcessError: it died.
    """
    run = subprocess.run(
        [python, "-m", "tests.interop.wheel_side", *arguments],
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
                is_old = version == "0.1.0" or wheel in OF_2
                assert is_old or reader.objects.parts()[0].manifest.commit is not None
    answers = ask_to_read(python, [str(path) for _, _, path in files])
    for (version, case, _), answer in zip(files, answers, strict=True):
        has_attributes = wheel == "1.2.3" and version != "0.1.0"
        found = of_answer(answer, case.tensors(), wheel, has_attributes=has_attributes)
        if wheel in OF_2 and not answer["error"]:
            wrong = "checked" if case.options.get("checksum", "") is None else "undigested"
            found["*file*"] = [f"{wrong}: {answer[wrong]}"] * bool(answer[wrong])
        run.judge(wheel, "to", f"{case.name}-{version}" if case.name == "logical" else case.name,
                  version, found)  # fmt: skip


def written_by(wheel: str, python: str, path: Path, tensors: dict[str, Any], **how: Any) -> Any:
    """Let the wheel write a file, or append to it; return the errors by object."""
    ordered = sorted(tensors, key=str.encode)  # as a canonical file has to be
    spec = {"objects": {name: spec_of(tensors[name], wheel) for name in ordered}, **how}
    path.with_suffix(".json").write_text(json.dumps(spec), "utf-8")
    (errors,) = ask(python, "write", str(path.with_suffix(".json")), str(path))
    return errors


def from_wheel(run: Run, wheel: str, python: str) -> None:
    """Let the wheel write every case it can, and compare what we read."""
    for case in CASES:
        if wheel not in case.wheels:
            continue
        path = run.folder / f"{wheel}-{case.name.replace(' ', '-')}.zt"
        tensors = {key: tensor_of(value) for key, value in case.tensors().items()}
        how = {"compress": case.compress, "checksum": case.checksum, "canonical": case.canonical}
        errors = written_by(wheel, python, path, tensors, **how)
        found: dict[str, list[str]] = {key: [f"not written: {why}"] for key, why in errors.items()}
        with ztensor.open(path) as reader:
            report = reader.verify(deep=True)
            file_wrong = [f"verify: {problem}" for problem in report.problems]
            if reader.version != WRITES[wheel]:
                file_wrong.append(f"version {reader.version}")
            if case.checksum != "none" and report.undigested:
                file_wrong.append(f"{report.undigested} components without digest")
            file_wrong += [f"{key!r} was not asked for" for key in set(reader) - set(tensors)]
            if case.canonical:
                file_wrong += of_canonical(path, case)
            if file_wrong:
                found["*file*"] = file_wrong
            for key, tensor in tensors.items():
                if key not in errors:
                    found[key] = list(of_ours(reader, key, tensor))
        run.judge(wheel, "from", case.name, WRITES[wheel], found)


def of_canonical(path: Path, case: Case) -> Iterable[str]:
    """Yield where a canonical file of a wheel is not ours of the same tensors."""
    again = path.with_name("again.zt")
    save_file(case.tensors(), again, version="2.1", canonical=True)
    if again.read_bytes() != path.read_bytes():
        yield "our canonical form of it is another"
    yield from map(str, ztensor.insight.canonical_problems(path))


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
            found = of_answer(answer, values, wheel)
            run.judge(wheel, "to", case, version, found)


def chain_of_edits(run: Run, wheel: str, python: str) -> None:
    """Change files of 2.x again and again; the wheel opens and verifies every state of them.

    A killed or aborted edit leaves one of these states, followed by the copy of its footer:
    such a copy is read as well.
    """
    for alignment in (4096, 65536):
        chain = Chain(run.folder / f"chain-{wheel}-{alignment}.zt", "2.1", "1", alignment=alignment)
        states: list[tuple[Path, dict[str, Any]]] = []
        for number in range(40):
            copy = chain.path.with_name(f"{chain.path.stem}-{number}.zt")
            data = chain.path.read_bytes()
            copy.write_bytes(data if number % 4 else data + bytes(5000) + data[-40:])
            states.append((copy, dict(chain.tensors)))
            chain.commit()
        found: dict[str, list[str]] = {}
        answers = ask(python, "read", *(str(path) for path, _ in states))
        for number, ((_, tensors), answer) in enumerate(zip(states, answers, strict=True)):
            differences = of_answer(answer, tensors, wheel)
            wrong = [f"{name!r}: {one}" for name, many in differences.items() for one in many]
            wrong += ["undigested"] * bool(not answer["error"] and answer["undigested"])
            found[f"state {number}"] = wrong
        run.judge(wheel, "to", f"edited, {alignment}", "2.1", found)


def appended(run: Run, wheel: str, python: str) -> None:
    """Let a wheel of 2.x append to a file of ours, edit the result, and let the wheel read that."""
    path = run.folder / f"appended-{wheel}.zt"
    tensors: dict[str, Any] = {"a": np.arange(6.0), "b": np.ones((2, 3), np.float32)}
    save_file(tensors, path, version="2.1")
    for number in range(6):
        added = {f"w{number}": np.full(number + 1, number, np.int16)}
        errors = written_by(wheel, python, path, added, append=True)
        tensors |= added
        with ztensor.Editor(path) as editor:
            editor.write(f"ours {number}", np.arange(number + 2))
            editor.replace("a", np.arange(number + 1))
            editor.rename({f"w{number}": f"renamed {number}"})
        tensors |= {f"ours {number}": np.arange(number + 2), "a": np.arange(number + 1)}
        tensors[f"renamed {number}"] = tensors.pop(f"w{number}")
        (answer,) = ask(python, "read", str(path))
        found = of_answer(answer, tensors, wheel)
        found["*file*"] = [*found.get("*file*", ()), *errors.values()]
        run.judge(wheel, "to", f"appended {number}", "2.1", found)


def linked(run: Run, wheel: str, python: str) -> None:
    """Let a wheel of 2.x read a root of ours that refers to bytes of other files."""
    tensors: dict[str, Any] = {"a": np.arange(6.0), "b": np.ones((2, 3), np.float32)}
    path = run.folder / f"{wheel}.zt"
    base, store = (run.folder / f"{wheel}-{name}.zt" for name in ("base", "store"))  # its shards
    save_file(tensors | {"z": np.zeros(9999)}, base, version="2.1", compression=True)
    save_file({"x": np.arange(9.0)}, store, version="2.1", alignment=4096)
    with v2.Writer(path, canonical=False) as writer:
        writer.add("own", np.arange(3.0), [3], "f64")
        for name, file in (("base", base), ("store", store)):
            writer.add_shard(name, file, "xxh3" if wheel == "2.0.0" else "sha256")
        writer.link("base", {"a": "a", "b": "c", "z": "z"})
        part = {"dtype": "u64", "external": ("store", 4096, 4096 + 72)}
        writer.add_object("x", [3, 3], {"data": part})
    expected = {
        "own": np.arange(3.0), "a": tensors["a"], "c": tensors["b"], "z": np.zeros(9999),
        "x": np.arange(9.0).view(np.uint64).reshape(3, 3),
    }  # fmt: skip
    (answer,) = ask(python, "read", str(path))
    found = of_answer(answer, expected, wheel)
    if not answer["error"] and answer["undigested"]:
        found["*file*"] = [f"undigested: {answer['undigested']}"]
    run.judge(wheel, "to", "linked", "2.1", found)


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
    for wheel in READS:
        python = python_of(wheel)
        to_wheel(run, wheel, python)
        from_wheel(run, wheel, python)
        (chain_of_edits if wheel in OF_2 else between_edits)(run, wheel, python)
        if wheel in OF_2:
            linked(run, wheel, python)
        if wheel == "1.2.3":
            edited(run, wheel, python)
            api(run, python)
        if wheel == "2.1.2":
            appended(run, wheel, python)
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

"""Exchange files with the released wheels of 2.x, both ways, and compare every part.

    python tests/interop/wheels_2.py        wheels 2.0.0, 2.1.0 and 2.1.2

The wheel's `verify` passes on each of our files, except sha256 where it is unknown, and after every
commit of a chain of edits. Its canonical files equal ours of the same tensors, byte for byte. Any
other difference ends the run with status 1.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np

import ztensor
from tests.interop import run as exchange
from tests.property.chains import Chain
from ztensor import v2
from ztensor.ext import spell
from ztensor.numpy import save_file
from ztensor.spec.container.v2.words import written_layout
from ztensor.spec.layout.elements import stored_form

WHEELS = ("2.0.0", "2.1.0", "2.1.2")
WITHOUT_SHA256 = ("2.0.0",)
WITH_PARTS = ("2.1.2",)  # writes objects of several parts in Python
SEEKABLE = "zt.zstd-seekable/1"


def sparse() -> dict[str, Any]:
    rows = ztensor.Tensor.csr(np.array([1, 2.5, -3], np.float32), [0, 3, 1], [0, 2, 2, 3], (3, 4))
    return {**exchange.sparse(), "rows": rows}


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


def names() -> dict[str, Any]:
    return {name: value for name, value in exchange.names().items() if name}


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "dtypes": exchange.dtypes,
    "shapes": exchange.shapes,
    "names": names,
    "many": exchange.many,
    "large": exchange.large,
    "logical": lambda: {**exchange.logical(), **exchange.logical_of_1_2()},
    "sparse": sparse,
    "quantized": exchange.quantized,
    "profiles": profiles,
    "unknown layout": exchange.unknown,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "raw": {},
    "4096": {"alignment": 4096},
    "zstd": {"compression": True},
    "sha256": {"checksum": "sha256", "compression": True, "alignment": 8192},
    "no digests": {"checksum": None},
    "canonical": {"canonical": True},
}


def described(value: Any) -> dict[str, Any]:
    """Return a tensor's entry in a file of 2.x, with the bytes of its parts."""
    tensor = exchange.tensor_of(value)
    layout, attributes = written_layout(tensor.format, dict(tensor.attributes) or None)
    parts = {}
    for role, array in tensor.components.items():
        dtype, logical = spell(array.dtype)
        if dtype == "bool":
            dtype, logical = "u8", "bool"
        parts[role] = {"dtype": dtype, "type": logical, "hex": stored_form(array).tobytes().hex()}
    return {
        "shape": list(tensor.shape),
        "layout": layout,
        "attributes": attributes,
        "parts": parts,
    }


def differences(found: dict[str, Any] | None, value: Any) -> Iterator[str]:
    """Yield differences between our file and the wheel's reading."""
    if found is None or "error" in found:
        yield "missing" if found is None else found["error"]
        return
    expected = described(value)
    for key in ("shape", "layout"):
        if found[key] != expected[key]:
            yield f"{key} {found[key]!r}, expected {expected[key]!r}"
    if found["parts"].keys() != expected["parts"].keys():
        yield f"parts {sorted(found['parts'])}"
        return
    for role, part in expected["parts"].items():
        own = found["parts"][role]
        if (own["dtype"], own["type"]) != (part["dtype"], part["type"]):
            yield f"{role}: {own['dtype']} {own['type']}"
        if own["sha256"] != hashlib.sha256(bytes.fromhex(part["hex"])).hexdigest():
            yield f"{role}: other bytes"


def of_answer(found: dict[str, Any], tensors: dict[str, Any]) -> Iterator[str]:
    """Yield differences between a file of ours and the wheel's answer about it."""
    if found["error"]:
        yield f": {found['error']}"
        return
    for name, value in tensors.items():
        for difference in differences(found["objects"].get(name), value):
            yield f" {name!r}: {difference}"
    if set(found["objects"]) != set(tensors):
        yield ": other names"


def ask(python: str, *arguments: str) -> Any:
    """Run the wheel's side and return its answer."""
    return exchange.ask(python, *arguments, side="wheel_side_2")


def to_wheel(folder: Path, wheel: str, python: str) -> Iterator[str]:
    """Let a wheel read every case in every form; yield the differences."""
    files = [
        (case, how, folder / f"{case}-{how}.zt".replace(" ", "-"))
        for case in CASES
        for how in OPTIONS
        if not (case == "names" and how == "canonical")  # one of them is not in NFC
    ]
    for case, how, path in files:
        if not path.exists():
            save_file(CASES[case](), path, version="2.1", **OPTIONS[how])
    for (case, how, _), found in zip(
        files, ask(python, "read", *(str(path) for _, _, path in files)), strict=True
    ):
        where = f"ours -> {wheel} {case}, {how}"
        if how == "sha256" and wheel in WITHOUT_SHA256 and "sha256" in (found["error"] or ""):
            continue
        yield from (f"{where}{difference}" for difference in of_answer(found, CASES[case]()))
        if not found["error"] and found["undigested" if how != "no digests" else "checked"]:
            yield f"{where}: {found['checked']} checked, {found['undigested']} without digest"
    print(f"ours -> {wheel}: {len(files)} files read and verified", flush=True)


def from_wheel(folder: Path, wheel: str, python: str) -> Iterator[str]:
    """Let a wheel write every case it can; yield where what we read is different."""
    count = same = 0
    for case, make in CASES.items():
        tensors = make()
        ordered = sorted(tensors, key=str.encode)  # as a canonical file has to be
        objects = {name: described(tensors[name]) for name in ordered}
        if wheel not in WITH_PARTS and any(one["layout"] != "dense" for one in objects.values()):
            continue
        for how, encoding, canonical in (
            ("raw", None, False), ("zstd", SEEKABLE, False), ("canonical", None, True),
        ):  # fmt: skip
            if canonical and case == "names":
                continue
            path = folder / f"{wheel}-{case}-{how}.zt".replace(" ", "-")
            spec = path.with_suffix(".json")
            spec.write_text(
                json.dumps({"objects": objects, "canonical": canonical, "encoding": encoding})
            )
            (errors,) = ask(python, "write", str(spec), str(path))
            where = f"{wheel} -> ours {case}, {how}"
            yield from (f"{where} {name!r}: not written: {why}" for name, why in errors.items())
            with ztensor.open(path) as reader:
                count += 1
                outcome = reader.verify(deep=True).outcome
                if outcome == "damaged":
                    yield f"{where}: {outcome}"
                for name, value in tensors.items():
                    if name not in errors:
                        expected = exchange.tensor_of(value)
                        for difference in exchange.of_ours(reader, name, expected):
                            yield f"{where} {name!r}: {difference}"
            if canonical and not errors:
                again = folder / "again.zt"
                save_file(tensors, again, version="2.1", canonical=True)
                same += 1
                if again.read_bytes() != path.read_bytes():
                    yield f"{where}: our canonical form of it is another"
                if ztensor.insight.canonical_problems(path):
                    yield f"{where}: {ztensor.insight.canonical_problems(path)}"
    print(f"{wheel} -> ours: {count} files read, {same} canonical ones the same bytes", flush=True)


def between_edits(folder: Path, wheel: str, python: str) -> Iterator[str]:
    """Change files of ours again and again; a wheel opens and verifies every state of them.

    A killed or aborted edit leaves one of these states, followed by the copy of its footer:
    such a copy is read as well.
    """
    states: list[tuple[str, Path, dict[str, Any]]] = []
    for alignment in (4096, 65536):
        chain = Chain(folder / f"chain-{wheel}-{alignment}.zt", "2.1", "1", alignment=alignment)
        for number in range(40):
            copy = chain.path.with_name(f"{chain.path.stem}-{number}.zt")
            data = chain.path.read_bytes()
            copy.write_bytes(data if number % 4 else data + bytes(5000) + data[-40:])
            states.append((f"alignment {alignment}, state {number}", copy, dict(chain.tensors)))
            chain.commit()
    answers = ask(python, "read", *(str(path) for _, path, _ in states))
    for (state, _, tensors), found in zip(states, answers, strict=True):
        where = f"edited -> {wheel} {state}"
        yield from (f"{where}{difference}" for difference in of_answer(found, tensors))
        if not found["error"] and found["undigested"]:
            yield f"{where}: {found['undigested']} without digest"
    print(f"edited -> {wheel}: {len(states)} states read and verified", flush=True)


def appended(folder: Path, wheel: str, python: str) -> Iterator[str]:
    """Let the wheel append to a file of ours, edit the result, and let the wheel read that."""
    if wheel not in WITH_PARTS:
        return
    path = folder / f"appended-{wheel}.zt"
    tensors: dict[str, Any] = {"a": np.arange(6.0), "b": np.ones((2, 3), np.float32)}
    save_file(tensors, path, version="2.1")
    for number in range(6):
        added = {f"w{number}": np.full(number + 1, number, np.int16)}
        spec = path.with_suffix(".json")
        objects = {name: described(value) for name, value in added.items()}
        how = {"objects": objects, "canonical": False, "encoding": None, "append": True}
        spec.write_text(json.dumps(how))
        (errors,) = ask(python, "write", str(spec), str(path))
        if errors:
            yield f"{wheel} appends: {errors}"
            return
        tensors |= added
        with ztensor.Editor(path) as editor:
            editor.write(f"ours {number}", np.arange(number + 2))
            editor.replace("a", np.arange(number + 1))
            editor.rename({f"w{number}": f"renamed {number}"})
        tensors |= {f"ours {number}": np.arange(number + 2), "a": np.arange(number + 1)}
        tensors[f"renamed {number}"] = tensors.pop(f"w{number}")
        (found,) = ask(python, "read", str(path))
        wrong = list(of_answer(found, tensors))
        if wrong or found["undigested"]:
            yield f"appended and changed, {wheel}: {wrong or found}"
            return
    print(f"appended by {wheel}, changed by us: 6 times read and verified", flush=True)


def linked(folder: Path, wheel: str, python: str) -> Iterator[str]:
    """Let the wheel read a root of ours that refers to bytes of other files."""
    tensors: dict[str, Any] = {"a": np.arange(6.0), "b": np.ones((2, 3), np.float32)}
    base = folder / "linked-base.zt"
    store = folder / "linked-store.zt"
    save_file(tensors | {"z": np.zeros(9999)}, base, version="2.1", compression=True)
    save_file({"x": np.arange(9.0)}, store, version="2.1", alignment=4096)
    path = folder / "linked.zt"
    with v2.Writer(path, canonical=False) as writer:
        writer.add("own", np.arange(3.0), [3], "f64")
        for name, file in (("base", base), ("store", store)):
            writer.add_shard(name, file, "xxh3" if wheel in WITHOUT_SHA256 else "sha256")
        writer.link("base", {"a": "a", "b": "c", "z": "z"})
        part = {"dtype": "u64", "external": ("store", 4096, 4096 + 72)}
        writer.add_object("x", [3, 3], {"data": part})
    expected = {
        "own": np.arange(3.0), "a": tensors["a"], "c": tensors["b"], "z": np.zeros(9999),
        "x": np.arange(9.0).view(np.uint64).reshape(3, 3),
    }  # fmt: skip
    (found,) = ask(python, "read", str(path))
    yield from (f"linked -> {wheel}{difference}" for difference in of_answer(found, expected))
    if not found["error"] and found["undigested"]:
        yield f"linked -> {wheel}: {found['undigested']} without digest"
    print(f"linked -> {wheel}: read and verified", flush=True)


def all_wheels(folder: Path) -> int:
    """Do it all; return the exit status."""
    wrong = []
    for wheel in WHEELS:
        python = exchange.python_of(wheel)
        wrong += [*to_wheel(folder, wheel, python), *from_wheel(folder, wheel, python)]
        wrong += [*between_edits(folder, wheel, python), *appended(folder, wheel, python)]
        wrong += linked(folder, wheel, python)
    for sentence in wrong:
        print(f"DIFFERENT  {sentence}")
    print("all equal" if not wrong else "not equal")
    return 1 if wrong else 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(all_wheels(Path(temporary)))

"""The side of a released wheel in an exchange; run by `run.py` in an environment of that wheel.

    python -m tests.interop.wheel_side COMMAND ...

    read FILE...            one line of JSON: the content of each by the wheel
    write SPEC.json FILE    write the spec's objects, as far as the wheel can
    edit FILE OUTPUT        append to FILE, replace in it, remove into OUTPUT
    programs FOLDER         run the programs of programs_1_2.py in FOLDER

Arrays travel as shape, dtype and the SHA-256 of their bytes; in a spec, as their bytes. `ztensor`
is the wheel.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import os
import sys
from importlib.metadata import version
from typing import Any

import ml_dtypes  # noqa: F401  # gives NumPy the name bfloat16
import numpy as np

from tests.interop.programs import outcome
from tests.interop.programs_1_2 import PROGRAMS

ztensor: Any = importlib.import_module("ztensor")


@functools.cache
def release() -> tuple[int, ...]:
    return tuple(map(int, version("ztensor").split(".")))


def described(array: Any) -> dict[str, Any]:
    plain = np.ascontiguousarray(array)
    return {
        "shape": list(np.shape(array)),
        "dtype": plain.dtype.name,
        "sha256": hashlib.sha256(plain.tobytes()).hexdigest(),
    }


def in_json(value: Any) -> Any:
    """Spell an attribute so that JSON keeps its type."""
    if isinstance(value, bytes):
        return {"$bytes": value.hex()}
    if isinstance(value, (list, tuple)):
        return [in_json(element) for element in value]
    if isinstance(value, dict):
        return {"$map": {str(key): in_json(element) for key, element in value.items()}}
    return value


def from_json(value: Any) -> Any:
    """Undo `in_json`."""
    if isinstance(value, list):
        return [from_json(element) for element in value]
    if isinstance(value, dict) and "$bytes" in value:
        return bytes.fromhex(value["$bytes"])
    if isinstance(value, dict):
        return {key: from_json(element) for key, element in value.get("$map", value).items()}
    return value


# --- Reading --------------------------------------------------------------------------------


def read_object(reader: Any, name: str) -> dict[str, Any]:
    if release() >= (1, 2):
        tensor = reader.read(name)
        parts = {role: described(array) for role, array in tensor.components.items()}
        return {
            "format": tensor.format,
            "shape": list(tensor.shape),
            "type": tensor.type,
            "attributes": in_json(tensor.attributes or {}),
            "components": parts,
            "copies": described(reader.read_numpy(name, copy=True))
            if tensor.format == "dense"
            else None,
        }
    value = reader.read_tensor(name)
    if isinstance(value, np.ndarray):
        return {
            "format": "dense",
            "shape": list(value.shape),
            "components": {"data": described(value)},
        }
    parts = {"values": described(value.data)}
    if value.format == "csr":
        parts["indices"] = described(value.indices.astype(np.uint64))
        parts["indptr"] = described(value.indptr.astype(np.uint64))
    else:
        coords = np.concatenate([value.row, value.col]).astype(np.uint64)
        parts["coords"] = described(coords)
    return {"format": f"sparse_{value.format}", "shape": list(value.shape), "components": parts}


def read_object_2(source: Any, name: str) -> dict[str, Any]:
    """Return an object of 2.x; the type of a part is the words of the file."""
    tensor = source[name]
    parts = {
        role: {
            "dtype": " ".join(filter(None, (tensor[role].dtype, tensor[role].logical))),
            "sha256": hashlib.sha256(tensor[role].tobytes()).hexdigest(),
        }
        for role in tensor.parts
    }
    return {"format": tensor.layout, "shape": list(tensor.shape), "components": parts}


def names_of(reader: Any) -> list[str]:
    names = reader.keys() if release() >= (1, 2) else reader.get_tensor_names()
    return list(names)


def read(path: str) -> dict[str, Any]:
    is_2 = release() >= (2,)
    counts = {}
    try:
        reader = ztensor.open(path) if is_2 else ztensor.Reader(path)
        names = names_of(reader)
        if is_2:
            checked, undigested = ztensor.verify(path, deep=True)
            counts = {"checked": checked, "undigested": undigested}
    except Exception as error:  # noqa: BLE001  # whatever the wheel raises is its answer
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    objects: dict[str, Any] = {}
    for name in names:
        try:
            objects[name] = (read_object_2 if is_2 else read_object)(reader, name)
        except Exception as error:  # noqa: BLE001  # likewise
            objects[name] = {"error": f"{type(error).__name__}: {error}"[:300]}
    return {"error": None, "objects": objects, **counts}


# --- Writing --------------------------------------------------------------------------------


def array_of(fields: dict[str, Any]) -> Any:
    kind = np.dtype(fields["dtype"])
    return np.frombuffer(bytes.fromhex(fields["hex"]), kind).reshape(fields["shape"]).copy()


def write_object_2(writer: Any, name: str, fields: dict[str, Any], compress: int = 0) -> None:
    parts: dict[str, dict[str, Any]] = {}
    for role, part in fields["components"].items():
        dtype, _, logical = part["dtype"].partition(" ")
        parts[role] = {"dtype": dtype, "data": bytes.fromhex(part["hex"])}
        parts[role] |= {"logical": logical} if logical else {}
        parts[role] |= {"encoding": "zt.zstd-seekable/1"} if compress else {}
    if fields["format"] == "dense":
        data = parts["data"]
        writer.add(name, data.pop("data"), fields["shape"], data.pop("dtype"), **data)
    else:
        attributes = from_json(fields["attributes"]) or None
        writer.add_object(name, fields["shape"], parts, fields["format"], attributes)


def write_object(
    writer: Any, name: str, fields: dict[str, Any], compress: int = 0, checksum: str = "none"
) -> None:
    if release() >= (2,):
        write_object_2(writer, name, fields, compress)
        return
    parts = {role: array_of(part) for role, part in fields["components"].items()}
    if release() >= (1, 2):
        options = {"compress": compress, "checksum": checksum}
        if fields["format"] == "dense" and not fields["attributes"]:
            writer.write_numpy(name, parts["data"], **options)
            return
        tensor = ztensor.Tensor(
            parts,
            shape=fields["shape"],
            format=fields["format"],
            attributes=from_json(fields["attributes"]) or None,
        )
        writer.write(name, tensor, **options)
    elif fields["format"] == "sparse_csr":
        writer.add_sparse_csr(
            name, parts["values"], parts["indices"], parts["indptr"], fields["shape"]
        )
    elif fields["format"] == "sparse_coo":
        writer.add_sparse_coo(name, parts["values"], parts["coords"], fields["shape"])
    elif release() >= (1, 0):
        writer.add_tensor(name, parts["data"], compress=compress)
    else:
        writer.add_tensor(name, parts["data"])


def write(spec: dict[str, Any], path: str) -> dict[str, Any]:
    errors = {}
    how = {"compress": spec.get("compress", 0), "checksum": spec.get("checksum", "none")}
    options = {"canonical": spec.get("canonical", False)} if release() >= (2,) else {}
    options |= {"append": True} if spec.get("append") else {}
    with ztensor.Writer(path, **options) as writer:
        for name, fields in spec["objects"].items():
            try:
                write_object(writer, name, fields, **how)
            except Exception as error:  # noqa: BLE001  # whatever the wheel raises is its answer
                errors[name] = f"{type(error).__name__}: {error}"[:300]
    return errors


def edit(path: str, output: str) -> None:
    """Change a finished file in the ways release 1.2 has."""
    with ztensor.Writer.append(path) as writer:
        writer.write_numpy("appended", np.arange(5, dtype=np.int32), checksum="crc32c")
    ztensor.replace_tensor(path, "replaced", np.full((2, 3), 9, np.float32))
    ztensor.remove_tensors(path, output, ["removed"])


def programs(folder: str) -> dict[str, Any]:
    """Run every program of the 1.2 API, each in a folder of its own."""
    found = {}
    for number, (name, program) in enumerate(PROGRAMS.items()):
        place = os.path.join(folder, str(number))
        os.makedirs(place)
        os.chdir(place)
        found[name] = outcome(program, ztensor)
    return found


def main() -> None:
    command, *arguments = sys.argv[1:]
    answer: list[Any] = []
    if command == "read":
        answer = [read(path) for path in arguments]
    elif command == "edit":
        edit(*arguments)
    elif command == "programs":
        answer = [programs(*arguments)]
    else:
        with open(arguments[0], encoding="utf-8") as file:
            answer = [write(json.load(file), arguments[1])]
    print(json.dumps(answer))


if __name__ == "__main__":
    main()

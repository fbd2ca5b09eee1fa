"""The side of a 2.x wheel in an exchange; run by `wheels_2.py` in its environment.

    python -m tests.interop.wheel_side_2 COMMAND ...

    read FILE...            one line of JSON: the content of each by the wheel
    write SPEC.json FILE    write the spec's objects, as far as the wheel can

Arrays travel as their type's words and the SHA-256 of their decoded bytes; in a spec, as bytes.
Nothing of this project is imported: `ztensor` is the wheel.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from typing import Any

ztensor: Any = importlib.import_module("ztensor")


def part_of(part: Any) -> dict[str, Any]:
    data = part.tobytes()
    return {
        "dtype": part.dtype,
        "type": part.logical,
        "sha256": hashlib.sha256(data).hexdigest(),
    }


def read(path: str) -> dict[str, Any]:
    try:
        source = ztensor.open(path)
        objects: dict[str, Any] = {}
        for name in source.keys():  # noqa: SIM118  # no mapping
            tensor = source[name]
            try:
                parts = {role: part_of(tensor[role]) for role in tensor.parts}
                objects[name] = {
                    "shape": list(tensor.shape),
                    "layout": tensor.layout,
                    "parts": parts,
                }
            except Exception as error:  # noqa: BLE001  # whatever the wheel raises is its answer
                objects[name] = {"error": f"{type(error).__name__}: {error}"[:300]}
        checked, undigested = ztensor.verify(path, deep=True)
    except Exception as error:  # noqa: BLE001  # likewise
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    return {"error": None, "objects": objects, "checked": checked, "undigested": undigested}


def write(spec_path: str, path: str) -> dict[str, str]:
    with open(spec_path, encoding="utf-8") as file:
        spec = json.load(file)
    errors = {}
    options = {"append": True} if spec.get("append") else {}
    with ztensor.Writer(path, canonical=spec["canonical"], **options) as writer:
        for name, found in spec["objects"].items():
            parts: dict[str, dict[str, Any]] = {}
            for role, part in found["parts"].items():
                parts[role] = {"dtype": part["dtype"], "data": bytes.fromhex(part["hex"])}
                parts[role] |= {
                    key: value
                    for key, value in (("logical", part["type"]), ("encoding", spec["encoding"]))
                    if value
                }
            try:
                if found["layout"] == "dense":
                    data = parts["data"]
                    writer.add(name, data.pop("data"), found["shape"], data.pop("dtype"), **data)
                else:
                    writer.add_object(
                        name, found["shape"], parts, found["layout"], found["attributes"]
                    )
            except Exception as error:  # noqa: BLE001  # likewise
                errors[name] = f"{type(error).__name__}: {error}"[:300]
    return errors


def main() -> None:
    """Print the answer as one line of JSON."""
    what, *arguments = sys.argv[1:]
    answer: Any
    answer = [read(path) for path in arguments] if what == "read" else [write(*arguments)]
    print(json.dumps(answer))


if __name__ == "__main__":
    main()

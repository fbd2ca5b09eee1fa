"""Names of other libraries that users may look for, and the calls to use instead.

Read only when a name is missing: the `AttributeError` then ends with the right call.
"""

from __future__ import annotations

from typing import Any

_DICTS = "ztensor.numpy, ztensor.torch and ztensor.jax have one"
_WRITE = "write(name, array) adds an object, of any framework"
_FINISH = "finish() completes the file, abort() gives it up; a `with` block does either"
_ATTRIBUTES = "`attributes` has the key-value pairs of the file, metadata(name) those of an object"
_READ_ONLY = "a reader changes nothing: ztensor.Writer writes a file, ztensor.Editor changes one"
_FRAMEWORKS = "reader[name] gives an array, read_torch(name) and read_jax(name) tensors"

# The package "ztensor" or the name of a class, to missing names, to hints.
HINTS: dict[str, dict[str, str]] = {
    "ztensor": {
        **dict.fromkeys(("load", "load_file", "save", "save_file"), _DICTS),
        **dict.fromkeys(("load_model", "save_model"), "ztensor.torch has one"),
        **dict.fromkeys(
            ("from_pretrained", "save_pretrained"),
            "ztensor.transformers, ztensor.diffusers and ztensor.peft have one",
        ),
        **dict.fromkeys(
            ("load_checkpoint", "load_state_dict", "save_checkpoint", "save_state_dict"),
            "ztensor.CheckpointManager keeps the steps of a run, ztensor.save_tree one nested "
            "state",
        ),
        "File": "ztensor.open reads a file, ztensor.Writer writes one",
        "SafetensorError": "ztensor.ZTensorError is the base of the errors of this library",
        "verify": "a reader has it: ztensor.open(path).verify()",
    },
    "ObjectReader": {
        **dict.fromkeys(("get_tensor", "tensor", "numpy", "torch", "jax"), _FRAMEWORKS),
        **dict.fromkeys(
            ("get_tensors", "load", "load_all", "read_all", "to_dict"),
            "dict(reader) has all arrays; load_file of ztensor.numpy, ztensor.torch and "
            "ztensor.jax reads a whole file",
        ),
        **dict.fromkeys(("attrs", "info"), _ATTRIBUTES),
        **dict.fromkeys(("names", "objects_names", "offset_keys"), "keys() has the names"),
        **dict.fromkeys(("filename", "path"), "`name` has the path"),
        **dict.fromkeys(("shape", "dtype"), "metadata(name) has those of an object"),
        **dict.fromkeys(
            (
                *("add", "add_tensor", "append", "create_array", "create_dataset", "flush"),
                *("finish", "set_attributes", "update", "write"),
            ),
            _READ_ONLY,
        ),
    },
    "Writer": {
        **dict.fromkeys(
            (
                *("add_array", "add_object", "add_tensor", "create_array", "create_dataset"),
                *("put", "put_tensor", "save", "write_jax", "write_tensor"),
            ),
            _WRITE,
        ),
        **dict.fromkeys(("close", "commit", "flush", "save_file"), _FINISH),
        **dict.fromkeys(
            ("add_attributes", "add_metadata", "attributes", "attrs", "metadata"),
            "ztensor.Writer(path, attributes={...}) stores the key-value pairs of the file, "
            "write(name, array, attributes={...}) those of an object",
        ),
    },
}


def missing(where: str, name: str, kinds: tuple[str, ...] = (), found: Any = None) -> Exception:
    """Return the error for a name that is missing.

    Args:
        where: the module or object without the name, in Python's words: `module 'ztensor'`.
        name: the name.
        kinds: keys of `HINTS`, the most specific first.
        found: the object without the name; Python suggests its similar names.
    """
    hint = next((HINTS[kind][name] for kind in kinds if name in HINTS.get(kind, ())), None)
    message = f"{where} has no attribute {name!r}"
    if hint is None:
        return AttributeError(message, name=name, obj=found)
    return AttributeError(f"{message}; {hint}")

"""Every public name as a line of text: python tests/typing/snapshot.py writes `public.txt` anew.

A section is a module that users import; a line is a function with its parameters and their types,
or a member of the class above it. Members of bases that are not public count as the class's own, so
that a class may be divided without a change here. A module whose library is not installed keeps the
section that it has.
"""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import re
import sys
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ztensor

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = Path(__file__).with_name("public.txt")
MODULES = [
    "ztensor",
    *(
        f"ztensor.{name}"
        for name in (
            "accelerate", "aio", "conformance", "converting", "dask", "delta", "diffusers",
            "distributed", "divided", "edit", "errors", "flax", "fleet", "insight", "io", "jax",
            "keras", "lightning", "numpy", "peft", "signing", "testing.builder",
            "testing.builder_2", "testing.damage", "testing.promise", "testing.strategies", "torch",
            "trainer", "training", "transformers", "typing", "v2", "xarray",
        )
    ),
]  # fmt: skip
# Classes made from a class of a library, when they are first asked for.
OF_LIBRARIES = {
    "ztensor.lightning.CheckpointIO", "ztensor.torch.StorageReader", "ztensor.torch.StorageWriter",
    "ztensor.trainer.CheckpointCallback",
}  # fmt: skip
# What Python calls when a class is used by operators and statements.
PROTOCOLS = {
    f"__{name}__"
    for name in (
        "init", "call", "getitem", "setitem", "delitem", "contains", "iter", "next", "len", "bool",
        "enter", "exit", "index", "int", "float", "array", "array_interface",
        "dlpack", "dlpack_device",
    )
}  # fmt: skip


def sections() -> dict[str, list[str]]:
    """Return the lines of each module that can be imported here."""
    found: dict[str, list[str]] = {}
    homes: dict[int, str] = {}
    for name in MODULES:
        try:
            module = importlib.import_module(name)
            found[name] = list(_module(module, homes))
        except ImportError:
            continue
    return found


def text(known: dict[str, list[str]]) -> str:
    return "\n".join(f"[{name}]\n" + "".join(f"{line}\n" for line in known[name]) for name in known)


def kept() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for section in FILE.read_text("utf-8").split("\n[") if FILE.exists() else ():
        name, *lines = section.removeprefix("[").splitlines()
        found[name.removesuffix("]")] = lines
    return found


def _module(module: Any, homes: dict[int, str]) -> Iterator[str]:
    names = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    for name in sorted(names):
        full = f"{module.__name__}.{name}"
        if full in OF_LIBRARIES:
            yield f"class {name}, made from a class of its library"
            continue
        value = getattr(module, name)
        home = homes.setdefault(id(value), full)
        if home != full and callable(value):
            yield f"{name}: {home}"
        elif inspect.isclass(value):
            yield from _class(name, value)
        elif inspect.isroutine(value):
            yield from (name + signature for signature in signatures(value))
        elif isinstance(value, str):
            yield f"{name} = {value}"
        else:
            yield f"{name}: {type(value).__name__}"


def _class(name: str, kind: type) -> Iterator[str]:
    public = [base for base in kind.__mro__[1:-1] if _is_public(base)]
    direct = [base for base in public if not any(base in other.__mro__[1:] for other in public)]
    yield f"class {name}({', '.join(base.__name__ for base in direct)})"
    if issubclass(kind, enum.Enum):
        yield from (f"    {member.name} = {member.value!r}" for member in kind)
        return
    if typing.is_typeddict(kind):
        yield from (
            f"    {key}: {_annotation(kind.__annotations__[key])}" for key in kind.__annotations__
        )
        return
    elsewhere = {base for ours in filter(_is_ours, public) for base in ours.__mro__}
    members: dict[str, list[str]] = {}
    for base in kind.__mro__:
        if _is_ours(base) and base not in elsewhere:
            members = {**_attributes(base), **dict(_members(base)), **members}
    for key in sorted(members):
        yield from (f"    {key}{line}" for line in members[key])


def _is_ours(kind: type) -> bool:
    return kind.__module__.split(".")[0] == "ztensor"


def _is_public(base: type) -> bool:
    """Return whether users may ask for it by `isinstance`: a name of ours, or one of Python's."""
    if _is_ours(base):
        return base.__name__ in ztensor.__all__ or hasattr(ztensor.errors, base.__name__)
    return not base.__name__.startswith("_") and base.__name__ not in ("Generic", "Protocol")


def _members(kind: type) -> Iterator[tuple[str, list[str]]]:
    """Yield each public method and property that a class itself defines, with its signatures."""
    for name, member in vars(kind).items():
        if name.startswith("_") and name not in PROTOCOLS:
            continue
        if isinstance(member, (classmethod, staticmethod)):
            word = type(member).__name__
            yield name, [f"{line}, {word}" for line in signatures(member.__func__)]
        elif isinstance(member, (property, functools.cached_property)):
            function: Any = member.fget if isinstance(member, property) else member.func
            yield name, [f": {_annotation(inspect.signature(function).return_annotation)}"]
        elif inspect.isfunction(member):
            yield name, list(signatures(member))


def _attributes(kind: type) -> dict[str, list[str]]:
    """Return the attributes of a class: those its docstring lists, and fields with their types."""
    _, _, section = (inspect.cleandoc(kind.__doc__ or "")).partition("\nAttributes:\n")
    listed = re.findall(r"^    (\w+):", re.split(r"\n(?=\S)", section)[0], re.MULTILINE)
    fields = {
        name: [f": {_annotation(annotation)}"]
        for name, annotation in inspect.get_annotations(kind).items()
        if not name.startswith("_")
    }
    return {name: [": attribute"] for name in listed} | fields


def signatures(function: Any) -> Iterator[str]:
    """Yield a function's overloads, or the function itself."""
    function = inspect.unwrap(function)
    for one in typing.get_overloads(function) or [function]:
        yield _signature(inspect.signature(one))


def _signature(signature: inspect.Signature) -> str:
    """Return a signature whose text no version of Python writes in another way."""
    made, kind = [], None
    for parameter in signature.parameters.values():
        if kind == parameter.POSITIONAL_ONLY != parameter.kind:
            made.append("/")
        if parameter.kind == parameter.KEYWORD_ONLY and kind not in (
            parameter.VAR_POSITIONAL,
            parameter.KEYWORD_ONLY,
        ):
            made.append("*")
        kind = parameter.kind
        stars = 2 if kind == parameter.VAR_KEYWORD else kind == parameter.VAR_POSITIONAL
        part = "*" * stars + parameter.name
        if parameter.annotation is not parameter.empty:
            part += f": {_annotation(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            part += f" = {_default(parameter.default)}"
        made.append(part)
    if kind == inspect.Parameter.POSITIONAL_ONLY:
        made.append("/")
    result = signature.return_annotation
    end = "" if result is signature.empty else f" -> {_annotation(result)}"
    return f"({', '.join(made)}){end}"


def _annotation(annotation: Any) -> str:
    if annotation is inspect.Signature.empty:
        return "unknown"
    named = getattr(annotation, "__forward_arg__", annotation)
    return named if isinstance(named, str) else getattr(named, "__name__", str(named))


def _default(value: object) -> str:
    is_plain = value is None or isinstance(value, (bool, int, float, str, bytes, tuple))
    return repr(value) if is_plain else "..."


def main() -> int:
    """Write the file; return the exit status."""
    known = kept() | sections()
    FILE.write_text(text({name: known[name] for name in MODULES}), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

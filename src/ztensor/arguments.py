"""Whether a call that failed was given what its annotations ask for.

Asked only after a call failed in a way that nobody foresaw, so that right calls pay nothing: what
was passed is held to the annotations, and the first argument that does not fit is the caller's
mistake. Annotations are read as text, since most names in them exist for type checkers alone.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ztensor import options
from ztensor.errors import ArgumentTypeError, describe

# Types with parameters in brackets: their items, or their arguments.
_CONTAINERS = ("Callable", "Iterable", "Mapping", "Sequence")
_MOST_ITEMS = 10_000  # of a container that are looked at

# Of `ztensor.typing`: what these rule out only the library that has the value could tell.
_OPEN = (
    "Array",
    "Bytes",
    "ElementType",
    "Index",
    "JaxDevice",
    "JaxSharding",
    "Openable",
    "Readable",
    "Target",
    "TensorLike",
    "TorchDevice",
    "TorchTensor",
)
_ALIASES = {
    **dict.fromkeys(_OPEN, "Any"),
    "Durable": "bool | Literal['auto']",
    "Path": "str | os.PathLike",
    "Progress": "Callable[[int, int], None]",
    "Scale": "Literal['linear', 'log', 'symlog']",
}

_PYTHONS: dict[str, Callable[[Any], bool]] = {
    "Any": lambda value: True,
    "object": lambda value: True,
    "None": lambda value: value is None,
    "bool": lambda value: isinstance(value, bool) or type(value).__name__ == "bool_",
    "int": lambda value: hasattr(type(value), "__index__") and not getattr(value, "shape", ()),
    "float": lambda value: hasattr(type(value), "__float__") and not getattr(value, "shape", ()),
    "PathLike": lambda value: isinstance(value, os.PathLike),
    "Callable": callable,
    "Iterable": lambda value: isinstance(value, Iterable),
    "Sequence": lambda value: isinstance(value, Sequence) or hasattr(value, "__array__"),
    "Mapping": lambda value: isinstance(value, Mapping),
}


def wrong_argument(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> ArgumentTypeError | None:
    """Return the error for the first argument that is not what its annotation says, if any.

    Args:
        function: what was called; its annotations are text.
        args: what was passed by position.
        kwargs: what was passed by name.
    """
    signature = inspect.signature(function)
    given = signature.bind(*args, **kwargs).arguments
    texts = {name: signature.parameters[name].annotation for name in given}
    for name in list(given):
        if str(texts[name]).startswith("Unpack["):
            kind = getattr(options, texts[name][len("Unpack[") : -1])
            texts.update((key, one.__forward_arg__) for key, one in kind.__annotations__.items())
            given.update(given.pop(name))
    for name, value in given.items():
        text = texts[name]
        if not isinstance(text, str) or (
            name in signature.parameters
            and signature.parameters[name].kind
            in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        ):
            continue
        if not fits(value, ast.parse(text, mode="eval").body):
            return ArgumentTypeError(
                f"the argument {name!r} cannot be used", expected=text, found=describe(value)
            )
    return None


def fits(value: Any, annotation: ast.expr) -> bool:
    """Return whether a value is what an annotation says; True where that cannot be told."""
    match annotation:
        case ast.BinOp(left=one, op=ast.BitOr(), right=other):
            return fits(value, one) or fits(value, other)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=choice):
            choices = choice.elts if isinstance(choice, ast.Tuple) else [choice]
            texts = [one.value for one in choices if isinstance(one, ast.Constant)]
            return type(value) in (str, bool) and value in texts
        case ast.Subscript(value=ast.Name(id=name) as kind, slice=inner) if name in _CONTAINERS:
            return fits(value, kind) and _holds(value, inner)
        case ast.Subscript(value=kind):
            return fits(value, kind)
        case ast.Constant(value=None):
            return value is None
        case ast.Attribute(value=ast.Name(id="os"), attr=name) | ast.Name(id=name):
            return _is_kind(value, name)
    return True


def _is_kind(value: Any, name: str) -> bool:
    if name in _ALIASES:
        return fits(value, ast.parse(_ALIASES[name], mode="eval").body)
    if name in _PYTHONS:
        return _PYTHONS[name](value)
    return any(
        kind.__name__ == name and kind.__module__.partition(".")[0] in ("builtins", "ztensor")
        for kind in type(value).__mro__
    )


def _holds(value: Any, inner: ast.expr) -> bool:
    """Return whether a container has the right things in it, or a callable takes so many."""
    if callable(value) and isinstance(inner, ast.Tuple):
        return _takes(value, inner.elts[0])
    if isinstance(value, Iterator):  # can be looked at once alone, and was
        return True
    try:
        items = list(itertools.islice(value, _MOST_ITEMS))
    except Exception:  # noqa: BLE001  # the caller's own kind of container
        return False
    if isinstance(value, Mapping) and isinstance(inner, ast.Tuple):
        of_keys, of_values = inner.elts
        return all(fits(key, of_keys) and fits(value[key], of_values) for key in items)
    return all(fits(item, inner) for item in items)


def _takes(function: Callable[..., Any], arguments: ast.expr) -> bool:
    if not isinstance(arguments, ast.List):
        return True
    try:
        inspect.signature(function).bind(*arguments.elts)
    except TypeError:
        return False
    except ValueError:  # built in, without a signature
        return True
    return True

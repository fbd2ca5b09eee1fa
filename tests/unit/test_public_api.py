"""The public surface: typed, documented, and nothing else in tab completion."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import dataclasses
import importlib
import inspect
import io
import re
import sys
import types
import typing
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
import ztensor.typing
from ztensor.numpy import save, save_file

ROOT = Path(__file__).parents[2]
# Those whose library is not installed are left out.
MODULES = [
    "", ".numpy", ".torch", ".jax", ".flax", ".divided", ".edit", ".errors", ".typing", ".fleet",
    ".dask", ".transformers", ".diffusers", ".peft", ".io", ".insight", ".training", ".converting",
    ".signing", ".xarray", ".aio",
]  # fmt: skip


def modules() -> Iterator[types.ModuleType]:
    for suffix in MODULES:
        try:
            yield importlib.import_module(f"ztensor{suffix}")
        except ztensor.MissingDependencyError:
            continue


def public_things() -> dict[str, Any]:
    """Return the classes and functions of all public modules by where they are defined."""
    found: dict[str, Any] = {}
    for module in modules():
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing) or inspect.isfunction(thing):
                found[f"{thing.__module__}.{thing.__qualname__}"] = thing
    from ztensor.handle import HandleSlice  # what `safe_open(...).get_slice` gives

    return {**found, f"{HandleSlice.__module__}.{HandleSlice.__qualname__}": HandleSlice}


THINGS = public_things()

# --- Types ------------------------------------------------------------------------------------

ATTRIBUTES = "attributes hold whatever was stored in them"
VALUES = "X | Any: a sparse or quantized object is another kind of value, isinstance narrows it"
PROTOCOL = "as Python's or another library's protocol has it"
TREES = "a tree, or a value in it, is of any type"
OURS = "only the library makes it"
THEIRS = "models, classes and options of a library that need not be installed"
# What may say Any, and why; by the end of its name.
EXCEPTIONS = {
    ".attributes": ATTRIBUTES,
    ".index_metadata": ATTRIBUTES,
    "ComponentMetadata.__getitem__": "a field by its name, of any of their types",
    ".load": VALUES,
    ".load_file": VALUES,
    ".iterate": VALUES,
    ".read_jax": VALUES,
    ".load_tree": TREES,
    ".random_state": TREES,
    ".set_random_state": TREES,
    ".restore": TREES,
    ".from_pretrained": THEIRS,
    "transformers.save_pretrained": THEIRS,
    "diffusers.save_pretrained": THEIRS,
    "peft.save_pretrained": THEIRS,
    "LazyTree.__getitem__": TREES,
    "LazyTree.tree": TREES,
    "Record.__getattr__": TREES,
    "Record.__getitem__": TREES,
    "Record.__init__": TREES,
    "ObjectReader.__getitem__": VALUES,
    "Reader.read_slices": VALUES,
    "AsyncReader.read_slice": VALUES,
    "TensorSlice.__getitem__": VALUES,
    "TensorSlice.__iter__": "a scalar or an array, as in NumPy's stubs",
    "Tensor.jax": VALUES,
    "Tensor.to_scipy": "one of five classes of SciPy, as only the object tells",
    "safe_open.__init__": VALUES,
    "Insight.as_json": "values of JSON, as the page on insight says",
    ".__reduce__": PROTOCOL,
    ".__array_interface__": PROTOCOL,
    ".__array__": PROTOCOL,
    ".__dlpack__": PROTOCOL,
    "Error.__init__": OURS,
    "HandleSlice.__init__": OURS,
    "Constructors.quantize": "options of a recipe, which each recipe checks",
}

OF_FIELDS = {
    "Restored.tree": TREES,
    "DiffReport.values": TREES,
    "Remote.storage": "a dict of options, or a store of a library that need not be installed",
}


def reason(name: str) -> str | None:
    return next((why for end, why in EXCEPTIONS.items() if name.endswith(end)), None)


def signatures(thing: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield what type checkers see of a function: its overloads, or itself."""
    function = inspect.unwrap(thing)
    for one in typing.get_overloads(function) or [function]:
        yield name, one


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the functions of a class and its bases that are ours and public."""
    for base in kind.__mro__:
        if not base.__module__.startswith("ztensor"):
            continue
        for name, member in vars(base).items():
            if name.startswith("_") and not (name.startswith("__") and name.endswith("__")):
                continue
            if isinstance(member, property):
                member = member.fget  # noqa: PLW2901
            elif isinstance(member, (classmethod, staticmethod)):
                member = member.__func__  # noqa: PLW2901
            is_ours = isinstance(member, types.FunctionType) and (
                inspect.unwrap(member).__code__.co_filename != "<string>"  # of a dataclass
            )
            if is_ours and inspect.unwrap(member).__module__.startswith("ztensor"):
                yield from signatures(member, f"{base.__module__}.{base.__qualname__}.{name}")


def all_signatures() -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for name, thing in THINGS.items():
        for where, function in (
            members(thing) if inspect.isclass(thing) else signatures(thing, name)
        ):
            if function not in found.setdefault(where, []):
                found[where].append(function)
    return found


SIGNATURES = all_signatures()


def says_any(annotation: str) -> bool:
    """Return whether an annotation says Any; the shape and element type of an array may."""
    arrays = r"np\.(?:ndarray\[Any, np\.dtype\[Any\]\]|dtype\[Any\])"
    text = re.sub(arrays, "Array", annotation)
    return any(isinstance(one, ast.Name) and one.id == "Any" for one in ast.walk(ast.parse(text)))


@pytest.mark.parametrize("name", sorted(SIGNATURES))
def test_every_public_function_says_its_types(name: str) -> None:
    for function in SIGNATURES[name]:
        signature = inspect.signature(function)
        texts = {"return": signature.return_annotation}
        parameters = list(signature.parameters.values())
        if "." in function.__qualname__:
            parameters = parameters[1:]  # self, cls
        texts.update((one.name, one.annotation) for one in parameters)
        for what, text in texts.items():
            assert isinstance(text, str), f"{what} has no type"
            assert not says_any(text) or reason(name), f"{what} is {text}"


def test_every_exception_is_needed() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    for end in EXCEPTIONS:
        texts = [
            str(text)
            for name, functions in SIGNATURES.items()
            if name.endswith(end)
            for function in functions
            for text in inspect.get_annotations(function).values()
        ]
        assert any(says_any(text) for text in texts), end


@pytest.mark.parametrize(
    "kind",
    [kind for kind in THINGS.values() if inspect.isclass(kind) and dataclasses.is_dataclass(kind)],
    ids=lambda kind: kind.__qualname__,
)
def test_every_field_says_its_type(kind: Any) -> None:
    for field in dataclasses.fields(kind):
        if field.name.startswith("_"):
            continue
        known = reason(f".{field.name}") or OF_FIELDS.get(f"{kind.__qualname__}.{field.name}")
        assert not says_any(str(field.type)) or known, field


# --- Options ----------------------------------------------------------------------------------


def called(function: Any) -> Any:
    thing: Any = sys.modules[function.__module__]
    for name in function.__qualname__.split("."):
        thing = getattr(thing, name)
    return thing


TAKERS = {
    f"{name} {kind}": (called(function), getattr(ztensor.typing, kind))
    for name, functions in SIGNATURES.items()
    for function in functions
    for parameter in inspect.signature(function).parameters.values()
    for kind in re.findall(r"^Unpack\[(\w+)\]$", str(parameter.annotation))
}


def awaited(result: object) -> None:
    if inspect.iscoroutine(result):
        asyncio.run(result)


@pytest.mark.parametrize("name", TAKERS)
def test_a_name_that_is_no_option_is_a_type_error(name: str) -> None:
    function, kind = TAKERS[name]
    parameters = inspect.signature(function).parameters.values()
    given = [None for one in parameters if one.default is one.empty and one.kind < one.VAR_KEYWORD]
    first = min(kind.__annotations__)
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{first}x'; did you mean"):
        awaited(function(*given, **{f"{first}x": None}))


def test_every_typed_dict_of_options_is_taken_by_a_function() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    taken = {kind.__name__ for _, kind in TAKERS.values()}
    kinds = {name for name in ztensor.typing.__all__ if name.endswith("Options")}
    assert kinds == taken


def has_text(option: str, kind: Any) -> bool:
    return re.search(rf"^ +{option}: \S", kind.__doc__ or "", re.MULTILINE) is not None


@pytest.mark.parametrize(
    "kind",
    sorted({kind for _, kind in TAKERS.values()}, key=attrgetter("__name__")),
    ids=lambda kind: kind.__name__,
)
def test_every_option_has_its_text_where_it_is_declared(kind: Any) -> None:
    names = set(kind.__annotations__)
    kinds = [one for _, one in TAKERS.values() if set(one.__annotations__) <= names]
    for name in names:
        assert any(has_text(name, one) for one in kinds), name


# Values that are refused, which shows that they arrive; `durable` is seen by the disk alone.
WRONG: dict[str, object] = {
    "alignment": 3, "attributes": 3, "cache": 3, "canonical": True, "checksum": "md9",
    "chunk_rows": -1, "compression": "lz9", "deduplicate": "x", "durable": "x", "format": "x",
    "into": {"other": 1}, "limits": 3, "max_shard_size": "x", "only": 3, "progress": 3,
    "resolver": 3, "storage": 3, "storage_options": 3, "threads": "x", "types": 3, "version": "9",
}  # fmt: skip
UNSEEN = {"mmap": False, "recover": True, "copy": False, "verify": False, "dequantize": True}


@pytest.mark.parametrize(
    "name", ["numpy.save_file", "numpy.load_file", "save_tree", "load_tree", "Reader", "open"]
)
def test_every_option_arrives(name: str, tmp_path: Path) -> None:
    module, _, last = name.rpartition(".")
    function = getattr(importlib.import_module(f"ztensor.{module}".rstrip(".")), last)
    value = {"w": np.zeros((64, 64))}
    path = tmp_path / "m.zt"
    ztensor.save_tree(value, path)
    place = [value, path] if last.startswith("save") else [path]
    kind = TAKERS[next(key for key in TAKERS if function.__qualname__ in key.split(" ")[0])][1]
    for option in kind.__annotations__:
        if option in UNSEEN:
            function(*place, **{option: UNSEEN[option]})
            continue
        with pytest.raises((TypeError, ValueError, ztensor.ZTensorError)):
            function(*place, **{option: WRONG[option]})


# --- Tab completion ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return one of everything that users hold."""
    path = tmp_path_factory.mktemp("made") / "m.zt"
    tensors: dict[str, Any] = {
        "dense": np.zeros((4, 4), np.float32),
        "csr": ztensor.Tensor.csr([1.0], [0], [0, 1], (1, 3)),
        "coo": ztensor.Tensor.coo([1.0], [[0], [1]], (1, 3)),
        "quantized": ztensor.Tensor.quantize(np.eye(128, 8, dtype=np.float32)),
    }
    save_file(tensors, path)
    reader = ztensor.open(path)
    writer = ztensor.Writer(io.BytesIO())
    handle = ztensor.safe_open(path, framework="np")
    damaged = bytearray(save(tensors))
    damaged[64] ^= 1
    found = ztensor.diff(path, save({"dense": np.ones((4, 4), np.float32)}))
    report = ztensor.stats(path)
    manager = ztensor.CheckpointManager(path.with_name("run"), background=False)
    manager.save(1, {"w": 1})
    with ztensor.Editor(path, dry_run=True) as editor:
        return {
            "reader": reader,
            "set": ztensor.io.ShardedReader([path]),
            "writer": writer,
            "editor": editor,
            "sink": writer.stream("w", (3,), "float32"),
            "tensor": reader.read("dense"),
            **{f"slice of {name}": reader.get_slice(name) for name in tensors},
            "handle": handle,
            "slice of a handle": handle.get_slice("dense"),
            "metadata": reader.metadata("dense"),
            "component": reader.metadata("dense").components["data"],
            "location": reader.location("dense"),
            "verify": reader.verify(),
            "problem": ztensor.open(damaged).verify().problems[0],
            "stats": report,
            "stats of one": report["dense"],
            "histogram": report["dense"].histogram,
            "diff": found,
            "diff of one": found["dense"] if hasattr(found, "__getitem__") else found.tensors[0],
            "insight": ztensor.examine(path),
            "finding": ztensor.insight.Finding("nan", "error", 0, "w", 1, 0, "text"),
            "picture": ztensor.plot(path),
            "conversion": ztensor.convert(path, path.with_name("n.npz"), dry_run=True),
            "repair": ztensor.repair(path, dry_run=True),
            "manager": manager,
            "checkpoint": manager.checkpoints()[0],
            "restored": manager.restore(),
            "limits": ztensor.Limits(),
            "error": ztensor.UsageError("wrong"),
        }


WHAT = [
    "reader", "set", "writer", "editor", "sink", "tensor", "slice of dense", "slice of csr",
    "slice of coo", "slice of quantized", "handle", "slice of a handle", "metadata", "component",
    "location", "verify", "problem", "stats", "stats of one", "histogram", "diff", "diff of one",
    "insight", "finding", "picture", "conversion", "repair", "manager", "checkpoint", "restored",
    "limits", "error",
]  # fmt: skip


def attributes_of(kind: type) -> set[str]:
    """Return the names in the `Attributes` section of a class and of its bases."""
    found: set[str] = set()
    for base in kind.__mro__:
        _, _, section = (inspect.cleandoc(base.__doc__ or "")).partition("\nAttributes:\n")
        section = re.split(r"\n(?=\S)", section)[0]
        found.update(re.findall(r"^    (\w+):", section, re.MULTILINE))
    return found


def on_the_page() -> set[type]:
    """Return the classes on the reference page, which shows what they inherit."""
    assert "inherited_members: true" in (ROOT / "mkdocs.yml").read_text("utf-8")
    pages = (ROOT / "docs" / "reference" / "python").glob("*.md")
    texts = "".join(page.read_text("utf-8") for page in pages)
    found: set[type] = set()
    for text in re.findall(r"^::: (\S+)$", texts, re.MULTILINE):
        with contextlib.suppress(ztensor.MissingDependencyError):  # a library is not installed
            try:
                shown = importlib.import_module(text)
            except ModuleNotFoundError:  # a class or a function
                module, _, name = text.rpartition(".")
                shown = getattr(importlib.import_module(module), name)
            if inspect.isclass(shown):
                found.add(shown)
            for name in getattr(shown, "__all__", ()):
                with contextlib.suppress(ztensor.MissingDependencyError):  # a class made of theirs
                    if inspect.isclass(thing := getattr(shown, name)):
                        found.add(thing)
    return found


@pytest.mark.parametrize("what", WHAT)
def test_tab_completion_has_documented_names_only(what: str, made: dict[str, Any]) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    thing = made[what]
    kind = type(thing)
    assert on_the_page() & set(kind.__mro__), "the class is not on the reference page"
    for name in dir(thing):
        if name.startswith("_") or name in dir(BaseException):
            continue
        member = getattr(kind, name, None)
        is_callable = inspect.isroutine(member) or isinstance(member, property)
        is_documented = bool(is_callable and inspect.getdoc(member)) or name in attributes_of(kind)
        assert is_documented, f"{kind.__qualname__}.{name} is not documented"


def test_everything_that_users_hold_is_looked_at(made: dict[str, Any]) -> None:
    assert list(made) == WHAT


@pytest.mark.parametrize("suffix", MODULES)
def test_modules_complete_to_public_names(suffix: str) -> None:
    try:
        module = importlib.import_module(f"ztensor{suffix}")
    except ztensor.MissingDependencyError as error:
        pytest.skip(str(error))
    modules = (
        "accelerate aio converting dask delta diffusers distributed divided edit errors flax fleet "
        "insight io jax keras lightning numpy peft signing torch trainer training transformers "
        "typing vllm xarray"
    )
    beside = set() if suffix else set(modules.split())
    assert {name for name in dir(module) if not name.startswith("_")} == beside | {
        name for name in module.__all__ if not name.startswith("_")
    }
    for name in module.__all__:
        thing = getattr(module, name)
        assert not callable(thing) or suffix == ".typing" or inspect.getdoc(thing), name

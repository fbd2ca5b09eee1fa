"""Frameworks whose values are saved and given back: one table, each adapter loaded when first used.

An adapter is a module with the functions of `Adapter`, and those of the other protocols here where
the framework can do more. Nothing below an adapter names its framework: who is handed a value asks
`adapter_of`, who is asked for values of one asks `adapter`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from ztensor.errors import ArgumentValueError, describe
from ztensor.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from ztensor.spec.layout.base import Array


class Framework(NamedTuple):
    """A line of the table.

    Attributes:
        packages: the top-level packages that define the classes of its values.
        adapter: the module that adapts it; it may import the framework.
        words: what `safe_open` takes for it; none where a handle gives no values of it.
        trees: the module of its types in trees, a `TreeAdapter`; empty where only its arrays are
            kept there, as NumPy's.
    """

    packages: tuple[str, ...]
    adapter: str
    words: tuple[str, ...] = ()
    trees: str = ""


# A plugin is asked for by a package of its classes, and by the word of a caller.
FRAMEWORKS: Registry[str, Framework] = Registry(
    {
        "torch": Framework(
            ("torch",),
            "ztensor.torch.adapter",
            ("pt", "torch", "pytorch"),
            "ztensor.training.torch_tree",
        ),
        "jax": Framework(
            ("jax", "jaxlib"), "ztensor.jax.adapter", ("jax", "flax"), "ztensor.training.jax_tree"
        ),
        "scipy": Framework(("scipy",), "ztensor.scipy"),
    },
    group="ztensor.frameworks",
    kind=Framework,
)

_NUMPY = ("np", "numpy")
# Packages that no plugin adapts; most values are of a class of theirs.
_NO_FRAMEWORKS = frozenset([*sys.stdlib_module_names, "numpy", "ml_dtypes", "ztensor"])


class Adapter(Protocol):
    """What a module that adapts a framework has."""

    def is_value(self, value: object, /) -> bool:
        """Return whether a value is one that can be saved, such as its arrays.

        Asked only of what is of a class of the framework, or of one derived from it.
        """
        ...

    def stored(self, value: Any, /) -> Array | Any:
        """Return what is stored of a value: an array, or a `ztensor.Tensor` for a sparse one.

        Raises:
            NotRepresentableError: it cannot be stored; the message says what would work.
        """
        ...

    def value_of(self, tensor: Any, /, *, device: Any = ...) -> Any:
        """Return a tensor as a value of the framework.

        Args:
            tensor: a `ztensor.Tensor` of any layout.
            device: where to, in the framework's own words.

        Raises:
            UsageError: the framework has no value for the layout.
        """
        ...


@runtime_checkable
class TypedAdapter(Protocol):
    """What an adapter has beside `Adapter` whose framework has element types of its own."""

    def element_type(self, dtype: Any, /) -> np.dtype[Any] | None:
        """Return NumPy's word for an element type, or None where it is none of the framework's."""
        ...


@runtime_checkable
class FillingAdapter(Protocol):
    """What an adapter has beside `Adapter` whose values can be filled in place."""

    def fill(self, file: Any, name: str, target: Any, /) -> None:
        """Fill a value of the caller, on any device, with a dense object of an open file.

        Raises:
            ArgumentValueError: it has another shape or element type.
        """
        ...


@runtime_checkable
class PlacingAdapter(Protocol):
    """What an adapter has beside `Adapter` whose framework has devices."""

    def device_of(self, device: Any, /) -> Any:
        """Return a device by any of its names, as `value_of` and `read` take it.

        Raises:
            ArgumentValueError: there is no such device.
        """
        ...


@runtime_checkable
class ReadingAdapter(Protocol):
    """What an adapter has beside `Adapter` that reads objects onto devices by itself."""

    def read(self, reader: Any, name: Any, /, **options: Any) -> Any:
        """Return an object of an open `ztensor.Reader` as a value, or several as a dict."""
        ...


class TreeAdapter(Protocol):
    """Which types of a framework a tree keeps; see `ztensor.training.tree`."""

    def tree_form(self, value: Any, /) -> Any:
        """Return what a value is saved as, a `Leaf` or a `Made`; None where it cannot be.

        Raises:
            NotRepresentableError: its type is known, but this value cannot be saved.
        """
        ...

    def tree_leaf(self, stored: Any, copied: Callable[[], None] = ..., /) -> Any:
        """Return a leaf that was the framework's as its value: from an array or a `Tensor`.

        Args:
            stored: the array, or the `Tensor`.
            copied: is called before bytes of it are copied, so that they are checked.
        """
        ...

    def tree_makers(self, **options: Any) -> dict[str, Callable[[Any], Any]]:
        """Return what makes values of the framework's types, by the names `tree_form` gave them.

        Args:
            options: the framework's own, such as a device; and `copied`, which is called with a
                leaf before its bytes are copied.
        """
        ...


def register(name: str, packages: tuple[str, ...], module: str) -> None:
    """Add a framework, or put another adapter in the place of one.

    Args:
        name: what it is called.
        packages: the top-level packages that define the classes of its values.
        module: the module that adapts it, imported when it is first needed.
    """
    FRAMEWORKS[name] = Framework(packages, module, (name,))
    _name_of.cache_clear()
    _read_of.cache_clear()


def framework_of(word: object) -> str:
    """Return the framework that a word stands for; "numpy" is one here.

    Raises:
        ArgumentValueError: no framework has it.
    """
    words = dict.fromkeys(_NUMPY, "numpy")
    words |= {one: name for name, line in FRAMEWORKS.items() for one in line.words}
    if isinstance(word, str) and word not in words and (plugin := _named(word)):
        words |= dict.fromkeys(plugin.words, word)
    if not isinstance(word, str) or word not in words:
        raise ArgumentValueError(
            "unknown framework",
            expected=f"one of {', '.join(map(repr, words))}",
            found=describe(word),
        )
    return words[word]


def _named(name: str) -> Framework | None:
    """Return the framework that a file, a class or a caller names, or None."""
    is_package = name.isidentifier() and name not in _NO_FRAMEWORKS
    with contextlib.suppress(KeyError):
        return FRAMEWORKS[name] if is_package else None
    return None


def device_of(framework: str, device: Any) -> Any:
    """Return where tensors go, as the framework has it, which is thereby known to be there.

    Raises:
        MissingDependencyError: the framework is not installed.
        ArgumentValueError: there is no such device; NumPy has none but the CPU's memory.
    """
    device = "cpu" if device is None else device
    home = None if framework == "numpy" else adapter(framework)
    if isinstance(home, PlacingAdapter):
        return home.device_of(device)
    if home is None and not (isinstance(device, str) and device == "cpu"):
        raise ArgumentValueError(
            "NumPy arrays are in the CPU's memory", expected="device 'cpu'", found=describe(device)
        )
    return device


def adapter(name: str) -> Any:
    """Return the module that adapts a framework.

    Raises:
        MissingDependencyError: the framework is not installed.
    """
    return importlib.import_module(FRAMEWORKS[name].adapter)


def tree_adapter(name: str) -> TreeAdapter | None:
    """Return the module of a framework's types in trees, or None; a file may give the name.

    Raises:
        MissingDependencyError: the framework is not installed.
        UnsupportedError: the plugin that has the name is broken.
    """
    framework = _named(name)
    if framework is None or not framework.trees:
        return None
    adapter(name)  # its package imports that module; the other way round is a circle
    module: Any = importlib.import_module(framework.trees)
    return module  # type: ignore[no-any-return]


def tree_adapter_beside(value: object) -> TreeAdapter | None:
    """Return that of the framework which a value's class is from, or None."""
    kind: Any = type(value)
    name = _name_of(kind)
    return None if name is None else tree_adapter(name)


def adapter_beside(thing: object) -> Any:
    """Return the adapter of the framework that something's class is from, or None."""
    kind: Any = type(thing)
    name = _name_of(kind)
    return None if name is None else adapter(name)


def adapter_of(value: object) -> Adapter | None:
    """Return the adapter of the framework that a value can be saved by, or None."""
    found: Adapter | None = adapter_beside(value)
    return found if found is not None and found.is_value(value) else None


def read_values(framework: str, reader: Any, name: Any, **options: Any) -> Any:
    """Return an object of an open reader as a value of a framework, or several as a dict.

    Args:
        framework: its name.
        reader: an open reader.
        name: the name of one object, or several.
        options: of the adapter's `read`, or of its `value_of` where it has none.

    Raises:
        MissingDependencyError: the framework is not installed.
    """
    read = _read_of(framework)
    if read is not None:
        return read(reader, name, **options)
    home = adapter(framework)
    if isinstance(name, str):
        return home.value_of(reader.read(name), **options)
    return {one: home.value_of(tensor, **options) for one, tensor in reader.read(name).items()}


@functools.cache
def _read_of(framework: str) -> Callable[..., Any] | None:
    """Return how an adapter reads by itself; None where it does not."""
    home = adapter(framework)
    return home.read if isinstance(home, ReadingAdapter) else None


@functools.lru_cache(256)
def _name_of(kind: type) -> str | None:
    for base in kind.__mro__:
        package = str(getattr(base, "__module__", "")).partition(".")[0]
        for name, framework in FRAMEWORKS.items():
            if package in framework.packages:
                return name
        if _named(package) is not None:
            return package
    return None

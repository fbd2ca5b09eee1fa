"""Frameworks whose values are saved and given back: one table, each adapter loaded when first used.

An adapter is a module with the functions of `Adapter`. Nothing below one names its framework:
who is handed a value asks `FRAMEWORKS.adapter_of`, who is asked for values of one its `Framework`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ztensor.registry import Registry

if TYPE_CHECKING:
    from ztensor.spec.layout.base import Array


class Framework(NamedTuple):
    """A line of the table.

    Attributes:
        packages: the top-level packages that define the classes of its values.
        adapter: the module that adapts it; it may import the framework.
        words: what `safe_open` takes for it; none where a handle gives no values of it.
        trees: the module of its types in trees, see `ztensor.training.tree`; empty where only its
            arrays are kept there, as NumPy's.
    """

    packages: tuple[str, ...]
    adapter: str
    words: tuple[str, ...] = ()
    trees: str = ""

    def loaded(self) -> Any:
        """Return the module that adapts the framework; it may have the optional functions, too.

        Raises:
            MissingDependencyError: the framework is not installed.
        """
        return importlib.import_module(self.adapter)

    def read(self, reader: Any, name: Any, **options: Any) -> Any:
        """Return an object of an open reader as a value of the framework, or several as a dict.

        Args:
            reader: an open reader.
            name: the name of one object, or several.
            options: of the adapter's `read`, or of its `value_of` where it has none.

        Raises:
            MissingDependencyError: the framework is not installed.
        """
        home = self.loaded()
        if hasattr(home, "read"):
            return home.read(reader, name, **options)
        if isinstance(name, str):
            return home.value_of(reader.read(name), **options)
        return {one: home.value_of(tensor, **options) for one, tensor in reader.read(name).items()}


class Adapter(Protocol):
    """What a module that adapts a framework has.

    It may have four functions more. `element_type(dtype)` returns NumPy's word for an element type,
    None where it is none of the framework's. `fill(file, name, target)` fills a value of the
    caller, on any device, with a dense object. `device_of(device)` returns a device by any of its
    names, as `value_of` and `read` take it; it raises `ArgumentValueError` where there is none.
    `read(reader, name, **options)` returns an object of a reader as a value, or several as a dict.
    """

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


# Packages that no plugin adapts; most values are of a class of theirs.
_NO_FRAMEWORKS = frozenset([*sys.stdlib_module_names, "numpy", "ml_dtypes", "ztensor"])


class Frameworks(Registry[str, Framework]):
    """The table of frameworks, and what is asked of all of them.

    A plugin is asked for by a package of its classes, and by the word of a caller.
    """

    def named(self, name: str) -> Framework | None:
        """Return the framework that a file, a class or a caller names, or None."""
        is_package = name.isidentifier() and name not in _NO_FRAMEWORKS
        with contextlib.suppress(KeyError):
            return self[name] if is_package else None
        return None

    def name_of(self, value: object) -> str | None:
        """Return the name of the framework that something's class is from, or None."""
        kind: Any = type(value)
        return _name_of(kind)

    def adapter_beside(self, value: object) -> Any:
        """Return the adapter of the framework that something's class is from, or None."""
        name = self.name_of(value)
        return None if name is None else self[name].loaded()

    def adapter_of(self, value: object) -> Adapter | None:
        """Return the adapter of the framework that a value can be saved by, or None."""
        found: Adapter | None = self.adapter_beside(value)
        return found if found is not None and found.is_value(value) else None


FRAMEWORKS = Frameworks(
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


@functools.lru_cache(256)
def _name_of(kind: Any) -> str | None:
    for base in kind.__mro__:
        package = str(getattr(base, "__module__", "")).partition(".")[0]
        for name, framework in FRAMEWORKS.items():
            if package in framework.packages:
                return name
        if FRAMEWORKS.named(package) is not None:
            return package
    return None

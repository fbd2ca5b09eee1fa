"""The table of frameworks whose values can be saved and returned; adapters are loaded on demand.

An adapter is a module with the functions of `Adapter`. Only adapters name their framework. Code
with a value asks `FRAMEWORKS.adapter_of`; code that makes values asks a `Framework`.
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
        adapter: the adapter module, which may import the framework.
        words: its names for `safe_open`; empty if handles do not return its values.
        trees: the module of its types in trees, see `ztensor.training.tree`; empty if trees keep
            its arrays as NumPy's.
    """

    packages: tuple[str, ...]
    adapter: str
    words: tuple[str, ...] = ()
    trees: str = ""

    def loaded(self) -> Any:
        """Return the adapter module, see `Adapter`.

        Raises:
            MissingDependencyError: the framework is not installed.
        """
        return importlib.import_module(self.adapter)

    def read(self, reader: Any, name: Any, **options: Any) -> Any:
        """Return one object of a reader as a value of the framework, or several as a dict.

        Args:
            reader: an open reader.
            name: one name, or several.
            options: of the adapter's `read`, or else of its `value_of`.

        Raises:
            MissingDependencyError: the framework is not installed.
        """
        adapter = self.loaded()
        if hasattr(adapter, "read"):
            return adapter.read(reader, name, **options)
        if isinstance(name, str):
            return adapter.value_of(reader.read(name), **options)
        tensors = reader.read(name).items()
        return {each: adapter.value_of(tensor, **options) for each, tensor in tensors}


class Adapter(Protocol):
    """The functions of an adapter module.

    Four more are optional. `element_type(dtype)` returns the NumPy dtype of a framework's element
    type, or None. `fill(file, name, target)` fills the caller's value, on any device, with a dense
    object. `device_of(device)` returns the device for any of its names, or raises
    `ArgumentValueError`. `read(reader, name, **options)` returns one object as a value, or several
    as a dict.
    """

    def is_value(self, value: object, /) -> bool:
        """Return whether a value can be saved.

        Its class, or a base of it, is one of the framework's.
        """
        ...

    def stored(self, value: Any, /) -> Array | Any:
        """Return a value as an array, or a sparse one as a `ztensor.Tensor`.

        Raises:
            NotRepresentableError: the value cannot be stored; the message names an alternative.
        """
        ...

    def value_of(self, tensor: Any, /, *, device: Any = ...) -> Any:
        """Return a tensor as a value of the framework.

        Args:
            tensor: a `ztensor.Tensor` of any layout.
            device: the framework's name of the device.

        Raises:
            UsageError: the framework has no value for the layout.
        """
        ...


# Packages without adapters; most values have a class of theirs.
_NO_FRAMEWORKS = frozenset([*sys.stdlib_module_names, "numpy", "ml_dtypes", "ztensor"])


class Frameworks(Registry[str, Framework]):
    """The table of frameworks.

    A plugin is found by the package of a value's class, or by the name that a caller passes.
    """

    def named(self, name: str) -> Framework | None:
        """Return the framework of a name, or None."""
        is_package = name.isidentifier() and name not in _NO_FRAMEWORKS
        with contextlib.suppress(KeyError):
            return self[name] if is_package else None
        return None

    def name_of(self, value: object) -> str | None:
        """Return the name of the framework that defines the value's class, or None."""
        kind: Any = type(value)
        return _name_of(kind)

    def adapter_beside(self, value: object) -> Any:
        """Return the adapter of the framework that defines the value's class, or None."""
        name = self.name_of(value)
        return None if name is None else self[name].loaded()

    def adapter_of(self, value: object) -> Adapter | None:
        """Return the adapter that can save a value, or None."""
        adapter: Adapter | None = self.adapter_beside(value)
        return adapter if adapter is not None and adapter.is_value(value) else None


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

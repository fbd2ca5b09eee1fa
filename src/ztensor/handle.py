"""`safe_open`: the handle of safetensors, over every source of `ztensor.open`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, cast, overload

import numpy as np

from ztensor import Tensor
from ztensor import open as open_files
from ztensor.errors import ArgumentValueError, describe
from ztensor.ext import FRAMEWORKS, Shown, load_files
from ztensor.options import OpenOptions, require_choice, require_options

if TYPE_CHECKING:
    from typing import Unpack

    from typing_extensions import TypeVar

    from ztensor import TensorSlice
    from ztensor.typing import (
        Array,
        Index,
        JaxArray,
        JaxDevice,
        Openable,
        TorchDevice,
        TorchTensor,
    )

    Value = TypeVar("Value", default=Any)
else:
    from typing import TypeVar

    Value = TypeVar("Value")  # with a default from Python 3.13 on

_NUMPY = ("np", "numpy")
_BACKENDS = {"mmap": True, "pread": False}

# Names of element types in safetensors that are not the letter of the kind and the bits.
_SPELLINGS = {
    "bool": "BOOL",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e8m0fnu": "F8_E8M0",
    "float6_e2m3fn": "F6_E2M3",
    "float6_e3m2fn": "F6_E3M2",
    "float4_e2m1fn": "F4",
}
_KINDS = (("float8_", "F8_"), ("uint", "U"), ("int", "I"), ("float", "F"))


class safe_open(Shown, Generic[Value]):  # the name in safetensors
    """A file, or a set of shards, open for reading one tensor at a time.

    Code written for `safetensors.safe_open` runs with the import changed, on every source of
    `ztensor.open`. Use it in a `with` block, or call `close`.

    Args:
        filename: a path, an index, a folder of shards, or another source of `ztensor.open`.
        framework: framework of the tensors: "np" ("numpy"), "pt" ("torch", "pytorch") or
            "jax" ("flax").
        device: device of the tensors: for torch a name, a number or a `torch.device`; for JAX a
            name or a `jax.Device`, where "cpu" leaves it to JAX as safetensors does; for NumPy only
            "cpu".
        backend: "mmap" maps the file, and returns views if possible; "pread" reads it.
        options: see `ztensor.typing.OpenOptions`; `mmap` overrides `backend`.

    Attributes:
        reader: the underlying reader.
        framework: "numpy", "torch" or "jax".

    Raises:
        ArgumentValueError: the framework, device or backend is unknown.
        MissingDependencyError: the framework is not installed.
        FormatError: the file is damaged or not a zTensor file.
        UnsupportedError: this release does not read its version, or the device does not exist.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read; also a `FileNotFoundError` or `PermissionError`.
    """

    @overload
    def __init__(
        self: safe_open[Array | Any],
        filename: Openable,
        framework: Literal["np", "numpy"],
        device: Literal["cpu"] | None = "cpu",
        *,
        backend: Literal["mmap", "pread"] = "mmap",
        **options: Unpack[OpenOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: safe_open[TorchTensor],
        filename: Openable,
        framework: Literal["pt", "torch", "pytorch"],
        device: TorchDevice | None = "cpu",
        *,
        backend: Literal["mmap", "pread"] = "mmap",
        **options: Unpack[OpenOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: safe_open[JaxArray | Any],
        filename: Openable,
        framework: Literal["jax", "flax"],
        device: JaxDevice | None = "cpu",
        *,
        backend: Literal["mmap", "pread"] = "mmap",
        **options: Unpack[OpenOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        filename: Openable,
        framework: str,
        device: TorchDevice | JaxDevice | None = "cpu",
        *,
        backend: str = "mmap",
        **options: Unpack[OpenOptions],
    ) -> None: ...
    def __init__(
        self,
        filename: Openable,
        framework: str,
        device: TorchDevice | JaxDevice | None = "cpu",
        *,
        backend: str = "mmap",
        **options: Unpack[OpenOptions],
    ) -> None:
        require_options("safe_open", options, OpenOptions)
        home = framework_of(framework)
        require_choice("backend", backend, _BACKENDS)
        self.framework = home
        self._device = device_of(home, device)
        options.setdefault("mmap", _BACKENDS[backend])
        self.reader = open_files(filename, **options)

    def __enter__(self) -> Self:
        """Return the handle itself."""
        self.reader.objects.require_open()
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the handle."""
        self.close()

    def close(self) -> None:
        """Close the file; tensors stay valid. May be called again."""
        self.reader.close()

    def __repr__(self) -> str:
        """Return file and framework."""
        return f"<ztensor.safe_open {describe(self.reader.name)} for {self.framework}>"

    def __dask_tokenize__(self) -> tuple[object, ...]:
        """Return the identity of the file for Dask; see `ztensor.Reader`."""
        return (*self.reader.__dask_tokenize__(), self.framework, str(self._device))

    def keys(self) -> list[str]:
        """Return all names, sorted."""
        self.reader.objects.require_open()
        return sorted(self.reader)

    def offset_keys(self) -> list[str]:
        """Return all names in the order of their offsets, file after file."""
        reader = self.reader
        reader.objects.require_open()

        def place(name: str) -> tuple[str, int]:
            components = reader.metadata(name).components
            offset = min((component.offset for component in components.values()), default=0)
            return reader.reader_of(name).name, offset

        return sorted(reader, key=place)

    def metadata(self) -> dict[str, str] | None:
        """Return the key-value pairs of the file, or None if it has no attributes.

        Values are text, as in safetensors; other values become JSON.
        """
        self.reader.objects.require_open()
        attributes = self.reader.attributes
        return {key: _as_text(value) for key, value in attributes.items()} or None

    def get_tensor(self, name: str) -> Value:
        """Return one object as a tensor of the framework: a view of the file, unchecked, or a copy.

        Raises:
            ObjectNotFoundError: no object has this name.
            UsageError: the framework has no tensors of the object's layout; for NumPy such an
                object is a `ztensor.Tensor`.
            FormatError: the stored bytes are damaged.
            UnsupportedError: a type or encoding is unknown here or to the framework.
            ClosedError: the handle is closed.
        """
        if self.framework == "numpy":
            return cast("Value", self.reader[name])
        return cast("Value", self._read(name))

    def get_tensors(self) -> dict[str, Value]:
        """Return all objects in the order of `offset_keys`; see `get_tensor` for errors."""
        names = self.offset_keys()
        if self.framework == "numpy":
            tensors = load_files(self.reader.objects, copy=False)
        else:
            tensors = self._read(names)
        return {name: tensors[name] for name in names}

    def _read(self, names: str | list[str]) -> Any:
        return FRAMEWORKS[self.framework].read(self.reader, names, device=self._device)

    def get_slice(self, name: str) -> HandleSlice[Value]:
        """Return a lazy object; indexing reads the selected elements only.

        Raises:
            UsageError: the layout of the object is unknown, or has no rows.
            ObjectNotFoundError: no object has this name.
            ClosedError: the handle is closed.
        """
        return HandleSlice(self.reader.get_slice(name), self.framework, self._device)


class HandleSlice(Shown, Generic[Value]):
    """A lazy tensor of a handle: `handle.get_slice("w")[10:20, ::2]` returns a framework's tensor.

    Args:
        lazy: the underlying slice.
        framework: "numpy", "torch" or "jax".
        device: the device of tensors.

    Attributes:
        lazy: the underlying slice.
        framework: "numpy", "torch" or "jax".
    """

    def __init__(self, lazy: TensorSlice, framework: str, device: Any) -> None:
        self.lazy = lazy
        self.framework = framework
        self._device = device

    def get_shape(self) -> list[int]:
        """Return the shape."""
        return self.lazy.get_shape()

    def get_dtype(self) -> str:
        """Return the element type in safetensors' spelling, such as `F32`, `BF16` or `BOOL`."""
        return _spelling(self.lazy.dtype.name)

    def __repr__(self) -> str:
        """Return name, shape and element type."""
        return f"<HandleSlice of {self.lazy!r}>"

    def __dask_tokenize__(self) -> tuple[object, ...]:
        """Return the identity of the object for Dask; see `ztensor.TensorSlice`."""
        return (*self.lazy.__dask_tokenize__(), self.framework, str(self._device))

    def __getitem__(self, key: Index) -> Value:
        """Return the selected elements as a tensor of the framework.

        It takes every index of `ztensor.TensorSlice`, more than safetensors does.

        Raises:
            ArgumentTypeError: the index has an unsupported type.
            ArgumentValueError: it does not fit the shape.
            FormatError: the stored bytes are damaged.
            UnsupportedError: the framework has no such element type.
        """
        value = self.lazy[key]
        if not isinstance(value, Tensor):
            value = np.asarray(value)  # also of one element
        if self.framework == "numpy":
            return cast("Value", value)
        tensor = value if isinstance(value, Tensor) else Tensor(value)
        home = FRAMEWORKS[self.framework].loaded()
        return cast("Value", home.value_of(tensor, device=self._device))


# --- Frameworks and devices ---------------------------------------------------------------------


def framework_of(word: object) -> str:
    """Return the framework of a name or an alias; "numpy" is one here.

    Raises:
        ArgumentValueError: no framework has the name.
    """
    words = dict.fromkeys(_NUMPY, "numpy")
    words |= {alias: name for name, line in FRAMEWORKS.items() for alias in line.words}
    if isinstance(word, str) and word not in words and (plugin := FRAMEWORKS.named(word)):
        words |= dict.fromkeys(plugin.words, word)
    if not isinstance(word, str) or word not in words:
        raise ArgumentValueError(
            "unknown framework",
            expected=f"one of {', '.join(map(repr, words))}",
            found=describe(word),
        )
    return words[word]


def device_of(framework: str, device: Any) -> Any:
    """Return an existing device as the framework's object.

    Raises:
        MissingDependencyError: the framework is not installed.
        ArgumentValueError: the device does not exist; NumPy has only the CPU's memory.
    """
    device = "cpu" if device is None else device
    home: Any = None if framework == "numpy" else FRAMEWORKS[framework].loaded()
    if hasattr(home, "device_of"):
        return home.device_of(device)
    if home is None and not (isinstance(device, str) and device == "cpu"):
        raise ArgumentValueError(
            "NumPy arrays are in the CPU's memory", expected="device 'cpu'", found=describe(device)
        )
    return device


# --- Names in safetensors ----------------------------------------------------------------------


def _spelling(name: str) -> str:
    if name in _SPELLINGS:
        return _SPELLINGS[name]
    for prefix, letter in _KINDS:
        if name.startswith(prefix):
            return letter + name.removeprefix(prefix).upper()
    # safetensors has complex64 alone; the other is named after it.
    return f"C{name.removeprefix('complex')}" if name.startswith("complex") else name.upper()


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=repr)
    except (TypeError, ValueError, RecursionError):  # keys that are not text
        return repr(value)

"""Save and load nested states, as `torch.save` does, without pickle.

A tree is saved as an ordinary file: its tensors and arrays are objects, named by their keys, and
the attribute `tree` has everything around them (see `tree/`). So every verb of the command, and
every program that reads the format, sees the tensors of a tree.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from ztensor import Reader, TensorMetadata
from ztensor import open as open_files
from ztensor.distributed import PartWriter, commit
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ManifestError,
    ObjectNotFoundError,
    Reason,
    ZTensorError,
    counted,
    describe,
)
from ztensor.ext import FORMATS, ObjectReader, Shown, load_files, path_text
from ztensor.numpy import save_file
from ztensor.options import OpenOptions, SaveOptions, TreeOptions, keeps, require_options
from ztensor.training.stored_tree import decoded
from ztensor.training.tree.adapters import Adapters
from ztensor.training.tree.decode import LeafAt
from ztensor.training.tree.encode import Encoded, encode
from ztensor.training.tree.fitting import fit
from ztensor.training.tree.flattening import flat
from ztensor.training.tree.record import Record
from ztensor.training.tree.separating import separate
from ztensor.training.tree.stored import ATTRIBUTE, split_tree
from ztensor.typing import Durable, Openable, Progress, Target

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Unpack


__all__ = ["LazyTree", "Record", "load_tree", "open_tree", "save_tree"]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


def save_tree(
    tree: object,
    filename: Target,
    metadata: Mapping[str, object] | None = None,
    *,
    compression: bool | int | str = False,
    **options: Unpack[SaveOptions],
) -> None:
    """Save a nested state as one file, which replaces an old one atomically.

    Kept exactly, types included: None, numbers, text, bytes, `io.BytesIO` (its position is 0 once
    it is loaded), lists, tuples, sets, dicts of any plain keys with their order, `OrderedDict`,
    `Counter`, `defaultdict`, ranges, slices, dates, paths, arrays and scalars of NumPy, tensors of
    torch and JAX, `ztensor.Tensor`; and by their fields namedtuples, dataclasses and enums. Tensors
    over the same elements are stored once and share them again when they are loaded; lists and
    dicts that are in the tree twice come back as two. Any other value is refused, with its place.
    Nothing is pickled.

    Elements come back in row-major order and the machine's byte order, whatever strides and byte
    order they had. Gradients are not saved.

    Args:
        tree: the state.
        filename: the file; also a file object open for writing bytes.
        metadata: key-value pairs of the file. `"tree"` is taken.
        compression: False stores raw; True compresses with zstd level 3; an integer is the level;
            for `"planes"` see `ztensor.typing.ModelOptions`.
        options: see `ztensor.typing.SaveOptions`. Versions older than 1.2.0 have no attributes
            that hold a tree.

    Raises:
        NotRepresentableError: a value that cannot be kept; the message has its place, such as
            `tree['scheduler']['lr_lambdas'][0]`. No file appears.
        ArgumentValueError: the suffix is of another format, or `metadata` has the key "tree".
        SourceError: the file could not be written. An old file is untouched.
    """
    require_options("save_tree", options, SaveOptions)
    if metadata is not None and ATTRIBUTE in metadata:
        raise ArgumentValueError('the attribute "tree" is reserved for the tree itself')
    path = path_text(filename) if isinstance(filename, (str, bytes, os.PathLike)) else None
    kind = FORMATS.written_as(path or "", options.get("format"))
    if kind != "zt":
        raise ArgumentValueError(
            "only zTensor files hold trees",
            file=path,
            expected="the suffix .zt",
            found=describe(kind),
        )
    save_encoded(encode(tree), filename, metadata, compression, **options)


def save_encoded(
    encoded: Encoded,
    filename: Any,
    metadata: Mapping[str, object] | None = None,
    compression: bool | int | str = False,  # noqa: FBT001, FBT002  # as `save_file` has it
    **options: Unpack[SaveOptions],
) -> None:
    """Save an encoded tree; see `save_tree`."""
    options.setdefault("deduplicate", False)  # shared tensors are one leaf already
    options["format"] = "zt"  # for any suffix, such as Lightning's .ckpt
    attributes = {**(metadata or {}), **encoded.attribute}
    save_file(encoded.leaves, filename, attributes, compression, **options)


def save_encoded_divided(
    encoded: Encoded,
    folder: Any,
    values: Mapping[str, object],
    *,
    since: Any,
    durable: Durable,
    compression: bool | int | str = False,
) -> None:
    """Save an encoded tree as a distributed checkpoint; `load_tree` reads it, too.

    The folder must exist. `values` go into the root; see `PartOptions` for the others.
    """
    with PartWriter(
        folder,
        durable=durable,
        compression=compression,
        checksum="xxh3-128",
        since=since,
        processes=1,
    ) as part:
        for name, leaf in encoded.leaves.items():
            part.add(name, leaf)
        commit(folder, [part.finish()], {**values, **encoded.attribute}, durable=durable)


def load_tree(filename: Openable, **options: Unpack[TreeOptions]) -> Any:
    """Load a nested state that `save_tree` saved.

    Tensors of torch and JAX come as NumPy arrays, and their other types as `Record`;
    `ztensor.torch.load_tree` and `ztensor.jax.load_tree` give them as they were.

    Args:
        filename: the file, or anything that `ztensor.open` takes.
        options: see `ztensor.typing.TreeOptions`.

    Returns:
        The state.

    Raises:
        UsageError: the file holds no tree, or a class of `types` has other fields.
        ArgumentValueError: the file has another tree than `into`.
        FormatError: the file is damaged, or an object of the tree is missing.
        UnsupportedError: a newer release saved it, or a type or encoding is unknown here.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read.
    """
    require_options("load_tree", options, TreeOptions)
    return loaded_tree(filename, None, **options)


def open_tree(filename: Openable, **options: Unpack[OpenOptions]) -> LazyTree:
    """Open a file that `save_tree` saved, and read its leaves on access.

    Args:
        filename: the file, or anything that `ztensor.open` takes.
        options: see `ztensor.typing.OpenOptions`.

    Raises:
        UsageError: the file holds no tree.
        FormatError: the file is damaged.
        UnsupportedError: a newer release saved it.
        SourceError: it cannot be read.
    """
    require_options("open_tree", options, OpenOptions)
    reader = open_files(filename, **options)
    try:
        return LazyTree(reader)
    except ZTensorError:
        reader.close()
        raise


def loaded_tree(
    filename: Openable,
    framework: str | None,
    placing: Mapping[str, Any] = MappingProxyType({}),
    **options: Unpack[TreeOptions],
) -> Any:
    """Return the tree of a file, fitted to a live one if `into` is given.

    See `TreeOptions`, and `read_tree` for the framework and its placing.
    """
    how: dict[str, Any] = {"copy": True, **options}
    into = how.pop("into", None)
    opening = {name: how.pop(name) for name in OpenOptions.__annotations__ if name in how}
    with open_files(filename, **opening) as reader:
        tree = read_tree(reader, framework, placing, **how)
    return tree if into is None else fit(into, tree)


def read_tree(
    reader: Reader,
    framework: str | None,
    placing: Mapping[str, Any] = MappingProxyType({}),
    *,
    copy: bool,
    only: str | Iterable[str] | None = None,
    types: Iterable[type] = (),
    dequantize: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Any:
    """Return the tree of an open file, with the values of one framework as they were.

    See `TreeOptions`. `framework` is its name in `ztensor.io.frameworks`; None returns NumPy
    arrays, `AS_SAVED` each value as it was. `placing` has options of the framework's `tree_makers`,
    such as a device.

    Raises:
        ZTensorError: as `load_tree` raises.
    """
    objects = reader.objects
    made: dict[LeafAt, Any] = {}
    names: dict[int, str] = {}  # object names by the ids of values

    def copied(name: str) -> None:
        if not copy:  # otherwise reading has checked it
            objects.part(name).require_copied(name)

    def copied_value(value: Any) -> None:
        if id(value) in names:
            copied(names[id(value)])

    homes = Adapters(framework, {**placing, "copied": copied_value})
    keep = None if only is None else keeps([only] if isinstance(only, str) else only)
    used: dict[str, None] = {}
    if keep is not None:  # a first pass finds the needed objects
        decoded(reader, lambda leaf: used.setdefault(leaf.name), keep=keep)
        _require_there(reader, used)
    floats: dict[int, Any] = {}  # dequantized tensors by id

    def as_floats(tensor: Any) -> Any:
        made = tensor.dequantize()
        floats[id(made)] = made
        return made

    arrays = load_files(
        objects,
        None,
        progress,
        names=None if keep is None else used,
        dequantize=as_floats if dequantize else None,
        copy=copy,
        threads=threads,
    )
    for name in separate(arrays):
        copied(name)

    def value_of(leaf: LeafAt) -> Any:
        value = made.get(leaf)
        if value is None:
            value = arrays.get(leaf.name)
            if value is None:
                raise _missing(leaf.name, reader)
            home = homes.of((framework or "") if id(value) in floats else leaf.framework)
            if home is not None:
                value = home.tree_leaf(value, functools.partial(copied, leaf.name))
            made[leaf] = value
            names[id(value)] = leaf.name
        return value

    return decoded(reader, value_of, keep=keep, types=types, maker_of=homes.maker_of)


class LazyTree(Shown, Mapping[str, Any]):
    """The values of a saved tree by their keys joined by dots; leaves are read on access.

    Equal paths get suffixes such as `#2`, as the names of objects do. Threads may share it.

    Args:
        reader: the file; closed with this.

    Attributes:
        attributes: the key-value pairs of the file, without the tree.

    Raises:
        UsageError: the file holds no tree.
    """

    def __init__(self, reader: Reader) -> None:
        if not isinstance(reader, ObjectReader):
            raise ArgumentTypeError(f"reader must be a ztensor.Reader, not {describe(reader, 40)}")
        self._reader = reader
        self._values = flat(decoded(reader, lambda leaf: leaf))
        self.attributes, _ = split_tree(reader.attributes)

    def __getitem__(self, path: str) -> Any:
        """Return a plain value, or a leaf as an unchecked view of the file if possible.

        Raises:
            ObjectNotFoundError: no value of that path.
            FormatError: the leaf's bytes are damaged, or its object is missing.
            ZTensorError: as `Reader` raises for one object.
        """
        value = self._value(path)
        return self._reader[value.name] if isinstance(value, LeafAt) else value

    def _value(self, path: str) -> Any:
        """Return a plain value, or a leaf whose object exists."""
        if not isinstance(path, str) or path not in self._values:
            raise ObjectNotFoundError.named(str(path), self._values, self._reader.name)
        value = self._values[path]
        if isinstance(value, LeafAt):
            _require_there(self._reader, [value.name])
        return value

    @property
    def name(self) -> str:
        """Return the path of the file, or a description if it has none."""
        return self._reader.name

    @property
    def is_closed(self) -> bool:
        """Return whether the file is closed."""
        return self._reader.objects.is_closed

    def metadata(self, path: str) -> TensorMetadata | None:
        """Return shape and type of a leaf without reading it, None for a plain value.

        Args:
            path: path of a value.

        Raises:
            ObjectNotFoundError: no value of that path.
            FormatError: the file has no object of the leaf's name.
            ZTensorError: as `Reader.metadata` raises.
        """
        value = self._value(path)
        return self._reader.metadata(value.name) if isinstance(value, LeafAt) else None

    def __iter__(self) -> Iterator[str]:
        """Iterate over the paths, in the order of the tree."""
        return iter(self._values)

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self._values)

    def tree(
        self,
        *,
        copy: bool = True,
        only: str | Iterable[str] | None = None,
        types: Iterable[type] = (),
        threads: int | None = None,
    ) -> Any:
        """Return the tree, or a part of it; see `load_tree`."""
        return read_tree(self._reader, None, only=only, types=types, copy=copy, threads=threads)

    def close(self) -> None:
        """Close the file; arrays that are views of it stay valid. May be called again."""
        self._reader.close()

    def __enter__(self) -> Self:
        """Return the tree itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the file."""
        self.close()

    def __repr__(self) -> str:
        """Return the file, and the number of values."""
        count = counted(len(self), "value")
        return f"<ztensor.training.LazyTree {describe(self._reader.name)}, {count}>"


def _require_there(reader: Reader, names: Iterable[str]) -> None:
    for name in names:
        if name not in reader.objects.names:
            raise _missing(name, reader)


def _missing(name: str, reader: Reader) -> ManifestError:
    return ManifestError(
        "the tree has a tensor that is not in the file: it was removed or renamed",
        reason=Reason.FIELD_VALUE,
        file=reader.name,
        object_name=name,
    )

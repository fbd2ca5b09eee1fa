"""The extension interface, for formats, encodings, stores and verbs of your own.

The library's packages for formats, stores, distributed checkpoints, statistics and the command use
only public names and the names here (and two exceptions that a test lists). Each name is documented
where it is defined; `docs/guides/extending.md` has a complete example of each kind.

- Content of a file: `Manifest`, its `TensorObject`s, their `Component`s; the element types
  `STORAGE_TYPES` and `LOGICAL_TYPES`; `LaterObjects` parses the description of an object on demand.
- Classes to implement: `Source` and `Sink` for places, `Encoding` for stored bytes, `Layout` or
  `Quantized` for arrays, with `Rows` for slices. Each is an abstract class or protocol, and
  documents the errors it may raise.
- Bounds: `ztensor.Limits` are the caller's caps, a `ztensor.limits.Budget` the remaining cost of
  one file; `foreign_bytes` turns Python's exceptions for bad bytes into ours, with a
  `ztensor.errors.Reason`.
- Open files: `open_file` returns a file's `FileObjects`, an `ObjectReader` reads any objects.
- Disk and stores: a `Place` is the target of a file; only `OpenFolder` and `remove` remove files;
  `locking` tests locks; `Beneath` opens files that another file names; a `ShardSet` is a model in
  several files.
- Stored bytes: `streams` stores a run of similar bytes raw, as one zstd frame or as one byte.
- Writing: an emitter of `EMITTERS` knows what a version can represent, `Portable` converts objects
  for it.
- The tables `FORMATS`, `FRAMEWORKS` and `EMITTERS` also have functions over all their entries.

Each name is imported on first use, at the cost of its own module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.registry import Registry

if TYPE_CHECKING:
    from ztensor.buffers import empty_array
    from ztensor.guard import foreign_bytes
    from ztensor.interactive import Shown
    from ztensor.io.attributes import AttributeKind
    from ztensor.io.collecting import no_collection
    from ztensor.io.contents import open_file
    from ztensor.io.formats import FORMATS, Format, Look, Projection
    from ztensor.io.frameworks import FRAMEWORKS, Framework
    from ztensor.io.losses import Tally, Unrepresented
    from ztensor.io.reading.file import FileObjects
    from ztensor.io.reading.loading import load_files
    from ztensor.io.reading.overlaps import Overlaps
    from ztensor.io.reading.portable import Portable
    from ztensor.io.reading.reader import ObjectReader
    from ztensor.io.reading.slices import slice_of
    from ztensor.io.shards.objects import Objects
    from ztensor.io.shards.saving import ShardSet
    from ztensor.io.source import locking
    from ztensor.io.source.base import AtOnce, Range, Sink, Source
    from ztensor.io.source.beneath import Beneath
    from ztensor.io.source.joined import JoinedSource
    from ztensor.io.source.paths import path_text
    from ztensor.io.source.removal import OpenFolder, remove
    from ztensor.io.source.sink import FileSink, Place
    from ztensor.io.source.stores import SCHEMES, Store, is_remote, source_of
    from ztensor.locks import Lock, cached_property
    from ztensor.registry import Registry
    from ztensor.spec.container import EMITTERS
    from ztensor.spec.digest import ALGORITHMS
    from ztensor.spec.encoding import ENCODINGS, streams
    from ztensor.spec.encoding.base import Encoding, Runs, Stored
    from ztensor.spec.layout import LAYOUTS
    from ztensor.spec.layout.base import Layout, Quantized, Rows, View
    from ztensor.spec.layout.elements import Blocks, numpy_dtype, result_dtype, spell, typed_array
    from ztensor.spec.model.dtype import BY_LONG_NAME, LOGICAL_TYPES, STORAGE_TYPES, element_count
    from ztensor.spec.model.manifest import Component, Manifest, TensorObject
    from ztensor.spec.model.objects import LaterObjects
    from ztensor.spec.wire import cbor
    from ztensor.threads import run_jobs
    from ztensor.threads.pool import Pool
    from ztensor.threads.sharing import thread_count

_HOMES = {
    "ztensor.buffers": "empty_array",
    "ztensor.guard": "foreign_bytes",
    "ztensor.interactive": "Shown",
    "ztensor.io.attributes": "AttributeKind",
    "ztensor.io.collecting": "no_collection",
    "ztensor.io.contents": "open_file",
    "ztensor.io.formats": "FORMATS Format Look Projection",
    "ztensor.io.frameworks": "FRAMEWORKS Framework",
    "ztensor.io.losses": "Tally Unrepresented",
    "ztensor.io.reading.file": "FileObjects",
    "ztensor.io.reading.loading": "load_files",
    "ztensor.io.reading.overlaps": "Overlaps",
    "ztensor.io.reading.portable": "Portable",
    "ztensor.io.reading.reader": "ObjectReader",
    "ztensor.io.reading.slices": "slice_of",
    "ztensor.io.shards.objects": "Objects",
    "ztensor.io.shards.saving": "ShardSet",
    "ztensor.io.source.base": "AtOnce Range Sink Source",
    "ztensor.io.source.beneath": "Beneath",
    "ztensor.io.source.joined": "JoinedSource",
    "ztensor.io.source.locking": "locking",
    "ztensor.io.source.paths": "path_text",
    "ztensor.io.source.removal": "OpenFolder remove",
    "ztensor.io.source.sink": "FileSink Place",
    "ztensor.io.source.stores": "SCHEMES Store is_remote source_of",
    "ztensor.locks": "Lock cached_property",
    "ztensor.registry": "Registry",
    "ztensor.spec.container": "EMITTERS",
    "ztensor.spec.digest": "ALGORITHMS",
    "ztensor.spec.encoding": "ENCODINGS",
    "ztensor.spec.encoding.base": "Encoding Runs Stored",
    "ztensor.spec.encoding.streams": "streams",
    "ztensor.spec.layout": "LAYOUTS",
    "ztensor.spec.layout.base": "Layout Quantized Rows View",
    "ztensor.spec.layout.elements": "Blocks numpy_dtype result_dtype spell typed_array",
    "ztensor.spec.model.dtype": "BY_LONG_NAME LOGICAL_TYPES STORAGE_TYPES element_count",
    "ztensor.spec.model.manifest": "Component Manifest TensorObject",
    "ztensor.spec.model.objects": "LaterObjects",
    "ztensor.spec.wire.cbor": "cbor",
    "ztensor.threads": "run_jobs",
    "ztensor.threads.pool": "Pool",
    "ztensor.threads.sharing": "thread_count",
}

__all__ = [
    "ALGORITHMS", "BY_LONG_NAME", "EMITTERS", "ENCODINGS", "FORMATS", "FRAMEWORKS", "LAYOUTS",
    "LOGICAL_TYPES", "SCHEMES", "STORAGE_TYPES", "AtOnce", "AttributeKind", "Beneath", "Blocks",
    "Component", "Encoding", "FileObjects", "FileSink", "Format", "Framework", "JoinedSource",
    "LaterObjects", "Layout", "Lock", "Look", "Manifest", "ObjectReader", "Objects", "OpenFolder",
    "Overlaps", "Place", "Pool", "Portable", "Projection", "Quantized", "Range", "Registry",
    "Rows", "Runs", "ShardSet", "Shown", "Sink", "Source", "Store", "Stored", "Tally",
    "TensorObject", "Unrepresented", "View", "cached_property", "cbor", "element_count",
    "empty_array", "foreign_bytes", "is_remote", "load_files", "locking", "no_collection",
    "numpy_dtype", "open_file", "path_text", "remove", "result_dtype",
    "run_jobs", "slice_of", "source_of", "spell", "streams", "thread_count", "typed_array",
]  # fmt: skip

if not TYPE_CHECKING:  # type checkers would accept any name; they use the imports above
    __getattr__ = Registry.lazy(__name__, _HOMES)


def __dir__() -> list[str]:
    """Return the names of the interface."""
    return sorted(__all__)

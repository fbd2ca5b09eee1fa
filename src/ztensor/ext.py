"""The extension interface: what a format, an encoding, a store or a verb of your own is made of.

Our own packages for formats, stores, distributed checkpoints, statistics and the command import
nothing of the core but the public names of `ztensor` and the names here; so can yours. Each name is
documented where it is defined; `docs/extending.md` has one complete example of each kind.

- What a file holds: `Manifest`, its `TensorObject`s, their `Component`s; the element types
  `STORAGE_TYPES` and `LOGICAL_TYPES`; broken rules are the `Problem`s of
  `ztensor.errors`, each with a `Reason`.
- What you implement: `Source` and `Sink` for places, `Encoding` for stored bytes, `Layout` or
  `Quantized` for arrays. Each is an abstract class or a protocol, and says what may be raised.
- What bounds it: `ztensor.Limits` are the caller's caps, `ztensor.limits.Budget` is what one file
  may still cost, and `foreign_bytes` turns what Python raises on bytes of strangers into our error.
- What is on disk or in a store: `Place` is where a file goes; `OpenFolder` and `remove` are the
  only ways in which one goes again; `locking` says whether a process has it; `Beneath` opens files
  that another one names.
- What is open: `open_file` gives a file's `FileObjects`, `ObjectReader` reads objects of any.

A name is loaded when it is first used: importing one costs what its own module costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.registry import lazy

if TYPE_CHECKING:
    from ztensor.accepted import Durable
    from ztensor.arguments import require_choice
    from ztensor.buffers import empty_array, new_bytes
    from ztensor.guard import foreign_bytes
    from ztensor.interactive import Shown
    from ztensor.io.contents import open_file
    from ztensor.io.formats import FORMATS, Format, Look, Projection, written_formats
    from ztensor.io.frameworks import FRAMEWORKS, Framework, adapter_of
    from ztensor.io.losses import Tally, Unrepresented
    from ztensor.io.reading.file import FileObjects
    from ztensor.io.reading.objects import Objects
    from ztensor.io.reading.reader import ObjectReader
    from ztensor.io.reading.slices import slice_of
    from ztensor.io.source import locking
    from ztensor.io.source.base import Range, Sink, Source, read_bytes
    from ztensor.io.source.beneath import Beneath
    from ztensor.io.source.paths import path_text
    from ztensor.io.source.removal import OpenFolder, remove
    from ztensor.io.source.sink import FileSink, Place
    from ztensor.io.source.stores import SCHEMES, Store, is_remote
    from ztensor.io.source.table import source_of
    from ztensor.locks import Lock
    from ztensor.showing import counted, short_repr
    from ztensor.spec.digest import ALGORITHMS, digest_of
    from ztensor.spec.encoding import ENCODINGS
    from ztensor.spec.encoding.base import Encoding, Runs, Stored, require_equal_length
    from ztensor.spec.layout import LAYOUTS
    from ztensor.spec.layout.base import Array, Layout, Quantized, View
    from ztensor.spec.layout.elements import Blocks, numpy_dtype, result_dtype, spell, typed_array
    from ztensor.spec.model.dtype import (
        BY_LONG_NAME,
        LOGICAL_TYPES,
        STORAGE_TYPES,
        LogicalType,
        element_count,
        register_logical_type,
    )
    from ztensor.spec.model.manifest import Component, Manifest, TensorObject
    from ztensor.threads import run_jobs
    from ztensor.threads.pool import Pool
    from ztensor.threads.sharing import thread_count

_HOMES = {
    "ztensor.accepted": "Durable",
    "ztensor.arguments": "require_choice",
    "ztensor.buffers": "empty_array new_bytes",
    "ztensor.guard": "foreign_bytes",
    "ztensor.interactive": "Shown",
    "ztensor.io.contents": "open_file",
    "ztensor.io.formats": "FORMATS Format Look Projection written_formats",
    "ztensor.io.frameworks": "FRAMEWORKS Framework adapter_of",
    "ztensor.io.losses": "Tally Unrepresented",
    "ztensor.io.reading.file": "FileObjects",
    "ztensor.io.reading.objects": "Objects",
    "ztensor.io.reading.reader": "ObjectReader",
    "ztensor.io.reading.slices": "slice_of",
    "ztensor.io.source": "locking",
    "ztensor.io.source.base": "Range Sink Source read_bytes",
    "ztensor.io.source.beneath": "Beneath",
    "ztensor.io.source.paths": "path_text",
    "ztensor.io.source.removal": "OpenFolder remove",
    "ztensor.io.source.sink": "FileSink Place",
    "ztensor.io.source.stores": "SCHEMES Store is_remote",
    "ztensor.io.source.table": "source_of",
    "ztensor.locks": "Lock",
    "ztensor.showing": "counted short_repr",
    "ztensor.spec.digest": "ALGORITHMS digest_of",
    "ztensor.spec.encoding": "ENCODINGS",
    "ztensor.spec.encoding.base": "Encoding Runs Stored require_equal_length",
    "ztensor.spec.layout": "LAYOUTS",
    "ztensor.spec.layout.base": "Array Layout Quantized View",
    "ztensor.spec.layout.elements": "Blocks numpy_dtype result_dtype spell typed_array",
    "ztensor.spec.model.dtype": (
        "BY_LONG_NAME LOGICAL_TYPES STORAGE_TYPES LogicalType element_count register_logical_type"
    ),
    "ztensor.spec.model.manifest": "Component Manifest TensorObject",
    "ztensor.threads": "run_jobs",
    "ztensor.threads.pool": "Pool",
    "ztensor.threads.sharing": "thread_count",
}

__all__ = [
    "ALGORITHMS", "BY_LONG_NAME", "ENCODINGS", "FORMATS", "FRAMEWORKS", "LAYOUTS", "LOGICAL_TYPES",
    "SCHEMES", "STORAGE_TYPES", "Array", "Beneath", "Blocks", "Component", "Durable", "Encoding",
    "FileObjects", "FileSink", "Format", "Framework", "Layout", "Lock", "LogicalType", "Look",
    "Manifest", "ObjectReader", "Objects", "OpenFolder", "Place", "Pool", "Projection",
    "Quantized", "Range", "Runs", "Shown", "Sink", "Source", "Store", "Stored", "Tally",
    "TensorObject", "Unrepresented", "View", "adapter_of", "counted", "digest_of", "element_count",
    "empty_array", "foreign_bytes", "is_remote", "locking", "new_bytes", "numpy_dtype",
    "open_file", "path_text", "read_bytes", "register_logical_type", "remove", "require_choice",
    "require_equal_length", "result_dtype", "run_jobs", "short_repr", "slice_of", "source_of",
    "spell", "thread_count", "typed_array", "written_formats",
]  # fmt: skip

if not TYPE_CHECKING:  # checkers have the imports above; to them any name would be there
    __getattr__ = lazy(__name__, _HOMES)


def __dir__() -> list[str]:
    """Return the names of the interface."""
    return sorted(__all__)

"""Which library's files we read beside it: pairs of peers, one format after the other.

The library stores the file, and both read it, in turn. Only one such file is there at a time, so
that it stays in the page cache.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from benchmarks.environments import EVERYONE


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """A library and what we read of it.

    Attributes:
        format: what is read.
        library: the peer that stores and reads it.
        ours: the peers of ours that read the same file.
        workloads: on what they are compared.
        is_mapped: whether we map what the library writes.
        bounds: the largest ratio that is a success, by operation, where it is not 1.
    """

    format: str
    library: str
    ours: tuple[str, ...]
    workloads: tuple[str, ...] = ("llama", "many")
    is_mapped: bool = True
    bounds: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def title(self, ours: str) -> str:
        """Return the format, and which of our readers it is where there are several."""
        return self.format if len(self.ours) == 1 else f"{self.format}{EVERYONE[ours].title[4:]}"

    @property
    def is_large(self) -> bool:
        """Return whether it takes libraries that are only measured when asked for."""
        return EVERYONE[self.library].is_large


PAIRS = (
    Pair("safetensors", "safetensors", ("ours-safetensors",)),
    Pair("safetensors, as torch", "safetensors-torch", ("ours-torch-safetensors-torch",)),
    Pair("npz", "npz", ("ours-npz",)),
    Pair("npz, deflated", "npz-deflated", ("ours-npz-deflated",), ("pruned",), is_mapped=False),
    Pair("pt", "torch", ("ours-pt", "ours-torch-torch")),
    Pair("gguf", "gguf", ("ours-gguf",)),
    Pair("hdf5", "h5py", ("ours-h5py",)),
    Pair("hdf5, deflated", "h5py-deflated", ("ours-h5py-deflated",), ("pruned",), is_mapped=False),
    Pair("hdf5, lzf", "h5py-lzf", ("ours-h5py-lzf",), ("pruned",), is_mapped=False),
    Pair(
        "ztensor 2.x", "ztensor-2", ("ours-ztensor-2",), ("2.x-many", "2.x-large", "2.x-zstd"),
        bounds={"keys": 0.3, "mapped": 0.3, "save": 0.5, "zstd-load": 0.5, "verify": 0.8},
    ),
)  # fmt: skip


def groups(workload: str, names: list[str]) -> list[list[str]]:
    """Return the peers that read one file in turn, the one that stores it first."""
    found = []
    for pair in PAIRS:
        readers = [name for name in pair.ours if name in names]
        if workload in pair.workloads and pair.library in names and readers:
            found.append([pair.library, *readers])
    return found


def chosen(*, with_torch: bool) -> list[str]:
    """Return the names of all peers that take part."""
    return [
        name
        for pair in PAIRS
        if with_torch or not pair.is_large
        for name in (pair.library, *pair.ours)
    ]

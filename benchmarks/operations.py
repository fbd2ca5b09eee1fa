"""What is measured: each operation, what it is given, and the peer's function it calls.

A peer is a module of `benchmarks/peers`; a function it does not have is an operation it lacks.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

Kind = Literal["read", "save", "append", "start", "first", "process"]
AGAIN = 10_000  # times that one tensor is taken from an open reader


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """One thing that is timed.

    Attributes:
        name: how it is asked for.
        title: how it is shown.
        kind: what it is given: a file, tensors in memory, both, or a file in a new interpreter,
            of which `start` times everything and `first` what follows the import; `process` times a
            new interpreter with the arguments that the peer's module has.
        call: the function of a peer's module that does it.
        is_touching: every byte of the result is added up within the time.
        is_cold: the file is not in the page cache.
        is_repeated: it is done again and again for a while, and the median counts, as in a process
            that serves all day. The first time in a fork mostly tells how much code a library has.
    """

    name: str
    title: str
    kind: Kind
    call: str
    is_touching: bool = False
    is_cold: bool = False
    is_repeated: bool = False


_ALL = (
    Operation("start", "new interpreter: start, import, open, list", "start", "START"),
    Operation("first", "new interpreter: open, list, after import", "first", "START"),
    Operation("process-numpy", "new process: import numpy", "process", "IMPORT"),
    Operation("process-one", "new process: open, read one", "process", "OPEN_ONE"),
    Operation("process-load", "new process: load_file", "process", "LOAD"),
    Operation("process-ls", "new process: ls", "process", "LS"),
    Operation("process-verify", "new process: verify", "process", "VERIFY"),
    Operation("keys", "open, list the names", "read", "keys", is_repeated=True),
    Operation("keys-new", "the same of a file that is new", "read", "keys", is_repeated=True),
    Operation("one", "open, sum one tensor", "read", "one", is_touching=True),
    Operation("mapped", "load all, untouched", "read", "mapped", is_repeated=True),
    Operation(
        "mapped-new", "the same of a file that is new", "read", "mapped_of_new", is_repeated=True
    ),
    Operation("touched", "load all, sum every byte", "read", "mapped", is_touching=True),
    Operation("owned", "load all into own memory", "read", "owned"),
    Operation("slice", "1 % of each tensor", "read", "slices", is_touching=True),
    Operation("again", f"one tensor {AGAIN:,} times from an open file", "read", "again"),
    Operation("each", "open, then one tensor after another", "read", "each", is_repeated=True),
    Operation(
        "each-owned", "the same into memory of each its own", "read", "each_owned", is_repeated=True
    ),
    Operation(
        "each-slice", "the same, rows 2 to 5 of each", "read", "each_slice", is_repeated=True
    ),
    Operation(
        "each-described", "the same, only what each is", "read", "each_described", is_repeated=True
    ),
    Operation("verify", "check every byte", "read", "verify"),
    Operation("keys-cold", "open, list the names, cold", "read", "keys", is_cold=True),
    Operation(
        "touched-cold",
        "load all, sum every byte, cold",
        "read",
        "mapped",
        is_touching=True,
        is_cold=True,
    ),
    Operation("owned-cold", "load all into own memory, cold", "read", "owned", is_cold=True),
    Operation("cat-cold", "plain reads of the file, cold", "read", "cat", is_cold=True),
    Operation(
        "one-cold", "open, sum one tensor, cold", "read", "one", is_touching=True, is_cold=True
    ),
    Operation("save", "save", "save", "save"),
    Operation("save-crc32c", "save with crc32c", "save", "save_crc32c"),
    Operation("save-sha256", "save with sha256", "save", "save_sha256"),
    Operation("append", "append 1 MiB", "append", "append"),
    Operation("zstd-save", "save, zstd level 3", "save", "save_zstd"),
    Operation("zstd-load", "load all, zstd", "read", "mapped"),
    Operation("zstd-slice", "1 % of each tensor, zstd", "read", "slices", is_touching=True),
)

OPERATIONS = {operation.name: operation for operation in _ALL}

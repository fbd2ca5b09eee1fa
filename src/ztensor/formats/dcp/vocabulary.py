"""The names that the pickle `.metadata` may use: torch's records, and plain values."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ztensor.formats.pt.pickled import Buildable, Call, Items, Vocabulary, misfit, require
from ztensor.formats.pt.vocabulary import CALLS

if TYPE_CHECKING:
    from collections.abc import Mapping

_CHECKPOINT = "torch.distributed.checkpoint"
_OLD = "torch.distributed._shard"
# Of each record its modules: releases have moved them.
_RECORDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "Metadata",
            "TensorStorageMetadata",
            "BytesStorageMetadata",
            "ChunkStorageMetadata",
            "MetadataIndex",
        ),
        (f"{_CHECKPOINT}.metadata", f"{_OLD}.checkpoint.metadata"),
    ),
    "StorageMeta": (f"{_CHECKPOINT}.metadata",),
    "TensorProperties": (f"{_CHECKPOINT}.metadata", f"{_OLD}.sharded_tensor.metadata"),
    "_StorageInfo": (f"{_CHECKPOINT}.filesystem", f"{_OLD}.checkpoint.filesystem"),
    "MCoreMetadata": ("megatron.core.dist_checkpointing.strategies.torch",),
}
_MEMORY_FORMATS = (
    f"{_CHECKPOINT}.metadata._MEM_FORMAT_ENCODING",
    f"{_OLD}.sharded_tensor.metadata.MEM_FORMAT_ENCODING",
)
_MOST_FIELDS = 32


class Record(Buildable):
    """One of torch's records: the name of its class, and its fields as the pickle gives them.

    Attributes:
        kind: the class, without its module.
        state: a dict of the fields, a tuple where the class writes one, or None.
    """

    __slots__ = ("kind", "state")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.state: Items | tuple[object, ...] | None = None

    def build(self, state: object) -> None:
        """Take the fields."""
        if not isinstance(state, (Items, tuple)) or self.state is not None:
            raise misfit(f"the state of a {self.kind}", "its fields, once", state)
        self.state = state

    def fields(self) -> dict[str, object]:
        """Return the fields by name.

        Raises:
            FormatError: the record has no state, or a field name is not text.
        """
        if self.state is None:
            return {}
        state = require(self.state, Items, f"the state of a {self.kind}", "fields by name")
        if len(state) > _MOST_FIELDS:  # one record may be there very many times
            raise misfit(f"the state of a {self.kind}", "few fields", len(state))
        found = state.by_name()
        if found is None:
            raise misfit(f"a field of a {self.kind}", "a name", "something else")
        return found


def record_of(value: object, *kinds: str) -> Record:
    """Return a value that has to be a record of one of these kinds."""
    if not isinstance(value, Record) or value.kind not in kinds:
        found = value.kind if isinstance(value, Record) else value
        raise misfit("a record in .metadata", " or ".join(kinds), found)
    return value


def items_of(value: object, what: str) -> Items:
    """Return the value of a field that has to be a dict."""
    return require(value, Items, f"the field {what}", "a dict")


def _no_storage(saved_id: object) -> object:
    raise misfit("a persistent id", "none in .metadata", saved_id)


def _table() -> Mapping[str, Call]:
    table = dict(CALLS)
    for kind, modules in _RECORDS.items():
        for module in modules:
            table[f"{module}.{kind}"] = Call(functools.partial(Record, kind), 0, 0)
    for name in _MEMORY_FORMATS:
        table[name] = Call(lambda number: number, 1, 1)
    return table


VOCABULARY = Vocabulary(_table(), _no_storage)

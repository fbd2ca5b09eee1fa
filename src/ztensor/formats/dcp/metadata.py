"""Check the value of the pickle `.metadata`, and make a table of it."""

from __future__ import annotations

import itertools

from ztensor.errors import FormatError, Reason, UnsupportedError, describe
from ztensor.ext import Tally
from ztensor.formats.dcp.chunks import Axes, Chunks, Places
from ztensor.formats.dcp.table import Place, Table, chunk_table
from ztensor.formats.dcp.vocabulary import items_of, record_of
from ztensor.formats.pt.pickled import Items, misfit
from ztensor.formats.pt.values import ElementType, counts, element_type_of
from ztensor.limits import Budget

_TENSOR_COST, _VALUE_COST = 1200, 300  # bytes of memory: tensor with encoding, value
_FIELDS = frozenset(
    ("state_dict_metadata", "planner_data", "storage_data", "storage_meta", "version")
)


def read_table(value: object, budget: Budget, left: Tally) -> Table:
    """Return the table of a checkpoint.

    Args:
        value: the value of the pickle; long runs of records may be columns.
        budget: the cost that listing may have.
        left: the loss report.

    Raises:
        FormatError: the value is malformed, or names a file outside its folder.
        LimitError: the value is far larger than the pickle.
        IrregularError: the pickle has to be read without columns.
    """
    root = record_of(value, "Metadata", "MCoreMetadata").fields()
    axes = Axes(budget)
    places = Places(root.get("storage_data"), axes, budget)
    chunks = Chunks(places, axes, budget)
    tensors: dict[str, tuple[ElementType, tuple[int, ...]]] = {}
    values: dict[str, Place | None] = {}
    for name, stored in items_of(root.get("state_dict_metadata"), "state_dict_metadata").pairs:
        if not isinstance(name, str):
            raise misfit("a name in .metadata", "text", name)
        if name in tensors or name in values:
            raise FormatError(
                "two tensors have one name", reason=Reason.DUPLICATE_NAME, found=describe(name)
            )
        kind = record_of(stored, "TensorStorageMetadata", "BytesStorageMetadata")
        if kind.kind == "BytesStorageMetadata":
            budget.charge_bytes(_VALUE_COST)
            values[name] = places.of_value(name)
            continue
        fields = kind.fields()
        size = counts(fields.get("size"), "the size of a tensor")
        budget.charge_bytes(_TENSOR_COST)
        chunks.add(name, size, fields.get("chunks"))
        tensors[name] = _element(fields.get("properties")), size
    for name, other in root.items():
        if name not in _FIELDS and other is not None:
            left.add("field of .metadata", name)
    _tally_names(root.get("planner_data"), left, budget)
    version = root.get("version")
    return Table(
        places.files,
        [element for element, _ in tensors.values()],
        chunk_table(places.files, tensors, *chunks.columns()),
        values,
        version if isinstance(version, str) else "",
    )


def _element(properties: object) -> ElementType:
    """Return the element type of a tensor; its width is 0 if it is unknown."""
    state = record_of(properties, "TensorProperties").state
    dtype: object = None
    if isinstance(state, tuple) and state:
        dtype = state[0]
    elif isinstance(state, Items):
        some = itertools.islice(state.pairs, 8)
        dtype = next((value for key, value in some if key == "dtype"), None)
    try:
        return element_type_of(dtype)[1]
    except UnsupportedError:
        return ElementType(describe(str(dtype), 60), None, 0)


def _tally_names(planner_data: object, left: Tally, budget: Budget) -> None:
    """Report names whose path has other keys than text and numbers, or very many keys."""
    if planner_data is None:
        return
    if not isinstance(planner_data, Items):
        left.add("field of .metadata", "planner_data")
        return
    budget.charge_steps(len(planner_data))
    for name, path in planner_data.pairs:
        if not isinstance(path, (tuple, list)) or not isinstance(name, str):
            left.add("field of .metadata", "planner_data")
            return
        if len(path) > 64:
            left.add("path of a name", name)
        elif any(not isinstance(key, (str, int)) for key in path):
            left.add("dict key that is no text", name)

"""ONNX models: the tensors of all graphs, found by a walk over the protobuf fields.

No library is needed: of a message only tags and lengths are read, so a model of gigabytes opens
without reading its weights. The walk is stricter than a protobuf parser: a field of the wrong wire
type, a field twice that may be there once, and groups are refused.

- `raw_data`, and packed floats of `float_data` and `double_data`, are byte ranges: mapped.
- `int32_data`, `int64_data` and `uint64_data` are decoded, as are 4-bit and 2-bit integers, which
  become int8 and uint8 with the ONNX type's name in the attribute `onnx.data_type`.
- External data is read from its file, which must lie beneath the model's folder, or beside what
  the model is a link to, as in the cache of the hub.
- Sparse initializers become `sparse_coo`.
- Strings, and external data of a model that has no path, are listed and refused when read.

Objects are all tensors of a model. Initializers have their own names, and what a node `Constant`
holds has the name of the node's output: some exporters put all weights there. A tensor in another
attribute is `node.attribute`, `node` its name or else that of its first output; one of a list
has its place behind that. What is in a graph below has the path to it before its name:
`node.attribute.` for the branch of an `If` or the body of a `Loop`, `functions.domain.name.` for a
local function, `training.0.initialization.` and `training.0.algorithm.`. Tensors of the main graph
keep their names whatever is below; of two others with one name the later in the file gets `#2`.

Versions, opsets, texts and `metadata_props` are the file's attributes. Nodes, inputs, outputs and
whatever else is in a model is counted, and is in the account of what is not given.
"""

from __future__ import annotations

import contextlib
import sys
from array import array
from collections import deque
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from ztensor.encoding.base import Runs
from ztensor.errors import (
    EncodingError,
    FormatError,
    LimitError,
    Reason,
    UnsupportedError,
    describe,
)
from ztensor.foreign.base import RAW, ForeignEncoding, Projection
from ztensor.layout.base import empty_array
from ztensor.model.account import Tally
from ztensor.model.dtype import LOGICAL_TYPES, STORAGE_TYPES, element_count
from ztensor.model.manifest import Component, Manifest, TensorObject
from ztensor.source.base import read_bytes
from ztensor.source.beneath import open_beneath, parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ztensor.encoding import Encoding, Stored
    from ztensor.layout.base import Array
    from ztensor.limits import Budget, Limits
    from ztensor.source.base import Source
    from ztensor.source.rights import Rights

NAME = "onnx"

_SECTION = "onnx.proto"
_BLOCK_BYTES = 1 << 12
_VARINT_BYTES = 1 << 18
_PIECE_BYTES = 8 << 20
_TEXT_BYTES = 16 << 20
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}
_EXTERNAL = 1  # TensorProto.DataLocation
# In bytes of memory: a text; a place for it; a pair of them; a field kept; an object with its name
# and component; how one is stored; a dimension.
_TEXT_COST, _PLACE_COST, _ENTRY_COST, _FIELD_COST = 96, 16, 144, 224
_OBJECT_COST, _ENCODING_COST, _NUMBER_COST = 900, 600, 40


class _Type(NamedTuple):
    """A value of `TensorProto.DataType`.

    Attributes:
        name: its name there.
        dtype: storage type.
        type: logical type, or None.
        field: number of the field its elements are in where they are not raw.
        bits: of one element where several are in a byte and no type here packs so, else 0.
    """

    name: str
    dtype: str
    type: str | None
    field: int
    bits: int = 0


_FLOAT, _INT32, _INT64, _DOUBLE, _UINT64 = 4, 5, 7, 10, 11
_RAW = 9
_TYPES = {
    1: _Type("FLOAT", "f32", None, _FLOAT),
    2: _Type("UINT8", "u8", None, _INT32),
    3: _Type("INT8", "i8", None, _INT32),
    4: _Type("UINT16", "u16", None, _INT32),
    5: _Type("INT16", "i16", None, _INT32),
    6: _Type("INT32", "i32", None, _INT32),
    7: _Type("INT64", "i64", None, _INT64),
    9: _Type("BOOL", "bool", None, _INT32),
    10: _Type("FLOAT16", "f16", None, _INT32),
    11: _Type("DOUBLE", "f64", None, _DOUBLE),
    12: _Type("UINT32", "u32", None, _UINT64),
    13: _Type("UINT64", "u64", None, _UINT64),
    14: _Type("COMPLEX64", "f32", "complex64", _FLOAT),
    15: _Type("COMPLEX128", "f64", "complex128", _DOUBLE),
    16: _Type("BFLOAT16", "bf16", None, _INT32),
    17: _Type("FLOAT8E4M3FN", "u8", "f8_e4m3fn", _INT32),
    18: _Type("FLOAT8E4M3FNUZ", "u8", "f8_e4m3fnuz", _INT32),
    19: _Type("FLOAT8E5M2", "u8", "f8_e5m2", _INT32),
    20: _Type("FLOAT8E5M2FNUZ", "u8", "f8_e5m2fnuz", _INT32),
    21: _Type("UINT4", "u8", None, _INT32, 4),
    22: _Type("INT4", "i8", None, _INT32, 4),
    23: _Type("FLOAT4E2M1", "u8", "f4_e2m1", _INT32),
    24: _Type("FLOAT8E8M0", "u8", "f8_e8m0", _INT32),
    25: _Type("UINT2", "u8", None, _INT32, 2),
    26: _Type("INT2", "i8", None, _INT32, 2),
}
_STRING = 8


# --- Protobuf -------------------------------------------------------------------------------


class _Field(NamedTuple):
    """One field of a message: a number, or a range of bytes of the file."""

    number: int
    wire: int
    value: int
    start: int
    stop: int


class _Message:
    """A source read by small steps, a block at a time.

    Args:
        source: the file.
        budget: what texts and numbers are charged to.
    """

    def __init__(self, source: Source, budget: Budget) -> None:
        self.source = source
        self.budget = budget
        self._start = 0
        self._block: bytes | bytearray = b""

    def _at(self, place: int, count: int) -> bytes | bytearray:
        """Return up to `count` bytes, fewer only at the end of the file."""
        begin = place - self._start
        if begin < 0 or begin + count > len(self._block):
            length = min(_BLOCK_BYTES, self.source.size - place)
            self._start, self._block = place, read_bytes(self.source, place, length)
            begin = 0
        return self._block[begin : begin + count]

    def varint(self, place: int, stop: int) -> tuple[int, int]:
        """Return a number and the place behind it."""
        begin = place - self._start
        if 0 <= begin < len(self._block) and place < stop and self._block[begin] < 0x80:
            return self._block[begin], place + 1  # nearly all: most of a model are short fields
        value = 0
        for shift, byte in enumerate(self._at(place, min(10, stop - place))):
            value |= (byte & 0x7F) << 7 * shift
            if byte < 0x80:
                if value >= 1 << 64:
                    break
                return value, place + shift + 1
        raise _damaged("a number does not end", place, Reason.TRUNCATED)

    def fields(self, start: int, stop: int) -> Iterator[_Field]:
        """Yield the fields of a message; they end where it ends."""
        place = start
        while place < stop:
            at = place
            tag, place = self.varint(place, stop)
            number, wire = tag >> 3, tag & 7
            value, begin = 0, place
            if wire == _VARINT:
                value, place = self.varint(place, stop)
            elif wire == _BYTES:
                length, begin = self.varint(place, stop)
                place = begin + length
            elif wire in _FIXED:
                place += _FIXED[wire]
            else:
                raise _damaged(f"a field has the wire type {wire}", at, Reason.FIELD_TYPE)
            if number == 0 or tag >= 1 << 32:
                raise _damaged(f"a field has the number {number}", at, Reason.FIELD_VALUE)
            if place > stop:
                raise _damaged("a field ends behind its message", at, Reason.TRUNCATED)
            yield _Field(number, wire, value, begin, place)

    def head(self, field: _Field) -> bytes | bytearray:
        """Return the first bytes of a message, all of a short one."""
        return self._at(field.start, min(_BLOCK_BYTES, field.stop - field.start))

    def text(self, field: _Field, what: str) -> str:
        """Return a string field."""
        _require_wire(field, _BYTES, what)
        if field.stop - field.start > _TEXT_BYTES:
            raise LimitError(
                f"{what} is longer than this release reads",
                reason=Reason.LIMIT_MANIFEST,
                expected=f"at most {_TEXT_BYTES} bytes",
                found=str(field.stop - field.start),
            )
        length = field.stop - field.start
        worst = _TEXT_COST + 7 * length  # four for a character, and what it is decoded from
        self.budget.charge_bytes(worst)
        try:
            text = read_bytes(self.source, field.start, length).decode()
        except UnicodeDecodeError as error:
            raise _damaged(f"{what} is not UTF-8", field.start, Reason.FIELD_VALUE) from error
        self.budget.release_bytes(worst - sys.getsizeof(text) - _PLACE_COST)
        return text

    def pair(self, field: _Field, what: str) -> tuple[str, str]:
        """Return key and value of a `StringStringEntryProto`."""
        _require_wire(field, _BYTES, what)
        found = {1: "", 2: ""}
        for inner in self.fields(field.start, field.stop):
            if inner.number in found:
                found[inner.number] = self.text(inner, what)
        return found[1], found[2]


def _damaged(what: str, place: int, reason: Reason) -> FormatError:
    return FormatError(what, reason=reason, found=f"offset {place}", section=_SECTION)


def _require_wire(field: _Field, wire: int, what: str) -> None:
    if field.wire != wire:
        raise FormatError(
            f"{what} has another wire type",
            reason=Reason.FIELD_TYPE,
            expected=str(wire),
            found=f"{field.wire} at offset {field.start}",
            section=_SECTION,
        )


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _may_hold(node: bytes | bytearray) -> bool:
    """Return whether a node, all of whose bytes these are, may hold a tensor or a graph.

    Most nodes do not, and a walk over all fields of all nodes would take longer than all the rest.
    What is unusual is left to that walk.
    """
    place, stop = 0, len(node)
    try:
        while place < stop:
            tag, length = node[place], node[place + 1]
            place += 2
            if tag & 0x87 != _BYTES:
                return True
            if length >= 0x80:
                more = node[place]
                if more >= 0x80:
                    return True
                length += (more - 1) * 0x80
                place += 1
            if tag != 0x2A:
                place += length
                continue
            end = place + length
            while place < end:
                inner = node[place]
                place += 1
                if inner == 0xA0 and node[place] == 1 and node[place + 1] < 0x80:  # the type
                    place += 2
                elif inner >> 3 in _HELD:
                    return True
                elif inner & 7 == _VARINT and inner < 0x80:
                    while node[place] >= 0x80:
                        place += 1
                    place += 1
                elif inner & 7 == _FIXED32 and inner < 0x80:
                    place += 4
                elif inner & 7 == _BYTES and inner < 0x80 and node[place] < 0x80:
                    place += 1 + node[place]
                else:
                    return True
            if place != end:
                return True
    except IndexError:
        return True
    return place != stop


# --- The model ------------------------------------------------------------------------------


def project(source: Source, budget: Budget) -> Projection:
    """Return what the main graph of a model holds; see the module's docstring.

    Raises:
        FormatError: the file is damaged, or two tensors have one name.
        LimitError: a text is longer than 16 MiB.
        SourceError: it cannot be read.
    """
    return _Model(source, budget).run()


class _Below(NamedTuple):
    """What is still to be read, since tensors of the main graph keep their names.

    Attributes:
        what: a graph, a function, or a node of the main graph.
        field: where it is.
        prefix: what the names of a graph's tensors begin with; a function says its own.
        depth: how many graphs it is in.
    """

    what: Literal["graph", "function", "node"]
    field: _Field
    prefix: str = ""
    depth: int = 0


# What of a graph and of a tensor is counted only, by the numbers of the fields.
_GRAPH_PARTS = {
    10: "doc string of a graph",
    11: "graph input",
    12: "graph output",
    13: "type of a value",
    14: "quantization annotation",
    16: "metadata of a graph",
}
_TENSOR_PARTS = {12: "doc string of a tensor", 16: "metadata of a tensor"}


def _length(field: _Field) -> int:
    return field.stop - field.start


class _Model:
    def __init__(self, source: Source, budget: Budget) -> None:
        self._source = source
        self._budget = budget
        self._message = _Message(source, budget)
        self._objects: dict[str, TensorObject] = {}
        self._encodings: dict[str, Encoding] = {**RAW, "onnx:unread": _Unread("onnx:unread")}
        self._props: dict[str, str] = {}
        self._opsets: dict[str, int] = {}
        self._attributes: dict[str, object] = {}
        self._left = Tally()
        self._below: deque[_Below] = deque()  # read when the main graph has its names
        self._next: dict[str, int] = {}
        self._training = 0

    def run(self) -> Projection:
        message, version = self._message, ""
        texts = {2: "producer_name", 3: "producer_version", 4: "domain", 6: "doc_string"}
        has_graph = False
        for field in message.fields(0, self._source.size):
            number = field.number
            if number == 1:
                _require_wire(field, _VARINT, "ir_version")
                version = str(_signed(field.value))
            elif number in texts:
                self._attributes[texts[number]] = message.text(field, texts[number])
            elif number == 5:
                _require_wire(field, _VARINT, "model_version")
                self._attributes["model_version"] = _signed(field.value)
            elif number == 7:
                _require_wire(field, _BYTES, "graph")
                has_graph = True
                self._add_graph(field, "", 0)
            elif number == 8:
                self._add_opset(field)
            elif number == 14:
                self._budget.charge_bytes(_ENTRY_COST)
                key, value = message.pair(field, "metadata_props")
                self._props[key] = value
            elif number == 20:
                self._add_training(field)
            elif number == 25:
                _require_wire(field, _BYTES, "function")
                self._put_below(_Below("function", field, depth=1))
            else:
                kind = "device configuration" if number == 26 else f"field {number} of the model"
                self._left.add(kind, nbytes=_length(field))
        if not has_graph:
            raise FormatError(
                "there is no graph, as an ONNX model has; it may be another protobuf message, "
                "such as a SavedModel of TensorFlow",
                reason=Reason.FIELD_MISSING,
                section=_SECTION,
            )
        while self._below:
            what, field, prefix, depth = self._below.popleft()
            if what == "graph":
                self._add_graph(field, prefix, depth)
            elif what == "function":
                self._add_function(field, depth)
            else:
                self._left.add("graph node", "", 0, -self._add_node(field, prefix, depth))
        if self._opsets:
            self._attributes["opset_import"] = self._opsets
        if self._props:
            self._attributes["metadata_props"] = self._props
        manifest = Manifest(version, self._objects, self._attributes or None)
        return Projection(NAME, manifest, self._encodings, self._left)

    def _add_opset(self, field: _Field) -> None:
        _require_wire(field, _BYTES, "opset_import")
        self._budget.charge_bytes(_ENTRY_COST)
        domain, version = "", 0
        for inner in self._message.fields(field.start, field.stop):
            if inner.number == 1:
                domain = self._message.text(inner, "domain")
            elif inner.number == 2:
                _require_wire(inner, _VARINT, "version")
                version = _signed(inner.value)
        self._opsets[domain or "ai.onnx"] = version

    def _add_graph(self, graph: _Field, prefix: str, depth: int) -> None:
        where, left = prefix[:-1], self._left
        count = nbytes = 0
        for field in self._message.fields(graph.start, graph.stop):
            if field.number == 1:
                _require_wire(field, _BYTES, "node")
                count += 1
                nbytes += _length(field)
                nbytes -= self._look_into(field, prefix, depth)
            elif field.number == 2 and not prefix:
                self._attributes["graph"] = self._message.text(field, "the graph's name")
            elif field.number == 5:
                _require_wire(field, _BYTES, "initializer")
                self._add_dense(_Tensor(self._message, field, left=left), prefix)
            elif field.number == 15:
                _require_wire(field, _BYTES, "sparse_initializer")
                self._add_sparse(field, prefix)
            elif field.number != 2:
                kind = _GRAPH_PARTS.get(field.number, f"field {field.number} of a graph")
                left.add(kind, where, nbytes=_length(field))
        if count:
            left.add("graph node", where, count, nbytes)

    def _look_into(self, node: _Field, prefix: str, depth: int) -> int:
        """Take what a node holds, and return how many of its bytes that was."""
        head = self._message.head(node)
        if len(head) == _length(node) and not _may_hold(head):
            return 0
        return self._add_node(node, prefix, depth, is_first=True)

    def _add_function(self, function: _Field, depth: int) -> None:
        """Take the nodes of a local function; its name stands behind them."""
        message = self._message
        texts = {1: "", 10: "", 13: ""}  # name, domain, overload
        for field in message.fields(function.start, function.stop):
            if field.number in texts:
                texts[field.number] = message.text(field, "the name of a function")
        prefix = ".".join(["functions", *filter(None, (texts[10], texts[1], texts[13])), ""])
        nbytes = _length(function)
        for field in message.fields(function.start, function.stop):
            if field.number == 7:
                _require_wire(field, _BYTES, "node")
                nbytes -= self._look_into(field, prefix, depth)
            elif field.number == 11:
                _require_wire(field, _BYTES, "attribute")
                nbytes -= self._add_attribute(field, prefix, prefix, depth)
        self._left.add("function", prefix[:-1], nbytes=nbytes)

    def _add_training(self, field: _Field) -> None:
        _require_wire(field, _BYTES, "training_info")
        nbytes = _length(field)
        for inner in self._message.fields(field.start, field.stop):
            if inner.number in (1, 2):
                _require_wire(inner, _BYTES, "a training graph")
                what = "initialization" if inner.number == 1 else "algorithm"
                self._put_below(_Below("graph", inner, f"training.{self._training}.{what}.", 1))
                nbytes -= _length(inner)
        self._left.add("training info", nbytes=nbytes)
        self._training += 1

    def _put_below(self, below: _Below) -> None:
        if below.depth > self._budget.limits.depth:
            raise LimitError(
                "graphs are nested deeper than Limits.depth",
                reason=Reason.LIMIT_DEPTH,
                expected=f"at most {self._budget.limits.depth}",
            )
        self._budget.charge_bytes(_FIELD_COST + _TEXT_COST + 4 * len(below.prefix))
        self._below.append(below)

    def _add_node(self, node: _Field, prefix: str, depth: int, *, is_first: bool = False) -> int:
        """Take the tensors and graphs that a node holds, and return how many bytes that was.

        Args:
            node: the field.
            prefix: of the graph it is in.
            depth: how deep that is.
            is_first: whether a node of the main graph is put off, unless it is a `Constant`.
        """
        message, kind, name = self._message, "", ""
        output: str | None = None
        attributes: list[_Field] = []
        for field in message.fields(node.start, node.stop):
            if field.number == 2 and output is None:
                output = message.text(field, "the output of a node")
            elif field.number == 3:
                name = message.text(field, "the name of a node")
            elif field.number == 4:
                kind = message.text(field, "the type of a node")
            elif field.number == 5:
                _require_wire(field, _BYTES, "attribute")
                self._budget.charge_bytes(_FIELD_COST)
                attributes.append(field)
        own = f"{prefix}{output or ''}" if kind == "Constant" else None
        if own is None and is_first and not prefix:
            if attributes:
                self._put_below(_Below("node", node))
            return 0
        within = f"{prefix}{name or output or kind}."
        return sum(self._add_attribute(one, prefix, within, depth, own) for one in attributes)

    def _add_attribute(
        self, attribute: _Field, prefix: str, within: str, depth: int, own: str | None = None
    ) -> int:
        """Take what an attribute holds, and return how many bytes that was.

        Args:
            attribute: the field.
            prefix: of the graph the node is in.
            within: what names in the node begin with.
            depth: how deep that graph is.
            own: the name of the tensor where it is that of a node `Constant`.
        """
        message, name, nbytes = self._message, "", 0
        held: list[_Field] = []
        for field in message.fields(attribute.start, attribute.stop):
            if field.number == 1:
                name = message.text(field, "the name of an attribute")
            elif field.number in _HELD:
                _require_wire(field, _BYTES, "the tensor of a node")
                self._budget.charge_bytes(_FIELD_COST)
                held.append(field)
        for place, field in enumerate(held):
            path = within + name
            if field.number in (_TENSORS, _GRAPHS, _SPARSE):
                path += f".{place}"
            nbytes += _length(field)
            self._budget.charge_bytes(_TEXT_COST + 4 * len(path))
            if field.number in (_ONE_GRAPH, _GRAPHS):
                self._put_below(_Below("graph", field, f"{path}.", depth + 1))
                continue
            given = own if own is not None and field.number in (_ONE_TENSOR, _ONE_SPARSE) else path
            # Only the main graph's constants are as sure of their names as its initializers are.
            below = prefix if given is own else within
            if field.number in (_ONE_TENSOR, _TENSORS):
                self._add_dense(_Tensor(message, field, given, self._left), below)
            else:
                self._add_sparse(field, below, given)
        return nbytes

    def _add_dense(self, tensor: _Tensor, prefix: str) -> None:
        component = self._component(tensor, tensor.shape)
        self._add(tensor, TensorObject(tensor.shape, "dense", {"data": component}), prefix)

    def _add(self, tensor: _Tensor, tensor_object: TensorObject, prefix: str) -> None:
        name = tensor.name
        if prefix:
            name = self._free(name if tensor.is_named else prefix + name)
        if not name or name in self._objects:
            raise FormatError(
                "a tensor has no name, or one that another has",
                reason=Reason.DUPLICATE_NAME if name else Reason.FIELD_MISSING,
                found=describe(name),
                section=_SECTION,
            )
        if tensor.kind is not None and tensor.kind.bits:
            attributes = {"onnx.data_type": tensor.kind.name}
            tensor_object = TensorObject(
                tensor_object.shape, tensor_object.format, tensor_object.components, attributes
            )
        self._budget.charge_bytes(_OBJECT_COST)
        self._objects[name] = tensor_object

    def _free(self, name: str) -> str:
        """Return a name for a tensor below, one that no other has."""
        self._budget.charge_bytes(_TEXT_COST + 4 * len(name))
        if name not in self._objects:
            return name
        number = self._next.get(name, 2)
        while f"{name}#{number}" in self._objects:
            number += 1
        self._budget.charge_bytes(_ENTRY_COST)
        self._next[name] = number + 1
        return f"{name}#{number}"

    def _add_sparse(self, sparse: _Field, prefix: str, name: str | None = None) -> None:
        parts: dict[int, _Tensor] = {}
        shape: list[int] = []
        for field in self._message.fields(sparse.start, sparse.stop):
            if field.number in (1, 2):
                _require_wire(field, _BYTES, "a part of a sparse initializer")
                if field.number in parts:
                    raise _twice("a part of a sparse initializer", field)
                parts[field.number] = _Tensor(self._message, field, name, self._left)
            elif field.number == 3:
                _add_dims(self._message, field, shape)
        if len(parts) < 2:
            raise FormatError(
                "a sparse initializer lacks its values or indices",
                reason=Reason.FIELD_MISSING,
                section=_SECTION,
            )
        values, indices = parts[1], parts[2]
        rank, count = len(shape), element_count(values.shape)
        is_linear = indices.shape == (count,)
        if (
            len(values.shape) != 1
            or not (is_linear or indices.shape == (count, rank))
            or indices.kind is not _TYPES[7]
            or not rank
        ):
            raise FormatError(
                "the parts of a sparse initializer do not fit",
                reason=Reason.LAYOUT_COUNT,
                object_name=values.name,
                expected=f"values [n], int64 indices [n] or [n, {rank}]",
                found=f"{describe(values.shape)} and {describe(indices.shape)}",
                section=_SECTION,
            )
        self._budget.charge_bytes(_ENCODING_COST)
        stored = self._component(indices, indices.shape)
        word = f"onnx:coords{len(self._encodings)}"
        self._encodings[word] = _Coordinates(
            word, self._encodings[stored.encoding], tuple(shape), is_linear=is_linear
        )
        coords = Component(
            "i64",
            stored.offset,
            stored.length,
            encoding=word,
            decoded_length=count * rank * 8,
        )
        components = {"coords": coords, "values": self._component(values, values.shape)}
        self._add(values, TensorObject(tuple(shape), "sparse_coo", components), prefix)

    def _component(self, tensor: _Tensor, shape: tuple[int, ...]) -> Component:
        """Return how a tensor's elements are stored, their number checked against its shape."""
        kind, data = tensor.kind, tensor.data
        if kind is None:
            return Component(tensor.type_name, 0, 0, encoding="onnx:unread", decoded_length=0)
        storage, count = STORAGE_TYPES[kind.dtype], element_count(shape)
        logical = None if kind.type is None else LOGICAL_TYPES[kind.type]
        units = count if logical is None else logical.storage_count(count)
        decoded = units * storage.width
        as_raw = -(-count * kind.bits // 8) if kind.bits else decoded  # bytes in raw_data
        if tensor.location == _EXTERNAL:
            return self._external(tensor, kind, as_raw, decoded)
        offset, length = (0, 0) if data is None else (data.start, data.stop - data.start)
        is_varints = data is not None and data.number in (_INT32, _INT64, _UINT64)
        if is_varints:
            # An element takes a byte at least, and ten at most.
            elements = -(-count * kind.bits // 8) if kind.bits else units
            if not elements <= length <= 10 * elements:
                raise _unfit(tensor, f"{elements} numbers", length)
        elif length != as_raw:
            raise _unfit(tensor, f"{as_raw} bytes", length)
        encoding = "raw"
        if is_varints or kind.bits:
            encoding = f"onnx:{kind.name}{':varints' if is_varints else ''}"
            if encoding not in self._encodings:
                self._encodings[encoding] = _Elements(
                    encoding, kind, storage.width, is_varints=is_varints
                )
        return Component(
            kind.dtype,
            offset,
            length,
            type=kind.type,
            encoding=encoding,
            decoded_length=None if encoding == "raw" else decoded,
        )

    def _external(self, tensor: _Tensor, kind: _Type, length: int, decoded: int) -> Component:
        if tensor.data is not None:
            raise _unfit(tensor, "no data beside external data", 1)
        parts = parts_of(tensor.external.get("location", ""))
        offset = _number(tensor, "offset", 0)
        if _number(tensor, "length", length) != length:
            raise _unfit(tensor, f"{length} bytes", tensor.external["length"])
        if self._source.path is None:
            what = "external data of a model without a path"
            return Component(what, 0, 0, encoding="onnx:unread", decoded_length=0)
        self._budget.charge_bytes(_ENCODING_COST + 4 * len(tensor.external.get("location", "")))
        word = f"onnx:external{len(self._encodings)}"
        away = _External(word, self._source.path, parts, offset, length)
        self._encodings[word] = away
        if kind.bits:
            self._encodings[word] = _Elements(
                word, kind, STORAGE_TYPES[kind.dtype].width, is_varints=False, within=away
            )
        return Component(kind.dtype, 0, 0, type=kind.type, encoding=word, decoded_length=decoded)


def _number(tensor: _Tensor, key: str, default: int) -> int:
    text = tensor.external.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise _unfit(tensor, f"a decimal {key}", describe(text))
    return int(text)


def _unfit(tensor: _Tensor, expected: str, found: object) -> FormatError:
    return FormatError(
        "an initializer has not the data its shape and type need",
        reason=Reason.SIZE_MISMATCH,
        object_name=tensor.name,
        expected=expected,
        found=describe(found),
        section=_SECTION,
    )


def _twice(what: str, field: _Field) -> FormatError:
    return _damaged(f"{what} is there twice", field.start, Reason.FIELD_VALUE)


def _add_dims(message: _Message, field: _Field, dims: list[int]) -> None:
    """Add the dimensions of a field to those before it: one, or several packed ones.

    Raises:
        FormatError: one is negative.
        LimitError: they are more than `Limits.rank`.
    """
    place = field.start
    while True:
        if field.wire == _VARINT:
            value, place = field.value, field.stop
        else:
            _require_wire(field, _BYTES, "dims")
            if place == field.stop:
                return
            value, place = message.varint(place, field.stop)
        if _signed(value) < 0:
            raise _damaged("a dimension is negative", field.start, Reason.FIELD_VALUE)
        if len(dims) == message.budget.limits.rank:
            raise LimitError(
                "a tensor has more dimensions than Limits.rank allows",
                reason=Reason.LIMIT_RANK,
                expected=f"at most {message.budget.limits.rank}",
                found=f"more at offset {field.start}",
            )
        message.budget.charge_bytes(_NUMBER_COST)
        dims.append(value)
        if field.wire == _VARINT:
            return


# Fields of `AttributeProto`: a tensor, a graph, and lists of them.
_ONE_TENSOR, _ONE_GRAPH, _TENSORS, _GRAPHS, _ONE_SPARSE, _SPARSE = 5, 6, 10, 11, 22, 23
_HELD = (_ONE_TENSOR, _ONE_GRAPH, _TENSORS, _GRAPHS, _ONE_SPARSE, _SPARSE)


class _Tensor:
    """A `TensorProto`: what its fields say, and where its elements are.

    Args:
        message: what it is read from.
        tensor: the field.
        name: what it is called where it is called otherwise than it says.
        left: where what is not given of it is counted.
    """

    def __init__(
        self, message: _Message, tensor: _Field, name: str | None = None, left: Tally | None = None
    ) -> None:
        self.name = ""
        self.location = 0
        self.external: dict[str, str] = {}
        self.data: _Field | None = None
        dims: list[int] = []
        code = 0
        once: set[int] = set()
        for field in message.fields(tensor.start, tensor.stop):
            number = field.number
            if number in (2, 8, 14, *_DATA):
                # Numbers one by one, or packed in pieces, are allowed and nobody writes them.
                if number in once:
                    raise _twice("a field of an initializer", field)
                once.add(number)
            if number == 1:
                _add_dims(message, field, dims)
            elif number == 2:
                _require_wire(field, _VARINT, "data_type")
                code = field.value
            elif number == 3:
                raise UnsupportedError(
                    "an initializer in segments", reason=Reason.UNKNOWN_ENCODING, section=_SECTION
                )
            elif number == 8:
                self.name = message.text(field, "name")
            elif number == 13:
                message.budget.charge_bytes(_ENTRY_COST)
                key, value = message.pair(field, "external_data")
                self.external[key] = value
            elif number == 14:
                _require_wire(field, _VARINT, "data_location")
                self.location = field.value
            elif number in _DATA and (field.stop > field.start or field.wire != _BYTES):
                _require_wire(field, _BYTES, "the data of an initializer")
                if self.data is not None:
                    raise _twice("the data of an initializer", field)
                self.data = field
            elif left is not None and number in _TENSOR_PARTS:
                left.add(_TENSOR_PARTS[number], nbytes=_length(field))
        self.is_named = name is not None
        self.name = self.name if name is None else name
        self.shape = tuple(dims)
        self.kind = _TYPES.get(code)
        self.type_name = "STRING" if code == _STRING else f"ONNX type {code}"
        fields = (_RAW,) if self.kind is None else (_RAW, self.kind.field)
        if self.kind is not None and self.data is not None and self.data.number not in fields:
            raise _damaged(
                f"{self.kind.name} elements are in field {self.data.number}",
                self.data.start,
                Reason.TYPE_MISMATCH,
            )


_DATA = (_FLOAT, _INT32, _INT64, _RAW, _DOUBLE, _UINT64)


# --- Elements -------------------------------------------------------------------------------


class _Unread(ForeignEncoding):
    """What is listed only: its element type is none, and that is said before this is asked."""

    is_absent = True

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        raise UnsupportedError(
            "this kind of ONNX data is not read here; read it with onnx",
            reason=Reason.UNKNOWN_ENCODING,
        )


class _External(ForeignEncoding):
    """Bytes of another file, opened for each call: nothing is held between."""

    def __init__(
        self, name: str, beside: str, parts: tuple[str, ...], offset: int, length: int
    ) -> None:
        super().__init__(name)
        self._beside = beside
        self._parts = parts
        self._offset = offset
        self._length = length

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Source]:
        source = open_beneath(self._beside, self._parts)
        try:
            if self._offset + self._length > source.size:
                raise EncodingError(
                    "the file of external data is too short",
                    reason=Reason.OUT_OF_BOUNDS,
                    expected=f"{self._length} bytes at offset {self._offset}",
                    found=f"{source.size} bytes in {describe('/'.join(self._parts))}",
                )
            yield source
        finally:
            source.close()

    def rights(self) -> Rights:
        """Return the rights of the file."""
        with contextlib.closing(open_beneath(self._beside, self._parts)) as source:
            return source.rights()

    def identity(self) -> tuple[int, ...]:
        """Return what tells the file from one that takes its place."""
        with contextlib.closing(open_beneath(self._beside, self._parts)) as source:
            return source.identity()

    def check_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Refuse a file that is too short.

        Raises:
            EncodingError: it is.
            SourceError: it cannot be opened.
        """
        if expected_length != self._length:
            raise EncodingError(
                "external data has another length",
                reason=Reason.SIZE_MISMATCH,
                expected=str(expected_length),
                found=str(self._length),
            )
        with self._opened():
            pass

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Read the bytes."""
        self.decode_run(stored, 0, destination.nbytes, destination, limits)

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield the bytes, 8 MiB at a time."""
        length = self._length if expected_length is None else expected_length
        self.check_length(stored, length, limits)
        with self._opened() as source:
            for start in range(0, length, _PIECE_BYTES):
                count = min(_PIECE_BYTES, length - start)
                yield memoryview(read_bytes(source, self._offset + start, count))

    def is_streamed(self, stored: Stored) -> bool:
        """Return True: pieces are read when they are asked for."""
        del stored
        return True

    def find_runs(self, stored: Stored, expected_length: int, limits: Limits) -> Runs | None:
        """Return runs of 1 MiB, so that a slice reads little more than it needs."""
        self.check_length(stored, expected_length, limits)
        ends = array("Q", [*range(0, expected_length, 1 << 20), expected_length])
        return Runs(ends, ends)

    def decode_run(
        self, stored: Stored, start: int, stop: int, destination: memoryview, limits: Limits
    ) -> None:
        """Read one run."""
        with self._opened() as source:
            if stop - start != destination.nbytes or stop > self._length:
                raise EncodingError("external data has another length", reason=Reason.SIZE_MISMATCH)
            source.read_into(self._offset + start, destination)


class _Elements(ForeignEncoding):
    """Elements as varints, or several in a byte.

    Args:
        name: the word for it.
        kind: the ONNX type.
        width: bytes of a storage element.
        is_varints: whether the stored bytes are varints.
        within: what gives the stored bytes where they are not the component's own.
    """

    def __init__(
        self,
        name: str,
        kind: _Type,
        width: int,
        *,
        is_varints: bool,
        within: _External | None = None,
    ) -> None:
        super().__init__(name)
        self._kind = kind
        self._width = width
        self._is_varints = is_varints
        self._within = within

    def check_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Refuse too few stored bytes: an element of n bits takes n bits at least."""
        if self._within is not None:
            self._within.check_length(stored, self._packed(expected_length), limits)

    def _packed(self, length: int) -> int:
        """Return the stored numbers that hold `length` decoded bytes."""
        return (
            -(-length // self._width * self._kind.bits // 8)
            if self._kind.bits
            else (length // self._width)
        )

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Decode all elements.

        Raises:
            EncodingError: there is another number of them, or one does not fit its type.
        """
        count = self._packed(destination.nbytes)
        if self._within is not None:
            packed = empty_array((count,), np.dtype(np.uint8))
            self._within.decode_into(stored, packed.data, limits)
        else:
            packed = np.frombuffer(stored.read(0, stored.length), np.uint8)
        target: Array = np.frombuffer(destination, np.uint8)
        if self._is_varints:
            width = 1 if self._kind.bits else self._width
            whole = empty_array((count * width,), target.dtype) if self._kind.bits else target
            self._fill_numbers(packed, whole)
            packed = whole
        if self._kind.bits:
            packed = _unpacked(packed, self._kind.bits, self._kind.dtype, target.size)
        if packed.nbytes != target.nbytes:
            raise _wrong_count(target.nbytes, packed.nbytes)
        if packed is not target:
            target[...] = packed.view(np.uint8)

    def _fill_numbers(self, data: Array, whole: Array) -> None:
        """Fill `whole` with varints as elements, some at a time: work on one takes forty bytes.

        Raises:
            EncodingError: there is another number of them, or one does not fit its type.
        """
        width = 1 if self._kind.bits else self._width
        is_signed = STORAGE_TYPES[self._kind.dtype].kind == "i" and not self._kind.bits
        is_bool = self._kind.dtype == "bool"
        found = whole.view(np.dtype(f"<{'i' if is_signed else 'u'}{width}"))
        count, start, done = found.size, 0, 0
        while start < data.size:
            part = data[start : start + _VARINT_BYTES]
            last = np.flatnonzero(part < 0x80)
            if not last.size or done + last.size > count:
                break
            stop = done + last.size
            found[done:stop] = _narrowed(
                _varints(part, last), width, is_signed=is_signed, is_bool=is_bool
            )
            start, done = start + int(last[-1]) + 1, stop
        if start != data.size or done != count:
            raise _wrong_count(count, done)


def _wrong_count(expected: int, found: int) -> EncodingError:
    return EncodingError(
        "there are more or fewer elements than the shape has",
        reason=Reason.SIZE_MISMATCH,
        expected=str(expected),
        found=str(found),
        section=_SECTION,
    )


def _varints(data: Array, last: Array) -> Array:
    """Return the numbers of packed varints as uint64, all at once.

    Args:
        data: the varints.
        last: where each has its last byte.
    """
    starts = np.concatenate((np.zeros(1, np.intp), last[:-1] + 1))
    lengths = last - starts + 1
    most = int(lengths.max())
    if most > 10 or (most == 10 and (data[last[lengths == 10]] > 1).any()):
        raise EncodingError(
            "a number has more than 64 bits", reason=Reason.FIELD_VALUE, section=_SECTION
        )
    values = np.zeros(last.size, np.uint64)
    for place in range(most):
        has = np.flatnonzero(lengths > place)
        values[has] |= (data[starts[has] + place] & 0x7F).astype(np.uint64) << np.uint64(7 * place)
    return values


def _narrowed(values: Array, width: int, *, is_signed: bool, is_bool: bool) -> Array:
    """Return numbers as little-endian elements of `width` bytes.

    Raises:
        EncodingError: one does not fit.
    """
    if is_bool:
        truth: Array = (values != 0).view(np.uint8)
        return truth
    if is_signed:
        values = values.view(np.int64)
    narrow: Array = values.astype(np.dtype(f"<{'i' if is_signed else 'u'}{width}"))
    if not np.array_equal(narrow.astype(values.dtype), values):
        raise EncodingError(
            "a number does not fit its element type", reason=Reason.FIELD_VALUE, section=_SECTION
        )
    return narrow


def _unpacked(packed: Array, bits: int, dtype: str, count: int) -> Array:
    """Return one byte for each element, the first from the lowest bits."""
    spread = empty_array((packed.size, 8 // bits), np.dtype(np.uint8))
    for place in range(8 // bits):
        np.right_shift(packed, place * bits, out=spread[:, place])
    spread &= (1 << bits) - 1
    flat = spread.reshape(-1)[:count]
    if dtype == "i8":
        half = 1 << (bits - 1)
        flat = (flat ^ half) - half  # wraps around, which is what a sign is
    return flat


class _Coordinates(ForeignEncoding):
    """Indices of a sparse initializer, as `sparse_coo` has them: axis after axis."""

    def __init__(
        self, name: str, within: Encoding, shape: tuple[int, ...], *, is_linear: bool
    ) -> None:
        super().__init__(name)
        self._within = within
        self._shape = shape
        self._is_linear = is_linear

    def check_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Refuse what the indices as they are stored refuse."""
        count = expected_length // len(self._shape) if self._is_linear else expected_length
        self._within.check_length(stored, count, limits)

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Decode the indices, and take linear ones apart.

        Raises:
            EncodingError: a linear index lies outside the shape.
        """
        rank = len(self._shape)
        self.check_length(stored, destination.nbytes, limits)
        target: Array = np.frombuffer(destination, "<i8").reshape(rank, -1)
        indices = empty_array((target[0].size * (1 if self._is_linear else rank),), np.dtype("<i8"))
        self._within.decode_into(stored, indices.view(np.uint8).data, limits)
        if not self._is_linear:
            target[...] = indices.reshape(-1, rank).T
            return
        for axis in range(rank - 1, 0, -1):
            length = max(self._shape[axis], 1)
            target[axis] = indices % length
            indices //= length
        target[0] = indices  # out of the shape where the index is: the layout says so

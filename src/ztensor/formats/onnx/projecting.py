"""From a model to a manifest: a walk over its graphs, functions and nodes."""

from __future__ import annotations

from collections import deque
from typing import Literal, NamedTuple

from ztensor.errors import (
    FormatError,
    LimitError,
    Reason,
    describe,
)
from ztensor.ext import (
    LOGICAL_TYPES,
    STORAGE_TYPES,
    Beneath,
    Component,
    Encoding,
    Manifest,
    Projection,
    Source,
    Tally,
    TensorObject,
    element_count,
)
from ztensor.formats.base import RAW, Absent
from ztensor.formats.onnx.encodings import Coordinates, Elements, External, Neighbours
from ztensor.formats.onnx.protobuf import (
    BYTES,
    ENCODING_COST,
    ENTRY_COST,
    FIELD_COST,
    FIXED32,
    OBJECT_COST,
    SECTION,
    TEXT_COST,
    VARINT,
    Field,
    Message,
    nbytes_of,
    require_wire,
    signed,
)
from ztensor.formats.onnx.tensors import (
    EXTERNAL,
    INT32,
    INT64,
    TYPES,
    UINT64,
    Tensor,
    Type,
    add_dims,
    number_of,
    twice,
    unfit,
)
from ztensor.limits import Budget

# Fields of `AttributeProto`: a tensor, a graph, and lists of them.
_ONE_TENSOR, _ONE_GRAPH, _TENSORS, _GRAPHS, _ONE_SPARSE, _SPARSE = 5, 6, 10, 11, 22, 23
_HELD = (_ONE_TENSOR, _ONE_GRAPH, _TENSORS, _GRAPHS, _ONE_SPARSE, _SPARSE)


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
            if tag & 0x87 != BYTES:
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
                elif inner & 7 == VARINT and inner < 0x80:
                    while node[place] >= 0x80:
                        place += 1
                    place += 1
                elif inner & 7 == FIXED32 and inner < 0x80:
                    place += 4
                elif inner & 7 == BYTES and inner < 0x80 and node[place] < 0x80:
                    place += 1 + node[place]
                else:
                    return True
            if place != end:
                return True
    except IndexError:
        return True
    return place != stop


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
    field: Field
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


class _Model:
    def __init__(self, source: Source, budget: Budget) -> None:
        self._source = source
        place = source.path if source.remote is None else source.remote
        self._beside = None if place is None else Neighbours(place)
        self._budget = budget
        self._message = Message(source, budget)
        self._objects: dict[str, TensorObject] = {}
        self._encodings: dict[str, Encoding] = {
            **RAW,
            "onnx:unread": Absent(
                "onnx:unread", "this kind of ONNX data is not read here; read it with onnx"
            ),
        }
        self._away: list[External] = []
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
                require_wire(field, VARINT, "ir_version")
                version = str(signed(field.value))
            elif number in texts:
                self._attributes[texts[number]] = message.text(field, texts[number])
            elif number == 5:
                require_wire(field, VARINT, "model_version")
                self._attributes["model_version"] = signed(field.value)
            elif number == 7:
                require_wire(field, BYTES, "graph")
                has_graph = True
                self._add_graph(field, "", 0)
            elif number == 8:
                self._add_opset(field)
            elif number == 14:
                self._budget.charge_bytes(ENTRY_COST)
                key, value = message.pair(field, "metadata_props")
                self._props[key] = value
            elif number == 20:
                self._add_training(field)
            elif number == 25:
                require_wire(field, BYTES, "function")
                self._put_below(_Below("function", field, depth=1))
            else:
                kind = "device configuration" if number == 26 else f"field {number} of the model"
                self._left.add(kind, nbytes=nbytes_of(field))
        if not has_graph:
            raise FormatError(
                "there is no graph, as an ONNX model has; it may be another protobuf message, "
                "such as a SavedModel of TensorFlow",
                reason=Reason.FIELD_MISSING,
                section=SECTION,
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
        away = self._away
        return Projection(
            manifest, self._encodings, self._left, rights=lambda: [one.rights() for one in away]
        )

    def _add_opset(self, field: Field) -> None:
        require_wire(field, BYTES, "opset_import")
        self._budget.charge_bytes(ENTRY_COST)
        domain, version = "", 0
        for inner in self._message.fields(field.start, field.stop):
            if inner.number == 1:
                domain = self._message.text(inner, "domain")
            elif inner.number == 2:
                require_wire(inner, VARINT, "version")
                version = signed(inner.value)
        self._opsets[domain or "ai.onnx"] = version

    def _add_graph(self, graph: Field, prefix: str, depth: int) -> None:
        where, left = prefix[:-1], self._left
        count = nbytes = 0
        for field in self._message.fields(graph.start, graph.stop):
            if field.number == 1:
                require_wire(field, BYTES, "node")
                count += 1
                nbytes += nbytes_of(field)
                nbytes -= self._look_into(field, prefix, depth)
            elif field.number == 2 and not prefix:
                self._attributes["graph"] = self._message.text(field, "the graph's name")
            elif field.number == 5:
                require_wire(field, BYTES, "initializer")
                self._add_dense(Tensor(self._message, field, left=left), prefix)
            elif field.number == 15:
                require_wire(field, BYTES, "sparse_initializer")
                self._add_sparse(field, prefix)
            elif field.number != 2:
                kind = _GRAPH_PARTS.get(field.number, f"field {field.number} of a graph")
                left.add(kind, where, nbytes=nbytes_of(field))
        if count:
            left.add("graph node", where, count, nbytes)

    def _look_into(self, node: Field, prefix: str, depth: int) -> int:
        """Take what a node holds, and return how many of its bytes that was."""
        head = self._message.head(node)
        if len(head) == nbytes_of(node) and not _may_hold(head):
            return 0
        return self._add_node(node, prefix, depth, is_first=True)

    def _add_function(self, function: Field, depth: int) -> None:
        """Take the nodes of a local function; its name stands behind them."""
        message = self._message
        texts = {1: "", 10: "", 13: ""}  # name, domain, overload
        for field in message.fields(function.start, function.stop):
            if field.number in texts:
                texts[field.number] = message.text(field, "the name of a function")
        prefix = ".".join(["functions", *filter(None, (texts[10], texts[1], texts[13])), ""])
        nbytes = nbytes_of(function)
        for field in message.fields(function.start, function.stop):
            if field.number == 7:
                require_wire(field, BYTES, "node")
                nbytes -= self._look_into(field, prefix, depth)
            elif field.number == 11:
                require_wire(field, BYTES, "attribute")
                nbytes -= self._add_attribute(field, prefix, prefix, depth)
        self._left.add("function", prefix[:-1], nbytes=nbytes)

    def _add_training(self, field: Field) -> None:
        require_wire(field, BYTES, "training_info")
        nbytes = nbytes_of(field)
        for inner in self._message.fields(field.start, field.stop):
            if inner.number in (1, 2):
                require_wire(inner, BYTES, "a training graph")
                what = "initialization" if inner.number == 1 else "algorithm"
                self._put_below(_Below("graph", inner, f"training.{self._training}.{what}.", 1))
                nbytes -= nbytes_of(inner)
        self._left.add("training info", nbytes=nbytes)
        self._training += 1

    def _put_below(self, below: _Below) -> None:
        if below.depth > self._budget.limits.depth:
            raise LimitError(
                "graphs are nested deeper than Limits.depth",
                reason=Reason.LIMIT_DEPTH,
                expected=f"at most {self._budget.limits.depth}",
            )
        self._budget.charge_bytes(FIELD_COST + TEXT_COST + 4 * len(below.prefix))
        self._below.append(below)

    def _add_node(self, node: Field, prefix: str, depth: int, *, is_first: bool = False) -> int:
        """Take the tensors and graphs that a node holds, and return how many bytes that was.

        Args:
            node: the field.
            prefix: of the graph it is in.
            depth: how deep that is.
            is_first: whether a node of the main graph is put off, unless it is a `Constant`.
        """
        message, kind, name = self._message, "", ""
        output: str | None = None
        attributes: list[Field] = []
        for field in message.fields(node.start, node.stop):
            if field.number == 2 and output is None:
                output = message.text(field, "the output of a node")
            elif field.number == 3:
                name = message.text(field, "the name of a node")
            elif field.number == 4:
                kind = message.text(field, "the type of a node")
            elif field.number == 5:
                require_wire(field, BYTES, "attribute")
                self._budget.charge_bytes(FIELD_COST)
                attributes.append(field)
        own = f"{prefix}{output or ''}" if kind == "Constant" else None
        if own is None and is_first and not prefix:
            if attributes:
                self._put_below(_Below("node", node))
            return 0
        within = f"{prefix}{name or output or kind}."
        return sum(self._add_attribute(one, prefix, within, depth, own) for one in attributes)

    def _add_attribute(
        self, attribute: Field, prefix: str, within: str, depth: int, own: str | None = None
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
        held: list[Field] = []
        for field in message.fields(attribute.start, attribute.stop):
            if field.number == 1:
                name = message.text(field, "the name of an attribute")
            elif field.number in _HELD:
                require_wire(field, BYTES, "the tensor of a node")
                self._budget.charge_bytes(FIELD_COST)
                held.append(field)
        for place, field in enumerate(held):
            path = within + name
            if field.number in (_TENSORS, _GRAPHS, _SPARSE):
                path += f".{place}"
            nbytes += nbytes_of(field)
            self._budget.charge_bytes(TEXT_COST + 4 * len(path))
            if field.number in (_ONE_GRAPH, _GRAPHS):
                self._put_below(_Below("graph", field, f"{path}.", depth + 1))
                continue
            given = own if own is not None and field.number in (_ONE_TENSOR, _ONE_SPARSE) else path
            # Only the main graph's constants are as sure of their names as its initializers are.
            below = prefix if given is own else within
            if field.number in (_ONE_TENSOR, _TENSORS):
                self._add_dense(Tensor(message, field, given, self._left), below)
            else:
                self._add_sparse(field, below, given)
        return nbytes

    def _add_dense(self, tensor: Tensor, prefix: str) -> None:
        component = self._component(tensor, tensor.shape)
        self._add(tensor, TensorObject(tensor.shape, "dense", {"data": component}), prefix)

    def _add(self, tensor: Tensor, tensor_object: TensorObject, prefix: str) -> None:
        name = tensor.name
        if prefix:
            name = self._free(name if tensor.is_named else prefix + name)
        if not name or name in self._objects:
            raise FormatError(
                "a tensor has no name, or one that another has",
                reason=Reason.DUPLICATE_NAME if name else Reason.FIELD_MISSING,
                found=describe(name),
                section=SECTION,
            )
        if tensor.kind is not None and tensor.kind.bits:
            attributes = {"onnx.data_type": tensor.kind.name}
            tensor_object = TensorObject(
                tensor_object.shape, tensor_object.format, tensor_object.components, attributes
            )
        self._budget.charge_bytes(OBJECT_COST)
        self._objects[name] = tensor_object

    def _free(self, name: str) -> str:
        """Return a name for a tensor below, one that no other has."""
        self._budget.charge_bytes(TEXT_COST + 4 * len(name))
        if name not in self._objects:
            return name
        number = self._next.get(name, 2)
        while f"{name}#{number}" in self._objects:
            number += 1
        self._budget.charge_bytes(ENTRY_COST)
        self._next[name] = number + 1
        return f"{name}#{number}"

    def _add_sparse(self, sparse: Field, prefix: str, name: str | None = None) -> None:
        parts: dict[int, Tensor] = {}
        shape: list[int] = []
        for field in self._message.fields(sparse.start, sparse.stop):
            if field.number in (1, 2):
                require_wire(field, BYTES, "a part of a sparse initializer")
                if field.number in parts:
                    raise twice("a part of a sparse initializer", field)
                parts[field.number] = Tensor(self._message, field, name, self._left)
            elif field.number == 3:
                add_dims(self._message, field, shape)
        if len(parts) < 2:
            raise FormatError(
                "a sparse initializer lacks its values or indices",
                reason=Reason.FIELD_MISSING,
                section=SECTION,
            )
        values, indices = parts[1], parts[2]
        rank, count = len(shape), element_count(values.shape)
        is_linear = indices.shape == (count,)
        if (
            len(values.shape) != 1
            or not (is_linear or indices.shape == (count, rank))
            or indices.kind is not TYPES[7]
            or not rank
        ):
            raise FormatError(
                "the parts of a sparse initializer do not fit",
                reason=Reason.LAYOUT_COUNT,
                object_name=values.name,
                expected=f"values [n], int64 indices [n] or [n, {rank}]",
                found=f"{describe(values.shape)} and {describe(indices.shape)}",
                section=SECTION,
            )
        self._budget.charge_bytes(ENCODING_COST)
        stored = self._component(indices, indices.shape)
        word = f"onnx:coords{len(self._encodings)}"
        self._encodings[word] = Coordinates(
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

    def _component(self, tensor: Tensor, shape: tuple[int, ...]) -> Component:
        """Return how a tensor's elements are stored, their number checked against its shape."""
        kind, data = tensor.kind, tensor.data
        if kind is None:
            return Component(tensor.type_name, 0, 0, encoding="onnx:unread", decoded_length=0)
        storage, count = STORAGE_TYPES[kind.dtype], element_count(shape)
        logical = None if kind.type is None else LOGICAL_TYPES[kind.type]
        units = count if logical is None else logical.storage_count(count)
        decoded = units * storage.width
        as_raw = -(-count * kind.bits // 8) if kind.bits else decoded  # bytes in raw_data
        if tensor.location == EXTERNAL:
            return self._external(tensor, kind, as_raw, decoded)
        offset, length = (0, 0) if data is None else (data.start, data.stop - data.start)
        is_varints = data is not None and data.number in (INT32, INT64, UINT64)
        if is_varints:
            # An element takes a byte at least, and ten at most.
            elements = -(-count * kind.bits // 8) if kind.bits else units
            if not elements <= length <= 10 * elements:
                raise unfit(tensor, f"{elements} numbers", length)
        elif length != as_raw:
            raise unfit(tensor, f"{as_raw} bytes", length)
        encoding = "raw"
        if is_varints or kind.bits:
            encoding = f"onnx:{kind.name}{':varints' if is_varints else ''}"
            if encoding not in self._encodings:
                self._encodings[encoding] = Elements(
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

    def _external(self, tensor: Tensor, kind: Type, length: int, decoded: int) -> Component:
        if tensor.data is not None:
            raise unfit(tensor, "no data beside external data", 1)
        parts = Beneath.parts_of(tensor.external.get("location", ""))
        offset = number_of(tensor, "offset", 0)
        if number_of(tensor, "length", length) != length:
            raise unfit(tensor, f"{length} bytes", tensor.external["length"])
        if self._beside is None:
            what = "external data of a model without a path"
            return Component(what, 0, 0, encoding="onnx:unread", decoded_length=0)
        self._budget.charge_bytes(ENCODING_COST + 4 * len(tensor.external.get("location", "")))
        word = f"onnx:external{len(self._encodings)}"
        away = External(word, self._beside, parts, offset, length)
        self._away.append(away)
        self._encodings[word] = away
        if kind.bits:
            self._encodings[word] = Elements(
                word, kind, STORAGE_TYPES[kind.dtype].width, is_varints=False, within=away
            )
        return Component(kind.dtype, 0, 0, type=kind.type, encoding=word, decoded_length=decoded)

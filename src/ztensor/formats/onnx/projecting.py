"""The manifest of a model, from its graphs, functions and nodes."""

from __future__ import annotations

import functools
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ztensor.errors import FormatError, LimitError, Reason, describe
from ztensor.ext import Manifest, Projection, Source, Tally, TensorObject
from ztensor.formats.onnx.nodes import (
    GRAPHS,
    HELD,
    ONE_GRAPH,
    ONE_SPARSE,
    ONE_TENSOR,
    SPARSE,
    TENSORS,
    may_hold,
)
from ztensor.formats.onnx.protobuf import (
    BYTES,
    ENTRY_COST,
    FIELD_COST,
    OBJECT_COST,
    SECTION,
    TEXT_COST,
    VARINT,
    Field,
    Message,
    signed,
)
from ztensor.formats.onnx.storing import Stores
from ztensor.formats.onnx.tensors import Tensor, add_dims, twice
from ztensor.limits import Budget

if TYPE_CHECKING:
    from collections.abc import Callable

# The wire types of the fields that are read, by message.
_MODEL = {1: VARINT, 2: BYTES, 3: BYTES, 4: BYTES, 5: VARINT, 6: BYTES, 7: BYTES, 8: BYTES,
          14: BYTES, 20: BYTES, 25: BYTES}  # fmt: skip
_OPSET, _TRAINING, _SPARSE = {1: BYTES, 2: VARINT}, {1: BYTES, 2: BYTES}, {1: BYTES, 2: BYTES}
_GRAPH = {1: BYTES, 2: BYTES, 5: BYTES, 15: BYTES}
_FUNCTION, _FUNCTION_NAMES = {7: BYTES, 11: BYTES}, (10, 1, 13)  # domain, name, overload
_NODE = {2: BYTES, 3: BYTES, 4: BYTES, 5: BYTES}
_ATTRIBUTE = dict.fromkeys((1, *HELD), BYTES)

_TEXTS = {2: "producer_name", 3: "producer_version", 4: "domain", 6: "doc_string"}
# Fields of a graph that are counted only, by their numbers.
_GRAPH_PARTS = {
    10: "doc string of a graph",
    11: "graph input",
    12: "graph output",
    13: "type of a value",
    14: "quantization annotation",
    16: "metadata of a graph",
}


def project(source: Source, budget: Budget) -> Projection:
    """Return the tensors of a model; see the package's docstring.

    Raises:
        FormatError: the file is damaged, or two tensors of the main graph have the same name.
        LimitError: a text is longer than 16 MiB.
        SourceError: it cannot be read.
    """
    return _Model(source, budget).run()


class _Scope(NamedTuple):
    """A graph or a function.

    Attributes:
        prefix: the prefix of its tensors' names; empty in the main graph.
        depth: the number of graphs around it.
        kind: the kind of its nodes in the loss report.
    """

    prefix: str
    depth: int
    kind: str = "graph node"

    @property
    def path(self) -> str:
        return self.prefix[:-1]


_MAIN = _Scope("", 0)


class _Model:
    """One walk over a model, the main graph first, so that its tensors keep their names."""

    def __init__(self, source: Source, budget: Budget) -> None:
        self._source = source
        self._budget = budget
        self._message = Message(source, budget)
        self._stores = Stores(source, budget)
        self._objects: dict[str, TensorObject] = {}
        self._attributes: dict[str, object] = {}
        self._left = Tally()
        self._waiting: deque[Callable[[], None]] = deque()  # read when the main graph has its names
        self._next: dict[str, int] = {}

    def run(self) -> Projection:
        message, version, training = self._message, "", 0
        opsets: dict[str, int] = {}
        props: dict[str, str] = {}
        has_graph = False
        for field in message.fields(0, self._source.size, _MODEL):
            number = field.number
            if number == 1:
                version = str(signed(field.value))
            elif number in _TEXTS:
                self._attributes[_TEXTS[number]] = message.text(field)
            elif number == 5:
                self._attributes["model_version"] = signed(field.value)
            elif number == 7:
                has_graph = True
                self._add_graph(field, _MAIN)
            elif number == 8:
                self._add_opset(field, opsets)
            elif number == 14:
                self._budget.charge_bytes(ENTRY_COST)
                key, value = message.texts(field, (1, 2))
                props[key] = value
            elif number == 20:
                self._add_training(field, f"training.{training}.")
                training += 1
            elif number == 25:
                self._wait(self._add_function, field, _Scope("", 1, "function"))
            else:
                kind = "device configuration" if number == 26 else f"field {number} of the model"
                self._left.add(kind, nbytes=field.nbytes)
        if not has_graph:
            raise FormatError(
                "an ONNX model without a graph; it may be another protobuf message, such as a "
                "SavedModel of TensorFlow",
                reason=Reason.FIELD_MISSING,
                section=SECTION,
            )
        while self._waiting:
            self._waiting.popleft()()
        if opsets:
            self._attributes["opset_import"] = opsets
        if props:
            self._attributes["metadata_props"] = props
        manifest = Manifest(version, self._objects, self._attributes or None)
        stores = self._stores
        return Projection(manifest, stores.encodings, self._left, source=stores.source)

    def _add_opset(self, field: Field, opsets: dict[str, int]) -> None:
        self._budget.charge_bytes(ENTRY_COST)
        domain, version = "", 0
        for inner in self._message.within(field, _OPSET):
            if inner.number == 1:
                domain = self._message.text(inner)
            elif inner.number == 2:
                version = signed(inner.value)
        opsets[domain or "ai.onnx"] = version

    def _add_graph(self, graph: Field, scope: _Scope) -> None:
        count = nbytes = 0
        for field in self._message.within(graph, _GRAPH):
            if field.number == 1:
                count += 1
                nbytes += field.nbytes
                self._look_into(field, scope)
            elif field.number == 2 and scope is _MAIN:
                self._attributes["graph"] = self._message.text(field)
            elif field.number == 5:
                self._add_dense(field, scope.prefix)
            elif field.number == 15:
                self._add_sparse(field, scope.prefix)
            elif field.number != 2:
                kind = _GRAPH_PARTS.get(field.number, f"field {field.number} of a graph")
                self._left.add(kind, scope.path, nbytes=field.nbytes)
        if count:
            self._left.add(scope.kind, scope.path, count, nbytes)

    def _add_function(self, function: Field, scope: _Scope) -> None:
        """Add the tensors of a local function. Its name follows its nodes."""
        names = self._message.texts(function, _FUNCTION_NAMES)
        scope = scope._replace(prefix=".".join(["functions", *filter(None, names), ""]))
        self._left.add(scope.kind, scope.path, nbytes=function.nbytes)
        for field in self._message.within(function, _FUNCTION):
            if field.number == 7:
                self._look_into(field, scope)
            elif field.number == 11:
                self._add_attribute(field, scope, scope.prefix)

    def _add_training(self, training: Field, prefix: str) -> None:
        nbytes = training.nbytes
        for field in self._message.within(training, _TRAINING):
            if field.number in (1, 2):
                role = "initialization." if field.number == 1 else "algorithm."
                self._wait(self._add_graph, field, _Scope(prefix + role, 1))
                nbytes -= field.nbytes
        self._left.add("training info", nbytes=nbytes)

    def _wait(self, add: Callable[[Field, _Scope], None], field: Field, scope: _Scope) -> None:
        """Read a field after the main graph, whose names come first."""
        if scope.depth > self._budget.limits.depth:
            raise LimitError(
                "graphs are nested deeper than Limits.depth",
                reason=Reason.LIMIT_DEPTH,
                expected=f"at most {self._budget.limits.depth}",
            )
        self._budget.charge_bytes(FIELD_COST + TEXT_COST + 4 * len(scope.prefix))
        self._waiting.append(functools.partial(add, field, scope))

    # --- Nodes ------------------------------------------------------------------------------

    def _look_into(self, node: Field, scope: _Scope) -> None:
        """Add the tensors of a node; in the main graph, only those of constants at once."""
        head = self._message.head(node)
        if len(head) < node.nbytes or may_hold(head):
            self._add_node(node, scope, may_wait=scope is _MAIN)

    def _add_node(self, node: Field, scope: _Scope, *, may_wait: bool = False) -> None:
        """Add the tensors and graphs of a node."""
        message, kind, name = self._message, "", ""
        output: str | None = None
        attributes: list[Field] = []
        for field in message.within(node, _NODE):
            if field.number == 2 and output is None:
                output = message.text(field)
            elif field.number == 3:
                name = message.text(field)
            elif field.number == 4:
                kind = message.text(field)
            elif field.number == 5:
                self._budget.charge_bytes(FIELD_COST)
                attributes.append(field)
        own = f"{scope.prefix}{output or ''}" if kind == "Constant" else None
        if own is None and may_wait:
            if attributes:
                self._wait(self._add_node, node, scope)
            return
        within = f"{scope.prefix}{name or output or kind}."
        for attribute in attributes:
            self._add_attribute(attribute, scope, within, own)

    def _add_attribute(
        self, attribute: Field, scope: _Scope, within: str, own: str | None = None
    ) -> None:
        """Add the tensors and graphs of an attribute.

        Args:
            attribute: the field.
            scope: the graph of the node; tensors are subtracted from its bytes in the loss report.
            within: the prefix of names in the node.
            own: the name of the tensor of a node `Constant`; else None.
        """
        message, name = self._message, ""
        held: list[Field] = []
        for field in message.within(attribute, _ATTRIBUTE):
            if field.number == 1:
                name = message.text(field)
            elif field.number in HELD:
                self._budget.charge_bytes(FIELD_COST)
                held.append(field)
        for place, field in enumerate(held):
            path = within + name
            if field.number in (TENSORS, GRAPHS, SPARSE):
                path += f".{place}"
            self._left.add(scope.kind, scope.path, 0, -field.nbytes)
            self._budget.charge_bytes(TEXT_COST + 4 * len(path))
            if field.number in (ONE_GRAPH, GRAPHS):
                self._wait(self._add_graph, field, _Scope(f"{path}.", scope.depth + 1))
                continue
            is_own = own is not None and field.number in (ONE_TENSOR, ONE_SPARSE)
            add = self._add_dense if field.number in (ONE_TENSOR, TENSORS) else self._add_sparse
            # Constants of the main graph keep their names, as its initializers do.
            add(field, scope.prefix if is_own else within, own if is_own else path)

    # --- Tensors ----------------------------------------------------------------------------

    def _add_dense(self, field: Field, prefix: str, name: str | None = None) -> None:
        tensor = Tensor(self._message, field, self._left, name)
        component = self._stores.component(tensor)
        self._add(tensor, TensorObject(tensor.shape, "dense", {"data": component}), prefix)

    def _add_sparse(self, sparse: Field, prefix: str, name: str | None = None) -> None:
        parts: dict[int, Tensor] = {}
        dims: list[int] = []
        for field in self._message.within(sparse, _SPARSE):
            if field.number in (1, 2):
                if field.number in parts:
                    raise twice("a part of a sparse initializer", field)
                parts[field.number] = Tensor(self._message, field, self._left, name)
            elif field.number == 3:
                add_dims(self._message, field, dims)
        if len(parts) < 2:
            raise FormatError(
                "a sparse initializer lacks its values or indices",
                reason=Reason.FIELD_MISSING,
                section=SECTION,
            )
        shape = tuple(dims)
        components = self._stores.sparse(parts[1], parts[2], shape)
        self._add(parts[1], TensorObject(shape, "sparse_coo", components), prefix)

    def _add(self, tensor: Tensor, tensor_object: TensorObject, prefix: str) -> None:
        name = tensor.name
        if prefix:
            name = self._free(name if tensor.is_named else prefix + name)
        if not name or name in self._objects:
            raise FormatError(
                "duplicate tensor name" if name else "tensor without a name",
                reason=Reason.DUPLICATE_NAME if name else Reason.FIELD_MISSING,
                found=describe(name),
                section=SECTION,
            )
        if tensor.kind is not None and tensor.kind.bits:
            tensor_object = tensor_object._replace(attributes={"onnx.data_type": tensor.kind.name})
        self._budget.charge_bytes(OBJECT_COST)
        self._objects[name] = tensor_object

    def _free(self, name: str) -> str:
        """Return a unique name for a tensor outside the main graph."""
        self._budget.charge_bytes(TEXT_COST + 4 * len(name))
        if name not in self._objects:
            return name
        number = self._next.get(name, 2)
        while f"{name}#{number}" in self._objects:
            number += 1
        self._budget.charge_bytes(ENTRY_COST)
        self._next[name] = number + 1
        return f"{name}#{number}"

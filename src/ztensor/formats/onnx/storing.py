"""The components and encodings of a model's tensors."""

from __future__ import annotations

from ztensor import Remote
from ztensor.errors import FormatError, Reason, describe
from ztensor.ext import (
    LOGICAL_TYPES,
    STORAGE_TYPES,
    Component,
    Encoding,
    JoinedSource,
    Source,
    element_count,
)
from ztensor.formats.base import RAW, Absent
from ztensor.formats.onnx.encodings import Coordinates, Elements
from ztensor.formats.onnx.external import ExternalData, ExternalFile
from ztensor.formats.onnx.protobuf import ENCODING_COST, SECTION
from ztensor.formats.onnx.tensors import RAW_DATA, TYPES, VARINTS, Tensor, unfit
from ztensor.limits import Budget

_UNREAD = "onnx:unread"
_MOST_BYTES = 1 << 62  # no file system holds more


class Stores:
    """Makes the components of one model's tensors.

    Attributes:
        encodings: the encodings of all components.
    """

    def __init__(self, source: Source, budget: Budget) -> None:
        self._model = source.path if source.remote is None else source.remote
        self._budget = budget
        unread = Absent(_UNREAD, "this kind of ONNX data is not read here; read it with onnx")
        self.encodings: dict[str, Encoding] = {**RAW, _UNREAD: unread}
        self._files: dict[str, ExternalFile] = {}
        self._parts: list[tuple[int, Source]] = [(0, source)]

    @property
    def source(self) -> Source | None:
        """Return the model followed by its external data; None if it has none."""
        return JoinedSource(self._parts) if len(self._parts) > 1 else None

    def component(self, tensor: Tensor) -> Component:
        """Return the component of a tensor, its length checked against the shape.

        Raises:
            FormatError: the length differs.
        """
        kind, data = tensor.kind, tensor.data
        if kind is None:
            return Component(tensor.type_name, 0, 0, encoding=_UNREAD, decoded_length=0)
        storage, count = STORAGE_TYPES[kind.dtype], element_count(tensor.shape)
        units = count if kind.type is None else LOGICAL_TYPES[kind.type].storage_count(count)
        decoded = units * storage.width
        packed = -(-count * kind.bits // 8)
        as_raw = packed if kind.bits else decoded  # bytes in raw_data
        if tensor.is_external:
            if self._model is None:
                text = "external data of a model without a path"
                return Component(text, 0, 0, encoding=_UNREAD, decoded_length=0)
            offset = self._external(tensor, self._model, as_raw)
            length, field = as_raw, RAW_DATA
        elif data is not None:
            offset, length, field = data.start, data.nbytes, data.number
        else:
            offset, length, field = 0, 0, RAW_DATA
        is_varints = field in VARINTS
        if is_varints:
            # A varint has 1 to 10 bytes.
            elements = packed if kind.bits else units
            if not elements <= length <= 10 * elements:
                raise unfit(tensor, f"{elements} numbers", length)
        elif length != as_raw:
            raise unfit(tensor, f"{as_raw} bytes", length)
        if not is_varints and not kind.bits:
            return Component(kind.dtype, offset, length, type=kind.type, encoding="raw")
        word = f"onnx:{kind.name}{':varints' if is_varints else ''}"
        if word not in self.encodings:
            self.encodings[word] = Elements(word, kind, is_varints=is_varints)
        return Component(
            kind.dtype, offset, length, type=kind.type, encoding=word, decoded_length=decoded
        )

    def _external(self, tensor: Tensor, model: str | Remote, nbytes: int) -> int:
        """Return the offset of a tensor's external data in the joined source.

        Raises:
            FormatError: the tensor has data of its own, or its place is invalid.
        """
        if tensor.data is not None:
            raise unfit(tensor, "no data beside external data", 1)
        location = tensor.external.get("location", "")
        offset = _number(tensor, "offset", 0)
        if _number(tensor, "length", nbytes) != nbytes:
            raise unfit(tensor, f"{nbytes} bytes", tensor.external["length"])
        self._budget.charge_bytes(ENCODING_COST + 4 * len(location))
        file = self._files.get(location)
        if file is None:
            file = self._files[location] = ExternalFile(model, location)
        start, last = self._parts[-1]
        start += last.size
        if start + nbytes > _MOST_BYTES:
            raise unfit(tensor, f"at most {_MOST_BYTES} bytes of external data", nbytes)
        self._parts.append((start, ExternalData(file, offset, nbytes)))
        return start

    def sparse(
        self, values: Tensor, indices: Tensor, shape: tuple[int, ...]
    ) -> dict[str, Component]:
        """Return the components of a sparse tensor.

        Raises:
            FormatError: the shapes of values and indices do not match.
        """
        rank, count = len(shape), element_count(values.shape)
        is_linear = indices.shape == (count,)
        if (
            len(values.shape) != 1
            or not (is_linear or indices.shape == (count, rank))
            or indices.kind is not TYPES[7]
            or not rank
        ):
            raise FormatError(
                "the shapes of a sparse initializer's values and indices do not match",
                reason=Reason.LAYOUT_COUNT,
                object_name=values.name,
                expected=f"values [n], int64 indices [n] or [n, {rank}]",
                found=f"{describe(values.shape)} and {describe(indices.shape)}",
                section=SECTION,
            )
        self._budget.charge_bytes(ENCODING_COST)
        stored = self.component(indices)
        word = f"onnx:coords{len(self.encodings)}"
        within = self.encodings[stored.encoding]
        self.encodings[word] = Coordinates(word, within, shape, is_linear=is_linear)
        coords = stored._replace(encoding=word, decoded_length=count * rank * 8)
        return {"coords": coords, "values": self.component(values)}


def _number(tensor: Tensor, key: str, default: int) -> int:
    """Return a number of a tensor's external data, by its key."""
    text = tensor.external.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise unfit(tensor, f"a decimal {key}", describe(text))
    return int(text)

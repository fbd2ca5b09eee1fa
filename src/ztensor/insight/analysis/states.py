"""Plain values of a training state, and the parameter names of optimizer states.

PyTorch's optimizers number parameters: `optimizer.state.7.exp_avg`. The tree's `param_groups` maps
numbers to names if the optimizer was given names. Otherwise the order of a model's parameters does,
if all shapes agree.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ztensor.errors import ZTensorError
from ztensor.insight.analysis.parameters import is_float_name
from ztensor.insight.analysis.roles import is_buffer
from ztensor.training.stored_tree import stored_tree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ztensor import TensorMetadata
    from ztensor.ext import ObjectReader

_STATE = re.compile(r"(?P<of>.*\.)?state\.(?P<number>[0-9]{1,9})\.(?P<what>[^.]+)")
_LISTED = re.compile(
    r"(?P<of>.*\.)?param_groups\.(?P<group>[0-9]+)\.(?P<what>params|param_names)\.(?P<place>[0-9]+)"
)


class PlainValues(NamedTuple):
    """The values of a file that are not tensors.

    Attributes:
        attributes: attributes of the file, without the tree.
        plain: values of the tree that are not tensors, by path.
        tensors: paths of its tensors, in the order of the tree.
    """

    attributes: Mapping[str, object]
    plain: Mapping[str, object] = MappingProxyType({})
    tensors: tuple[str, ...] = ()

    def shown(self) -> dict[str, object]:
        """Return the values to show: all except an optimizer's lists of parameters."""
        plain = {path: value for path, value in self.plain.items() if not _LISTED.fullmatch(path)}
        return {**self.attributes, **plain}


def plain_values_of(reader: ObjectReader) -> PlainValues:
    """Return the plain values of an open file; a damaged tree stays an attribute."""
    tree = stored_tree(reader)
    if tree is None:
        return PlainValues(reader.attributes)
    try:
        values = tree.values()
    except ZTensorError:
        return PlainValues(reader.attributes)
    return PlainValues(
        tree.attributes,
        values.plain,
        tuple(path for path in values.every if path in values.tensors),
    )


def parameter_names(
    plain_values: PlainValues, objects: Mapping[str, TensorMetadata]
) -> dict[str, str]:
    """Return names of optimizer states with the parameter's name in place of its number.

    Args:
        plain_values: the plain values of the file.
        objects: its tensors by name.

    Returns:
        A map from names of tensors to these names, without optimizers whose parameters are unknown.
    """
    states: dict[str, dict[int, list[tuple[str, str]]]] = {}
    for name in objects:
        if found := _STATE.fullmatch(name):
            numbered = states.setdefault(found["of"] or "", {})
            numbered.setdefault(int(found["number"]), []).append((name, found["what"]))
    names: dict[str, str] = {}
    for of, numbered in states.items():
        parameters = _by_name(plain_values, of) or _by_shape(plain_values, of, numbered, objects)
        for number, several in numbered.items():
            for name, what in several if number in parameters else ():
                names[name] = f"{of}state.{parameters[number]}.{what}"
    return names


def _groups(
    plain_values: PlainValues, of: str
) -> tuple[dict[tuple[str, str], Any], dict[tuple[str, str], Any]]:
    """Return the numbers of an optimizer's parameters and their names, by group and place."""
    numbers: dict[tuple[str, str], Any] = {}
    names: dict[tuple[str, str], Any] = {}
    for path, value in plain_values.plain.items():
        match = _LISTED.fullmatch(path)
        if match and (match["of"] or "") == of:
            into = numbers if match["what"] == "params" else names
            into[match["group"], match["place"]] = value
    return numbers, names


def _by_name(plain_values: PlainValues, of: str) -> dict[int, str]:
    numbers, names = _groups(plain_values, of)
    return {
        number: names[place]
        for place, number in numbers.items()
        if isinstance(number, int) and isinstance(names.get(place), str)
    }


def _by_shape(
    plain_values: PlainValues,
    of: str,
    numbered: Mapping[int, list[tuple[str, str]]],
    objects: Mapping[str, TensorMetadata],
) -> dict[int, str]:
    """Return the parameters of the first model that match the states in number and shape."""
    count = len(_groups(plain_values, of)[0])
    models: dict[str, list[str]] = {}
    for path in plain_values.tensors:
        model, _, rest = path.partition(".")
        is_state = bool(of) and path.startswith(of)
        dtype = objects[path].dtype if path in objects else None
        is_parameter = dtype is not None and is_float_name(dtype) and not is_buffer(path)
        if rest and not is_state and is_parameter:
            models.setdefault(model, []).append(path)
    for model, parameters in models.items():
        if len(parameters) == count and all(
            number < count and objects[name].shape in ((), objects[parameters[number]].shape)
            for number, several in numbered.items()
            for name, _ in several
        ):
            return {at: path.removeprefix(f"{model}.") for at, path in enumerate(parameters)}
    return {}

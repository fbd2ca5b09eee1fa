"""Arguments of the Python API of release 1.2.3 have their names, places and defaults."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import pytest

import ztensor

# Parameters of 1.2.3, in order; `*` before those that are passed by name only, `=` with a default.
SIGNATURES = {
    "open": "path",
    "remove_tensors": "input output names",
    "replace_tensor": "path name data",
    "Reader": "path",
    "Reader.keys": "",
    "Reader.metadata": "name",
    "Reader.read": "name * copy=False",
    "Reader.read_into": "name dst=None",
    "Reader.read_numpy": "name * copy=False",
    "Reader.read_tensors": "names * copy=False",
    "Reader.read_torch": "name * copy=False device='cpu'",
    "Tensor": "components * shape=None dtype=None format='dense' type=None attributes=None",
    "Tensor.numpy": "",
    "Tensor.torch": "* device='cpu'",
    "TensorMetadata": "name dtype shape format",
    "Writer": "path",
    "Writer.add": "name data compress=None checksum",
    "Writer.append": "path",
    "Writer.finish": "",
    "Writer.write": "name data * compress=None checksum",
    "Writer.write_numpy": "name data * compress=None checksum",
    "Writer.write_torch": "name data * compress=None checksum",
    "numpy.load": "data",
    "numpy.load_file": "filename copy=False",
    "numpy.save": "tensors metadata=None compression=False",
    "numpy.save_file": "tensors filename metadata=None compression=False",
    "torch.load": "data",
    "torch.load_file": "filename device='cpu' copy=False",
    "torch.load_model": "model filename strict=True device='cpu' copy=False",
    "torch.save": "tensors metadata=None compression=False",
    "torch.save_file": "tensors filename metadata=None compression=False",
    "torch.save_model": "model filename metadata=None force_contiguous=True",
}


def parameters(public: Any) -> list[inspect.Parameter]:
    found = inspect.signature(public).parameters.values()
    return [parameter for parameter in found if parameter.name != "self"]


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments_have_their_names_places_and_defaults(name: str) -> None:
    public: Any = ztensor
    first, *rest = name.split(".")
    if first == "torch":
        pytest.importorskip("torch", reason="ztensor.torch uses it")
    if first in ("numpy", "torch"):
        public = importlib.import_module(f"ztensor.{first}")
    else:
        public = getattr(ztensor, first)
    for step in rest:
        public = getattr(public, step)
    ours = parameters(public)
    by_place = [p.name for p in ours if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    by_name = {p.name: p.default for p in ours}
    for kind in re.findall(r"Unpack\[(\w+)\]", str([p.annotation for p in ours])):
        options = getattr(importlib.import_module("ztensor.typing"), kind)
        by_name |= dict.fromkeys(options.__annotations__)  # where not given, as None
    places, _, names = SIGNATURES[name].partition("*")
    for place, text in enumerate(places.split()):
        assert by_place[place] == text.partition("=")[0]
    for text in [*places.split(), *names.split()]:
        argument, has_default, default = text.partition("=")
        assert argument in by_name
        if has_default:
            assert repr(by_name[argument]) == default

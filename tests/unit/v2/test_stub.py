"""The names and parameters of the API of release 2.1.2 are those of its stub."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import ztensor.v2

# The stub of the wheel: parameters in order, `*` before those passed by name only, `=` a default.
SIGNATURES = {
    "open": "paths",
    "index": "paths",
    "detect": "path",
    "convert": "src dst align=None",
    "verify": "path deep=False",
    "page_size": "",
    "Source.keys": "",
    "Source.values": "",
    "Source.items": "",
    "Source.get": "name default=None",
    "Source.verify": "deep=False",
    "Source.close": "",
    "Tensor.tobytes": "",
    "Tensor.verify": "",
    "Tensor.prefetch": "",
    "Tensor.evict": "",
    "Tensor.__dlpack__": "stream=None * max_version=None dl_device=None copy=None",
    "Tensor.__dlpack_device__": "",
    "Sink.write": "chunk",
    "Sink.close": "",
    "Writer": "path canonical=True align=None publish=False append=False",
    "Writer.add": "name data shape dtype logical=None encoding=None",
    "Writer.add_object": "name shape parts layout='dense' attributes=None",
    "Writer.stream": "name shape parts layout='dense' attributes=None",
    "Writer.set_attributes": "attributes",
    "Writer.ingest": "source",
    "Writer.finish": "",
    "Writer.abandon": "",
}
PROPERTIES = {
    "Caps": "map locate evict verify alignment",
    "Location": "path offset nbytes",
    "Verification": "checked undigested",
    "Tensor": "name part shape dtype logical layout nbytes parts caps location",
    "Source": "files attributes provenance",
    "Sink": "part written",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_parameters_are_those_of_the_stub(name: str) -> None:
    public: Any = ztensor.v2
    for step in name.split("."):
        public = getattr(public, step)
    parameters = [p for p in inspect.signature(public).parameters.values() if p.name != "self"]
    words, is_by_name = [], False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not is_by_name:
            words.append("*")
            is_by_name = True
        has_default = parameter.default is not parameter.empty
        words.append(f"{parameter.name}={parameter.default!r}" if has_default else parameter.name)
    assert words == SIGNATURES[name].split()


def test_names_are_those_of_the_stub() -> None:
    for kind, names in PROPERTIES.items():
        for name in names.split():
            assert hasattr(getattr(ztensor.v2, kind), name)
    public = {name.split(".")[0] for name in SIGNATURES} | set(PROPERTIES)
    assert set(ztensor.v2.__all__) == public

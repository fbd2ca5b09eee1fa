"""Libraries that are imported on first use: that takes seconds, and they warn while they load."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import ztensor


class Lazy:
    """A module, imported when an attribute is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest looks for marks of its own
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)


diffusers: Any = Lazy("diffusers")
peft: Any = Lazy("peft")
timm: Any = Lazy("timm")
torch: Any = Lazy("torch")
transformers: Any = Lazy("transformers")


def refused_by(face: Any, *arguments: Any, parts: tuple[str, ...] = (), **options: Any) -> None:
    """Expect `from_pretrained` of one of our modules to raise an error of ours with these texts."""
    with pytest.raises(ztensor.ZTensorError) as caught:
        face.from_pretrained(*arguments, **options)
    assert caught.value.reason is not ztensor.Reason.UNFORESEEN
    for part in parts:
        assert part in str(caught.value)


def flipped(file: Path, name: str | None = None) -> str:
    """Flip a bit of an object of a file, by default of the first; return its name."""
    with ztensor.open(file) as reader:
        name = name or next(iter(reader))
        offset = reader.location(name).offset
    data = bytearray(file.read_bytes())
    data[offset] ^= 1
    file.write_bytes(data)
    return name

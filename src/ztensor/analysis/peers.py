"""The library that a format belongs to, as it reads a file of it: for comparing times.

A library is imported only when a file of its format is timed, if it is installed; nothing of this
package needs it. None of them is let run what a file says: pickles are refused, or read by
`weights_only`.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

# Names of what is in a file, and what gives the value of one.
Opened: TypeAlias = tuple[Sequence[str], Callable[[str], Any]]


class Peer(NamedTuple):
    """A library that reads one format.

    Attributes:
        module: its name.
        opened: opens a file with it, a context manager.
    """

    module: str
    opened: Callable[[str], contextlib.AbstractContextManager[Opened]]

    @property
    def is_installed(self) -> bool:
        """Return whether it can be imported."""
        return importlib.util.find_spec(self.module) is not None


@contextlib.contextmanager
def _safetensors(path: str) -> Iterator[Opened]:
    with importlib.import_module("safetensors").safe_open(path, framework="np") as file:
        yield list(file.keys()), file.get_tensor


@contextlib.contextmanager
def _npz(path: str) -> Iterator[Opened]:
    with importlib.import_module("numpy").load(path, allow_pickle=False) as archive:
        yield archive.files, archive.__getitem__


@contextlib.contextmanager
def _npy(path: str) -> Iterator[Opened]:
    load = importlib.import_module("numpy").load
    yield ["array"], lambda _: load(path, allow_pickle=False)


@contextlib.contextmanager
def _pt(path: str) -> Iterator[Opened]:
    torch = importlib.import_module("torch")
    loaded = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    found = loaded if isinstance(loaded, dict) else {}
    names = [name for name, value in found.items() if isinstance(value, torch.Tensor)]

    def value(name: str) -> Any:
        return found[name].detach().contiguous().reshape(-1).view(torch.uint8).numpy()

    yield names, value


@contextlib.contextmanager
def _hdf5(path: str) -> Iterator[Opened]:
    h5py = importlib.import_module("h5py")
    names: list[str] = []

    def look(name: str, one: Any) -> None:
        if isinstance(one, h5py.Dataset):
            names.append(name)

    with h5py.File(path, "r") as file:
        file.visititems(look)
        yield names, lambda name: file[name][()]


@contextlib.contextmanager
def _gguf(path: str) -> Iterator[Opened]:
    tensors = {one.name: one for one in importlib.import_module("gguf").GGUFReader(path).tensors}
    yield list(tensors), lambda name: tensors[name].data


PEERS = {
    "safetensors": Peer("safetensors", _safetensors),
    "npz": Peer("numpy", _npz),
    "npy": Peer("numpy", _npy),
    "pt": Peer("torch", _pt),
    "hdf5": Peer("h5py", _hdf5),
    "gguf": Peer("gguf", _gguf),
}

"""Checkpoints of Lightning as trees: a plugin for its `Trainer`, and loading a module from one.

    trainer = Trainer(plugins=[ztensor.lightning.CheckpointIO()])

It works with `lightning` and with `pytorch_lightning`, whichever the program has imported.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import os
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from ztensor import Remote
from ztensor.errors import (
    ArgumentTypeError,
    FormatError,
    MissingDependencyError,
    SourceNotFoundError,
    UsageError,
    ZTensorError,
    describe,
)
from ztensor.ext import FileObjects, OpenFolder, Place, open_file, path_text, remove
from ztensor.options import WriteOptions, require_options
from ztensor.torch.trees import load_tree
from ztensor.training.hooks import class_of, deriving
from ztensor.training.states import save_encoded
from ztensor.training.tree.encode import encode
from ztensor.training.tree.stored import split_tree
from ztensor.typing import Durable, Path, Storage

if TYPE_CHECKING:
    from typing import BinaryIO, Unpack

    Module = TypeVar("Module")

__all__ = ["CheckpointIO", "load_from_checkpoint"]

_LOG = logging.getLogger("ztensor")
# Where the two distributions have the class that a plugin of theirs is derived from.
_BASES = {
    "lightning": "lightning.fabric.plugins.io.checkpoint_io",
    "pytorch_lightning": "lightning_fabric.plugins.io.checkpoint_io",
}


class TreeCheckpoints:
    """What `CheckpointIO` does; the class itself is made for the Lightning that is there.

    A checkpoint is one file of `ztensor.save_tree`, whatever its suffix. It appears as a whole or
    not at all, has digests, and loading it runs no code. `ModelCheckpoint` calls its files `.ckpt`;
    set `FILE_EXTENSION = ".zt"` on it for another name.

    Args:
        compression: as for `ztensor.save_tree`.
        durable: True flushes a checkpoint to disk before `ModelCheckpoint` removes an older one;
            "auto" only if one is replaced; False leaves it to the system.
        storage: see `ztensor.typing.OpenOptions`.
        options: see `ztensor.typing.WriteOptions`.
    """

    def __init__(
        self,
        *,
        compression: bool | int | str = False,
        durable: Durable = True,
        storage: Storage | None = None,
        **options: Unpack[WriteOptions],
    ) -> None:
        require_options("CheckpointIO", options, WriteOptions)
        self._options: dict[str, Any] = {"compression": compression, "durable": durable, **options}
        self._storage = storage

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Path, storage_options: Storage | None = None
    ) -> None:
        """Save a checkpoint; called by Lightning, in the process that writes.

        Args:
            checkpoint: the state.
            path: a path or URL; folders are made.
            storage_options: overrides `storage`.

        Raises:
            NotRepresentableError: a value cannot be stored, such as a module among the hyper
                parameters; the message has its path. Nothing is written.
            SourceError: the file could not be written. An old file is unchanged.
        """
        place = self._place(path, storage_options)
        encoded = encode(checkpoint)
        if Place.of(place).remote is None:
            OpenFolder.make(os.path.dirname(path_text(place)) or os.curdir)
        save_encoded(encoded, place, None, **self._options)

    def load_checkpoint(
        self, path: Path, map_location: Any = None, weights_only: object = None, **_: object
    ) -> dict[str, Any]:
        """Load a checkpoint into memory of its own, checked; called by Lightning.

        Args:
            path: a path or URL.
            map_location: a device for tensors that were not on the CPU when they were saved; a
                function leaves all on the CPU, as Lightning's own does.
            weights_only: ignored: nothing is pickled.

        Raises:
            UsageError: the file is not a tree, such as a checkpoint of Lightning itself; or
                `map_location` is a dict.
            FormatError: it is damaged.
            SourceError: it cannot be read; also a `FileNotFoundError`.
        """
        del weights_only
        if isinstance(map_location, dict):
            raise UsageError(
                "a tree keeps the kind of a tensor's device, without a number: pass one device",
                found=describe(map_location, 60),
            )
        device = None if callable(map_location) else map_location
        checkpoint: dict[str, Any] = load_tree(self._place(path, None), device=device)
        return checkpoint

    def remove_checkpoint(self, path: Path) -> None:
        """Remove a checkpoint, if it exists; called by Lightning.

        A file that is not a tree, such as a checkpoint of Lightning itself, stays; this is logged.

        Raises:
            SourceError: it could not be removed.
        """
        place = self._place(path, None)
        target = Place.of(place).remote or path_text(place)
        if not remove(target, _is_tree) and (
            not isinstance(target, str) or os.path.lexists(target)
        ):
            _LOG.warning("%s is not removed: it is not a tree of zTensor", describe(path, 200))

    def teardown(self) -> None:
        """Do nothing: each save is synchronous."""

    def _place(self, path: Path, storage: Storage | None) -> Any:
        storage = self._storage if storage is None else storage
        return path if storage is None else Remote(path, storage)


def _is_tree(source: BinaryIO | Remote) -> bool:
    """Return whether a file is a tree, or may be a damaged one."""
    try:
        with contextlib.closing(open_file(source, mmap=False)) as file:
            return split_tree(file.attributes)[1] is not None
    except FormatError:
        return FileObjects.may_be_ours(source)
    except SourceNotFoundError:
        return True  # there is nothing to remove
    except ZTensorError:
        return False


def _bases() -> list[type]:
    """Return the base classes of the imported distributions of Lightning, else of the installed.

    Raises:
        MissingDependencyError: none is installed.
    """
    bases: list[type] = []
    for name in [name for name in _BASES if name in sys.modules] or _BASES:
        with contextlib.suppress(MissingDependencyError):
            bases.append(class_of("lightning", "CheckpointIO", module=_BASES[name]))
    return bases or [class_of("lightning", "CheckpointIO", module=_BASES["lightning"])]


if TYPE_CHECKING:
    CheckpointIO = TreeCheckpoints
else:
    __getattr__ = deriving(globals(), "CheckpointIO", TreeCheckpoints, _bases)


def load_from_checkpoint(
    module: type[Module],
    path: Path,
    *,
    device: Any = None,
    storage: Storage | None = None,
    **arguments: object,
) -> Module:
    """Load a module by `module.load_from_checkpoint` from a checkpoint of `CheckpointIO`.

    Lightning's method reads its file by `torch.load`. It gets the state in memory, so hyper
    parameters, hooks and migrations work as usual.

    Args:
        module: a class, a `LightningModule` or a `LightningDataModule`.
        path: a path or URL.
        device: a device for tensors that were not on the CPU when they were saved.
        storage: see `ztensor.typing.OpenOptions`.
        arguments: further arguments of `load_from_checkpoint`, such as `strict`, and of the class.

    Raises:
        ArgumentTypeError: `module` is not such a class.
        ZTensorError: errors of `ztensor.torch.load_tree`.
        Exception: errors of Lightning.
    """
    import torch

    load = getattr(module, "load_from_checkpoint", None)
    if not isinstance(module, type) or load is None:
        raise ArgumentTypeError(
            "not a class of Lightning's",
            expected="a LightningModule or LightningDataModule",
            found=describe(module, 60),
        )
    state = load_tree(path if storage is None else Remote(path, storage), device=device)
    memory = io.BytesIO()
    torch.save(state, memory)
    del state
    memory.seek(0)
    if "weights_only" in inspect.signature(load).parameters:
        # The pickle was made here a moment ago; values of NumPy are not among torch's own.
        arguments.setdefault("weights_only", False)
    loaded: Module = load(memory, **arguments)
    return loaded

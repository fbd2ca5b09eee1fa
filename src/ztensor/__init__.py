"""zTensor: keep tensors in files - dense, sparse and quantized - mapped, checked, never executed.

`ztensor.open` gives a mapping from names to arrays; `ztensor.numpy` has `save_file` and
`load_file`; `ztensor.Writer` writes piece by piece. Errors of files are `ztensor.ZTensorError`s.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "1.0.0"

if TYPE_CHECKING:
    from ztensor import accelerate as accelerate
    from ztensor import aio as aio
    from ztensor import converting as converting
    from ztensor import dask as dask
    from ztensor import delta as delta
    from ztensor import diffusers as diffusers
    from ztensor import distributed as distributed
    from ztensor import divided as divided
    from ztensor import edit as edit
    from ztensor import errors as errors
    from ztensor import flax as flax
    from ztensor import fleet as fleet
    from ztensor import insight as insight
    from ztensor import io as io
    from ztensor import jax as jax
    from ztensor import keras as keras
    from ztensor import lightning as lightning
    from ztensor import numpy as numpy
    from ztensor import peft as peft
    from ztensor import signing as signing
    from ztensor import torch as torch
    from ztensor import trainer as trainer
    from ztensor import training as training
    from ztensor import transformers as transformers
    from ztensor import typing as typing
    from ztensor import vllm as vllm
    from ztensor import xarray as xarray
    from ztensor.converting import convert, convert_folder, merge, migrate, split
    from ztensor.edit import remove_tensors as remove_tensors  # and the next: aliases
    from ztensor.edit import replace_tensor as replace_tensor
    from ztensor.errors import (
        DigestMismatchError,
        FormatError,
        LimitError,
        MissingDependencyError,
        NotRepresentableError,
        ObjectNotFoundError,
        Reason,
        SourceError,
        UnsupportedError,
        UsageError,
        ZTensorError,
    )
    from ztensor.handle import safe_open
    from ztensor.insight.analysis.comparing import diff
    from ztensor.insight.analysis.examining import examine
    from ztensor.insight.analysis.identity import content_hash
    from ztensor.insight.analysis.plotting import plot
    from ztensor.insight.analysis.statistics import stats
    from ztensor.insight.page.inline import view
    from ztensor.insight.page.report import report
    from ztensor.io.edit import Editor, compact, repair
    from ztensor.io.metadata import TensorMetadata
    from ztensor.io.opening import Reader, open
    from ztensor.io.reading.slices import TensorSlice
    from ztensor.io.source.urls import Remote
    from ztensor.io.tensor import Tensor
    from ztensor.io.writing.writer import Writer
    from ztensor.iterating import iterate
    from ztensor.limits import Limits
    from ztensor.spec.model.dtype import LogicalType, register_logical_type
    from ztensor.training.checkpoints import CheckpointManager
    from ztensor.training.states import load_tree, open_tree, save_tree

# Names are loaded when they are first used, so that `import ztensor` and the command's help cost
# next to nothing.
_HOMES = {
    "ztensor.converting": "convert convert_folder merge migrate split",
    "ztensor.errors": (
        "DigestMismatchError FormatError LimitError MissingDependencyError NotRepresentableError "
        "ObjectNotFoundError Reason SourceError UnsupportedError UsageError ZTensorError"
    ),
    "ztensor.handle": "safe_open",
    "ztensor.insight.analysis.comparing": "diff",
    "ztensor.insight.analysis.examining": "examine",
    "ztensor.insight.analysis.identity": "content_hash",
    "ztensor.insight.analysis.plotting": "plot",
    "ztensor.insight.analysis.statistics": "stats",
    "ztensor.insight.page.inline": "view",
    "ztensor.insight.page.report": "report",
    "ztensor.io.edit": "Editor compact repair",
    "ztensor.io.metadata": "TensorMetadata",
    "ztensor.io.opening": "Reader open",
    "ztensor.io.reading.slices": "TensorSlice",
    "ztensor.io.source.urls": "Remote",
    "ztensor.io.tensor": "Tensor",
    "ztensor.io.writing.writer": "Writer",
    "ztensor.iterating": "iterate",
    "ztensor.limits": "Limits",
    "ztensor.spec.model.dtype": "LogicalType register_logical_type",
    "ztensor.training.checkpoints": "CheckpointManager",
    "ztensor.training.states": "load_tree open_tree save_tree",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}
_SUBMODULES = frozenset(
    [
        *("accelerate", "converting", "dask", "delta", "diffusers", "distributed", "divided"),
        *("edit", "errors", "flax", "fleet", "insight", "io", "jax", "keras", "lightning", "numpy"),
        *("peft", "signing", "torch", "trainer", "training", "transformers", "typing", "vllm"),
        *("xarray", "aio"),
    ]
)

__all__ = [
    "CheckpointManager",
    "DigestMismatchError",
    "Editor",
    "FormatError",
    "LimitError",
    "Limits",
    "LogicalType",
    "MissingDependencyError",
    "NotRepresentableError",
    "ObjectNotFoundError",
    "Reader",
    "Reason",
    "Remote",
    "SourceError",
    "Tensor",
    "TensorMetadata",
    "TensorSlice",
    "UnsupportedError",
    "UsageError",
    "Writer",
    "ZTensorError",
    "__version__",
    "compact",
    "content_hash",
    "convert",
    "convert_folder",
    "diff",
    "examine",
    "iterate",
    "load_tree",
    "merge",
    "migrate",
    "open",
    "open_tree",
    "plot",
    "register_logical_type",
    "repair",
    "report",
    "safe_open",
    "save_tree",
    "split",
    "stats",
    "view",
]


def _load(name: str) -> Any:
    """Load a public name from its home on first use."""
    if name in _SUBMODULES:
        return _module(f"ztensor.{name}")
    home = _HOME_OF.get(name)
    if home is None:
        home = _module("ztensor.aliases").FUNCTIONS.get(name)
    if home is None:
        from ztensor.hints import missing

        raise missing("module 'ztensor'", name, ("ztensor",))
    value = globals()[name] = getattr(_module(home), name)
    return value


if not TYPE_CHECKING:  # checkers have the imports above; to them any name would be there
    __getattr__ = _load


def _module(name: str) -> Any:
    """Import a module of ours; where it is missing, say whether another distribution took it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        from ztensor.installation import mixture

        mixed = mixture()
        if mixed is not None and mixed.is_broken:
            raise ImportError(f"{error}\n{mixed.message}", name=error.name) from error
        raise


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted([*__all__, *_SUBMODULES])

"""zTensor: keep tensors in files - dense, sparse and quantized - mapped, checked, never executed.

`ztensor.open` gives a mapping from names to arrays; `ztensor.numpy` has `save_file` and
`load_file`; `ztensor.Writer` writes piece by piece. Errors of files are `ztensor.ZTensorError`s.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ztensor import accelerate as accelerate
    from ztensor import dask as dask
    from ztensor import diffusers as diffusers
    from ztensor import errors as errors
    from ztensor import flax as flax
    from ztensor import jax as jax
    from ztensor import keras as keras
    from ztensor import lightning as lightning
    from ztensor import numpy as numpy
    from ztensor import peft as peft
    from ztensor import torch as torch
    from ztensor import trainer as trainer
    from ztensor import transformers as transformers
    from ztensor import typing as typing
    from ztensor.converting import (
        ConversionReport,
        FolderReport,
        Loss,
        convert,
        convert_folder,
        migrate,
        split,
    )
    from ztensor.errors import (
        ArgumentTypeError,
        ArgumentValueError,
        ClosedError,
        ContainerError,
        DigestMismatchError,
        EncodingError,
        FormatError,
        LayoutError,
        LimitError,
        ManifestError,
        MissingDependencyError,
        NotRepresentableError,
        NotZTensorError,
        ObjectNotFoundError,
        Problem,
        Reason,
        SourceError,
        UnsupportedError,
        UnsupportedVersionError,
        UsageError,
        ZTensorError,
    )
    from ztensor.handle import safe_open
    from ztensor.insight import fleet as fleet
    from ztensor.insight.analysis.canonical import canonical_problems
    from ztensor.insight.analysis.comparing import DiffReport, TensorDiff, diff
    from ztensor.insight.analysis.examining import examine
    from ztensor.insight.analysis.findings import Finding
    from ztensor.insight.analysis.identity import content_digest, content_hash, tensor_hashes
    from ztensor.insight.analysis.insight import Insight
    from ztensor.insight.analysis.plotting import Picture, plot
    from ztensor.insight.analysis.spreads import Histogram
    from ztensor.insight.analysis.statistics import StatsReport, TensorStats, stats
    from ztensor.insight.analysis.tally import ValueDiff
    from ztensor.insight.page.inline import ModelView, view
    from ztensor.insight.page.report import report
    from ztensor.io.edit import (
        Editor,
        RepairReport,
        compact,
        merge,
        remove_tensors,
        rename_tensors,
        repair,
        replace_tensor,
        set_attributes,
    )
    from ztensor.io.metadata import ComponentMetadata, TensorMetadata
    from ztensor.io.opening import Reader, ShardedReader, open
    from ztensor.io.reading.file import Location
    from ztensor.io.reading.slices import TensorSlice
    from ztensor.io.reading.verify import VerifyReport
    from ztensor.io.source.reference import Remote
    from ztensor.io.tensor import Tensor
    from ztensor.io.writing.stream import ObjectSink
    from ztensor.io.writing.writer import Writer
    from ztensor.iterating import iterate
    from ztensor.limits import Limits
    from ztensor.spec.model.dtype import LogicalType, register_logical_type
    from ztensor.training.checkpoints import Checkpoint, CheckpointManager, Restored
    from ztensor.training.states import LazyTree, Record, load_tree, open_tree, save_tree

# Names are loaded when they are first used, so that `import ztensor` and the command's help cost
# next to nothing.
_HOMES = {
    "ztensor.insight.analysis.comparing": "DiffReport TensorDiff diff",
    "ztensor.training.checkpoints": "Checkpoint CheckpointManager Restored",
    "ztensor.converting": (
        "ConversionReport FolderReport Loss convert convert_folder migrate split"
    ),
    "ztensor.io.edit": (
        "Editor RepairReport compact merge remove_tensors rename_tensors repair replace_tensor "
        "set_attributes"
    ),
    "ztensor.errors": (
        "ArgumentTypeError ArgumentValueError ClosedError ContainerError DigestMismatchError "
        "EncodingError FormatError LayoutError LimitError ManifestError "
        "MissingDependencyError NotRepresentableError NotZTensorError ObjectNotFoundError Problem "
        "Reason SourceError UnsupportedError UnsupportedVersionError UsageError ZTensorError"
    ),
    "ztensor.handle": "safe_open",
    "ztensor.insight.analysis.canonical": "canonical_problems",
    "ztensor.insight.analysis.examining": "examine",
    "ztensor.insight.analysis.findings": "Finding",
    "ztensor.insight.analysis.insight": "Insight",
    "ztensor.insight.analysis.identity": "content_digest content_hash tensor_hashes",
    "ztensor.iterating": "iterate",
    "ztensor.limits": "Limits",
    "ztensor.io.metadata": "ComponentMetadata TensorMetadata",
    "ztensor.spec.model.dtype": "LogicalType register_logical_type",
    "ztensor.io.opening": "Reader ShardedReader open",
    "ztensor.insight.page.inline": "ModelView view",
    "ztensor.insight.page.report": "report",
    "ztensor.insight.analysis.plotting": "Picture plot",
    "ztensor.io.reading.file": "Location",
    "ztensor.io.reading.slices": "TensorSlice",
    "ztensor.insight.analysis.spreads": "Histogram",
    "ztensor.insight.analysis.statistics": "StatsReport TensorStats stats",
    "ztensor.insight.analysis.tally": "ValueDiff",
    "ztensor.io.source.reference": "Remote",
    "ztensor.io.tensor": "Tensor",
    "ztensor.io.reading.verify": "VerifyReport",
    "ztensor.training.states": "LazyTree Record load_tree open_tree save_tree",
    "ztensor.io.writing.stream": "ObjectSink",
    "ztensor.io.writing.writer": "Writer",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}
_SUBMODULES = frozenset(
    [
        *("accelerate", "dask", "diffusers", "distributed", "divided", "errors", "flax", "fleet"),
        *(
            "jax",
            "keras",
            "lightning",
            "numpy",
            "peft",
            "torch",
            "trainer",
            "transformers",
            "typing",
        ),
    ]
)

__all__ = [
    "ArgumentTypeError",
    "ArgumentValueError",
    "Checkpoint",
    "CheckpointManager",
    "ClosedError",
    "ComponentMetadata",
    "ContainerError",
    "ConversionReport",
    "DiffReport",
    "DigestMismatchError",
    "Editor",
    "EncodingError",
    "Finding",
    "FolderReport",
    "FormatError",
    "Histogram",
    "Insight",
    "LayoutError",
    "LazyTree",
    "LimitError",
    "Limits",
    "Location",
    "LogicalType",
    "Loss",
    "ManifestError",
    "MissingDependencyError",
    "ModelView",
    "NotRepresentableError",
    "NotZTensorError",
    "ObjectNotFoundError",
    "ObjectSink",
    "Picture",
    "Problem",
    "Reader",
    "Reason",
    "Record",
    "Remote",
    "RepairReport",
    "Restored",
    "ShardedReader",
    "SourceError",
    "StatsReport",
    "Tensor",
    "TensorDiff",
    "TensorMetadata",
    "TensorSlice",
    "TensorStats",
    "UnsupportedError",
    "UnsupportedVersionError",
    "UsageError",
    "ValueDiff",
    "VerifyReport",
    "Writer",
    "ZTensorError",
    "__version__",
    "canonical_problems",
    "compact",
    "content_digest",
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
    "remove_tensors",
    "rename_tensors",
    "repair",
    "replace_tensor",
    "report",
    "safe_open",
    "save_tree",
    "set_attributes",
    "split",
    "stats",
    "tensor_hashes",
    "view",
]


def _load(name: str) -> Any:
    """Load a public name from its home on first use."""
    if name in _SUBMODULES:
        return _module(f"ztensor.{name}")
    if name not in _HOME_OF:
        from ztensor.hints import missing

        raise missing("module 'ztensor'", name, ("ztensor",))
    value = globals()[name] = getattr(_module(_HOME_OF[name]), name)
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

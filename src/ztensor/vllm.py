"""The load format `ztensor` of vLLM: `vllm serve MODEL --load-format ztensor`.

vLLM finds it by the entry point of this distribution in the group `vllm.general_plugins`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ztensor import Tensor, iterate
from ztensor.errors import ArgumentValueError, FormatError, MissingDependencyError, describe
from ztensor.ext import is_remote

try:
    from vllm.model_executor.model_loader import register_model_loader
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader
except ImportError as error:
    raise MissingDependencyError("ztensor.vllm needs vLLM", install="vllm") from error

from ztensor.torch import dequantize

__all__ = ["ModelLoader", "register"]

_OPTIONS = ("ahead", "cache", "only", "storage", "storage_options", "threads")


class ModelLoader(BaseModelLoader):  # type: ignore[misc]  # vLLM is untyped here
    """Loads the weights of a model from a file of any format, a folder or a URL.

    Each tensor is checked against its digest before the model gets it: a damaged file is an error,
    and is not served. Quantized objects and blocks of GGUF become floats of the model's type.

    Args:
        load_config: vLLM's; `model_loader_extra_config` may have `weights` (the file, folder or URL
            if it is not the model's), `ahead`, `cache`, `only`, `storage`, `storage_options` and
            `threads` as in `ztensor.iterate`.

    Raises:
        ArgumentValueError: another option.
    """

    def __init__(self, load_config: Any) -> None:
        super().__init__(load_config)
        self._options = dict(load_config.model_loader_extra_config or {})
        self._weights = self._options.pop("weights", None)
        if unknown := sorted(self._options.keys() - {*_OPTIONS}):
            raise ArgumentValueError(
                "unknown option in model_loader_extra_config",
                expected=f"one of weights, {', '.join(_OPTIONS)}",
                found=", ".join(map(describe, unknown)),
            )

    def download_model(self, model_config: Any) -> None:
        """Do nothing: files of stores and hubs are read by ranges."""

    def load_weights(self, model: Any, model_config: Any) -> None:
        """Give all tensors to a model.

        Raises:
            FormatError: the file is damaged, or lacks parameters of the model.
            SourceError: it cannot be read.
        """
        source = self._weights or source_of(model_config)
        loaded = model.load_weights(self._tensors(source, model_config.dtype))
        if loaded is None or model_config.quantization is not None:
            return  # the model does not say what it took, or makes parameters of others
        missing = sorted({name for name, _ in model.named_parameters()} - set(loaded))
        if missing:
            raise FormatError(
                f"{len(missing)} parameters of the model are not in its weights",
                file=str(source),
                found=", ".join(map(describe, missing[:20])),
            )

    def _tensors(self, source: str, dtype: Any) -> Iterator[tuple[str, Any]]:
        for name, value in iterate(source, "pt", **self._options):
            yield name, dequantize(value).to(dtype) if isinstance(value, Tensor) else value


def source_of(model_config: Any) -> str:
    """Return where the weights of a model are: a path or URL; `hf://` for a name on the hub."""
    model = str(getattr(model_config, "model_weights", None) or model_config.model)
    if is_remote(model) or os.path.exists(model):
        return model
    revision = getattr(model_config, "revision", None)
    return f"hf://{model}@{revision}" if revision else f"hf://{model}"


def register() -> None:
    """Add the load format `ztensor`; vLLM calls it in each of its processes."""
    register_model_loader("ztensor")(ModelLoader)

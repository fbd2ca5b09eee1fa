"""Load and save models and pipelines of Hugging Face diffusers as `.zt`.

A model is made from its config and gets the tensors of the file. A pipeline is made by the library
with models that were loaded here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ztensor import transformers as ours
from ztensor.errors import (
    ArgumentTypeError,
    FormatError,
    Reason,
    UsageError,
    describe,
)
from ztensor.ext import OpenFolder, is_remote, load_files, path_text
from ztensor.model_folder import ModelFolder, library_errors, library_of, new_folder
from ztensor.options import ModelOptions, require_options
from ztensor.torch import save_file
from ztensor.torch.devices import device_of
from ztensor.torch.loading import load_onto
from ztensor.torch.modules import fill_module
from ztensor.typing import Path, Storage

if TYPE_CHECKING:
    from typing import Unpack


__all__ = ["from_pretrained", "save_pretrained"]

CONFIG, PIPELINE = "config.json", "model_index.json"
STEM = "diffusion_pytorch_model"


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


def from_pretrained(
    folder: Path,
    cls: Any,
    *,
    dtype: Any = None,
    variant: str | None = None,
    subfolder: str = "",
    copy: bool = False,
    verify: bool | None = None,
    dequantize: bool = False,
    storage: Storage | None = None,
    cache: Path | None = None,
    **options: Any,
) -> Any:
    """Load a model or a pipeline from a folder with `.zt` or `.safetensors` weights.

    Args:
        folder: a folder of a model, or its URL; or a folder on disk of a pipeline, with its models
            in subfolders.
        cls: the class: one of a model, such as `UNet2DConditionModel`, or of a pipeline, such as
            `DiffusionPipeline`.
        dtype: a `torch.dtype` for floats, except those that a class keeps in float32. By default
            weights have the type of the file, and are views of it.
        variant: variant of the weights: "fp16" for `diffusion_pytorch_model.fp16.zt`.
        subfolder: a subfolder of `folder` to use instead.
        copy: True gives weights memory of their own.
        verify: None and True check the digest of every weight, also of views; False none.
        dequantize: True gives models floats in the place of quantized tensors
            (`quantized_group` and the blocks of GGUF).
        storage: see `ztensor.typing.OpenOptions`.
        cache: see `ztensor.typing.OpenOptions`.
        options: for a pipeline: components in the place of the folder's, such as `unet=`, and
            further arguments of the library's `from_pretrained`.

    Returns:
        The model, in evaluation mode, or the pipeline.

    Raises:
        MissingDependencyError: diffusers is not installed; for models accelerate, and for some
            pipelines transformers as well.
        ArgumentTypeError: `cls` is neither, or `dtype` is not a type of torch.
        UsageError: weights do not fit the model, or the library refuses an option; the message has
            its text.
        FormatError: a file is damaged, or has another format than its suffix.
        LimitError: a safety cap is exceeded.
        SourceError: the folder has no config or no weights, or cannot be read.
    """
    import torch

    library = library_of("diffusers")
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise ArgumentTypeError(
            "dtype must be a type of torch",
            expected="such as torch.bfloat16",
            found=describe(dtype),
        )
    place = ModelFolder(folder, subfolder=subfolder, storage=storage, cache=cache)
    how: dict[str, Any] = {"dtype": dtype, "variant": variant, "copy": copy, "verify": verify}
    how["dequantize"] = dequantize
    if _is_of(cls, library.DiffusionPipeline):
        return _pipeline(library, place, cls, how, options)
    if not _is_of(cls, library.ModelMixin):
        raise ArgumentTypeError(
            "not a class of models or pipelines",
            expected="one of diffusers, such as UNet2DConditionModel or DiffusionPipeline",
            found=describe(cls, 80),
        )
    if options:
        raise UsageError(
            "a model of diffusers takes no more options",
            file=place.name,
            found=", ".join(options),
        )
    return _model(place, cls, **how)


def save_pretrained(
    model: Any,
    folder: Path,
    *,
    variant: str | None = None,
    **options: Unpack[ModelOptions],
) -> None:
    """Save a model or a pipeline into a folder, as the library does, with weights as `.zt`.

    Args:
        model: a model of diffusers: `config.json` and `diffusion_pytorch_model.zt`, or shards; or
            a pipeline: `model_index.json`, and a subfolder for each component.
        folder: made if it is missing; other files in it stay. Of a model also a URL.
        variant: "fp16" for `diffusion_pytorch_model.fp16.zt`.
        options: see `ztensor.typing.ModelOptions`; `max_shard_size` is "10GB" by default.

    Raises:
        MissingDependencyError: diffusers is not installed.
        ArgumentTypeError: `model` is neither.
        NotRepresentableError: a weight has no elements of its own, as on the meta device.
        UsageError: URLs like `folder` are read-only, or the library cannot save a component.
        SourceError: the folder cannot be made, or a file cannot be written.
    """
    require_options("save_pretrained", options, ModelOptions)
    library = library_of("diffusers")
    if isinstance(model, library.DiffusionPipeline):
        _save_pipeline(library, model, folder, variant, options)
        return
    if not isinstance(model, library.ModelMixin):
        raise ArgumentTypeError(
            "not a model or a pipeline of diffusers", found=describe(type(model).__qualname__)
        )
    options.setdefault("max_shard_size", "10GB")
    file = f"{STEM}.{variant}.zt" if variant else f"{STEM}.zt"
    with new_folder(folder) as place:
        save_file(model.state_dict(), place.file(file), {"format": "pt"}, **options)
        with library_errors("diffusers", place.name):
            model.save_config(place.path)


def _is_of(cls: Any, base: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, base)


def _model(
    place: ModelFolder,
    cls: Any,
    *,
    dtype: Any,
    variant: str | None,
    copy: bool,
    verify: bool | None,
    dequantize: bool,
) -> Any:
    values = place.config(CONFIG)
    accelerate = library_of("accelerate", "diffusers")
    with (
        library_errors("diffusers", place.name),
        accelerate.init_empty_weights(include_buffers=False),
    ):
        model = cls.from_config(values)
    with place.open_weights(
        [STEM, "model"], variant=variant, verify=verify, dequantize=dequantize
    ) as reader:
        state = load_files(reader.objects, load_onto, device=device_of("cpu"), copy=copy)
        file = reader.name
    fill_module(model, state, file, assign=True)
    if dtype is not None:
        _cast(model, dtype)
    with library_errors("diffusers", place.name):
        model.register_to_config(_name_or_path=place.name)
    return model.eval()


def _cast(model: Any, dtype: Any) -> None:
    """Cast floats, one tensor at a time, except those that the class keeps in float32."""
    kept = set(getattr(model, "_keep_in_fp32_modules", None) or ())
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_floating_point() and not kept & set(name.split(".")):
            tensor.data = tensor.data.to(dtype)


def _pipeline(
    library: Any, place: ModelFolder, cls: Any, how: dict[str, Any], options: dict[str, Any]
) -> Any:
    if place.path is None:
        error = UsageError("a pipeline is loaded from a folder on disk", file=place.name)
        error.hint = "its models are loaded from URLs one by one: from_pretrained(url, class)"
        raise error
    values = place.config(PIPELINE, "pipeline")
    parts = dict(options)
    for name, value in values.items():
        is_part = isinstance(value, list) and len(value) == 2 and value != [None, None]
        if not is_part or name in parts:
            continue
        part = _part(library, place.path, name, value, how)
        if part is not None:
            parts[name] = part
    if how["dtype"] is not None:
        parts.setdefault("torch_dtype", how["dtype"])
    with library_errors("diffusers", place.name):
        return cls.from_pretrained(place.path, **parts)


def _part(library: Any, folder: str, name: str, value: list[Any], how: dict[str, Any]) -> Any:
    """Return a model of a pipeline; None for components that the library makes itself."""
    if not all(isinstance(text, str) for text in (name, *value)) or not name.isidentifier():
        raise FormatError(
            "a component of a pipeline is malformed",
            reason=Reason.FIELD_VALUE,
            file=os.path.join(folder, PIPELINE),
            expected="an identifier, and the names of a library and of a class",
            found=f"{describe(name)}: {describe(value, 100)}",
        )
    home, kind = value
    if home not in ("diffusers", "transformers") or not os.path.isdir(os.path.join(folder, name)):
        return None
    source = library if home == "diffusers" else library_of("transformers", "diffusers")
    cls = getattr(source, kind, None)  # a name of these libraries, and of models in them
    if home == "diffusers" and _is_of(cls, library.ModelMixin):
        return _model(ModelFolder(folder, subfolder=name), cls, **how)
    if home == "transformers" and _is_of(cls, source.PreTrainedModel):
        return ours.from_pretrained(folder, cls, subfolder=name, **how)
    return None


def _save_pipeline(
    library: Any, pipeline: Any, folder: Path, variant: str | None, options: ModelOptions
) -> None:
    place = path_text(folder, local=True)
    if is_remote(place):
        raise UsageError("a pipeline is saved into a folder on disk, not to a URL", file=place)
    OpenFolder.make(place)
    for name, part in pipeline.components.items():
        inner = os.path.join(place, name)
        if isinstance(part, library.ModelMixin):
            save_pretrained(part, inner, variant=variant, **options)
        elif _is_of_transformers(part):
            ours.save_pretrained(part, inner, variant=variant, **options)
        elif hasattr(part, "save_pretrained"):
            with library_errors("diffusers", inner):
                part.save_pretrained(inner)
    with library_errors("diffusers", place):
        pipeline.save_config(place)  # last: it marks the folder as a pipeline


def _is_of_transformers(part: Any) -> bool:
    """Return whether a component is a model of transformers, without importing it."""
    return any(
        base.__name__ == "PreTrainedModel" and base.__module__.startswith("transformers.")
        for base in type(part).__mro__
    )

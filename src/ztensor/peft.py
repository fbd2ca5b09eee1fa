"""Load and save adapters of peft as `.zt`: weights trained beside an unchanged model."""

from __future__ import annotations

import copy as copying
from typing import TYPE_CHECKING, Any

from ztensor.errors import ArgumentTypeError, UsageError, describe
from ztensor.ext import path_text
from ztensor.model_folder import ModelFolder, library_errors, library_of, new_folder, require_fit
from ztensor.options import ModelOptions, require_options
from ztensor.torch import save_file
from ztensor.torch.modules import require_module
from ztensor.typing import Path, Storage

if TYPE_CHECKING:
    from typing import Unpack


__all__ = ["from_pretrained", "save_pretrained"]

CONFIG, STEM = "adapter_config.json", "adapter_model"


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


def from_pretrained(
    model: Any,
    folder: Path,
    *,
    adapter_name: str = "default",
    is_trainable: bool = False,
    subfolder: str = "",
    pickled: bool = False,
    verify: bool | None = None,
    dequantize: bool = False,
    storage: Storage | None = None,
    cache: Path | None = None,
) -> Any:
    """Put an adapter on a model, from a folder with `adapter_model.zt` or `.safetensors`.

    Args:
        model: the model that the adapter was trained for; or a model of peft, which gets a further
            adapter.
        folder: a folder, or its URL: `adapter_config.json` and the weights.
        adapter_name: the adapter's name in the model.
        is_trainable: True allows further training; its weights then have memory of their own.
        subfolder: a subfolder of `folder` to use instead.
        pickled: True takes `adapter_model.bin` if there are no other weights. It is read by a
            reader that makes tensors only, and runs nothing.
        verify: None and True check the digest of every weight, also of views; False none.
        dequantize: True gives the adapter floats in the place of quantized tensors
            (`quantized_group` and the blocks of GGUF).
        storage: see `ztensor.typing.OpenOptions`.
        cache: see `ztensor.typing.OpenOptions`.

    Returns:
        The model of peft; in evaluation mode unless it is trainable.

    Raises:
        MissingDependencyError: peft is not installed.
        ArgumentTypeError: `model` is not a module of torch.
        UsageError: the adapter does not fit the model, or weights are missing from the file or
            unknown to the adapter; the message names them.
        FormatError: a file is damaged, or has another format than its suffix.
        LimitError: a safety cap is exceeded.
        SourceError: the folder has no config or no weights, or cannot be read.
    """
    library = library_of("peft")
    require_module(model)
    place = ModelFolder(folder, subfolder=subfolder, storage=storage, cache=cache)
    values = place.config(CONFIG, "adapter")
    with place.open_weights(
        [STEM], pickled=pickled, verify=verify, dequantize=dequantize
    ) as reader:
        name = reader.name
        state = {key: reader.read_torch(key, copy=is_trainable) for key in reader}
    with library_errors("peft", place.name):
        config = library.PeftConfig.from_peft_type(**values)
        config.inference_mode = not is_trainable
        if isinstance(model, library.PeftModel):
            model.add_adapter(adapter_name, config, low_cpu_mem_usage=True)
        else:
            model = library.get_peft_model(model, config, adapter_name, low_cpu_mem_usage=True)
        report = library.set_peft_model_state_dict(
            model, state, adapter_name=adapter_name, low_cpu_mem_usage=True
        )
    empty = [key for key, value in model.named_parameters() if value.is_meta]
    require_fit(name, "the adapter", empty, report.unexpected_keys or ())
    return model if is_trainable else model.eval()


def save_pretrained(
    model: Any,
    folder: Path,
    *,
    adapter_name: str = "default",
    **options: Unpack[ModelOptions],
) -> None:
    """Save an adapter into a folder: `adapter_model.zt` and `adapter_config.json`.

    Args:
        model: a model of peft. Its base model is not saved.
        folder: made if it is missing; other files in it stay. Also a URL.
        adapter_name: the name of the adapter to save.
        options: see `ztensor.typing.ModelOptions`.

    Raises:
        MissingDependencyError: peft is not installed.
        ArgumentTypeError: `model` is not a model of peft.
        NotRepresentableError: a weight has no elements of its own, as on the meta device.
        UsageError: the model has no such adapter, or URLs like `folder` are read-only.
        SourceError: the folder cannot be made, or a file cannot be written.
    """
    require_options("save_pretrained", options, ModelOptions)
    library = library_of("peft")
    if not isinstance(model, library.PeftModel):
        raise ArgumentTypeError(
            "not a model of peft", expected="a PeftModel", found=describe(type(model).__qualname__)
        )
    if adapter_name not in model.peft_config:
        raise UsageError(
            "the model has no such adapter",
            expected=f"one of {', '.join(map(describe, model.peft_config))}",
            found=describe(adapter_name),
        )
    with library_errors("peft", path_text(folder)):
        state = library.get_peft_model_state_dict(model, adapter_name=adapter_name)
        config = copying.deepcopy(model.peft_config[adapter_name])
        config.inference_mode = True
        if config.base_model_name_or_path is None:
            config.base_model_name_or_path = getattr(model.get_base_model(), "name_or_path", None)
    with new_folder(folder) as place:
        save_file(dict(state), place.file(f"{STEM}.zt"), {"format": "pt"}, **options)
        with library_errors("peft", place.name):
            config.save_pretrained(place.path)

"""Load and save models of Hugging Face transformers as `.zt`.

`from_pretrained` passes a state dict to the library, which ties, renames, fuses, casts and places
weights as it does for its own files; it is not patched. `save_pretrained` writes weights under the
names of files on model hubs.
"""

from __future__ import annotations

import contextlib
import copy as copying
import importlib
import inspect
from typing import TYPE_CHECKING, Any

from ztensor import Reader
from ztensor.errors import (
    ArgumentTypeError,
    UnsupportedError,
    UsageError,
    ZTensorError,
    describe,
)
from ztensor.ext import path_text
from ztensor.model_folder import ModelFolder, library_errors, library_of, new_folder, require_fit
from ztensor.options import ModelOptions, require_options
from ztensor.torch import save_file
from ztensor.torch.tying import tied
from ztensor.typing import Path, Storage, TorchTensor

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack


__all__ = ["from_pretrained", "save_pretrained"]

CONFIG, GENERATION = "config.json", "generation_config.json"


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


def from_pretrained(
    folder: Path,
    cls: Any,
    *,
    config: Any = None,
    dtype: Any = None,
    device_map: Any = None,
    variant: str | None = None,
    subfolder: str = "",
    strict: bool = False,
    copy: bool = False,
    verify: bool | None = None,
    dequantize: bool = False,
    pickled: bool = False,
    output_loading_info: bool = False,
    storage: Storage | None = None,
    cache: Path | None = None,
    **options: Any,
) -> Any:
    """Load a model from a folder with `.zt` or `.safetensors` weights, as the library does.

    On the CPU, weights in the type of the file are views of it: the file must not be changed in
    place meanwhile. Every weight is checked against its digest before the model gets it, also if it
    is a view, is cast or is moved; `verify=False` skips the check.

    Args:
        folder: a folder, or its URL: `config.json`, and weights called `model.zt`, or shards of it
            and their index. `.safetensors` files are taken if there is no `.zt`.
        cls: the class: one of a model, such as `LlamaForCausalLM`, or an automatic one, such as
            `AutoModelForCausalLM`.
        config: a config of the library; by default the folder's `config.json`. Code in a folder is
            never run: for a model that needs it, pass its config and its class.
        dtype: as for the library's `from_pretrained`: a `torch.dtype`, its name, or None for the
            config's type.
        device_map: as for the library's `from_pretrained`: a device, "auto", or a dict. Needs
            accelerate. An entry "disk" is refused.
        variant: variant of the weights: "fp16" for `model.fp16.zt`.
        subfolder: a subfolder of `folder` to use instead.
        strict: True raises if weights of the model are missing from the file, or the other way
            around. False leaves it to the library, which logs them and initialises the missing
            weights.
        copy: True gives weights memory of their own.
        verify: None and True check the digest of every weight, also of views; False none.
        dequantize: True gives the model floats in the place of quantized tensors
            (`quantized_group` and the blocks of GGUF).
        pickled: True takes `pytorch_model.bin` if there are no other weights. It is read by a
            reader that makes tensors only, and runs nothing.
        output_loading_info: True returns the model and the library's dict of missing, unexpected
            and mismatched keys.
        storage: see `ztensor.typing.OpenOptions`.
        cache: see `ztensor.typing.OpenOptions`.
        options: further arguments of the library's `from_pretrained`, such as
            `attn_implementation`.

    Returns:
        The model, in evaluation mode; with `output_loading_info` a tuple.

    Raises:
        MissingDependencyError: transformers is not installed.
        ArgumentTypeError: `cls` is not a class of models.
        UsageError: `cls` does not fit the folder's model, weights do not fit, or the library
            refuses an option; the message has its text.
        UnsupportedError: the model is quantized by another library, needs code of its own, or
            would be kept on disk in part.
        FormatError: a file is damaged, or has another format than its suffix.
        LimitError: a safety cap is exceeded.
        SourceError: the folder has no config or no weights, or cannot be read.
    """
    library = library_of("transformers")
    _require_class(library, cls)
    if "disk" in (device_map.values() if isinstance(device_map, dict) else (device_map,)):
        raise UnsupportedError("weights cannot be kept on disk here", found='device_map "disk"')
    place = ModelFolder(folder, subfolder=subfolder, storage=storage, cache=cache)
    with library_errors("transformers", place.name):
        config = _config(library, place, cls) if config is None else copying.deepcopy(config)
        _refuse_quantized(config, place.name)
        cls, config = _model_class(library, cls, config)
    reader = place.open_weights(
        ["model"], variant=variant, pickled=pickled, verify=verify, dequantize=dequantize
    )
    failures: list[ZTensorError] = []
    with reader:
        taken: dict[object, str] = {}
        state = {name: _LazyTensor(reader, name, failures, taken, copy=copy) for name in reader}
        extra = {"dtype": dtype, "device_map": device_map}
        extra = {key: value for key, value in extra.items() if value is not None}
        with library_errors("transformers", place.name, failures):
            model, report = cls.from_pretrained(
                None, config=config, state_dict=state, output_loading_info=True, **extra, **options
            )
        if failures:
            raise failures[0]
    if strict:
        missing, unexpected = report.get("missing_keys"), report.get("unexpected_keys")
        require_fit(reader.name, type(model).__name__, missing or (), unexpected or ())
    model.config.name_or_path = model.name_or_path = place.name
    if model.can_generate() and (values := place.json(GENERATION)) is not None:
        with library_errors("transformers", place.name):
            model.generation_config = library.GenerationConfig.from_dict(values)
    return (model, report) if output_loading_info else model


def save_pretrained(
    model: Any,
    folder: Path,
    *,
    variant: str | None = None,
    state_dict: Mapping[str, TorchTensor] | None = None,
    metadata: Mapping[str, object] | None = None,
    **options: Unpack[ModelOptions],
) -> dict[str, str]:
    """Save a model into a folder: `config.json`, `generation_config.json`, `model.zt` or shards.

    Weights have the names of the library's files, also if the model renames or fuses them, and tied
    weights are stored once. Each file is replaced atomically, the weights first; other files in the
    folder stay. A tokenizer saves itself: `tokenizer.save_pretrained(folder)`.

    Args:
        model: a `PreTrainedModel`.
        folder: made if it is missing; also a URL, such as `s3://bucket/llama`.
        variant: "fp16" for `model.fp16.zt`.
        state_dict: a state to save in the place of the model's own.
        metadata: key-value pairs of each file; `{"format": "pt"}` by default.
        options: see `ztensor.typing.ModelOptions`; `max_shard_size` is "5GB" by default.

    Returns:
        Aliases: names that share stored bytes with another name, and that name.

    Raises:
        MissingDependencyError: transformers is not installed.
        ArgumentTypeError: `model` is not a model of the library.
        UnsupportedError: the model is quantized by another library.
        NotRepresentableError: a weight has no elements of its own, as on the meta device.
        UsageError: URLs like `folder` are read-only, or the library cannot convert the state for
            its files.
        SourceError: the folder cannot be made, or a file cannot be written.
    """
    require_options("save_pretrained", options, ModelOptions)
    library = library_of("transformers")
    if not isinstance(model, library.PreTrainedModel):
        error = ArgumentTypeError(
            "not a model of transformers",
            expected="a PreTrainedModel",
            found=describe(type(model).__qualname__),
        )
        error.hint = (
            "ztensor.peft saves adapters, ztensor.diffusers models of diffusers, and "
            "ztensor.torch.save_model any module"
        )
        raise error
    name = path_text(folder)
    _refuse_quantized(model.config, name)
    with library_errors("transformers", name):
        state = _of_files(model, model.state_dict() if state_dict is None else dict(state_dict))
        config = copying.deepcopy(model.config)
        config.architectures = [type(model).__name__]
        config.dtype = str(model.dtype).partition(".")[2]
    options.setdefault("max_shard_size", "5GB")
    if metadata is None:
        metadata = {"format": "pt"}
    file = f"model.{variant}.zt" if variant else "model.zt"
    with new_folder(folder) as place:
        shared = save_file(state, place.file(file), metadata, **options)
        with library_errors("transformers", place.name):
            config.save_pretrained(place.path)
            if model.can_generate():
                model.generation_config.save_pretrained(place.path)
    return shared


# --- Parts --------------------------------------------------------------------------------------


class _LazyTensor:
    """A lazy tensor, read when the library indexes it, like a slice of safetensors.

    Args:
        reader: the open weights.
        name: the object's name.
        failures: list that gets errors: the library reads in its own threads, and reports less.
        taken: address of each returned tensor, with its name: equal objects may share bytes.
        copy: as for `read_torch`.
    """

    def __init__(
        self,
        reader: Reader,
        name: str,
        failures: list[ZTensorError],
        taken: dict[object, str],
        *,
        copy: bool,
    ) -> None:
        self._reader = reader
        self._name = name
        self._failures = failures
        self._taken = taken
        self._copy = copy

    @property
    def _empty(self) -> Any:
        return self._reader.read_torch(self._name, device="meta")

    @property
    def shape(self) -> Any:
        """Return the shape."""
        return self._empty.shape

    @property
    def dtype(self) -> Any:
        """Return the element type of torch."""
        return self._empty.dtype

    def is_floating_point(self) -> bool:
        """Return whether elements are floats."""
        return bool(self._empty.is_floating_point())

    def get_shape(self) -> list[int]:
        """Return the shape, as slices of safetensors do."""
        return list(self.shape)

    def __getitem__(self, key: Any) -> Any:
        """Return the selected elements as a tensor."""
        try:
            whole = self._reader.read_torch(self._name, copy=self._copy)
        except ZTensorError as error:
            self._failures.append(error)
            raise
        if self._taken.setdefault(whole.data_ptr(), self._name) != self._name:
            whole = whole.clone()
        return whole if key is Ellipsis else whole[key]


def _require_class(library: Any, cls: Any) -> None:
    is_model = isinstance(cls, type) and issubclass(cls, library.PreTrainedModel)
    if not is_model and not (hasattr(cls, "from_config") and hasattr(cls, "from_pretrained")):
        raise ArgumentTypeError(
            "not a class of models",
            expected="one of transformers, such as AutoModelForCausalLM",
            found=describe(cls, 80),
        )


def _config(library: Any, place: ModelFolder, cls: Any) -> Any:
    """Return the config of a folder, for a class."""
    values = place.config(CONFIG)
    kind = values.get("model_type")
    is_known = isinstance(kind, str) and kind in library.CONFIG_MAPPING
    if not is_known or ("auto_map" in values and not kind):
        error = UnsupportedError(
            "transformers has no model of this kind",
            file=f"{place.name}/{CONFIG}",
            found=f"model_type {describe(kind)}",
        )
        error.hint = "code of a folder is never run: pass config= and the class of the model"
        raise error
    config = library.CONFIG_MAPPING[kind].from_dict(values)
    expected = getattr(cls, "config_class", None)
    if not isinstance(expected, type) or isinstance(config, expected):
        return config
    parts = [getattr(config, name, None) for name in getattr(config, "sub_configs", None) or ()]
    inner = next((part for part in parts if isinstance(part, expected)), None)
    if inner is None:
        raise UsageError(
            f"{cls.__name__} is not for this model",
            file=f"{place.name}/{CONFIG}",
            expected=f"model_type {describe(getattr(expected, 'model_type', '?'))}",
            found=f"model_type {describe(kind)}",
        )
    return inner


def _model_class(library: Any, cls: Any, config: Any) -> tuple[Any, Any]:
    """Return the model's class, which an automatic class selects, and its config."""
    if issubclass(cls, library.PreTrainedModel):
        return cls, config
    # The table of an automatic class. If it has several classes for a config, a model is made on
    # the meta device, which takes as long as loading it.
    try:
        model_class = cls._model_mapping[type(config)]
    except (AttributeError, LookupError, TypeError):
        model_class = None
    if not inspect.isclass(model_class):
        import torch

        with torch.device("meta"):
            model_class = type(cls.from_config(copying.deepcopy(config)))
    if not isinstance(config, model_class.config_class):
        config = config.get_text_config()
    return model_class, config


def _refuse_quantized(config: Any, name: str) -> None:
    """Raise if another library quantized the weights, in a form that is not read here."""
    if getattr(config, "quantization_config", None) is not None:
        error = UnsupportedError(
            "the model is quantized by another library, which reads and writes its weights itself",
            file=name,
            found="quantization_config",
        )
        error.hint = "ztensor.convert_folder gives it a folder with .safetensors files"
        raise error


def _of_files(model: Any, state: dict[str, Any]) -> dict[str, Any]:
    """Return a state with the names of the library's files, and tied weights once."""
    ignored = set(getattr(model, "_keys_to_ignore_on_save", None) or ())
    state = {name: value for name, value in state.items() if name not in ignored}
    copies = set(getattr(model, "all_tied_weights_keys", None) or ())
    for names in tied(state):
        doubles = [name for name in names if name in copies]
        for name in doubles if len(doubles) < len(names) else doubles[1:]:
            del state[name]
    with contextlib.suppress(ImportError):  # older releases use the names of files
        loading = importlib.import_module("transformers.core_model_loading")
        state = dict(loading.revert_weight_conversion(model, state))
    return state

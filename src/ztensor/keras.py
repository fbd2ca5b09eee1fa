"""The state of a Keras model: weights, optimizer, metrics and seeds, as a tree.

ztensor.keras.save_state(model, "state.zt")
ztensor.keras.load_state(model, "state.zt")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztensor import load_tree, save_tree
from ztensor.errors import ArgumentTypeError, ArgumentValueError, describe
from ztensor.options import SaveOptions, TreeOptions, require_options
from ztensor.training.hooks import require_of
from ztensor.typing import Openable, Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Unpack


__all__ = ["load_state", "save_state", "set_state", "state_of"]

# Metrics come to be with the first batch, and begin anew with each epoch.
_METRICS = "metrics_"


def state_of(model: Any) -> dict[str, Any]:
    """Return the state of a model as nested dicts of arrays, for `CheckpointManager.save`.

    Args:
        model: a `keras.Model` that was built.

    Raises:
        ArgumentTypeError: it is not a model of Keras.
        MissingDependencyError: Keras is not installed.
    """
    require_of(model, "keras", "Model")
    state: dict[str, Any] = model.get_state_tree(value_format="numpy_array")
    return state


def set_state(model: Any, state: dict[str, Any]) -> None:
    """Restore a state that `state_of` returned.

    An optimizer without variables, as after `compile`, is built first: Keras itself ignores states
    of missing variables.

    Args:
        model: a `keras.Model` that was built, of the same layers and names.
        state: nested dicts of arrays.

    Raises:
        ArgumentTypeError: it is not a model of Keras, or the state is not a dict.
        ArgumentValueError: names or shapes differ from the model. It was not changed.
        MissingDependencyError: Keras is not installed.
    """
    require_of(model, "keras", "Model")
    if not isinstance(state, dict):
        raise ArgumentTypeError("a state must be a dict", found=describe(state, 40))
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not optimizer.built and "optimizer_variables" in state:
        optimizer.build(model.trainable_variables)
    own, loaded = dict(_shapes(state_of(model))), dict(_shapes(state))
    for name, shape in loaded.items():
        is_metric = name not in own and name.startswith(_METRICS)
        if own.get(name) != shape and not is_metric:
            raise ArgumentValueError(
                "the model lacks the variable, or has it with another shape",
                object_name=name,
                expected=describe(own.get(name), 40),
                found=describe(shape, 40),
            )
    missing = sorted(name for name in own.keys() - loaded if not name.startswith(_METRICS))
    if missing:
        raise ArgumentValueError(
            "the state lacks variables of the model", found=", ".join(map(describe, missing[:5]))
        )
    model.set_state_tree(state)


def save_state(
    model: Any,
    filename: Target,
    metadata: Mapping[str, object] | None = None,
    *,
    compression: bool | int | str = False,
    **options: Unpack[SaveOptions],
) -> None:
    """Save the state of a model; see `state_of`.

    Args:
        model: a `keras.Model` that was built.
        filename: the file.
        metadata: as for `ztensor.save_tree`.
        compression: as for `ztensor.save_tree`.
        options: see `ztensor.typing.SaveOptions`.

    Raises:
        ArgumentTypeError: it is not a model of Keras.
        MissingDependencyError: Keras is not installed.
        SourceError: the file could not be written. An old file is unchanged.
    """
    require_options("save_state", options, SaveOptions)
    save_tree(state_of(model), filename, metadata, compression=compression, **options)


def load_state(model: Any, filename: Openable, **options: Unpack[TreeOptions]) -> None:
    """Load the state of a model, checked, into it; see `set_state`.

    Args:
        model: a `keras.Model` that was built.
        filename: the file.
        options: see `ztensor.typing.TreeOptions`; `copy` is always True.

    Raises:
        ArgumentTypeError: it is not a model of Keras, or the file does not hold a state.
        ArgumentValueError: names or shapes differ from the model. It was not changed.
        MissingDependencyError: Keras is not installed.
        ZTensorError: errors of `ztensor.load_tree`.
    """
    require_options("load_state", options, TreeOptions)
    require_of(model, "keras", "Model")
    options["copy"] = True  # it is copied into the model's memory, and therefore checked
    set_state(model, load_tree(filename, **options))


def _shapes(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[int, ...]]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _shapes(value, (*path, str(key)))
        else:
            yield "/".join((*path, str(key))), tuple(getattr(value, "shape", ()))

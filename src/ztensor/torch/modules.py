"""States into modules: missing names, tied tensors, and tensors without elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ztensor.errors import ArgumentTypeError, UsageError, describe
from ztensor.torch.tying import separate, tied

if TYPE_CHECKING:
    from collections.abc import Iterable


def require_module(model: Any) -> torch.nn.Module:
    """Return the argument.

    Raises:
        ArgumentTypeError: it is not a module.
    """
    if not isinstance(model, torch.nn.Module):
        raise ArgumentTypeError(
            "not a model", expected="torch.nn.Module", found=describe(type(model).__qualname__)
        )
    return model


def fill_module(
    model: torch.nn.Module, state: dict[str, Any], file: str, *, strict: bool = True, assign: bool
) -> tuple[list[str], list[str]]:
    """Put a state that was loaded into a module; see `ztensor.torch.load_model`.

    Args:
        model: the module.
        state: names to tensors; tied ones are added.
        file: the state's origin, for messages.
        strict: as for `load_model`.
        assign: as for `load_model`.

    Returns:
        Names that are missing from the state, and names that the module does not have.

    Raises:
        UsageError: names or shapes do not fit, or a tensor has no elements.
    """
    own = model.state_dict(keep_vars=True)
    groups = tied(own)
    is_meta = any(getattr(value, "is_meta", False) for value in state.values())
    for names in groups:  # other tools keep one name of a group
        stored = next((name for name in names if name in state), None)
        if stored is not None:
            state.update((name, state[stored]) for name in names if name not in state)
    if assign:
        separate(state, groups)
    elif not is_meta and (empty := [name for name in _empty(own) if name in state]):
        kind = "On the meta device, where nothing can be copied to"  # torch drops it silently
        error = _misfit(model, file, {kind: empty})
        error.hint = "load_model(..., assign=True) puts the loaded tensors in their place"
        raise error
    shared = [*tied(_parameters(model)), *tied(_buffers(model))] if assign else []
    try:
        missing, unexpected = model.load_state_dict(state, strict=False, assign=assign)
    except RuntimeError as error:
        raise UsageError(str(error), file=file) from error
    for names in shared:
        _tie(model, names)
    empty = [] if is_meta else _empty({**_parameters(model), **_buffers(model)})
    lost = [name for name in empty if name not in missing]
    if strict and (missing or unexpected or lost):
        lists = {
            "Missing key(s) in state_dict": missing,
            "Unexpected key(s) in state_dict": unexpected,
            "Still on the meta device, without elements": lost,
        }
        refusal = _misfit(model, file, lists)
        if lost:
            refusal.hint = (
                "no file has buffers that are not persistent: make them anew on a device, or pass "
                "strict=False and fill those it returns"
            )
        raise refusal
    return [*missing, *lost], list(unexpected)


def _misfit(model: torch.nn.Module, file: str, lists: dict[str, Iterable[str]]) -> UsageError:
    """Return an error with the text that torch has for lists of names."""
    texts = {kind: ", ".join(f'"{name}"' for name in names) for kind, names in lists.items()}
    parts = "".join(f"\n\t{kind}: {text}. " for kind, text in texts.items() if text)
    return UsageError(
        f"Error(s) in loading state_dict for {type(model).__name__}:{parts}", file=file
    )


def _empty(tensors: dict[str, Any]) -> list[str]:
    """Return the names of tensors on the meta device; a state may have other values, too."""
    return [name for name, value in tensors.items() if getattr(value, "is_meta", False)]


def _parameters(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return dict(model.named_parameters(remove_duplicate=False))


def _buffers(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the buffers of a model, also if they are not persistent."""
    return dict(model.named_buffers(remove_duplicate=False))


def _tie(model: torch.nn.Module, names: list[str]) -> None:
    """Give all names the first tensor that has elements."""
    places = [name.rpartition(".") for name in names]
    owners = [(model.get_submodule(owner), attribute) for owner, _, attribute in places]
    tensors = [getattr(owner, attribute) for owner, attribute in owners]
    best = next((tensor for tensor in tensors if not tensor.is_meta), tensors[0])
    for owner, attribute in owners:
        setattr(owner, attribute, best)

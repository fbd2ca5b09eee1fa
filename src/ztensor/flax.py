"""`ztensor.jax` under the name safetensors has for it."""

from ztensor.jax import (
    leaf_names,
    load,
    load_abstract,
    load_file,
    load_tree,
    save,
    save_file,
    save_sharded,
    save_tree,
)

__all__ = [
    "leaf_names",
    "load",
    "load_abstract",
    "load_file",
    "load_tree",
    "save",
    "save_file",
    "save_sharded",
    "save_tree",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__

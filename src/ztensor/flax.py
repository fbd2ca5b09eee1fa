"""`ztensor.jax` under the name safetensors has for it."""

from ztensor.jax import load, load_abstract, load_file, save, save_file

__all__ = ["load", "load_abstract", "load_file", "save", "save_file"]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__

"""`ztensor.jax` under the name safetensors has for it."""

from ztensor.jax import *  # noqa: F403  # all of its public names
from ztensor.jax import __all__ as __all__
from ztensor.jax import __dir__ as __dir__

"""Changes of finished files, new files out of old ones, and repair."""

from ztensor.io.edit import *  # noqa: F403  # all of its public names
from ztensor.io.edit import __all__ as __all__
from ztensor.io.edit import __dir__ as __dir__

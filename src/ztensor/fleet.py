"""Many files at once: verified, hashed, converted, their values looked at, by any executor."""

from ztensor.insight.fleet import *  # noqa: F403  # all of its public names
from ztensor.insight.fleet import __all__ as __all__
from ztensor.insight.fleet import __dir__ as __dir__

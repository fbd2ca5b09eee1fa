"""`ztensor.distributed` under its former name."""

from ztensor.distributed import *  # noqa: F403  # all of its public names
from ztensor.distributed import __all__ as __all__
from ztensor.distributed import __dir__ as __dir__

"""Hypothesis profiles: `default` keeps the suite short, HYPOTHESIS_PROFILE=long searches."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No deadline: a shared machine is slow now and then, and pytest's timeout notices a hang.
# A blob is printed, so that a failure on another machine can be repeated here.
COMMON = settings(
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("default", COMMON, max_examples=60)
settings.register_profile("long", COMMON, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

"""What all tests share: the hypothesis profiles."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("dev", max_examples=50, deadline=None, derandomize=True)
settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True, print_blob=True)
settings.register_profile(
    "fuzz", max_examples=500, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

"""What every test shares: the same Hypothesis examples at every run, new ones when asked for."""

import os

from hypothesis import settings

# A red build is then the fault of a change. HYPOTHESIS_PROFILE=explore looks for new examples.
settings.register_profile("repeat", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))

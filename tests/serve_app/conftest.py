"""Ray's own modules warn when they are first imported; our tests turn warnings into errors."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import ray.serve  # noqa: F401

"""Real servers for the end-to-end tests: Ray Serve, Prometheus, the daemon, load."""

import warnings

with warnings.catch_warnings():
    # Ray's own deprecations would fail the suite, in which warnings are errors.
    warnings.simplefilter("ignore")
    import ray.serve  # noqa: F401

"""Time to first token as the client feels it: measured at the ingress, router wait included."""

import math
from collections.abc import Sequence

from ray.util import metrics

# Seconds; each configured SLO is added, so that attainment is a bucket and no interpolation.
DEFAULT_BOUNDS_S = (
    0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0,
)  # fmt: skip
LABELS = ("application", "deployment", "model_name")
NEVER_S = 1e9
"""What a request is booked with that got no first token: above every bound, so only in +Inf."""


def ttft_bounds_s(slo_ttft_s: Sequence[float]) -> tuple[float, ...]:
    """Bucket bounds: the defaults and every SLO, ascending."""
    return tuple(sorted({*DEFAULT_BOUNDS_S, *slo_ttft_s}))


class ClientMetrics:
    """On the page: `ray_client_ttft_seconds_bucket` and `ray_client_errors_total{code}`.

    `deployment` is the one that answers (the LLM), not the ingress that measures.
    """

    def __init__(
        self, application: str, deployment: str, model: str, slo_ttft_s: Sequence[float]
    ) -> None:
        tags = {"application": application, "deployment": deployment, "model_name": model}
        self._strictest_s = min(slo_ttft_s, default=math.inf)
        self._ttft = metrics.Histogram(
            "client_ttft_seconds",
            "Seconds from a request's arrival at the ingress to its first token.",
            list(ttft_bounds_s(slo_ttft_s)),
            LABELS,
        ).set_default_tags(tags)
        self._errors = metrics.Counter(
            "client_errors", "Requests that ended in an error, by HTTP status.", (*LABELS, "code")
        ).set_default_tags(tags)

    def first_token(self, ttft_s: float) -> None:
        self._ttft.observe(ttft_s)

    def failed(self, code: int, *, before_first_token: bool) -> None:
        """An error of ours; it missed every SLO if it came before the first token."""
        self._errors.inc(1, {"code": str(code)})
        if before_first_token:
            self._ttft.observe(NEVER_S)

    def refused(self, code: int) -> None:
        """An error of the client's: it says nothing about our speed."""
        self._errors.inc(1, {"code": str(code)})

    def left(self, waited_s: float) -> None:
        """The client went away before its first token: a miss if it had waited past an SLO."""
        if waited_s >= self._strictest_s:
            self._ttft.observe(NEVER_S)

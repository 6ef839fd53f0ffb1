"""Whether a selector matches one cluster once: two sessions or copies would be added up."""

from collections import defaultdict
from collections.abc import Iterable

from controller.adapters.prometheus.client import Series

# The labels that Ray itself puts on a series; any other came from whoever scrapes it.
OF_RAY = frozenset(
    {
        *("__name__", "Component", "NodeAddress", "SessionName", "Version", "WorkerId"),
        *("application", "deployment", "handle", "route", "actor_id", "replica"),
        *("otel_scope_name", "otel_scope_schema_url", "otel_scope_version"),
    }
)


def ambiguities(answer: Iterable[Series]) -> list[str]:
    """Why the matched series must not be added up, each with the label to select by."""
    series = [entry["metric"] for entry in answer]
    problems = []
    sessions = sorted({labels["SessionName"] for labels in series if "SessionName" in labels})
    if len(sessions) > 1:
        problems.append(
            f"series of {len(sessions)} Ray sessions match ({', '.join(sessions)}): add a label "
            "that only one cluster has to prometheus.selector"
        )
    copies: dict[frozenset[tuple[str, str]], list[dict[str, str]]] = defaultdict(list)
    for labels in series:
        copies[frozenset((k, v) for k, v in labels.items() if k in OF_RAY)].append(labels)
    differing = sorted(
        {
            label
            for group in copies.values()
            for label in {name for labels in group for name in labels if name not in OF_RAY}
            if len({labels.get(label) for labels in group}) > 1
        }
    )
    if differing:
        problems.append(
            "the same series is there more than once, told apart by the label "
            f"{' and '.join(differing)}: pick one value of it in prometheus.selector"
        )
    return problems

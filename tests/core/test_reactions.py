"""Alerts: which are news, and which override each asks for."""

from collections.abc import Mapping

import pytest

from controller.core.overrides import Effect, Source
from controller.core.reactions import Alert, Episode, Reaction, Verdict, judged
from controller.core.types import DeploymentId

CHAT, OTHER = DeploymentId("chat", "LLM"), DeploymentId("rag", "Embed")


def alert(
    firing: bool = True, starts_s: float = 100.0, labels: Mapping[str, str] | None = None
) -> Alert:
    all_labels = {"alertname": "QueueWaitHigh", **(labels or {})}
    return Alert("abc", firing, starts_s, all_labels, "12 s wait")


def reaction(**changes: object) -> Reaction:
    values = {
        "name": "queue",
        "match": {"alertname": "QueueWaitHigh"},
        "effect": Effect.BOOST,
        "ttl_s": 60.0,
        "replicas": 2,
    }
    return Reaction(**{**values, **changes})  # type: ignore[arg-type]


OPEN, OVER = Episode(100.0, True), Episode(100.0, False, 100.0)


@pytest.mark.parametrize(
    ("came", "last", "verdict", "after"),
    [
        pytest.param(alert(), None, Verdict.FIRED, OPEN, id="first heard of"),
        pytest.param(alert(), OPEN, Verdict.REPEATED, OPEN, id="told again while it fires"),
        pytest.param(alert(False), OPEN, Verdict.RESOLVED, OVER, id="it ends"),
        pytest.param(alert(False), OVER, Verdict.REPEATED, OVER, id="its end is told again"),
        pytest.param(alert(), OVER, Verdict.REPLAYED, OVER, id="what is over fires"),
        pytest.param(alert(True, 50), OVER, Verdict.REPLAYED, OVER, id="what was before fires"),
        pytest.param(alert(False, 50), OVER, Verdict.REPLAYED, OVER, id="an older end"),
        pytest.param(
            alert(True, 200),
            OVER,
            Verdict.FIRED,
            Episode(200.0, True, 100.0),
            id="it fires again later",
        ),
        pytest.param(
            alert(False, 100),
            Episode(200.0, True, 100.0),
            Verdict.REPLAYED,
            Episode(200.0, True, 100.0),
            id="the end of the episode before does not end this one",
        ),
        pytest.param(
            alert(True, 90),
            OPEN,
            Verdict.REPEATED,
            Episode(90.0, True),
            id="a second server moves the beginning back",
        ),
        pytest.param(
            alert(False, 90), OPEN, Verdict.RESOLVED, OVER, id="and it ends with that beginning"
        ),
        pytest.param(
            alert(True, 150), OPEN, Verdict.FIRED, Episode(150.0, True), id="an end was missed"
        ),
        pytest.param(
            alert(False), None, Verdict.RESOLVED, OVER, id="the end of what was never heard of"
        ),
    ],
)
def test_only_what_is_news_has_an_effect(
    came: Alert, last: Episode | None, verdict: Verdict, after: Episode
) -> None:
    assert judged(came, last) == (verdict, after)


@pytest.mark.parametrize(
    ("labels", "target", "found"),
    [
        pytest.param({"application": "chat", "deployment": "LLM"}, None, [CHAT], id="its labels"),
        pytest.param({"application": "rag"}, None, [OTHER], id="a whole application"),
        pytest.param({}, None, [CHAT, OTHER], id="no labels: every one"),
        pytest.param({}, OTHER, [OTHER], id="the reaction's own"),
        pytest.param({"application": "chat", "deployment": "x"}, None, [], id="not one of ours"),
        pytest.param({}, DeploymentId("a", "b"), [], id="the reaction's own, not ours"),
    ],
)
def test_it_acts_on_known_deployments_only(
    labels: dict[str, str], target: DeploymentId | None, found: list[DeploymentId]
) -> None:
    assert reaction(target=target).targets(alert(labels=labels), [CHAT, OTHER]) == found


def test_every_label_of_the_match_must_be_there() -> None:
    picky = reaction(match={"alertname": "QueueWaitHigh", "severity": "page"})
    assert not picky.answers(alert())
    assert picky.answers(alert(labels={"severity": "page"}))


def test_the_override_ends_with_its_ttl_and_says_why() -> None:
    made = reaction().override(alert(), 1000.0)
    assert (made.from_s, made.until_s, made.replicas) == (1000.0, 1060.0, 2)
    assert made.source is Source.ALERT
    assert made.why == "alert QueueWaitHigh, reaction queue: 12 s wait"
    assert reaction().key(alert(True)) == reaction().key(alert(False)) == made.id

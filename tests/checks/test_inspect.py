"""What the servers said is read right; where they say nothing usable, that is a finding."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controller.adapters.serve.view import Actuation
from controller.checks.findings import Inspection, Subject
from controller.checks.inspect import inspect
from controller.checks.rules import judge
from tests.checks.findings import found
from tests.checks.servers import recorded


def test_what_the_servers_said_is_measured(seen: Inspection) -> None:
    assert seen.cadence is not None
    assert seen.cadence.scraped_s == pytest.approx(1.0, abs=0.05)
    assert seen.cadence.reported_s == pytest.approx(1.0, abs=0.05)
    stays = {str(s.deployment.target): s.stay_p99_s for s in seen.subjects}
    assert stays["hasty/Model"] == (2.0, 5.0)
    assert stays["sound/Model"] is None
    assert seen.versions == {"10.0.0.2": "2.60.0"}


def test_a_slower_report_is_told_from_the_scrapes() -> None:
    def every_fifth(answers: dict[str, Any]) -> None:
        for series in answers["loops"]:
            values = series["values"]
            for place, point in enumerate(values):
                point[1] = values[place - place % 5][1]

    with recorded(change_metrics=every_fifth) as settings:
        measured = asyncio.run(inspect(settings)).cadence
    assert measured is not None
    assert measured.scraped_s == pytest.approx(1.0, abs=0.05)
    assert measured.reported_s == pytest.approx(5.0, abs=0.1)


def broken(part: str) -> Callable[[dict[str, Any]], None]:
    def change(answers: dict[str, Any]) -> None:
        answers[part] = {"data": {}}

    return change


@pytest.mark.parametrize("part", ["nodes", "placement_groups"])
def test_an_answer_that_cannot_be_used_is_a_finding_and_the_rest_is_still_judged(
    part: str,
) -> None:
    with recorded(broken(part)) as settings:
        found = list(judge(asyncio.run(inspect(settings))))
    rules = {finding.rule for finding in found if finding.severity == "error"}
    assert "unanswered" in rules
    if part == "placement_groups":
        assert {"target_at_the_limit", "cut_streams"} <= rules


def test_a_query_that_is_refused_is_a_finding_and_the_others_are_asked() -> None:
    def refuse(answers: dict[str, Any]) -> None:
        answers["versions"] = None

    with recorded(change_metrics=refuse) as settings:
        seen = asyncio.run(inspect(settings))
    [finding] = found(seen, "unanswered")
    assert "query is too large" in finding.reason
    assert seen.versions is None
    assert seen.cadence is not None
    assert {one.stay_p99_s for one in seen.subjects} > {None}


def subjects(seen: Inspection) -> Iterator[tuple[str, Subject]]:
    for one in seen.subjects:
        yield str(one.deployment.target), one


def test_only_the_deployments_of_the_settings_are_ours() -> None:
    with recorded() as settings:
        entry = {"application": "chat", "deployment": "LLM", "actuation": "external"}
        chosen = settings.model_validate(
            {**settings.model_dump(exclude_unset=True), "deployments": [entry]}
        )
        seen = asyncio.run(inspect(chosen))
    ours = {name: one.actuation for name, one in subjects(seen) if one.actuation is not None}
    assert ours == {"chat/LLM": Actuation.EXTERNAL}
    [finding] = found(seen, "refused_actuation")
    assert finding.where == "chat/LLM"

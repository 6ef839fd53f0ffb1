"""An explanation says what the planner went by, and its counterfactuals are the planner's own."""

import json
from typing import Any

import pytest

from controller.core.capacity import CapacityLaw
from controller.core.choosing import DEFAULT, LAST_VALUE, Trial, Verdict
from controller.core.explain import Promise, explained, law_of, walked, would_change
from controller.core.guards import GUARDS
from controller.core.planning import Planner
from controller.core.records import record
from controller.core.types import Outcome, Reason
from controller.core.weighing import PREFILL_SHARE
from controller.core.words import GUARDS as GUARD_WORDS
from controller.core.words import REASONS, VERDICTS, in_words, verdict_in_words
from tests.core.test_overrides import override
from tests.core.worlds import World, planner

WARM = 90


def promise(made: Planner) -> Promise:
    settings = made.settings
    return Promise(
        settings.ttft_s,
        settings.attainment,
        settings.min_replicas,
        settings.max_replicas,
        settings.periods.window_s,
        PREFILL_SHARE,
    )


def kept(live: World, made: Planner, **changes: Any) -> dict[str, Any]:
    """A decision as it comes back from the journal."""
    decision = live.step(made, **changes)
    plain = record(decision, Outcome(decision.action, True, "min_replicas 3"))
    back: dict[str, Any] = json.loads(json.dumps(plain))
    return back


@pytest.fixture
def live() -> World:
    return World.with_replicas(4, rate_rps=12)


@pytest.fixture
def made(live: World) -> Planner:
    built = planner()
    live.run(built, WARM)
    return built


def test_every_reason_and_every_guard_has_words() -> None:
    assert set(REASONS) == set(Reason)
    assert set(GUARD_WORDS) == {guard.__name__ for guard, _ in GUARDS}
    assert in_words("of another version") == "of another version"


def test_it_says_inputs_forecasts_and_guards(live: World, made: Planner) -> None:
    said = explained(kept(live, made), live.at_s + 5, promise(made))
    assert said["age_s"] == 5
    arrivals = next(each for each in said["inputs"] if each["signal"] == "arrivals")
    assert (arrivals["trust"], arrivals["age_s"]) == ("present", 1.0)
    assert [each["horizon"] for each in said["forecasts"]] == ["near", "ahead"]
    assert said["forecasts"][1]["rps"]["0.95"] >= said["forecasts"][1]["rps"]["0.5"] > 0
    assert [step["guard"] for step in said["guards"]] == [guard.__name__ for guard, _ in GUARDS]
    assert said["guards"][-1]["after"] == said["wanted"]
    assert said["detail"] == "min_replicas 3"
    json.dumps(said, allow_nan=False)


def test_the_walk_goes_through_every_change() -> None:
    steps = walked([["kept_for_one_lead", 3, 6], ["within_bounds", 6, 5]], 5)
    numbers = [(step["before"], step["after"]) for step in steps]
    assert numbers[0] == (3, 6)
    assert set(numbers[1:-1]) == {(6, 6)}
    assert numbers[-1] == (6, 5)


def test_what_is_kept_for_a_lead_says_for_how_long(live: World, made: Planner) -> None:
    live.rate_rps = 25
    live.run(made, 30)
    live.rate_rps = 3
    while (decision := kept(live, made))["reason"] != "hold":
        pass
    (timer,) = [t for t in explained(decision, live.at_s, promise(made))["blocking"]]
    assert timer["guard"] == "kept_for_one_lead"
    waited_s = 0.0
    while kept(live, made)["wanted"] == decision["wanted"]:
        waited_s += 10
    assert timer["for_s"] == pytest.approx(waited_s, abs=15)


def test_an_override_says_when_it_ends(live: World, made: Planner) -> None:
    made.override([override("pin", replicas=7, until_s=live.at_s + 100)])
    decision = kept(live, made)
    said = explained(decision, live.at_s + 20, promise(made))
    assert said["blocking"] == [
        {"guard": "override pin", "what": "HighQueueWait", "for_s": pytest.approx(70.0)}
    ]
    assert decision["unforced"] < 7


def test_a_conflict_says_when_writing_goes_on(live: World, made: Planner) -> None:
    decision = kept(live, made)
    for tick in range(12):
        live.scale(1 if tick % 2 else 12)
        decision = kept(live, made)
    blocks = explained(decision, live.at_s, promise(made))["blocking"]
    assert 0 < next(b["for_s"] for b in blocks if b["guard"] == "conflict") <= 300


@pytest.mark.parametrize("law", [CapacityLaw(16.0, 2.0, 0.06), CapacityLaw(1.0, 2.0, 0.0)])
def test_the_law_is_the_one_the_decision_went_by(law: CapacityLaw) -> None:
    said = {"slots": law.slots, "work_s": law.work_s, "capacity_rps": law.capacity_rps}
    found = law_of(said)
    assert found is not None
    assert (found.slots, found.work_s) == (law.slots, law.work_s)
    assert found.beta == pytest.approx(law.beta)
    assert law_of({**said, "capacity_rps": None}) is None


def test_the_need_that_it_starts_from_is_the_planner_s(live: World, made: Planner) -> None:
    """With nothing held and nothing waiting the plan is the need."""
    decision = kept(live, made)
    found = would_change(decision, promise(made))
    assert {each["need_now"] for each in found} == {
        decision["trail"][0][1] if decision["trail"] else decision["wanted"]
    }
    more = next(each for each in found if each["multiple"] > 1)
    fewer = next(each for each in found if each["multiple"] < 1)
    assert more["replicas"] > more["need_now"] > fewer["replicas"]


def test_nothing_is_foretold_of_a_load_that_did_not_decide(live: World, made: Planner) -> None:
    decision = kept(live, made, arrivals=None)
    said = explained(decision, live.at_s, promise(made))
    assert said["would_change"] == []
    assert said["forecasts"] == []
    assert said["in_words"] == REASONS[Reason.BLIND]


def test_a_decision_of_an_earlier_version_is_explained_too(live: World, made: Planner) -> None:
    decision = kept(live, made)
    for added in ("timers", "unforced", "choice"):
        del decision[added]
    said = explained(decision, live.at_s, promise(made))
    assert said["blocking"] == []
    assert said["choice"] is None


def test_model_and_price_in_force_are_told_with_what_each_candidate_came_to(
    live: World, made: Planner
) -> None:
    first = explained(kept(live, made), live.at_s, promise(made))["choice"]
    assert (first["verdict"], first["age_s"], first["trials"]) == ("untried", None, [])
    made.weigh([Trial(DEFAULT, 100.0, 0.004), Trial(LAST_VALUE, 80.0, 0.005)])
    chosen_s = live.at_s
    made.keep("the process died")
    told = explained(kept(live, made), chosen_s + 3600, promise(made))["choice"]
    assert (told["model"], told["price_ratio"], told["age_s"]) == ("last_value", 1.0, 3600)
    assert told["in_words"] == VERDICTS[Verdict.FAILED]
    assert told["problem"] == "the process died"
    assert told["trials"][1] == {
        "model": "last_value",
        "price_ratio": 1.0,
        "gpu_hours": 80.0,
        "late_ratio": 0.005,
    }


def test_every_verdict_has_words() -> None:
    assert set(VERDICTS) == set(Verdict)
    assert verdict_in_words("of another version") == "of another version"

"""Settings: defaults, the example file, overrides, and errors that name the setting."""

import os
from itertools import pairwise
from pathlib import Path

import pytest

from controller.example import render
from controller.settings import Settings, SettingsError, load

EXAMPLE = Path(__file__).resolve().parents[2] / "controller" / "leadtime.example.yaml"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("LEADTIME_"):
            monkeypatch.delenv(name)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "leadtime.yaml"
    path.write_text(text)
    return path


def test_the_shipped_example_equals_the_defaults() -> None:
    assert load(EXAMPLE) == Settings()


def test_the_shipped_example_is_what_init_writes() -> None:
    assert EXAMPLE.read_text() == render()


def test_every_setting_of_the_example_says_what_it_is_for() -> None:
    lines = EXAMPLE.read_text().splitlines()
    bare = [
        line
        for above, line in pairwise(lines)
        if ":" in line and not line.lstrip().startswith("#") and not above.lstrip().startswith("#")
    ]
    assert bare == []


def test_shadow_and_loopback_are_the_defaults() -> None:
    assert Settings().mode == "shadow"
    assert Settings().http.host == "127.0.0.1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("tick_s: 0", "tick_s: ", id="out of bounds"),
        pytest.param("tick: 10", "tick: is no setting", id="unknown key"),
        pytest.param("slo: {ttft: 2}", "slo.ttft: is no setting", id="unknown nested key"),
        pytest.param("slo: {ttft_s: soon}", "slo.ttft_s: ", id="not a number"),
        pytest.param(
            "slo: {min_replicas: 9, max_replicas: 3}", "must not exceed", id="bounds crossed"
        ),
        pytest.param("deployments: [{application: a}]", "deployments.0.deployment", id="missing"),
        pytest.param(
            "deployments: [{application: a, deployment: b}, {application: a, deployment: b}]",
            "a/b more than once",
            id="listed twice",
        ),
        pytest.param("serve: {url: ftp://x}", "must begin with http", id="not a URL"),
        pytest.param(
            "serve: {token_file: /nowhere/token}", "serve.token_file: no such file", id="no file"
        ),
        *(
            pytest.param(f"reactions: [{{name: r, match: {{a: b}}, {keys}}}]", said, id=said)
            for keys, said in (
                ("effect: boost", "boost needs one of replicas and factor"),
                ("effect: boost, replicas: 0", "a boost adds at least 1"),
                ("effect: hold, replicas: 2", "hold needs neither"),
                ("effect: pin, factor: 2", "pin needs replicas"),
                ("effect: kill", "reactions.0.effect: "),
                ("effect: hold, application: a", "application and deployment go together"),
                ("effect: hold, ttl_s: 0", "reactions.0.ttl_s: "),
            )
        ),
        pytest.param("reactions: [{name: r, match: {}, effect: hold}]", "match: ", id="all match"),
        pytest.param(
            "sinks: [{name: a, url: 'http://x'}, {name: a, url: 'http://y'}]",
            "sinks has a more than once",
            id="two sinks of a name",
        ),
        pytest.param("sinks: [{name: a, url: x}]", "sinks.0.url: must begin", id="a sink's URL"),
        pytest.param(
            "sinks: [{name: a, url: 'http://x', kinds: [boom]}]", "sinks.0.kinds.0: ", id="a kind"
        ),
        pytest.param("mode: maybe", "mode: ", id="no such mode"),
        pytest.param("- a", "must be a mapping", id="a list"),
        pytest.param("~: 3", "None is no setting", id="a key that is nothing"),
        pytest.param("[a, b]: 3", "is no", id="a key that is a list"),
        pytest.param("a: [", "is no YAML", id="no YAML"),
        pytest.param("a: " + "[" * 5000, "nested too deeply", id="a deep nest"),
        pytest.param("slo: 3", "slo: ", id="a number for a group"),
        *(
            pytest.param(f"events: [{{name: sale, {keys}}}]", said, id=f"event: {said}")
            for keys, said in (
                ("cron: 0 9 * * *, multiple: 3", "events.0.duration_s: "),
                ("cron: 0 9 * * *, multiple: 3, duration_s: 0", "events.0.duration_s: "),
                ("cron: 0 9 * * *, multiple: 1, duration_s: 60", "events.0.multiple: "),
                ("cron: 0 9 * * *, rate_rps: 0, duration_s: 60", "events.0.rate_rps: "),
                ("cron: 0 9 * *, multiple: 3, duration_s: 60", "events.0.cron: must have five"),
                (
                    "cron: 0 25 * * *, multiple: 3, duration_s: 60",
                    "events.0.cron: cannot be read at the hour; write it such as '30 8 ",
                ),
                (
                    "cron: 0 9 30 2 *, multiple: 3, duration_s: 60",
                    "events.0.cron: cannot be read at the day-of-month",
                ),
                (
                    "cron: 0 9 * * *, multiple: 3, duration_s: 60, time_zone: Mars/Olympus",
                    "events.0.time_zone: is no IANA time zone; write it like Europe/Berlin",
                ),
                (
                    "start: 2026-12-24T18:00:00, multiple: 3, duration_s: 60",
                    "events.0.start: must be a time with its offset, such as 2026-12-24T18:00",
                ),
                ("start: soon, multiple: 3, duration_s: 60", "events.0.start: must be a time"),
                ("start: 1790000000, multiple: 3, duration_s: 60", "events.0.start: must be a"),
                ("multiple: 3, duration_s: 60", "events.0: needs exactly one of cron and start"),
                (
                    "start: '2026-12-24T18:00Z', cron: 0 9 * * *, multiple: 3, duration_s: 60",
                    "one of cron and start; both are set",
                ),
                (
                    "cron: 0 9 * * *, duration_s: 60",
                    "one of multiple and rate_rps; neither is set",
                ),
                (
                    "cron: 0 9 * * *, duration_s: 60, multiple: 3, rate_rps: 4",
                    "one of multiple and rate_rps; both are set",
                ),
                (
                    "start: 2026-12-24T18:00:00Z, time_zone: UTC, multiple: 3, duration_s: 60",
                    "start has its offset: delete time_zone",
                ),
                (
                    "cron: 0 9 * * *, multiple: 3, duration_s: 60, every: day",
                    "events.0.every: is no setting",
                ),
            )
        ),
        pytest.param(
            "deployments: [{application: a, deployment: b, events: [{name: x, duration_s: 60}]}]",
            "deployments.0.events.0: needs exactly one of cron and start",
            id="an event of a deployment",
        ),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=r"leadtime\.yaml") as caught:
        load(written(tmp_path, text))
    assert said in str(caught.value)


def test_all_wrong_settings_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load(written(tmp_path, "tick_s: 0\nseason_s: 1\nslo: {attainment: 2}"))
    assert len(str(caught.value).splitlines()) == 3


def test_deployments_take_from_slo_what_they_do_not_say(tmp_path: Path) -> None:
    text = (
        "slo: {ttft_s: 3, max_replicas: 5}\n"
        "deployments: [{application: a, deployment: b, max_replicas: 9}]"
    )
    entry = load(written(tmp_path, text)).deployments[0]
    assert (entry.ttft_s, entry.max_replicas, entry.attainment) == (3, 9, 0.99)


def test_a_start_is_read_from_yaml_and_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = "{name: sale, duration_s: 60, multiple: 3, start: %s}"
    for start in ("2026-12-24T18:00:00+01:00", "'2026-12-24T17:00:00Z'", "2026-12-24T17:00:00Z"):
        found = load(written(tmp_path, f"events: [{event % start}]")).events[0].start
        assert found is not None
        assert found.timestamp() == 1_798_131_600
    monkeypatch.setenv(
        "LEADTIME_EVENTS",
        '[{"name": "x", "start": "2026-12-24T18:00:00+01:00", "duration_s": 9, "rate_rps": 5}]',
    )
    assert load(None).events[0].start == found


def test_the_environment_wins_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEADTIME_PROMETHEUS__URL", "http://elsewhere:9090")
    monkeypatch.setenv("LEADTIME_PROMETHEUS__SELECTOR", '{"cluster": "c1"}')
    settings = load(written(tmp_path, "prometheus: {url: 'http://here:9090', scrape_s: 5}"))
    assert settings.prometheus.url == "http://elsewhere:9090"
    assert settings.prometheus.selector == {"cluster": "c1"}
    assert settings.prometheus.scrape_s == 5


def test_an_unknown_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADTIME_TIK_S", "3")
    with pytest.raises(SettingsError, match="LEADTIME_TIK_S"):
        load(None)


def test_secrets_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADTIME_SERVE__TOKEN", "canary")
    monkeypatch.setenv("LEADTIME_PROMETHEUS__PASSWORD", "canary")
    monkeypatch.setenv("LEADTIME_PROMETHEUS__HEADERS", '{"X-Key": "canary"}')
    settings = load(None)
    assert "canary" not in repr(settings)
    assert settings.serve.token is not None
    assert settings.serve.token.get_secret_value() == "canary"

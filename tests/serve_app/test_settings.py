"""The application's args: defaults that hold, and errors that name the key."""

from typing import Any

import pytest

from serve_app.law import Law
from serve_app.settings import AppSettings, InvalidArgs, StandInSettings, VllmSettings, parse_args

VLLM = {"kind": "vllm", "source": "tiny-random"}


def test_no_args_are_the_defaults() -> None:
    assert parse_args({}) == AppSettings()


def test_the_engine_settings_are_its_law() -> None:
    engine = {"slots": 4, "beta": 0.1, "prefill_tokens_per_s": 1000, "token_s": 0.02}
    settings = parse_args({"engine": engine}).engine
    assert isinstance(settings, StandInSettings)
    assert settings.law() == Law(4, 0.1, 1000.0, 0.02)


def test_vllm_is_chosen_by_its_kind() -> None:
    engine = parse_args({"engine": VLLM | {"engine_args": {"seed": 3}}}).engine
    assert isinstance(engine, VllmSettings)
    assert engine.engine_args == {"seed": 3}


def test_one_slo_may_stand_alone() -> None:
    assert parse_args({"slo_ttft_s": 2}).slo_ttft_s == (2.0,)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"engine": {"slotz": 3}}, r"engine\.slotz: unknown key"),
        ({"engin": {}}, "engin: unknown key"),
        ({"engine": {"slots": 0}}, r"engine\.slots: .*greater than or equal to 1, not 0"),
        ({"engine": {"load_s": "soon"}}, r"engine\.load_s: .*number.*'soon'"),
        ({"engine": {"kind": "sglang"}}, r"engine: kind must be 'standin' or 'vllm'"),
        ({"engine": 3}, r"engine: "),
        ({"engine": {"kind": "vllm"}}, r"engine\.source: Field required"),
        ({"engine": VLLM | {"slotz": 3}}, r"engine\.slotz: unknown key"),
        (
            {"engine": VLLM | {"engine_args": {"max_num_seqs": 3}}},
            r"engine\.engine_args: .*max_num_seqs is set by the key slots",
        ),
        (
            {"engine": VLLM | {"engine_args": {"disable_log_stats": True}}},
            r"disable_log_stats must stay",
        ),
        ({"gpus": -1}, "gpus: "),
        ({"slo_ttft_s": [1.0, -1]}, r"slo_ttft_s\.1: .*greater than 0"),
        ({"engine": {"token_s": float("nan")}}, r"engine\.token_s"),
        ({"default_max_tokens": 40_000}, "default_max_tokens must be below"),
        ({"model": "", "default_max_tokens": 0}, "model: .*; default_max_tokens: "),
    ],
    ids=[
        "unknown engine key",
        "unknown key",
        "out of bounds",
        "wrong type",
        "unknown engine",
        "no engine",
        "vLLM without weights",
        "unknown vLLM key",
        "an argument of vLLM that is a key",
        "an argument of vLLM that is fixed",
        "negative GPUs",
        "impossible SLO",
        "not a number",
        "contradiction",
        "two faults at once",
    ],
)
def test_says_which_key_is_wrong_and_why(args: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidArgs, match=says):
        parse_args(args)

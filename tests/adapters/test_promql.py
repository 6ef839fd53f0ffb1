"""PromQL is built with escaping, whatever things are called."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.adapters.prometheus.promql import any_of, duration, selector, string


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        pytest.param("LLM", '"LLM"', id="plain"),
        pytest.param('say "hi"', '"say \\"hi\\""', id="quotes"),
        pytest.param("back\\slash", '"back\\\\slash"', id="backslash"),
        pytest.param("two\nlines", '"two\\nlines"', id="newline"),
        pytest.param("模型-é", '"模型-é"', id="unicode"),
        pytest.param("LLMServer:meta--Llama-3_1", '"LLMServer:meta--Llama-3_1"', id="an LLM"),
    ],
)
def test_strings_are_escaped(value: str, literal: str) -> None:
    assert string(value) == literal


def test_a_selector_names_metrics_and_labels() -> None:
    assert selector(["a", "b.c"], {"cluster": 'x"y'}) == '{__name__=~"a|b\\\\.c",cluster="x\\"y"}'


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=4), st.text(max_size=12))
def test_any_of_matches_exactly_its_values(values: list[str], other: str) -> None:
    pattern = re.compile(any_of(values))
    assert all(pattern.fullmatch(value) for value in values)
    assert bool(pattern.fullmatch(other)) == (other in values)


def test_durations_are_whole_milliseconds() -> None:
    assert (duration(15), duration(0.5)) == ("15000ms", "500ms")

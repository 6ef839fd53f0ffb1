"""Synthetic load by recipe: a rate of ramps, times bursts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from serve_app.arrivals import Arrivals, FloatArray, Lengths, draw_from_rate

Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class BadRecipe(ValueError):
    """A recipe that makes no load; the message names each key at fault."""


class Recipe(BaseModel):
    """Requests a second over time: linear between the points of `rate`, times gamma bursts.

    Every `burst_s` seconds a fresh mean-one gamma factor of relative sd `burst_cv` multiplies
    the rate; arrivals are Poisson within.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    rate: Annotated[tuple[tuple[Rate, Rate], ...], Field(min_length=2)]
    """Points (second, requests a second), in order of time; two at one second are a jump."""
    burst_cv: Annotated[float, Field(ge=0, le=5)] = 0.0
    burst_s: Annotated[float, Field(gt=0)] = 5.0
    prompt_mean: Annotated[float, Field(gt=0)] = 512.0
    prompt_cv: Annotated[float, Field(ge=0, le=10)] = 1.0
    output_mean: Annotated[float, Field(gt=0)] = 128.0
    output_cv: Annotated[float, Field(ge=0, le=10)] = 0.8
    max_tokens: Annotated[int, Field(ge=1)] = 16_384

    @model_validator(mode="after")
    def _time_goes_forward(self) -> Self:
        if np.any(np.diff([at_s for at_s, _ in self.rate]) < 0):
            raise ValueError("rate: points must be in order of time")
        if self.span_s <= 0:
            raise ValueError("rate: the last point must lie after second 0")
        return self

    @property
    def span_s(self) -> float:
        return self.rate[-1][0]

    def rate_at(self, times_s: FloatArray) -> FloatArray:
        """The rate without bursts; before the first point as at it."""
        points = np.asarray(self.rate)
        return np.asarray(np.interp(times_s, points[:, 0], points[:, 1]))

    def lengths(self) -> Lengths:
        return Lengths(
            self.prompt_mean, self.prompt_cv, self.output_mean, self.output_cv, self.max_tokens
        )

    def draw(self, rng: np.random.Generator) -> Arrivals:
        """The requests of one run; the same generator state gives the same ones."""
        bursts = self._bursts(rng)

        def bursty(times_s: FloatArray) -> FloatArray:
            return self.rate_at(times_s) * bursts[(times_s / self.burst_s).astype(np.int64)]

        return draw_from_rate(bursty, self.span_s, self.lengths(), rng)

    def _bursts(self, rng: np.random.Generator) -> FloatArray:
        count = int(self.span_s / self.burst_s) + 2
        if self.burst_cv == 0:
            return np.ones(count)
        shape = 1.0 / self.burst_cv**2
        return rng.gamma(shape, 1.0 / shape, count)


def parse_recipe(recipe: Mapping[str, Any] | bytes, name: str = "recipe") -> Recipe:
    """A recipe from JSON or a mapping; BadRecipe naming each key at fault."""
    try:
        if isinstance(recipe, bytes):
            return Recipe.model_validate_json(recipe)
        return Recipe.model_validate(recipe)
    except ValidationError as error:
        faults = (
            f"{'.'.join(map(str, fault['loc'])) or 'recipe'}: {fault['msg']}"
            for fault in error.errors()
        )
        raise BadRecipe(f"{name}: {'; '.join(faults)}") from error


def read_recipe(path: Path) -> Recipe:
    """The recipe of a JSON file; BadRecipe naming file and key, OSError if it cannot be read."""
    return parse_recipe(path.read_bytes(), str(path))

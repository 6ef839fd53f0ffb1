"""Ray Serve's own autoscaler, by `controller.replay.native`."""

from controller.replay.native import NativeSettings, play_native
from controller.replay.plant import Plant
from controller.replay.score import Score

_DEFAULTS = {
    "upscale_delay_s": 30.0,
    "downscale_delay_s": 600.0,
    "look_back_period_s": 30.0,
    "upscaling_factor": 1.0,
    "downscaling_factor": 1.0,
}
STYLES: tuple[dict[str, float], ...] = (
    _DEFAULTS,
    _DEFAULTS | {"upscale_delay_s": 0.0},
    _DEFAULTS | {"upscale_delay_s": 0.0, "downscale_delay_s": 300.0},
    _DEFAULTS | {"upscale_delay_s": 0.0, "downscale_delay_s": 120.0},
    _DEFAULTS | {"upscale_delay_s": 0.0, "downscale_delay_s": 300.0, "look_back_period_s": 10.0},
    _DEFAULTS | {"upscale_delay_s": 10.0, "downscale_delay_s": 60.0},
)
"""At cold starts of minutes the delays decide: the first waits half a minute before it asks."""


def play(plant: Plant, params: dict[str, float]) -> Score:
    settings = NativeSettings(
        max_replicas=plant.settings.cap,
        target_ongoing_requests=params["target_ongoing_requests"],
        upscale_delay_s=params["upscale_delay_s"],
        downscale_delay_s=params["downscale_delay_s"],
        look_back_period_s=params["look_back_period_s"],
        upscaling_factor=params["upscaling_factor"],
        downscaling_factor=params["downscaling_factor"],
    )
    return play_native(plant, settings)

"""A fixed number of replicas, as one who sizes for the peak sets it."""

from controller.replay.compiled import compiled
from controller.replay.plant import Plant
from controller.replay.rivals.stabilisation import bounded
from controller.replay.runner import play as play_rule
from controller.replay.score import Score
from controller.replay.trace import Floats

TICK_S = 60.0
STYLES: tuple[dict[str, float], ...] = ({},)


@compiled
def fixed(view: Floats, memory: Floats, parameters: Floats) -> int:
    """Parameters: replicas, cap."""
    return bounded(int(parameters[0]), parameters[1])


def play(plant: Plant, params: dict[str, float]) -> Score:
    parameters = [round(params["replicas"]), plant.settings.cap]
    return play_rule(plant, fixed, parameters=parameters, tick_s=TICK_S)

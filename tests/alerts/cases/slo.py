"""First tokens in time."""

from collections.abc import Mapping

from tests.alerts.cases.case import ATTAINMENT, BOTH, LLM, OURS, SLO, Case


def client(
    late_per_minute: int, all_per_minute: int, minutes: int, le: str = "2.0"
) -> dict[str, str]:
    """First tokens as clients felt them, with an SLO of 2 s for 99 %."""
    name, labels = "ray_client_ttft_seconds", f'{LLM},WorkerId="w"'
    in_time = all_per_minute - late_per_minute
    return {
        f'{name}_bucket{{{labels},le="0.5"}}': f"0x{minutes}",
        f'{name}_bucket{{{labels},le="{le}"}}': f"0+{in_time}x{minutes}",
        f'{name}_bucket{{{labels},le="+Inf"}}': f"0+{all_per_minute}x{minutes}",
        f"{name}_count{{{labels}}}": f"0+{all_per_minute}x{minutes}",
        SLO: f"2x{minutes}",
        ATTAINMENT: f"0.99x{minutes}",
    }


def counted(late_per_minute: int, all_per_minute: int, minutes: int) -> dict[str, str]:
    """The same as Leadtime counts it, where no client histogram is."""
    return {
        f"leadtime_first_tokens_total{{{LLM},{OURS}}}": f"0+{all_per_minute}x{minutes}",
        f"leadtime_late_first_tokens_total{{{LLM},{OURS}}}": f"0+{late_per_minute}x{minutes}",
        SLO: f"2x{minutes}",
        ATTAINMENT: f"0.99x{minutes}",
    }


def pace(window: str, times: str) -> str:
    pace = f"at {times} times the allowed pace over {window}"
    return f"chat/LLM: late first tokens use the error budget {pace}"


def burned(window: str) -> Mapping[str, str]:
    return {**BOTH, "window": window}


CASES = (
    Case(
        "SloBurnFast",
        "a fifth late for half an hour",
        client(120, 600, 60),
        "30m",
        (burned("1h"), pace("1h", "20.0")),
    ),
    Case(
        "SloBurnFast",
        "a fifth late, told by Leadtime's own count",
        counted(120, 600, 60),
        "30m",
        (burned("1h"), pace("1h", "20.0")),
    ),
    Case(
        "SloBurnFast",
        "no bucket ends at the SLO, so Leadtime's count decides",
        {**client(0, 600, 60, le="2.5"), **counted(120, 600, 60)},
        "30m",
        (burned("1h"), pace("1h", "20.0")),
    ),
    Case("SloBurnFast", "one in a hundred late", client(6, 600, 60), "30m"),
    Case(
        "SloBurnFast",
        "it is over: the last five minutes are fine",
        {
            **client(0, 600, 90),
            f'ray_client_ttft_seconds_bucket{{{LLM},WorkerId="w",le="2.0"}}': (
                "0+480x50 24000+600x40"
            ),
        },
        "60m",
    ),
    Case(
        "SloBurnHigh",
        "eight in a hundred late for hours",
        client(48, 600, 420),
        "6h",
        (burned("6h"), pace("6h", "8.0")),
    ),
    Case("SloBurnHigh", "five in a hundred late", client(30, 600, 420), "6h"),
    Case(
        "SloBurnRaised",
        "four in a hundred late for a day",
        client(24, 600, 1500),
        "24h",
        (burned("1d"), pace("1d", "4.0")),
    ),
    Case("SloBurnRaised", "two in a hundred late", client(12, 600, 1500), "24h"),
    Case(
        "SloBurnSlow",
        "two in a hundred late for three days",
        client(12, 600, 4400),
        "72h",
        (burned("3d"), pace("3d", "2.0")),
    ),
    Case(
        "SloBurnSlow",
        "as many late as the SLO allows, less one in six",
        client(5, 600, 4400),
        "72h",
    ),
    Case(
        "SloBudgetExhausted",
        "twice as many late as allowed",
        client(12, 600, 180),
        "2h",
        (BOTH, "chat/LLM: the error budget of 30d is used up; -100% of it is left"),
    ),
    Case("SloBudgetExhausted", "half of it is left", client(3, 600, 180), "2h"),
    Case("SloBudgetExhausted", "nobody asks for anything", client(0, 0, 180), "2h"),
)

"""Our metrics: their names, labels and what they say. Nothing else is imported from here."""

from collections.abc import Mapping

OF_DEPLOYMENT = ("application", "deployment")
OF_MODEL = (*OF_DEPLOYMENT, "model")
OF_CANDIDATE = (*OF_MODEL, "price_ratio")
SHOWN_QUANTILES = (0.5, 0.9, 0.95, 0.99)

WANTED = "leadtime_wanted_replicas"
REQUESTED = "leadtime_requested_replicas"
READY = "leadtime_ready_replicas"
SETPOINT = "leadtime_setpoint_replicas"
DEMAND = "leadtime_demand_rps"
QUEUED = "leadtime_queued_requests"
LATE = "leadtime_late_ratio"
FORECAST = "leadtime_forecast_rps"
COVERAGE = "leadtime_forecast_coverage_ratio"
LEAD = "leadtime_lead_seconds"
CAPACITY = "leadtime_capacity_rps"
PRICE = "leadtime_price_gpu_seconds"
REASON = "leadtime_reason"
TRUSTED = "leadtime_signal_trusted"
SIGNAL_AGE = "leadtime_signal_age_seconds"
SILENT = "leadtime_signal_silent_replicas"
UNTRUSTED = "leadtime_signals_untrusted_total"
DECISIONS = "leadtime_decisions_total"
ACTIONS = "leadtime_actions_total"
SHRINK_ERRORS = "leadtime_errors_while_shrinking_total"
TICK = "leadtime_tick_seconds"
TICK_ERRORS = "leadtime_tick_errors_total"
SOURCE_ERRORS = "leadtime_source_errors_total"
FITS = "leadtime_fits_total"
GPU_UTILIZATION = "leadtime_gpu_utilization_ratio"
GPU_MEMORY = "leadtime_gpu_memory_ratio"
ACTIVE = "leadtime_active"
LEADER = "leadtime_leader"
TICKED = "leadtime_ticked_timestamp_seconds"
CLOCK_SKEW = "leadtime_clock_skew_seconds"
JOURNAL_ERRORS = "leadtime_journal_errors_total"
HORIZON = "leadtime_forecast_horizon_seconds"
FORECAST_TRUSTED = "leadtime_forecast_trusted"
MODEL = "leadtime_forecast_model"
GUARD = "leadtime_guard_replicas"
LIMITED = "leadtime_limited"
STARTING = "leadtime_starting_replicas"
PENDING = "leadtime_pending_replicas"
OLDEST_START = "leadtime_oldest_start_seconds"
OLDEST_PENDING = "leadtime_oldest_pending_seconds"
UNHONOURED = "leadtime_unhonoured_seconds"
LEAST = "leadtime_min_replicas"
MOST = "leadtime_max_replicas"
SLO_TTFT = "leadtime_slo_ttft_seconds"
SLO_ATTAINMENT = "leadtime_slo_attainment_ratio"
FIRST_TOKENS = "leadtime_first_tokens_total"
LATE_FIRST_TOKENS = "leadtime_late_first_tokens_total"
GPU_HOUR_PRICE = "leadtime_gpu_hour_price"
CHOSEN_MODEL = "leadtime_chosen_model"
CHOSEN_PRICE = "leadtime_chosen_price_ratio"
CHOSEN_AT = "leadtime_chosen_timestamp_seconds"
TRIAL_GPU_HOURS = "leadtime_trial_gpu_hours"
TRIAL_LATE = "leadtime_trial_late_ratio"
CHOICES = "leadtime_choices_total"

GAUGES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    WANTED: ("Replicas wanted after every guard.", OF_DEPLOYMENT),
    REQUESTED: ("Serve's target number of replicas.", OF_DEPLOYMENT),
    READY: ("Replicas that take requests.", OF_DEPLOYMENT),
    SETPOINT: ("The number our way of scaling writes, as Serve has it.", OF_DEPLOYMENT),
    DEMAND: ("Arrivals per second since the last observation.", OF_DEPLOYMENT),
    QUEUED: ("Requests that wait for a slot.", OF_DEPLOYMENT),
    LATE: ("Share of recent first tokens later than the SLO (upper bound).", OF_DEPLOYMENT),
    FORECAST: (
        "Peak demand forecast, by horizon (near, ahead) and quantile.",
        (*OF_DEPLOYMENT, "horizon", "quantile"),
    ),
    COVERAGE: (
        "Share of outcomes at or below a quantile over the last season.",
        (*OF_DEPLOYMENT, "horizon", "quantile"),
    ),
    LEAD: ("Learned time from asking for a replica to having it.", OF_DEPLOYMENT),
    CAPACITY: ("Learned requests per second of a replica with every slot taken.", OF_DEPLOYMENT),
    PRICE: ("GPU-seconds that one late request may cost.", OF_DEPLOYMENT),
    REASON: ("1 for the reason in force, 0 for the others.", (*OF_DEPLOYMENT, "reason")),
    TRUSTED: ("1 if an input may be used.", (*OF_DEPLOYMENT, "signal")),
    SIGNAL_AGE: ("Age of an input.", (*OF_DEPLOYMENT, "signal")),
    SILENT: ("Serving replicas that do not report what runs on them.", OF_DEPLOYMENT),
    GPU_UTILIZATION: ("Share of a GPU's compute in use.", ("node", "gpu")),
    GPU_MEMORY: ("Share of a GPU's memory in use.", ("node", "gpu")),
    ACTIVE: ("1 if decisions are carried out, 0 in shadow mode.", ()),
    LEADER: ("1 if this daemon is the one that decides.", ()),
    TICKED: ("When the last tick was recorded, in seconds since the epoch.", ()),
    CLOCK_SKEW: ("Our clock minus Prometheus's; absent while not known.", ()),
    HORIZON: ("How far ahead a forecast's window opens.", (*OF_DEPLOYMENT, "horizon")),
    FORECAST_TRUSTED: ("1 if the model's quantiles hold.", (*OF_DEPLOYMENT, "horizon")),
    MODEL: ("1 for the model in force, absent for others.", (*OF_DEPLOYMENT, "horizon", "model")),
    GUARD: ("Replicas that a guard added or took away.", (*OF_DEPLOYMENT, "guard")),
    LIMITED: ("1 if more replicas are worth having than there may be.", OF_DEPLOYMENT),
    STARTING: ("Replicas placed on a node and not yet ready.", OF_DEPLOYMENT),
    PENDING: ("Replicas asked for that no node has room for yet.", OF_DEPLOYMENT),
    OLDEST_START: ("Age of the oldest start under way; absent if there is none.", OF_DEPLOYMENT),
    OLDEST_PENDING: ("Age of the oldest replica without a node; absent if none.", OF_DEPLOYMENT),
    UNHONOURED: ("Time since Serve had the number we asked for; active mode.", OF_DEPLOYMENT),
    LEAST: ("The user's least number of replicas.", OF_DEPLOYMENT),
    MOST: ("The user's greatest number of replicas.", OF_DEPLOYMENT),
    SLO_TTFT: ("Time within which a request is to get its first token.", OF_DEPLOYMENT),
    SLO_ATTAINMENT: ("Share of requests for which that is to hold.", OF_DEPLOYMENT),
    CHOSEN_MODEL: ("1 for the model chosen by its cost, absent for others.", OF_MODEL),
    CHOSEN_PRICE: ("Times the usual price of a late request, chosen by cost.", OF_DEPLOYMENT),
    CHOSEN_AT: ("When candidates were last weighed; absent before.", OF_DEPLOYMENT),
    TRIAL_GPU_HOURS: ("GPU-hours of a candidate in the last replay of the past.", OF_CANDIDATE),
    TRIAL_LATE: ("Share of late first tokens of a candidate in that replay.", OF_CANDIDATE),
    GPU_HOUR_PRICE: ("Price of a GPU-hour in the user's currency; absent if not set.", ()),
}
COUNTERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    DECISIONS: ("Decisions by reason.", (*OF_DEPLOYMENT, "reason")),
    ACTIONS: ("Scale actions by what became of them.", (*OF_DEPLOYMENT, "outcome")),
    UNTRUSTED: (
        "Inputs that were there and not used: stale, frozen, non_finite, contradictory.",
        (*OF_DEPLOYMENT, "signal", "trust"),
    ),
    SHRINK_ERRORS: (
        "HTTP requests to the application that failed while replicas of it drained.",
        OF_DEPLOYMENT,
    ),
    TICK_ERRORS: ("Ticks that failed unexpectedly.", ()),
    SOURCE_ERRORS: ("Answers that could not be used, by source.", ("source",)),
    FITS: ("Forecast fits by result.", (*OF_DEPLOYMENT, "result")),
    CHOICES: ("Replays of the past by what came of them.", (*OF_DEPLOYMENT, "verdict")),
    JOURNAL_ERRORS: ("Ticks that the journal could not keep.", ()),
    FIRST_TOKENS: ("First tokens seen.", OF_DEPLOYMENT),
    LATE_FIRST_TOKENS: ("First tokens later than the SLO (upper bound).", OF_DEPLOYMENT),
}

"""The command line. Everything heavy is imported where it is used, so that --help is quick."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from controller.cli_operating import dashboards_app, journal_app, operators_app
from controller.cli_options import ConfigOption, JsonOption, exit_with

app = typer.Typer(
    name="leadtime",
    help="Autoscaler for LLM serving on Ray Serve: capacity ready one cold start before it is "
    "needed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class DemoEngine(StrEnum):
    """What answers in the demo's replicas."""

    STANDIN = "standin"
    VLLM = "vllm"


@app.command()
def run(config: ConfigOption = None) -> None:
    """Run the daemon until SIGTERM or Ctrl-C.

    Exit codes: 0 stopped, 2 wrong settings or an unusable journal or address.
    """
    from controller.commands.run import serve_forever

    exit_with(serve_forever, config)


@app.command()
def plan(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show what one tick would decide now; writes nothing anywhere.

    Exit codes: 0 decided, 1 a source could not be read, 2 wrong settings.
    """
    from controller.commands.plan import plan_once

    exit_with(plan_once, config, as_json)


@app.command()
def check(
    config: ConfigOption = None,
    as_json: JsonOption = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail the check, too.")] = False,
) -> None:
    """Check the settings, both connections and the live application: what stands in the way of
    scaling, and what is not fit for production, each with the reason and the fix.

    Exit codes: 0 no error found, 1 an error (with --strict: or a warning), 2 wrong settings.
    """
    from controller.commands.check import check_all

    exit_with(check_all, config, as_json, strict)


@app.command()
def explain(
    name: Annotated[str, typer.Argument(metavar="APP/DEPLOYMENT", help="As Ray Serve names them.")],
    at: Annotated[
        str | None, typer.Option(help="A time, 2026-11-30T08:15:00+01:00, or a span ago: 10m.")
    ] = None,
    config: ConfigOption = None,
    url: Annotated[
        str | None, typer.Option(help="Ask a daemon there instead of reading its journal here.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say why a deployment has the replicas it has: inputs, forecast, guards, what blocks.

    Exit codes: 0 explained, 1 there is no such decision, 2 wrong input.
    """
    from controller.commands.explain import explain as explain_one

    exit_with(explain_one, name, at, config, url, as_json)


@app.command()
def backtest(
    trace: Annotated[
        list[Path] | None,
        typer.Option(help="CSV or Parquet, a request or a bin a row; repeatable."),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="OURS=THEIRS for another name of a column; repeatable."),
    ] = None,
    prometheus: Annotated[
        str | None, typer.Option(help="URL of a Prometheus: replay your own history.")
    ] = None,
    since: Annotated[str, typer.Option(help="How much of that history.")] = "14d",
    synthetic: Annotated[
        str | None,
        typer.Option(
            help="A drawn load: seed=1,days=7,daily=0.5,burst=0.2,burst_s=300,spike=2,"
            "spike_s=900,at=9;18; '' for these."
        ),
    ] = None,
    config: ConfigOption = None,
    lead: Annotated[
        list[float] | None,
        typer.Option(help="Mean seconds from asking for a replica to having it; repeatable."),
    ] = None,
    replicas: Annotated[
        float | None,
        typer.Option(min=0.1, max=1000, help="Scale the load to so many full replicas on average."),
    ] = None,
    cap: Annotated[int, typer.Option(min=1, max=2000, help="Most replicas at once.")] = 48,
    slo_ttft: Annotated[
        float, typer.Option(min=0.05, max=600, help="Seconds to the first token.")
    ] = 2.0,
    attainment: Annotated[
        float, typer.Option(help="Share of requests for which that must hold.")
    ] = 0.99,
    policies: Annotated[
        str, typer.Option(help="Comma-separated: leadtime,clairvoyant,ray,...")
    ] = "all",
    start: Annotated[
        str | None, typer.Option(help="Leave out what is before (s, m, h, d).")
    ] = None,
    end: Annotated[str | None, typer.Option(help="Leave out what is after.")] = None,
    stretch: Annotated[
        float, typer.Option(min=0.01, max=100, help="Play it over so many times the time.")
    ] = 1.0,
    warm_up: Annotated[
        str | None,
        typer.Option(help="The first part: learned from, not scored. A third, at most 7 d."),
    ] = None,
    engine: Annotated[str, typer.Option(help="processes or ray.")] = "processes",
    workers: Annotated[
        int | None, typer.Option(min=1, max=512, help="Processes; one a core if not said.")
    ] = None,
    cache: Annotated[
        Path,
        typer.Option(envvar="BACKTEST_CACHE", help="Folder of earlier runs; safe to delete."),
    ] = Path(".leadtime-cache"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Rivals only where they meet the SLO: no frontier.")
    ] = False,
    choosing: Annotated[
        bool,
        typer.Option(
            "--choosing",
            help="Leadtime chooses model and price by cost once a day, as live; takes minutes.",
        ),
    ] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write every run here.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a report here.")] = None,
) -> None:
    """Replay a load under Leadtime and under every other autoscaler, tuned in hindsight.

    Exit codes: 0 done, 2 wrong input.
    """
    from controller.commands.backtest import Order
    from controller.commands.backtest import backtest as run_backtest

    order = Order(
        traces=trace or (),
        columns=column or (),
        prometheus=prometheus,
        since=since,
        config=config,
        synthetic=synthetic,
        leads_s=lead or (120.0,),
        replicas=replicas,
        cap=cap,
        slo_ttft_s=slo_ttft,
        attainment=attainment,
        policies=policies,
        start=start,
        end=end,
        stretch=stretch,
        warm_up=warm_up,
        engine=engine,
        workers=workers,
        cache=cache,
        quick=quick,
        choosing=choosing,
        json=json_file,
        html=html,
    )
    raise typer.Exit(run_backtest(order))


@app.command()
def bench(
    replicas: Annotated[str, typer.Option(help="Comma-separated counts.")] = "1,2,3",
    rps: Annotated[
        str, typer.Option(help="Comma-separated loads, req/s; at least one beyond capacity.")
    ] = "10,20,40,80",
    config: ConfigOption = None,
    deployment: Annotated[
        str | None,
        typer.Option(help="APPLICATION/DEPLOYMENT; the one of the settings if there is one."),
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Where clients reach the application; Serve says if not.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model name; the server's first.")] = None,
    slo_ttft: Annotated[
        float | None, typer.Option(min=0.05, max=600, help="Seconds; ttft_s of the settings.")
    ] = None,
    warm_up: Annotated[
        float, typer.Option(min=0, max=3600, help="Seconds of each run not measured.")
    ] = 10.0,
    seconds: Annotated[
        float, typer.Option(min=1, max=3600, help="Seconds of each run measured.")
    ] = 30.0,
    prompt_tokens: Annotated[float, typer.Option(min=1, max=1e6, help="Mean prompt.")] = 512.0,
    prompt_cv: Annotated[float, typer.Option(min=0, max=10, help="Its sd / mean.")] = 1.0,
    output_tokens: Annotated[float, typer.Option(min=1, max=1e6, help="Mean answer.")] = 128.0,
    output_cv: Annotated[float, typer.Option(min=0, max=10, help="Its sd / mean.")] = 0.8,
    seed: Annotated[int, typer.Option(help="Same seed, same requests.")] = 1,
    time_scale: Annotated[
        float,
        typer.Option(
            min=1, max=100, help="For a stand-in slowed so many times: offer 1/F, show times F."
        ),
    ] = 1.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all here.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a plot here.")] = None,
) -> None:
    """Drive the application open loop at several replica counts: throughput, TTFT p95, linearity,
    and the likely bottleneck where more replicas carry too little more. Holds the deployment at
    each count meanwhile and puts it back; pause a daemon that scales it. Needs the extra `serve`.

    Exit codes: 0 measured, 1 a run failed, 2 wrong input, 130 interrupted (put back, too).
    """
    from controller.commands.bench import Asked, bench_app

    asked = Asked(
        replicas=replicas,
        rates=rps,
        deployment=deployment,
        url=url,
        model=model,
        slo_ttft_s=slo_ttft,
        warm_up_s=warm_up,
        measured_s=seconds,
        prompt_tokens=prompt_tokens,
        prompt_cv=prompt_cv,
        output_tokens=output_tokens,
        output_cv=output_cv,
        seed=seed,
        time_scale=time_scale,
        json=json_file,
        html=html,
    )
    exit_with(bench_app, config, asked)


@app.command()
def demo(
    seed: Annotated[int, typer.Option(help="Which day to play.")] = 30,
    out: Annotated[Path, typer.Option(help="Where summary.json and report.html go.")] = Path(
        "demo-out"
    ),
    engine: Annotated[
        DemoEngine, typer.Option(help="Replicas: the stand-in, or real vLLM on this machine.")
    ] = DemoEngine.STANDIN,
) -> None:
    """Play one compressed day on a private Ray cluster, twice: under Serve's own autoscaler and
    under Leadtime. Needs the extra `serve` and Prometheus; takes about 8 minutes, with real vLLM
    (make demo-vllm) up to 15.

    Exit codes: 0 the loop closed, 1 it did not or a server failed, 130 interrupted.
    """
    from controller.demo.main import run_demo

    raise typer.Exit(run_demo(seed, out, engine.value))


@app.command()
def init(
    path: Annotated[Path, typer.Argument(help="File to write.")] = Path("leadtime.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a settings file with every default and its reason."""
    from controller.example import render

    if path.exists() and not force:
        typer.echo(f"{path} is there already; use --force to overwrite it", err=True)
        raise typer.Exit(2)
    path.write_text(render(), encoding="utf-8")
    typer.echo(f"wrote {path}")


app.add_typer(operators_app)
app.add_typer(dashboards_app, name="dashboards")
app.add_typer(journal_app, name="journal")


def main() -> None:
    """The console script."""
    sys.exit(app())

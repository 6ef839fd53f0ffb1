"""Commands for who operates a daemon: overrides, the journal, dashboards."""

from pathlib import Path
from typing import Annotated

import typer

from controller.cli_options import ConfigOption, exit_with

operators_app = typer.Typer()
dashboards_app = typer.Typer(help="Grafana dashboards.", no_args_is_help=True)
journal_app = typer.Typer(help="What the journal holds.", no_args_is_help=True)


@dashboards_app.command()
def push(
    grafana: Annotated[str, typer.Option(help="Base URL of Grafana.")],
    prometheus: Annotated[
        str | None,
        typer.Option(help="URL by which Grafana reaches Prometheus: makes a datasource of it."),
    ] = None,
    runbook: Annotated[
        str | None, typer.Option(help="URL where you keep alerts/runbook.md, for links.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with a service account's token; else GRAFANA_TOKEN is used."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change; write nothing.")
    ] = False,
) -> None:
    """Put the dashboards into Grafana, in the folder Leadtime; what is there already stays.

    Exit codes: 0 done, 1 Grafana refused or did not answer, 2 wrong input.
    """
    from controller.commands.dashboards import push as push_dashboards

    raise typer.Exit(push_dashboards(grafana, prometheus, runbook, token_file, dry_run))


TargetArgument = Annotated[str, typer.Argument(metavar="APP/DEPLOYMENT")]
ForOption = Annotated[str, typer.Option("--for", help="How long: 900 (seconds), 15m, 2h, 1d.")]
WhyOption = Annotated[str, typer.Option("--why", help="Why; kept with who and when.")]
UrlOption = Annotated[
    str | None, typer.Option("--url", help="The daemon; without it http.host and http.port.")
]


@operators_app.command()
def pin(
    target: TargetArgument,
    replicas: Annotated[int, typer.Argument(min=0, help="So many, within the bounds.")],
    for_: ForOption,
    why: WhyOption,
    config: ConfigOption = None,
    url: UrlOption = None,
) -> None:
    """Keep a deployment at a number for a while, whatever the load does.

    Bounds and free resources still hold. It survives restarts. Needs http.token_file.
    Exit codes: 0 done, 1 the daemon refused or does not answer, 2 wrong settings.
    """
    from controller.commands.override import override

    exit_with(override, config, url, target, "pin", replicas, for_, why)


@operators_app.command()
def pause(
    target: TargetArgument,
    for_: ForOption,
    why: WhyOption,
    config: ConfigOption = None,
    url: UrlOption = None,
) -> None:
    """Leave a deployment at the number that it has for a while. As `pin`."""
    from controller.commands.override import override

    exit_with(override, config, url, target, "pause", None, for_, why)


@operators_app.command()
def resume(
    target: TargetArgument,
    why: WhyOption,
    config: ConfigOption = None,
    url: UrlOption = None,
) -> None:
    """End what `pin` or `pause` began before its time."""
    from controller.commands.override import override

    exit_with(override, config, url, target, "resume", None, None, why)


@journal_app.command("export")
def journal_export(
    config: ConfigOption = None,
    journal: Annotated[
        Path | None, typer.Option(help="The file; without it journal.path of the settings.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Only the last 90 (seconds), 15m, 6h, 14d.")
    ] = None,
    deployment: Annotated[str | None, typer.Option(help="Only APP/DEPLOYMENT.")] = None,
    style: Annotated[
        str, typer.Option("--format", help="jsonl: everything; csv: the numbers.")
    ] = "jsonl",
    out: Annotated[
        Path | None, typer.Option(help="File to write; without it the terminal.")
    ] = None,
) -> None:
    """Write out the decisions of the journal, oldest first, while a daemon runs or after.

    Exit codes: 0 written, 2 wrong settings or no usable journal.
    """
    from controller.commands.journal import export

    exit_with(export, config, journal, since, deployment, style, out)

"""The command line. Everything heavy is imported where it is used, so that --help is quick."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    name="leadtime",
    help="Autoscaler for LLM serving on Ray Serve: capacity ready one cold start before it is "
    "needed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        envvar="LEADTIME_CONFIG",
        help="YAML file with settings; without it the defaults and LEADTIME_* variables hold.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.command()
def run(config: ConfigOption = None) -> None:
    """Run the daemon until SIGTERM or Ctrl-C.

    Exit codes: 0 stopped, 2 wrong settings or an unusable journal or address.
    """
    from controller.commands.run import serve_forever

    _exit_with(serve_forever, config)


@app.command()
def plan(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show what one tick would decide now; writes nothing anywhere.

    Exit codes: 0 decided, 1 a source could not be read, 2 wrong settings.
    """
    from controller.commands.plan import plan_once

    _exit_with(plan_once, config, as_json)


@app.command()
def check(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Check the settings and both connections, and what stands in the way of scaling.

    Exit codes: 0 fine, 1 something is wrong, 2 wrong settings.
    """
    from controller.commands.check import check_all

    _exit_with(check_all, config, as_json)


@app.command()
def demo(
    seed: Annotated[int, typer.Option(help="Which day to play.")] = 25,
    out: Annotated[Path, typer.Option(help="Where summary.json and report.html go.")] = Path(
        "demo-out"
    ),
) -> None:
    """Play one compressed day on a private Ray cluster, twice: under Serve's own autoscaler and
    under Leadtime. Needs the extra `serve` and Prometheus; takes about 8 minutes.

    Exit codes: 0 the loop closed, 1 it did not or a server failed, 130 interrupted.
    """
    from controller.demo.main import run_demo

    raise typer.Exit(run_demo(seed, out))


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


def _exit_with(command: Any, *arguments: Any) -> None:
    """Run a command; what an operator can mend is said in a line, not as a traceback."""
    from controller.adapters.store import JournalError
    from controller.settings import SettingsError

    try:
        code = command(*arguments)
    except (SettingsError, JournalError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    raise typer.Exit(code)


def main() -> None:
    """The console script."""
    sys.exit(app())

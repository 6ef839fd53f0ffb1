"""What several commands of the command line share: options, and how errors end them."""

from pathlib import Path
from typing import Annotated, Any

import typer

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


def exit_with(command: Any, *arguments: Any) -> None:
    """Run a command; what an operator can mend is said in a line, not as a traceback."""
    from controller.adapters.store import JournalError
    from controller.settings import SettingsError

    try:
        code = command(*arguments)
    except (SettingsError, JournalError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    raise typer.Exit(code)

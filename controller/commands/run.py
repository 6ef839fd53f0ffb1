"""`leadtime run`: the daemon in the foreground."""

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path

from controller.adapters.telemetry.logs import set_up_logs
from controller.settings import SettingsError, load
from controller.succession import Succession


def serve_forever(config: Path | None) -> int:
    """Run until SIGTERM or SIGINT; 0 when stopped by one. SIGHUP reads the settings again."""
    settings = load(config)
    set_up_logs(settings.log.format, settings.log.level)

    async def main() -> None:
        stop = asyncio.Event()
        daemons = Succession(config, settings, stop)
        running = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            running.add_signal_handler(number, stop.set)
        running.add_signal_handler(signal.SIGHUP, daemons.reloading.ask)
        await daemons.run()

    try:
        asyncio.run(main())
    except OSError as error:
        raise SettingsError(str(error)) from error
    _leave_without_waiting()
    return 0


def _leave_without_waiting() -> None:
    """A thread may still wait for a silent server; a stopped daemon does not wait with it."""
    if threading.active_count() > 1:
        sys.stderr.flush()
        os._exit(0)

"""Our logs: to standard error, for people or for machines."""

import logging
import sys
from typing import Any

import structlog


def set_up_logs(style: str, level: str) -> None:
    """Log to standard error, as lines for people (`console`) or as JSON, one object a line."""
    render: Any = structlog.processors.JSONRenderer()
    if style == "console":
        render = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        # Standard error as it is when a line is written: it may have been replaced since.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )

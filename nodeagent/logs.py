"""The agent's log: JSON lines in a container, readable lines on a terminal, always on standard error."""

import sys
from typing import TextIO

import structlog
from structlog.typing import Processor

# Local variables would hold what tenants wrote.
_TRACEBACKS = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))


def configure_logs(stream: TextIO = sys.stderr) -> None:
    """Sets up logging for this process, once, at its start. Times are UTC in ISO 8601."""
    last: list[Processor] = (
        [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
        if stream.isatty()
        else [_TRACEBACKS, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            *last,
        ],
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )

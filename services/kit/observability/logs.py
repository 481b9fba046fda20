"""Logs: one JSON object a line (or coloured text on a terminal), each with the request id it belongs to."""

from __future__ import annotations

import logging
import sys
from typing import cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from coterie.protocol.sanitise import sanitise
from services.kit.observability import traces
from services.kit.rpc.principal import current_request_id


def configure(service: str, *, level: str = "INFO", text: bool | None = None) -> None:
    """Configure logging of the process. text: coloured text instead of JSON; by default on a terminal."""
    as_text = sys.stderr.isatty() if text is None else text
    # Tracebacks omit the values of variables: they may be secrets, and formatting them takes a second.
    as_lines = (_sanitise, structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback))
    structlog.configure(
        processors=[
            _stamp(service),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *(as_lines if as_text else (structlog.processors.JSONRenderer(),)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s", force=True
    )


def get_logger() -> FilteringBoundLogger:
    """Return a logger with the process's configuration."""
    return cast(FilteringBoundLogger, structlog.get_logger())


def _stamp(service: str) -> structlog.typing.Processor:
    def stamp(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        event["service"] = service
        request_id = current_request_id()
        if request_id:
            event["request_id"] = request_id
        trace_id = traces.current_id()
        if trace_id:
            event["trace_id"] = trace_id
        return event

    return stamp


def _sanitise(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Remove control sequences from text for a terminal; JSON escapes them."""
    return {name: sanitise(value) if isinstance(value, str) else value for name, value in event.items()}

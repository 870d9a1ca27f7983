"""Structured log lines.  Layer: telemetry.

One event, one line: a fixed sentence and `key=value` fields, or the same as JSON.  Values are
quoted where needed, so that a line can be parsed and no value can forge another line.
"""

import json
import logging

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@%+")


def event(
    logger: logging.Logger,
    level: int,
    message: str,
    *,
    error: BaseException | None = None,
    **fields: object,
) -> None:
    """Log `message` with `fields`; nothing is formatted when the level is off."""
    if logger.isEnabledFor(level):
        logger.log(level, message, exc_info=error, extra={"fields": fields})


def _quoted(value: object) -> str:
    text = str(value)
    return text if text and _PLAIN.issuperset(text) else json.dumps(text)


class LineFormatter(logging.Formatter):
    """`LEVEL logger: message key=value ...`"""

    def format(self, record: logging.LogRecord) -> str:
        """One line of text."""
        fields = getattr(record, "fields", {})
        tail = "".join(f" {key}={_quoted(value)}" for key, value in fields.items())
        line = f"{record.levelname} {record.name}: {record.getMessage()}{tail}"
        return f"{line} error={_quoted(record.exc_info[1])}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """One JSON object."""
        document: dict[str, object] = {
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            document["error"] = repr(record.exc_info[1])
        return json.dumps(document, default=str)

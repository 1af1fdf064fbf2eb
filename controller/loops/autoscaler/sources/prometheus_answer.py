"""Answers of Prometheus' query API, checked: a value that is not finite is missing, never zero."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from cluster.errors import UNREADABLE

REFUSALS = (400, 422)
"""HTTP status codes of refused queries, whose answers say why."""


class SourceError(Exception):
    """A source could not be read."""

    def __init__(self, code: str, words: str) -> None:
        """code: CamelCase, as in a condition's reason."""
        super().__init__(words)
        self.code = code


@dataclass(frozen=True, slots=True)
class Series:
    """Series of an answer: its labels, and its finite values as (instant, value), oldest first."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


class _Result(msgspec.Struct):
    metric: dict[str, str] = {}
    value: tuple[float, str] | None = None
    values: tuple[tuple[float, str], ...] = ()


class _Data(msgspec.Struct):
    resultType: str  # noqa: N815 - the API's name
    result: msgspec.Raw


class _Answer(msgspec.Struct):
    status: str
    data: _Data | None = None
    errorType: str = ""  # noqa: N815 - the API's name
    error: str = ""
    warnings: list[str] = []


_ANSWER = msgspec.json.Decoder(_Answer)
_RESULTS = msgspec.json.Decoder(tuple[_Result, ...])
_SCALAR = msgspec.json.Decoder(tuple[float, str])


def series_in(body: bytes) -> tuple[Series, ...]:
    """Series of an answer, of an instant query or of one over a range. Raises SourceError.

    A warning is an error: an answer in which a store is missing would look like less load.
    """
    try:
        answer = _ANSWER.decode(body)
        if answer.status != "success" or answer.data is None:
            raise SourceError("QueryRefused", f"Prometheus refused the query: {_short(answer.error or answer.status)}")
        if answer.warnings:
            raise SourceError("PartialAnswer", f"Prometheus warned: {_short(answer.warnings[0])}")
        return _series(answer.data)
    except UNREADABLE as error:
        raise SourceError("AnswerMalformed", f"this is no answer of Prometheus: {_short(str(error))}") from error


def _series(data: _Data) -> tuple[Series, ...]:
    if data.resultType == "scalar":
        return (Series({}, _finite([_SCALAR.decode(data.result)])),)
    if data.resultType not in ("vector", "matrix"):
        raise SourceError("AnswerMalformed", f"the result is a {_short(data.resultType)}, not numbers")
    results = _RESULTS.decode(data.result)
    return tuple(Series(each.metric, _finite([each.value] if each.value else each.values)) for each in results)


def _finite(values: Any) -> tuple[tuple[float, float], ...]:
    points = []
    for at_s, text in values:
        try:
            value = float(text)
        except ValueError as error:
            raise SourceError("AnswerMalformed", f"{_short(text)!r} is no number") from error
        if math.isfinite(value):
            points.append((float(at_s), value))
    return tuple(points)


def _short(text: str) -> str:
    return " ".join(text.split())[:200]

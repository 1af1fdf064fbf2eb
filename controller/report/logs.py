"""Structured logs: JSON lines in a container, readable lines on a terminal, and one line per action and cycle."""

import logging
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, ExcInfo, FilteringBoundLogger, Processor

from cluster import actions, errors, plans
from cluster.clock import Clock
from controller.cycle import Cycle
from controller.fair_shares import Shares
from controller.ports import Undone

Format = Literal["auto", "json", "text"]
Level = Literal["debug", "info", "warning", "error"]


_STACKS = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)


def told_of(exc_info: ExcInfo) -> list[dict[str, Any]]:
    """Traceback as plain data: kinds and places of errors, and the texts of our own.

    The text of any other error may quote what a tenant wrote, as that of a KeyError does, and locals would hold it.
    """
    stacks = _STACKS(exc_info)
    _leave_out_texts(stacks, _names_of(errors.TonnageError))
    return stacks


def _leave_out_texts(stacks: list[dict[str, Any]], ours: frozenset[str]) -> None:
    for stack in stacks:
        for inner in stack["exceptions"]:  # of a group
            _leave_out_texts(inner, ours)
        if stack["exc_type"] not in ours:
            stack["exc_value"], stack["exc_notes"], stack["syntax_error"] = "", [], None


def _names_of(root: type[BaseException]) -> frozenset[str]:
    """Names of an error's class and of all below it."""
    return frozenset({root.__name__}).union(*map(_names_of, root.__subclasses__()))


def write_traceback(stream: TextIO, exc_info: ExcInfo) -> None:
    """The same as text, for a terminal, the last error first."""
    _write_stacks(stream, told_of(exc_info))


def _write_stacks(stream: TextIO, stacks: list[dict[str, Any]]) -> None:
    for stack in stacks:
        text = f": {stack['exc_value']}" if stack["exc_value"] else ""
        stream.write(f"{stack['exc_type']}{text}\n")
        for frame in stack["frames"]:
            stream.write(f'  File "{frame["filename"]}", line {frame["lineno"]}, in {frame["name"]}\n')
        for inner in stack["exceptions"]:
            _write_stacks(stream, inner)


WARNINGS, WARNINGS_PER_S = 240, 4.0
"""Warnings about objects at once and in a second, half of them for one namespace: tenants decide how many fail."""
_SUBJECTS = ("about", "subject", "pod", "service", "gang", "policy")


class FairLines:
    """Leaves warnings out about objects of a namespace that had its share, and counts them in the next one."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock, self._shares = clock, Shares(WARNINGS, per_s=WARNINGS_PER_S)
        self._left_out = Counter[str]()

    def __call__(self, _: object, level: str, line: EventDict) -> EventDict:
        about = next((str(line[name]) for name in _SUBJECTS if name in line), "")
        namespace = about.rpartition("/")[0].rpartition("/")[2]
        if level != "warning" or not namespace:
            return line
        if not self._shares.take(namespace, self._clock()):
            self._left_out[namespace] += 1
            raise structlog.DropEvent
        count = self._left_out.pop(namespace, 0)
        return {**line, "left_out": count} if count else line


_TRACEBACKS = structlog.processors.ExceptionRenderer(told_of)


def configure_logs(form: Format = "auto", level: Level = "info", stream: TextIO = sys.stderr) -> None:
    """Configure the logging of this process, once, at its start.

    form: `auto` is text where `stream` is a terminal, else JSON. Times are UTC in ISO 8601. Log records of libraries
    have the same form, from `warning` on. Tracebacks hold nothing that a tenant wrote.
    """
    as_text = stream.isatty() if form == "auto" else form == "text"
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    last: list[Processor] = (
        [structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=write_traceback)]
        if as_text
        else [_TRACEBACKS, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[FairLines(), *shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)


def log_cycle(log: FilteringBoundLogger, number: int, cycle: Cycle, undone_before: Sequence[Undone] = ()) -> None:
    """Log one line per action that was done, failed or was refused, then one line for the cycle.

    undone_before: actions of the preceding cycle. One that fails again as it did there is a debug line: what a tenant
    wrote may fail in every cycle. A cycle without actions is a debug line: at one per second it would hide the lines
    that matter.
    """
    log = log.bind(cycle=number)
    for step in cycle.outcome.done:
        log.info("action done", **_about(step.action, step.reason))
    known = {_failure_of(each) for each in undone_before}
    for undone in cycle.outcome.undone:
        why = {"failure": undone.reason.code, "why": undone.reason.words}
        is_told = _failure_of(undone) in known
        (log.debug if is_told else log.warning)(
            "action not done", **_about(undone.step.action, undone.step.reason), **why
        )
    for refused in cycle.plan.refused:
        why = {"refusal": refused.reason.code, "why": refused.reason.words}
        log.warning("action refused by the guard", **_about(refused.step.action, refused.step.reason), **why)
    happened = bool(cycle.outcome.done or cycle.outcome.undone or cycle.plan.refused or cycle.plan.cut_short)
    figures: dict[str, object] = {
        "done": len(cycle.outcome.done),
        "not_done": len(cycle.outcome.undone),
        "refused": len(cycle.plan.refused),
        "unplaced": len(cycle.plan.unplaced),
        "findings": len(cycle.plan.findings),
        **({"out_of_time": [each.code for each in cycle.plan.cut_short]} if cycle.plan.cut_short else {}),
        "pods": len(cycle.snapshot.pods),
        "nodes": len(cycle.snapshot.nodes),
        **{f"{stage}_s": round(took_s, 4) for stage, took_s in cycle.stage_s.items()},
    }
    (log.info if happened else log.debug)("cycle done", **figures)


def _failure_of(undone: Undone) -> tuple[str, str, str]:
    return type(undone.step.action).__name__, undone.step.action.subject, undone.reason.words


def log_findings(log: FilteringBoundLogger, before: Sequence[plans.Finding], now: Sequence[plans.Finding]) -> None:
    """Log one line for each finding that is new since the preceding cycle, and one for each that has ended."""
    known, found = ({(each.about, each.reason.code) for each in findings} for findings in (before, now))
    for each in now:
        if (each.about, each.reason.code) not in known:
            log.info("found", about=each.about, finding=each.reason.code, why=each.reason.words)
    for about, code in sorted(known - found):
        log.info("found no longer", about=about, finding=code)


def _about(action: actions.Action, reason: plans.Reason) -> dict[str, object]:
    """Fields of an action and its reason, without the reason's figures, which `tonnage explain` shows."""
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in action.values().items()}
    return {"action": type(action).__name__, **plain, "reason": reason.code}

"""Log lines of a cycle."""

import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from io import StringIO
from typing import Any

import pytest
import structlog

from cluster.actions import Bind, Evict
from cluster.errors import ObservationError
from cluster.plans import Plan, Reason, Refused, Step
from controller.cycle import Cycle
from controller.ports import Outcome, Undone
from controller.report.logs import WARNINGS, WARNINGS_PER_S, FairLines, Format, Level, configure_logs, log_cycle
from tests.builders.fleet import node, pod, world
from tests.clock import HandClock


@pytest.fixture(autouse=True)
def _settings_of_logging_are_left_as_they_were() -> Iterator[None]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before, level
    structlog.reset_defaults()


def logged(cycle: Cycle, form: Format = "json", level: Level = "info") -> str:
    stream = StringIO()
    configure_logs(form, level, stream)
    log_cycle(structlog.get_logger(), 7, cycle)
    return stream.getvalue()


def lines(cycle: Cycle, level: Level = "info") -> list[dict[str, Any]]:
    return [json.loads(line) for line in logged(cycle, level=level).splitlines()]


SEEN = world([node("a", gpus=1)], [pod("p", gpus=1), pod("q", gpus=1)])
BOUND = Step(Bind("p", "a", (0,)), Reason("LeastBidPrice", "cheapest of 12 nodes"))
STOPPED = Step(Evict("q", "a"), Reason("Preempted", "makes room for p"))


def test_a_done_action_is_one_line_with_what_and_why() -> None:
    line, _ = lines(Cycle(SEEN, Plan(), Outcome(done=(BOUND,))))

    del line["timestamp"]
    assert line == {
        "event": "action done",
        "level": "info",
        "cycle": 7,
        "action": "Bind",
        "pod": "p",
        "node": "a",
        "devices": [0],
        "reason": "LeastBidPrice",
    }


def test_what_failed_and_what_was_refused_are_warnings_with_their_reasons() -> None:
    failed = Undone(BOUND, Reason("ActionFailed", "409: it is bound already"))
    refused = Refused(STOPPED, Reason("TooManyEvictions", "this plan has stopped as many pods as one plan may"))

    one, two, _ = lines(Cycle(SEEN, Plan(refused=(refused,)), Outcome(undone=(failed,))))

    assert (one["level"], one["failure"], one["why"]) == ("warning", "ActionFailed", "409: it is bound already")
    assert (two["level"], two["refusal"], two["reason"]) == ("warning", "TooManyEvictions", "Preempted")


def test_a_cycle_is_one_line_with_its_counts_and_times() -> None:
    *_, line = lines(Cycle(SEEN, Plan(), Outcome(done=(BOUND,)), {"observe": 0.01234567, "plan": 0.5}))

    assert line["event"] == "cycle done"
    assert (line["done"], line["pods"], line["nodes"]) == (1, 2, 1)
    assert (line["observe_s"], line["plan_s"]) == (0.0123, 0.5)


def test_a_quiet_cycle_is_only_told_to_whoever_asks_for_details() -> None:
    quiet = Cycle(SEEN, Plan(), Outcome())

    assert lines(quiet) == []
    assert [line["event"] for line in lines(quiet, level="debug")] == ["cycle done"]


def test_text_is_for_people() -> None:
    text = logged(Cycle(SEEN, Plan(), Outcome(done=(BOUND,))), form="text")

    assert "action done" in text
    assert not text.startswith("{")


def test_what_is_no_terminal_gets_json() -> None:
    assert logged(Cycle(SEEN, Plan(), Outcome(done=(BOUND,))), form="auto").startswith("{")


def test_libraries_speak_the_same_form() -> None:
    stream = StringIO()
    configure_logs("json", "info", stream)
    logging.getLogger("aiohttp").warning("unclosed %s", "session")

    line = json.loads(stream.getvalue())
    assert (line["event"], line["level"]) == ("unclosed session", "warning")


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_traceback_holds_no_local_variables(form: Format) -> None:
    stream = StringIO()
    configure_logs(form, "info", stream)

    def fails() -> None:
        template = {"env": [{"name": "TOKEN", "value": "of a tenant"}]}
        raise TypeError(f"{len(template)} is wrong")

    try:
        fails()
    except TypeError as error:
        structlog.get_logger().error("the cycle failed", exc_info=error)

    assert "TypeError" in stream.getvalue()
    assert "of a tenant" not in stream.getvalue()


class Inside(ExceptionGroup[Exception]):
    """Errors of several tasks."""


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("wraps", [None, ObservationError, Inside])
def test_a_traceback_holds_no_text_of_errors_that_may_quote_a_tenant(form: Format, wraps: Any) -> None:
    stream = StringIO()
    configure_logs(form, "info", stream)

    try:
        try:
            raise KeyError({"a": 1}.get("b", "of a tenant"))
        except KeyError as error:
            error.add_note("of a tenant")
            if wraps is None:
                raise
            if wraps is Inside:
                raise Inside("of a tenant", [error]) from error
            raise ObservationError("nothing was heard of pods") from error
    except Exception as error:  # noqa: BLE001 - as at the top of the process
        structlog.get_logger().error("the cycle failed", exc_info=error)

    written = stream.getvalue()
    assert "of a tenant" not in written
    assert all(each in written for each in ("KeyError", "test_logs.py", "test_a_traceback_holds_no_text"))
    assert ("nothing was heard of pods" in written) == (wraps is ObservationError)


def test_warnings_about_one_namespace_leave_room_for_those_of_others_and_those_left_out_are_counted() -> None:
    clock = HandClock()
    fair, passed = FairLines(clock), []

    def tell(level: str, pod: str) -> None:
        with suppress(structlog.DropEvent):
            passed.append(fair(None, level, {"event": "action not done", "pod": pod}))

    for n in range(1000):
        tell("warning", f"flood/{n}")
    flood = len(passed)
    tell("warning", "good/a")
    tell("info", "flood/done")
    clock.now_s += WARNINGS / WARNINGS_PER_S
    tell("warning", "flood/later")

    assert flood == WARNINGS // 2
    assert [line["pod"] for line in passed[flood:]] == ["good/a", "flood/done", "flood/later"]
    assert passed[-1]["left_out"] == 1000 - flood

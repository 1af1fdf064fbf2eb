"""Verdicts on tool calls: exit codes are kept, and memory is blamed only where it is to blame."""

import json
from dataclasses import asdict

from isolation.orders import ended, refused
from isolation.state import ADVICE
from isolation.tree import MemoryEvents

CALM = MemoryEvents(high=3)


def test_an_exit_code_is_kept() -> None:
    verdict = ended(7, CALM, None, 100, 200)

    assert (verdict.outcome, verdict.exit_code, verdict.reason, verdict.advice) == ("exited", 7, None, "")


def test_a_kill_by_the_user_is_never_called_out_of_memory() -> None:
    verdict = ended(-9, CALM, None, 100, 200)

    assert (verdict.outcome, verdict.exit_code, verdict.reason) == ("signalled", 137, None)


def test_the_kernels_kill_within_the_call_is() -> None:
    verdict = ended(-9, MemoryEvents(oom=1, oom_kill=1), None, 300, 256)

    assert (verdict.outcome, verdict.reason, verdict.peak_bytes, verdict.limit_bytes) == (
        "out_of_memory",
        "OUTGREW_CLAIM",
        300,
        256,
    )


def test_our_own_kill_names_its_reason_and_what_helps() -> None:
    verdict = ended(-9, CALM, "HIGHER_PRIORITY_NEEDS_MEMORY", 300, 256)

    assert verdict.outcome == "killed"
    assert verdict.advice == ADVICE["HIGHER_PRIORITY_NEEDS_MEMORY"]


def test_a_call_that_survived_the_kernels_kill_of_a_child_says_so() -> None:
    # A test runner may outlive its worker and exit with 1: the memory was the reason all the same.
    assert ended(1, MemoryEvents(oom_kill=1), None, 300, 256).outcome == "out_of_memory"


def test_a_refusal_says_when_to_try_again_where_that_helps() -> None:
    assert refused("WAITED_TOO_LONG", 12.0).retry_after_s == 12.0
    assert refused("ABOVE_SANDBOX_BUDGET", 0.0).retry_after_s is None


def test_a_verdict_is_data() -> None:
    assert json.loads(json.dumps(asdict(refused("TOO_MANY_CALLS", 1.0))))["reason"] == "TOO_MANY_CALLS"

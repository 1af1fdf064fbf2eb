"""Verdict on a tool call that ended or was refused: what an agent can act on, as data.

A signal alone says nothing about memory: only the arbiter's own kill, or the kernel's count of kills in the call's
leaf, makes an end an end for memory. A `kill -9` by the user stays what it is.
"""

from dataclasses import dataclass
from typing import Literal

from isolation.reasons import ADVICE, Reason
from isolation.tree import MemoryEvents

Outcome = Literal["exited", "signalled", "refused", "killed", "out_of_memory"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a call. The exit code is the program's own, in the shell's form for signals (128 + number)."""

    outcome: Outcome
    exit_code: int | None
    """None: it never started."""
    reason: Reason | None
    peak_bytes: int
    limit_bytes: int | None
    """Lease at its end."""
    retry_after_s: float | None
    advice: str


def refused(reason: Reason, retry_after_s: float) -> Verdict:
    """Verdict on a call that was not admitted."""
    again = retry_after_s if retry_after_s > 0 else None
    return Verdict("refused", None, reason, 0, None, again, ADVICE.get(reason, ""))


def ended(
    exit_code: int, events: MemoryEvents, killed_for: Reason | None, peak_bytes: int, limit_bytes: int | None
) -> Verdict:
    """Verdict on a call that ran.

    exit_code: as subprocess has it, negative for a signal. killed_for: reason of the arbiter's kill, if it was one.
    """
    code = 128 - exit_code if exit_code < 0 else exit_code
    if killed_for is not None:
        return Verdict("killed", code, killed_for, peak_bytes, limit_bytes, None, ADVICE.get(killed_for, ""))
    if events.oom_kill > 0:
        advice = ADVICE["OUTGREW_CLAIM"]
        return Verdict("out_of_memory", code, "OUTGREW_CLAIM", peak_bytes, limit_bytes, None, advice)
    outcome: Outcome = "signalled" if exit_code < 0 else "exited"
    return Verdict(outcome, code, None, peak_bytes, limit_bytes, None, "")

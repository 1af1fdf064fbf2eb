"""Reason codes: why a tool call waits, is slowed, frozen, killed or refused, for machines to read."""

from typing import Literal

Reason = Literal[
    "FITS",
    "WAITS_FOR_MEMORY",
    "WAITS_BEHIND_OLDER",
    "TOO_MANY_CALLS",
    "WAITED_TOO_LONG",
    "ABOVE_SANDBOX_BUDGET",
    "INVALID_HINT",
    "UNKNOWN_SANDBOX",
    "LEASE_GROWN",
    "LEASE_SHRUNK",
    "HIGHER_PRIORITY_NEEDS_CPU",
    "HIGHER_PRIORITY_NEEDS_MEMORY",
    "AGENT_NEEDS_MEMORY",
    "NODE_SHORT_OF_MEMORY",
    "OUTGREW_CLAIM",
    "FROZEN_TOO_LONG",
    "RUNNER_WAITS_FOR_FROZEN_CALL",
    "SANDBOX_ENDED",
]

ADVICE: dict[Reason, str] = {
    "WAITS_FOR_MEMORY": "wait, or try a smaller run",
    "WAITS_BEHIND_OLDER": "wait: an older call is served first",
    "TOO_MANY_CALLS": "end a call before starting the next",
    "WAITED_TOO_LONG": "try again later, or declare less memory",
    "ABOVE_SANDBOX_BUDGET": "split the work: it cannot fit into this sandbox",
    "INVALID_HINT": "declare memory as bytes, such as 536870912 or 512Mi",
    "OUTGREW_CLAIM": "declare more memory, or split the work",
    "HIGHER_PRIORITY_NEEDS_MEMORY": "try again later",
    "AGENT_NEEDS_MEMORY": "try again with a smaller run",
    "NODE_SHORT_OF_MEMORY": "try again later",
    "FROZEN_TOO_LONG": "try again later, or declare the memory that it needs",
    "RUNNER_WAITS_FOR_FROZEN_CALL": "try again later",
}
"""Fixed sentences: text of one tenant never reaches another."""

"""Needs: what a tool call declares, or what its class learned, as a claim that its sandbox can hold."""

import math
import re

from isolation.admission.learning import Learned
from isolation.ledger import Sandbox

_UNITS = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)(k|Ki|[MGT]i?)?")


def bytes_from(hint: object) -> int | None:
    """Bytes of a hint such as `2Gi`, 512 or 1.5e9; None where it means no positive number of bytes."""
    if isinstance(hint, str):
        found = _QUANTITY.fullmatch(hint.strip())
        value = float(found[1]) * _UNITS[found[2] or ""] if found else math.nan
    elif isinstance(hint, int | float) and not isinstance(hint, bool):
        value = float(min(hint, 2**63))
    else:
        return None
    return int(min(value, 2.0**63)) if value >= 1 else None


def claim_bytes(hint_bytes: int | None, command_class: str, sandbox: Sandbox, learned: Learned, fraction: float) -> int:
    """Claim of a call: the hint, or the learned quantile of its class; at most what the sandbox's budget leaves.

    A larger hint than that waits until the sandbox runs nothing else: over-declaring costs time in the queue.
    """
    wanted = learned.need_bytes(command_class, fraction) if hint_bytes is None else hint_bytes
    return max(1, min(wanted, sandbox.budget_bytes - sandbox.agent_bytes))

"""Comparison of two snapshots, column by column."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from cluster.arrays import Names
from cluster.snapshot import Snapshot


def plain(value: Any) -> Any:
    """As nested tuples, lists and dicts that compare by content."""
    match value:
        case np.ndarray():
            return value.tolist()
        case Names():
            return list(value)
        case tuple():
            return [plain(each) for each in value]
        case Mapping():
            return {key: plain(each) for key, each in value.items()}
        case _ if hasattr(value, "__dataclass_fields__"):
            return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
        case _:
            return value


def content(snapshot: Snapshot) -> dict[str, Any]:
    """Everything in it but when it was seen."""
    return {key: value for key, value in plain(snapshot).items() if key not in ("at_s", "observed_at_s")}

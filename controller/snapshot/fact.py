"""Fact: a part of the snapshot that is made from objects of Tonnage's kinds."""

from collections.abc import Callable
from typing import Any

from cluster.snapshot import Snapshot
from controller.api.kind import Kind
from controller.objects.read import Read

OwnReads = Callable[[Kind], tuple[Read[Any], ...]]
"""Valid objects of one of Tonnage's kinds, sorted by name."""
Fact = Callable[[Snapshot, OwnReads], Snapshot]
"""Adds the meaning of the objects of some kinds to a snapshot."""

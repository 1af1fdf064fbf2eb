"""Facts of the toy decider: the size of each reserve, from its objects."""

from dataclasses import replace

from cluster.snapshot import Snapshot
from controller.snapshot.scalers import OwnReads
from tests.toy_decider.kind import KIND


def with_reserves(snapshot: Snapshot, own: OwnReads) -> Snapshot:
    wanted = {read.name: float(read.object.spec.gpus) for read in own(KIND)}
    return replace(snapshot, facts={**snapshot.facts, "reserve": wanted}) if wanted else snapshot

"""Facts of the toy decider: the size of each reserve, from its objects."""

from dataclasses import replace

from cluster.snapshot import Snapshot
from controller.objects.read import Read
from tests.toy_decider.kind import GPUReserve


def with_reserves(snapshot: Snapshot, reads: tuple[Read[GPUReserve], ...]) -> Snapshot:
    wanted = {read.name: float(read.object.spec.gpus) for read in reads}
    return replace(snapshot, facts={**snapshot.facts, "reserve": wanted})

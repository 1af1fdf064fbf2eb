"""Price of a move of a running pod, and how much may be moved."""

from dataclasses import dataclass

from cluster import workloads

QUARTER_S = 900.0
"""Work that a pod loses which does not say when it saved it, seconds: a quarter of an hour."""


@dataclass(frozen=True, slots=True)
class MovePrice:
    """Price of a move, and the time for which its gain lasts."""

    per_pod_usd: float = 0.10
    """Price of every move: attention, restart, and requests sent elsewhere meanwhile. Chosen."""
    per_gpu_usd: float = 1.00
    """Price per GPU that the pod holds: its idle time while the pod restarts, and work lost since the last checkpoint.
    Chosen: a quarter of an hour of a GPU of 4 $/h."""
    stay_h: float = 8.0
    """Time for which freed resources are expected to stay useful: about the stay of the pods around them. Chosen: a
    shift."""

    most_share: float = 1.0
    """Fraction of the pods of a namespace, and of a service, that are moved within an hour; one always may."""
    unknown_usd: float = 4.0
    """Price of a GPU-hour where its type has none. Chosen: as above."""

    def of(self, shape: workloads.PodShape, unsaved_s: float | None = None) -> float:
        """Price of moving one pod of this shape, in dollars.

        unsaved_s: work since its last checkpoint, where that is known; at least a minute for the restart.
        """
        lost = 1.0 if unsaved_s is None else max(60.0, unsaved_s) / QUARTER_S
        return self.per_pod_usd + self.per_gpu_usd * lost * shape.total_gpu_milli / 1000

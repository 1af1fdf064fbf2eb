"""The names by which Tonnage is known on objects: its API group, its labels and annotations.

Apart from the kinds themselves, whose models take a tenth of a second to load: nothing is imported here.
"""

GROUP = "tonnage.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
CATEGORY = "tonnage"
"""`kubectl get tonnage` shows objects of all kinds."""

GANG_LABEL = "tonnage.dev/gang"
"""On a pod: the name of its Gang, in the same namespace."""
SERVICE_LABEL = "tonnage.dev/service"
"""On a pod: the name of the ModelService of which it is an instance, in the same namespace."""

GPU_MILLI_ANNOTATION = "tonnage.dev/gpu-milli"
"""On a pod: thousandths of one GPU, 1 to 1000, instead of whole devices in its resources."""
GPU_TYPES_ANNOTATION = "tonnage.dev/gpu-types"
"""On a pod: the GPUTypes it may run on, separated by commas. A label cannot hold a comma, so it is an annotation."""
DEVICES_ANNOTATION = "tonnage.dev/devices"
"""On a running pod: the numbers of the devices that it holds, separated by commas."""
CHOSEN_NODE_ANNOTATION = "tonnage.dev/node"
"""On a pod that Tonnage placed: the node that it chose, also while kube-scheduler has not bound it yet."""
MOVABLE_ANNOTATION = "tonnage.dev/movable"
"""On a pod: "true" when it may be stopped here and started elsewhere to make room."""
PLACEMENT_GATE = "tonnage.dev/placement"
"""The scheduling gate of pods that kube-scheduler binds after Tonnage has chosen the node."""
SCHEDULER_NAME = "tonnage"
"""spec.schedulerName of pods that Tonnage binds itself."""
PLACED_AT_ANNOTATION = "tonnage.dev/placed-at"
"""On a pod that Tonnage gave a node, or a ResourceClaim that it gave devices: when, such as 2026-03-01T12:00:00Z."""
EPOCH_ANNOTATION = "tonnage.dev/epoch"
"""On what a leader wrote: the leaseTransitions of its Lease."""


def is_device_number(written: str) -> bool:
    """Anybody may write annotations: Python reads no number of 5,000 digits, and no node has so many devices."""
    return written.isascii() and written.isdigit() and len(written) < 10

"""Names that Tonnage uses on objects: its API group, labels and annotations.

Separate from the kinds, whose models take a tenth of a second to load: nothing is imported here.
"""

GROUP = "tonnage.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
CATEGORY = "tonnage"
"""Resource category: `kubectl get tonnage` shows objects of all kinds."""

GANG_LABEL = "tonnage.dev/gang"
"""Label on a pod: name of its Gang, in the same namespace."""
GANG_GROUP_LABEL = "tonnage.dev/gang-group"
"""Label on a pod: group of its Gang that it is in, such as its role."""
SERVICE_LABEL = "tonnage.dev/service"
"""Label on a pod: name of the ModelService of which it is an instance, in the same namespace."""

SANDBOX_LABEL = "tonnage.dev/sandbox"
"""Label on a pod that runs an agent: its class in the SandboxPolicy that covers it."""

MANAGED_LABEL = "tonnage.dev/managed"
"""Label on a namespace that Tonnage works in, with the value "true"; by the settings others are left alone."""
GPU_MILLI_ANNOTATION = "tonnage.dev/gpu-milli"
"""Annotation on a pod: thousandths of one GPU, 1 to 1000, instead of whole devices in its resources."""
GPU_MEMORY_ANNOTATION = "tonnage.dev/gpu-memory"
"""Annotation on a pod: memory that each of its devices, or its fraction of one, must have (`40Gi`)."""
GPU_TYPES_ANNOTATION = "tonnage.dev/gpu-types"
"""Annotation on a pod: the GPUTypes it may run on, separated by commas, which a label value cannot contain."""
DEVICES_ANNOTATION = "tonnage.dev/devices"
"""Annotation on a running pod: indices of its GPUs on the node, separated by commas."""
CHOSEN_NODE_ANNOTATION = "tonnage.dev/node"
"""Annotation on a pod that Tonnage placed: the chosen node, set even before kube-scheduler binds the pod."""
MOVABLE_ANNOTATION = "tonnage.dev/movable"
"""Annotation on a pod: "true" if it may be stopped and started elsewhere to make room."""
CHECKPOINT_ANNOTATION = "tonnage.dev/checkpoint-at"
"""Annotation on a pod: when it last saved its work, such as 2026-03-01T12:00:00Z; what came later a stop loses."""
SAVES_ANNOTATION = "tonnage.dev/saves-when-stopped"
"""Annotation on a pod: "true" if it saves its work when it is told to end, within its grace period."""
DO_NOT_DISRUPT_ANNOTATION = "tonnage.dev/do-not-disrupt"
"""Annotation on a pod: "true" if Tonnage is not to stop it while it runs, whatever for."""
HELD_SEATS_ANNOTATION = "tonnage.dev/held-seats"
"""Annotation on a pod for which Tonnage makes room in several steps: the seats that are kept until they are taken."""
PLACEMENT_GATE = "tonnage.dev/placement"
"""Scheduling gate of pods that kube-scheduler binds after Tonnage has chosen the node."""
SCHEDULER_NAME = "tonnage"
"""spec.schedulerName of pods that Tonnage binds itself."""
PLACED_AT_ANNOTATION = "tonnage.dev/placed-at"
"""Annotation on a pod or ResourceClaim that Tonnage placed: when, such as 2026-03-01T12:00:00Z."""
ANSWERS_AT_ANNOTATION = "tonnage.dev/answers-at"
"""On the Lease: HOST:PORT at which its holder says who it is."""
EPOCH_ANNOTATION = "tonnage.dev/epoch"
"""Annotation on every object that a leader wrote: leaseTransitions of its Lease, the epoch."""

GPU_TYPE_LABEL = "tonnage.dev/gpu-type"
GPUS_LABEL = "tonnage.dev/gpus-per-instance"
"""Label with the number of devices of one instance, where it is not 1."""
CAPACITY_LABEL = "tonnage.dev/capacity-type"
"""Label with the capacity type of an instance's nodes, where it is `spot`."""
INSTANCE_TYPE_LABEL = "tonnage.dev/instance-type"
"""Label with all of these in one, of instances that an InferencePool selects."""
PHASE_LABEL = "tonnage.dev/phase"
"""Label with the pool of its service that an instance is in: `prefill` or `decode`; none: of whole requests."""
CONTENT_ANNOTATION = "tonnage.dev/content"
"""Annotation on a Deployment: hash by `content_of`, so that an unchanged one is not written again."""

RELEASED_ANNOTATION = "tonnage.dev/released-at"
"""Annotation on a node: when a person released it from quarantine (`tonnage health release`)."""
HEALTHY_CONDITION = "CollectiveHealthy"
"""Condition of a node; False while an incident suspects it."""

EPOCH_MANAGER = "tonnage-epoch-"
"""Field manager of writes to scale subresources, followed by the epoch: those have no annotations."""


def is_device_number(written: str) -> bool:
    """Whether an annotation's text is a plausible device index. Anyone may write annotations: Python raises an error
    on a number of 5,000 digits."""
    return written.isascii() and written.isdigit() and len(written) < 10

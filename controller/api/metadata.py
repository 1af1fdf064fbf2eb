"""What every object carries in `metadata`, and the labels and annotations of Tonnage."""

from typing import Literal

from pydantic import Field

from controller.api.fields import Loose, ObjectName

API_VERSION = "tonnage.dev/v1alpha1"
ApiVersion = Literal["tonnage.dev/v1alpha1"]

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


class ObjectMeta(Loose):
    """metadata of a core/v1 object, or of one of ours where only the name is held to more."""

    name: str = Field(min_length=1, max_length=253)
    namespace: str = "default"
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    deletion_timestamp: str | None = None


class OwnMeta(ObjectMeta):
    """metadata of a kind of ours."""

    name: ObjectName = Field(description="Name of the object, lower case, unique in its kind (and namespace).")

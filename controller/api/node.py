"""Node of core/v1: the fields that placement reads."""

from typing import Literal

from pydantic import Field

from controller.api.fields import ListOf, Loose, ObjectMeta, Quantity
from controller.api.kind import Kind


class Taint(Loose):
    key: str = Field(min_length=1)
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class NodeSpec(Loose):
    unschedulable: bool = False
    taints: ListOf[Taint] = ()


class Condition(Loose):
    type: str
    status: str


class NodeStatus(Loose):
    allocatable: dict[str, Quantity] = Field(default_factory=dict)
    capacity: dict[str, Quantity] = Field(default_factory=dict)
    conditions: ListOf[Condition] = ()


class Node(Loose):
    api_version: Literal["v1"]
    kind: Literal["Node"]
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


KIND = Kind(name="Node", model=Node, plural="nodes", is_namespaced=False, api_version="v1", has_status=False)

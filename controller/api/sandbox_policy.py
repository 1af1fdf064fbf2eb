"""SandboxPolicy: pods of agents whose tool calls are isolated, with memory and priority by class."""

from typing import Annotated, Literal

from pydantic import Field

from controller.api import fields
from controller.api.conditions import ObservedStatus
from controller.api.kind import AGE, Kind, PrinterColumn, condition, reason

HIGHEST_PRIORITY = 1_000_000
MOST_TROUBLES = 16


class PodSelector(fields.Strict):
    """Labels of the pods."""

    match_labels: Annotated[dict[str, fields.LabelValue], Field(max_length=16)] = Field(
        default={}, description="Labels that a pod must have; none: every pod with the label tonnage.dev/sandbox."
    )


class SandboxClass(fields.Strict):
    """Class of agents. Where memory is short, tool calls of the lowest priority make way first."""

    name: fields.DnsLabel = Field(
        description="Name of the class; pods choose it by the value of their label tonnage.dev/sandbox."
    )
    priority: int = Field(
        default=0,
        ge=-HIGHEST_PRIORITY,
        le=HIGHEST_PRIORITY,
        description="Order of victims: a tool call makes way for those of a higher priority, and an agent goes last.",
    )
    budget: fields.PositiveQuantity | None = Field(
        default=None, description="Most memory of an agent with its tool calls; default: the limit of its container."
    )
    guaranteed: fields.QuantityFromZero | None = Field(
        default=None, description="Memory that is kept for each agent with its tool calls, used or not."
    )
    agent_memory: fields.QuantityFromZero | None = Field(
        default=None, description="Memory that is kept for the agent's own processes; it grows with their use."
    )


class SandboxPolicySpec(fields.Strict):
    namespaces: Annotated[fields.ListOf[fields.DnsLabel], fields.as_set()] = Field(
        default=(), max_length=256, description="Namespaces of the pods; none: all."
    )
    selector: PodSelector = Field(
        default=PodSelector(), description="Which of the pods with the label tonnage.dev/sandbox the policy covers."
    )
    container: fields.DnsLabel | None = Field(
        default=None, description="Container with the agent; default: the pod's first container."
    )
    classes: Annotated[fields.ListOf[SandboxClass], fields.keyed_by("name")] = Field(
        min_length=1,
        max_length=16,
        description="Classes of agents. Pods whose label names none of them belong to the first.",
    )


class SandboxTrouble(fields.StatusPart):
    """Pod that is not under control."""

    pod: str = Field(max_length=512, description="The pod, as namespace/name.")
    node: str = Field(max_length=253, description="Name of its node.")
    message: str = Field(max_length=512, description="Why.")


class SandboxPolicyStatus(ObservedStatus):
    """State of the policy."""

    selected: int | None = Field(default=None, ge=0, description="Running pods that it covers.")
    controlled: int | None = Field(default=None, ge=0, description="Those whose tool calls are isolated.")
    running: int | None = Field(default=None, ge=0, description="Tool calls that run, frozen ones included.")
    queued: int | None = Field(default=None, ge=0, description="Tool calls that wait for memory.")
    frozen: int | None = Field(default=None, ge=0, description="Tool calls that are frozen.")
    troubles: fields.ListOf[SandboxTrouble] = Field(
        default=(), max_length=MOST_TROUBLES, description="Pods that are not under control, the first 16."
    )


class SandboxPolicy(fields.OwnKind):
    """Isolation of agents' tool calls, in pods with the label tonnage.dev/sandbox. Not namespaced."""

    kind: Literal["SandboxPolicy"]
    spec: SandboxPolicySpec = Field(description="Pods and classes.")
    status: SandboxPolicyStatus = Field(default=SandboxPolicyStatus(), description="Written by the operator.")


KIND = Kind(
    model=SandboxPolicy,
    plural="sandboxpolicies",
    short_names=("sbp",),
    is_namespaced=False,
    columns=(
        PrinterColumn("Selected", ".status.selected", "integer", "Running pods that it covers."),
        PrinterColumn("Controlled", ".status.controlled", "integer", "Those whose tool calls are isolated."),
        PrinterColumn("Running", ".status.running", "integer", "Tool calls that run."),
        PrinterColumn("Queued", ".status.queued", "integer", "Tool calls that wait for memory."),
        PrinterColumn("Frozen", ".status.frozen", "integer", "Tool calls that are frozen.", is_wide=True),
        condition("Ready", "Whether all its pods are under control."),
        reason("Ready"),
        AGE,
    ),
    watched_by="isolation",
    watched_as="sandbox_policies",
)

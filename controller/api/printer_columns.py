"""How the API server shows each kind: its names, its columns in kubectl, its subresources."""

from dataclasses import dataclass
from typing import Literal

from controller.api.labels import GANG_LABEL


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`."""

    name: str
    path: str
    """JSONPath from the object."""
    type: Literal["string", "integer", "number", "date"]
    description: str
    is_wide: bool = False
    """Only with `-o wide`."""


@dataclass(frozen=True, slots=True)
class Scale:
    """What `kubectl scale`, autoscalers and disruption budgets read and set."""

    spec_path: str
    status_path: str
    selector_path: str


@dataclass(frozen=True, slots=True)
class Served:
    plural: str
    short: str
    columns: tuple[Column, ...]
    scale: Scale | None = None


AGE = Column("Age", ".metadata.creationTimestamp", "date", "Time since the object was made.")


def _condition(name: str, words: str) -> Column:
    return Column(name, f'.status.conditions[?(@.type=="{name}")].status', "string", words)


def _reason(name: str) -> Column:
    path = f'.status.conditions[?(@.type=="{name}")].reason'
    return Column("Reason", path, "string", f"Why it is, or is not, {name}.", is_wide=True)


ACCEPTED = _condition("Accepted", "Whether the object is right beside the objects that it names.")

SERVED = {
    "GPUType": Served(
        "gputypes",
        "gput",
        (
            Column("Memory", ".spec.memory", "string", "Memory of one device."),
            Column("$/h", ".spec.pricePerHour.onDemand", "number", "Dollars per device and hour on demand."),
            Column("Spot $/h", ".spec.pricePerHour.spot", "number", "Dollars per device and hour on spot."),
            Column("Resource", ".spec.resourceName", "string", "Resource by which pods ask for it.", is_wide=True),
            ACCEPTED,
            AGE,
        ),
    ),
    "ModelProfile": Served(
        "modelprofiles",
        "mprof",
        (
            Column("Model", ".spec.model", "string", "The model that was measured."),
            Column("GPU type", ".spec.gpuType", "string", "The GPUType that it was measured on."),
            Column("GPUs", ".spec.gpusPerInstance", "integer", "Devices of one instance."),
            ACCEPTED,
            AGE,
        ),
    ),
    "ModelService": Served(
        "modelservices",
        "msvc",
        (
            Column("Model", ".spec.model", "string", "The model that is served."),
            Column("Wanted", ".status.wantedInstances", "integer", "Instances that are asked for."),
            Column("Running", ".status.runningInstances", "integer", "Instances that run."),
            Column("$/h", ".status.costPerHour", "number", "Dollars per hour of the instances asked for."),
            _condition("Ready", "Whether all instances run as the last plan wants them."),
            Column("Mix", ".status.replicas", "string", "Instances asked for, by GPUType.", is_wide=True),
            Column("Gap", ".status.gap", "number", "How far the cost may be from the least, share.", is_wide=True),
            _reason("Ready"),
            AGE,
        ),
    ),
    "Gang": Served(
        "gangs",
        "gng",
        (
            Column("Min", ".spec.minMembers", "integer", "Members that start together, at least."),
            Column("Members", ".status.members", "integer", "Pods of the gang."),
            Column("Running", ".status.running", "integer", "Members that run."),
            _condition("Ready", "Whether enough members run."),
            Column("Within", ".spec.topology.within", "string", "Node label that they share.", is_wide=True),
            _reason("Ready"),
            AGE,
        ),
        # Its members are somebody else's pods; what is scaled is how many of them must start together.
        Scale(".spec.minMembers", ".status.members", ".status.selector"),
    ),
    "PowerDomain": Served(
        "powerdomains",
        "pdom",
        (
            Column("Type", ".spec.type", "string", "What it is."),
            Column("Budget", ".spec.budgetWatts", "number", "What may be drawn through it for ever, watts."),
            Column("Draw", ".status.drawWatts", "number", "What is drawn through it now, watts."),
            Column("Headroom", ".status.headroomWatts", "number", "What more work may begin to draw in it, watts."),
            Column("Devices", ".status.devices", "integer", "Devices that draw through it."),
            Column("Stale", ".status.staleDevices", "integer", "Devices not heard of lately.", is_wide=True),
            Column("Capped", ".status.cappedShare", "number", "Share of its devices that are held back.", is_wide=True),
            _condition("Ready", "Whether its agents are heard and its budget is kept."),
            _reason("Ready"),
            AGE,
        ),
    ),
}


def gang_selector(name: str) -> str:
    """The label selector of a gang's members, for its status."""
    return f"{GANG_LABEL}={name}"

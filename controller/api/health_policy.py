"""HealthPolicy: which nodes Tonnage watches over, what it may do to them, and how much at most."""

from typing import Annotated, Literal

from pydantic import Field

from controller.api import fields
from controller.api.conditions import ObservedStatus
from controller.api.kind import AGE, Kind, PrinterColumn, condition, reason

Count = Annotated[int, Field(ge=0, le=1_000_000)]


class NodeLabelSelector(fields.Strict):
    """Nodes by one label."""

    key: fields.LabelKey = Field(description="Key of the node label.")
    values: Annotated[fields.ListOf[fields.LabelValue], Field(max_length=1024), fields.as_set()] = Field(
        default=(), description="Values; none: any."
    )


class QuarantineBudget(fields.Strict):
    """Most that may be taken out of the fleet. One node is always allowed."""

    per_job: Count = Field(default=2, description="Nodes taken from one job within perJobWindow, or recentShare of it.")
    per_job_window: fields.Duration = Field(default=1800.0, description="Window of perJob.")
    recent_share: fields.Fraction = Field(default=0.02, description="Share of the nodes taken out within recentWindow.")
    recent_window: fields.Duration = Field(default=600.0, description="Window of recentShare.")
    total_share: fields.Fraction = Field(default=0.10, description="Share of the nodes that may be out at any time.")
    domain_share: fields.Fraction = Field(default=0.25, description="The same for each failure domain.")


class Breakers(fields.Strict):
    """When nothing more is done, and a person is asked."""

    domain_suspects: Annotated[int, Field(ge=2, le=1000)] = Field(
        default=2, description="Suspects in one failure domain within domainWindow that make it the suspect instead."
    )
    domain_window: fields.Duration = Field(default=120.0, description="Window of domainSuspects.")
    restarts: Annotated[int, Field(ge=1, le=100)] = Field(
        default=3,
        description="Restarts of one job within restartWindow, after which nodes are no longer blamed for it.",
    )
    restart_window: fields.Duration = Field(default=3600.0, description="Window of restarts.")
    heard_share: fields.Fraction = Field(
        default=0.9, description="Share of the nodes under jobs whose agents must be heard; below it nothing is begun."
    )


class Probation(fields.Strict):
    """The way back of a node."""

    test: fields.Duration = Field(
        default=60.0,
        description="Time in quarantine without a finding of the node's agent, the kernel's log included, after which "
        "it goes on probation.",
    )
    lasts: fields.Duration = Field(
        default=14_400.0, description="Time on probation, in which only pods that tolerate tonnage.dev/probation come."
    )


class JobCosts(fields.Strict):
    """Durations that the expected GPU-hours are computed from, for jobs that do not show their own."""

    restart: fields.Duration = Field(
        default=150.0, description="From the stop of a gang to its first step on other nodes."
    )
    restart_in_place: fields.Duration = Field(
        default=150.0, description="The same on the nodes that it has: its pods are evicted as well."
    )
    checkpoint_interval: fields.Duration = Field(default=1800.0, description="Time between two checkpoints.")


class RemediationOwner(fields.Strict):
    """Label or taint by which another remediation owns a node; Tonnage then waits, and says so."""

    name: fields.ObjectName = Field(description="Name of the other remediation, for people.")
    label: fields.LabelKey | None = Field(
        default=None, description="Node label whose presence means that it owns the node."
    )
    taint: fields.LabelKey | None = Field(default=None, description="Key of a taint with the same meaning.")


class Detector(fields.Strict):
    """Condition or taint that another detector sets on nodes, as evidence."""

    name: fields.ObjectName = Field(description="Name of the detector, for people.")
    condition: str | None = Field(
        default=None, max_length=316, description="Type of a node condition that is True while there is a fault."
    )
    taint: fields.LabelKey | None = Field(
        default=None, description="Key of a taint on the node, or on one of its devices."
    )


class FindingSeverity(fields.Strict):
    """What a finding of the node agents asks for, instead of what the table of docs/health.md says."""

    code: Annotated[str, Field(pattern="^[A-Z][A-Za-z0-9]{1,63}$")] = Field(
        description="Code of the finding, such as Xid63 or RowRemapPending; a number stands for all its words, such as "
        "Xid145Fatal."
    )
    severity: Literal["None", "Watch", "AfterJob", "Now"] = Field(
        description="None: nothing. Watch: it is shown beside what else accuses the node. AfterJob: the node is taken "
        "out when the job on it has ended. Now: it is taken out."
    )


class HealthPolicySpec(fields.Strict):
    mode: Literal["Off", "Observe", "Act"] = Field(
        default="Observe",
        description="Off: nothing. Observe: incidents are opened and priced, nothing is done. Act: nodes are "
        "tainted and gangs restarted.",
    )
    nodes: NodeLabelSelector | None = Field(
        default=None,
        description="Nodes that this policy governs; default: all. A node is governed by the first policy by name.",
    )
    failure_domains: Annotated[fields.ListOf[fields.LabelKey], Field(max_length=8), fields.as_set()] = Field(
        default=(), description="Node labels whose values are failure domains (a switch, a rack), smallest first."
    )
    budget: QuarantineBudget = Field(default=QuarantineBudget(), description="Most that may be taken out of the fleet.")
    breakers: Breakers = Field(default=Breakers(), description="When nothing more is done, and a person is asked.")
    probation: Probation = Field(default=Probation(), description="The way back of a node.")
    jobs: JobCosts = Field(default=JobCosts(), description="Durations that alternatives are priced by.")
    preflight: fields.Duration | None = Field(
        default=None,
        description="Time of the preflight that gangs with GPUs have before they begin on these nodes, in mode Act: "
        "without an init container `preflight` (docs/health.md) they wait, reason PreflightMissing; default: none.",
    )
    owners: Annotated[fields.ListOf[RemediationOwner], Field(max_length=16), fields.keyed_by("name")] = Field(
        default=(), description="Other remediations, besides NVSentinel, Karpenter and the cluster autoscaler."
    )
    detectors: fields.ListOf[Detector] = Field(
        default=(), max_length=32, description="Other detectors, besides node-problem-detector."
    )
    findings: Annotated[fields.ListOf[FindingSeverity], Field(max_length=256), fields.keyed_by("code")] = Field(
        default=(), description="Severities of findings, where they differ from the table of docs/health.md."
    )


class CheckpointStatus(fields.StatusPart):
    """What the checkpoints of one job cost, as measured, how often it should save, and what else keeps it running."""

    job: Annotated[str, Field(max_length=317)] = Field(description="The gang, namespace/name.")
    save: fields.Duration = Field(description="How long a checkpoint holds the job up.")
    interval: fields.Duration = Field(description="Time between two checkpoints.")
    advised: fields.Duration = Field(description="Time between two checkpoints that loses least.")
    lost_share: fields.Fraction = Field(
        description="Part of its time that goes into checkpoints and into work done again."
    )
    advised_lost_share: fields.Fraction = Field(description="The same as advised.")
    spares: int = Field(
        default=0, ge=0, le=1_000_000, description="Free nodes with which it has enough nodes 99 % of the time."
    )


class HealthPolicyStatus(ObservedStatus):
    """State of the policy. Conditions: Accepted, Ready (agents are heard)."""

    nodes: int = Field(default=0, ge=0, le=1_000_000, description="Nodes that it governs.")
    quarantined: int = Field(default=0, ge=0, le=1_000_000, description="Nodes in quarantine or on probation.")
    incidents: int = Field(default=0, ge=0, le=1_000_000, description="Open incidents on its nodes.")
    checkpoints: Annotated[fields.ListOf[CheckpointStatus], Field(max_length=64), fields.keyed_by("job")] = Field(
        default=(), description="Jobs on its nodes whose checkpoints were seen; those that lose most by theirs first."
    )


class HealthPolicy(fields.OwnKind):
    """Rules by which Tonnage acts on faults of nodes."""

    kind: Literal["HealthPolicy"]
    spec: HealthPolicySpec = Field(description="What may be done to which nodes.")
    status: HealthPolicyStatus = Field(default=HealthPolicyStatus(), description="Written by Tonnage.")


KIND = Kind(
    model=HealthPolicy,
    plural="healthpolicies",
    short_names=("hpol",),
    is_namespaced=False,
    columns=(
        PrinterColumn("Mode", ".spec.mode", "string", "What is done about faults."),
        PrinterColumn("Nodes", ".status.nodes", "integer", "Nodes that it governs."),
        PrinterColumn("Out", ".status.quarantined", "integer", "Nodes in quarantine or on probation."),
        PrinterColumn("Incidents", ".status.incidents", "integer", "Open incidents on its nodes."),
        condition("Ready", "Whether agents are heard."),
        reason("Ready"),
        AGE,
    ),
    watched_by="health",
    watched_as="health_policies",
)

"""FaultIncident: one suspect (a node, a job, a link, a failure domain), its evidence, and what is done about it."""

from typing import Annotated, Literal

from pydantic import Field

from controller.api.conditions import ObservedStatus
from controller.api.fields import Instant, ListOf, NumberFromZero, OwnKind, StatusPart, Strict
from controller.api.kind import AGE, Kind, PrinterColumn, condition

Text = Annotated[str, Field(max_length=1024)]
Phase = Literal["Suspected", "Acting", "Quarantined", "Probation", "Paged", "Closed"]


class FaultIncidentSpec(Strict):
    """The suspect. Tonnage writes it once."""

    nodes: Annotated[ListOf[Text], Field(max_length=1024)] = Field(default=(), description="Names of suspected nodes.")
    domain: Text = Field(default="", description="Failure domain, where that is the suspect (`key=value`).")


class AlternativeStatus(StatusPart):
    """One thing that could be done, and its price."""

    do: Text = Field(description="What would be done.")
    gpu_hours: NumberFromZero | None = Field(default=None, description="Expected loss; absent where it cannot be done.")
    note: Text = Field(default="", description="Why it costs that, or cannot be done.")


class FaultIncidentStatus(ObservedStatus):
    """State of the incident. Conditions: Active, Waiting (something keeps it from acting; reason DrainBlocked, ...)."""

    phase: Phase | None = Field(default=None, description="Where the incident stands.")
    generation: int = Field(default=0, ge=0, description="Times that it was opened; a taint names it.")
    syndrome: Text = Field(default="", description="What is disturbed.")
    part: Text = Field(default="", description="What is suspected: rank, node, nic, link, group.")
    jobs: Annotated[ListOf[Text], Field(max_length=64)] = Field(default=(), description="Jobs that it disturbs.")
    confidence: Annotated[float, Field(ge=0, le=1)] = Field(default=0.0, description="Strength of evidence, 0 to 1.")
    evidence: Annotated[ListOf[Text], Field(max_length=32)] = Field(default=(), description="What it rests on.")
    sources: Annotated[ListOf[Text], Field(max_length=8)] = Field(default=(), description="Who says so.")
    remedy: Text = Field(default="", description="What was decided.")
    waits_for: Text = Field(default="", description="What keeps it from acting.")
    probe: Text = Field(default="", description="Probe that would decide.")
    since: Instant | None = Field(default=None, description="When the disturbance began.")
    seen: Instant | None = Field(default=None, description="When it was last seen.")
    alternatives: Annotated[ListOf[AlternativeStatus], Field(max_length=8)] = Field(
        default=(), description="What could be done for the job, cheapest first, in expected GPU-hours."
    )
    record: Annotated[str, Field(max_length=65_536)] = Field(
        default="", description="State that a new leader goes on from, as JSON. For Tonnage alone."
    )


class FaultIncident(OwnKind):
    """One suspected fault, and what is done about it."""

    kind: Literal["FaultIncident"]
    spec: FaultIncidentSpec = Field(description="The suspect.")
    status: FaultIncidentStatus = Field(default=FaultIncidentStatus(), description="Written by Tonnage.")


KIND = Kind(
    model=FaultIncident,
    plural="faultincidents",
    short_names=("finc",),
    is_namespaced=False,
    columns=(
        PrinterColumn("Phase", ".status.phase", "string", "Where the incident stands."),
        PrinterColumn("Syndrome", ".status.syndrome", "string", "What is disturbed."),
        PrinterColumn("Part", ".status.part", "string", "What is suspected."),
        PrinterColumn("Nodes", ".spec.nodes", "string", "Suspected nodes."),
        PrinterColumn("Jobs", ".status.jobs", "string", "Jobs that it disturbs.", is_wide=True),
        PrinterColumn("Confidence", ".status.confidence", "number", "Strength of the evidence.", is_wide=True),
        condition("Waiting", "Whether something keeps it from acting."),
        PrinterColumn("Waits for", ".status.waitsFor", "string", "What keeps it from acting."),
        AGE,
    ),
    watched_by="health",
    watched_as="fault_incidents",
)

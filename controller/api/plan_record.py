"""PlanRecord: a plan as the API server keeps it: what a leader set out to do, and what became of each step."""

from typing import Annotated, Literal

from pydantic import Field

from controller.api.conditions import ObservedStatus
from controller.api.fields import Instant, ListOf, Strict, Told, keyed_by
from controller.api.metadata import ApiVersion, OwnMeta
from controller.api.rule import Rule, unchanging

MAX_STEPS = 1000
"""Steps of one record. With the longest names that Kubernetes knows a bind takes 1,034 bytes, so a record of them stays
under 1 MiB, and etcd takes 1.5 MiB. A plan of more steps becomes several records ."""
MAX_PHASES = 256
LONGEST_WORDS = 256

QualifiedName = Annotated[str, Field(min_length=1, max_length=317)]
"""`namespace/name`."""
NodeName = Annotated[str, Field(min_length=1, max_length=253)]
Device = Annotated[int, Field(ge=0, le=15)]
Devices = Annotated[ListOf[Device], Field(max_length=16)]
StepNumber = Annotated[int, Field(ge=0, le=MAX_STEPS - 1)]


class BindStep(Told):
    """Start a pending pod on a node."""

    pod: QualifiedName = Field(description="The pod, namespace/name.")
    node: NodeName = Field(description="The node that it starts on.")
    devices: Devices = Field(default=(), description="Numbers of the devices that it gets there.")


class EvictStep(Told):
    """Stop a pod where it runs."""

    pod: QualifiedName = Field(description="The pod, namespace/name.")
    node: NodeName = Field(description="The node that it runs on.")


class MoveStep(Told):
    """Stop a pod on one node and start it on another."""

    pod: QualifiedName = Field(description="The pod, namespace/name.")
    from_node: NodeName = Field(description="The node that it runs on.")
    node: NodeName = Field(description="The node that it starts on.")
    devices: Devices = Field(default=(), description="Numbers of the devices that it gets there.")


class ScaleStep(Told):
    """Have so many instances of a service on each GPU type."""

    service: QualifiedName = Field(description="The ModelService, namespace/name.")
    instances: Annotated[dict[str, Annotated[int, Field(ge=0)]], Field(max_length=64)] = Field(
        description="Instances per GPUType; types that are not named stay as they are."
    )


class PowerLeaseStep(Told):
    """Allow the devices of a node so many watts each, for so long."""

    node: str = Field(min_length=1, max_length=253, description="The node.")
    watts: Annotated[dict[str, Annotated[float, Field(ge=0)]], Field(max_length=64)] = Field(
        description="Highest draw per device (UUID)."
    )
    sequence: int = Field(ge=0, description="Rises with each lease of this node.")
    epoch: int = Field(default=0, ge=0, description="The term of the controller that grants it.")
    seconds: float = Field(gt=0, description="How long until the node's agent falls back to the safe floor by itself.")


class RecordedReason(Told):
    """Why, as a code for machines and words for people."""

    code: str = Field(min_length=1, max_length=64, description="Why, in one word for machines.")
    words: str = Field(default="", max_length=LONGEST_WORDS, description="Why, in words for people, cut when long.")


class RecordedStep(Told):
    """One action and its reason."""

    bind: BindStep | None = Field(default=None, description="Start a pending pod on a node.")
    evict: EvictStep | None = Field(default=None, description="Stop a pod where it runs.")
    move: MoveStep | None = Field(default=None, description="Stop a pod on one node and start it on another.")
    scale: ScaleStep | None = Field(default=None, description="Have so many instances of a service on each GPU type.")
    power_lease: PowerLeaseStep | None = Field(
        default=None, description="Allow the devices of a node so many watts each, for so long."
    )
    reason: RecordedReason = Field(description="Why this is done.")


class RecordedPhase(Told):
    """Steps that may happen together; a phase starts when the one before it is done."""

    name: str = Field(min_length=1, max_length=512, description="What the phase is for.")
    whole: bool = Field(default=False, description="All of its steps, or none: a gang.")
    continued: bool = Field(default=False, description="The first phase of this part goes on with the last one before.")
    steps: Annotated[ListOf[RecordedStep], Field(max_length=MAX_STEPS)] = Field(description="What is to be done.")


class PlanRecordSpec(Told):
    """The plan. It never changes: another plan is another record."""

    epoch: int = Field(
        ge=0, description="Times that the lead changed hands before this plan was made (the Lease's epoch)."
    )
    plan: str = Field(
        min_length=1, max_length=63, description="Tells the plans of one epoch apart; its parts share it."
    )
    part: int = Field(default=0, ge=0, description="Which part of the plan this is, counted from 0.")
    parts: int = Field(default=1, ge=1, description="How many parts the plan has.")
    observed_at: Instant = Field(description="When the cluster was as the plan takes it to be.")
    phases: Annotated[ListOf[RecordedPhase], Field(max_length=MAX_PHASES)] = Field(
        description="What is to be done, in this order; steps are numbered through all phases of the part from 0."
    )


class UndoneStep(Told):
    """A step that is not so in the world, and why."""

    step: StepNumber = Field(description="Its number.")
    reason: RecordedReason = Field(description="Why it is not done.")


class PlanRecordStatus(ObservedStatus):
    """What became of the plan. A step in neither list was not come to, or nobody lived to write it down."""

    done: Annotated[ListOf[StepNumber], Field(max_length=MAX_STEPS)] = Field(
        default=(), description="Numbers of the steps that were done and read back."
    )
    undone: Annotated[ListOf[UndoneStep], Field(max_length=MAX_STEPS), keyed_by("step")] = Field(
        default=(), description="Steps that failed, were skipped or were taken back."
    )


class PlanRecord(Strict):
    """A plan as the API server keeps it: what a leader set out to do, and what became of each step. No input."""

    api_version: ApiVersion
    kind: Literal["PlanRecord"]
    metadata: OwnMeta
    spec: PlanRecordSpec = Field(description="The plan. It never changes: another plan is another record.")
    status: PlanRecordStatus = Field(default=PlanRecordStatus(), description="Written by Tonnage.")


RULES = (
    unchanging("spec", remedy="another plan is another record"),
    Rule(
        ("spec",),
        f"self.phases.map(phase, phase.steps.size()).sum() <= {MAX_STEPS}",
        f"has more than {MAX_STEPS} steps; write further parts",
    ),
    Rule(("spec",), "self.part < self.parts", "part is not below parts; parts are counted from 0"),
    Rule(
        ("spec", "phases", "[]", "steps", "[]"),
        "[has(self.bind), has(self.evict), has(self.move), has(self.scale), has(self.powerLease)]"
        ".exists_one(action, action)",
        "holds one action: bind, evict, move, scale or powerLease",
    ),
)

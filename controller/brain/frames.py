"""Frames: a snapshot or a plan as one run of bytes (cluster/frame.py), as the recorder and support bundles keep them.

Size: 60,000 pods on 6,000 nodes, 4 MB, 30 ms to make and read (benchmarks/operator.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import msgspec

from cluster import actions, autoscaling, demand, errors, plans
from cluster.frame import Buffer, FrameError, framed, no_columns, unframed
from cluster.snapshot import HealthInput, Snapshot
from controller.deciders.remediation import HealthFacts, HealthOutcome

KINDS: Mapping[type, type] = {HealthInput: HealthFacts, plans.HealthResult: HealthOutcome}
"""What snapshots and plans hold of deciders whose types only these know."""

_StepHead = tuple[str, msgspec.Raw, plans.Reason]
"""Action's kind, encoded action, reason."""


@dataclass(frozen=True, slots=True)
class _PhaseHead:
    name: str
    steps: tuple[_StepHead, ...]
    whole: bool


@dataclass(frozen=True, slots=True, eq=False)
class _PlanHead:
    """Plan whose steps name their action's kind, because a union of dataclasses does not."""

    phases: tuple[_PhaseHead, ...]
    refused: tuple[tuple[_StepHead, plans.Reason], ...]
    certificates: dict[str, plans.Certificate]
    unplaced: tuple[plans.Unplaced, ...]
    services: tuple[plans.ServicePlan, ...]
    findings: tuple[plans.Finding, ...] = ()
    cut_short: tuple[plans.Reason, ...] = ()
    expected: tuple[demand.ExpectedDemand, ...] = ()
    limits: tuple[autoscaling.ConcurrencyLimit, ...] = ()
    health: plans.HealthResult | None = None


_SAME = tuple(each.name for each in fields(_PlanHead) if each.name not in ("phases", "refused", "certificates"))
"""Fields that are those of the plan."""


def snapshot_frame(snapshot: Snapshot) -> bytes:
    """The frame of a snapshot, to be read by `snapshot_from_frame`."""
    return framed(snapshot)


def snapshot_from_frame(frame: Buffer) -> Snapshot:
    """The snapshot in a frame. Raises FrameError."""
    return unframed(Snapshot, frame, KINDS)


def plan_frame(plan: plans.Plan) -> bytes:
    """The frame of a plan, to be read by `plan_from_frame`."""
    encode = msgspec.msgpack.Encoder(enc_hook=no_columns).encode

    def head(step: plans.Step) -> _StepHead:
        return type(step.action).__name__, msgspec.Raw(encode(step.action)), step.reason

    phases = tuple(_PhaseHead(p.name, tuple(head(step) for step in p.steps), p.whole) for p in plan.phases)
    refused = tuple((head(each.step), each.reason) for each in plan.refused)
    same = {name: getattr(plan, name) for name in _SAME}
    return framed(_PlanHead(phases, refused, dict(plan.certificates), **same))


def plan_from_frame(frame: Buffer, kinds: Sequence[type[actions.Action]] = actions.ACTIONS) -> plans.Plan:
    """The plan in a frame, whose actions are of these kinds. Raises FrameError."""
    read = unframed(_PlanHead, frame, KINDS)
    decoders = {kind.__name__: msgspec.msgpack.Decoder(kind) for kind in kinds}

    def step(head: _StepHead) -> plans.Step:
        name, action, reason = head
        if name not in decoders:
            raise FrameError(f"the plan has an unknown action {name!r}; another version of Tonnage wrote it")
        return plans.Step(decoders[name].decode(action), reason)

    try:
        phases = tuple(plans.Phase(p.name, tuple(step(head) for head in p.steps), p.whole) for p in read.phases)
        refused = tuple(plans.Refused(step(head), reason) for head, reason in read.refused)
        same = {name: getattr(read, name) for name in _SAME}
        return plans.Plan(phases=phases, refused=refused, certificates=read.certificates, **same)
    except FrameError:
        raise
    except errors.UNREADABLE as error:
        raise FrameError(f"the plan cannot be read: {error}") from error

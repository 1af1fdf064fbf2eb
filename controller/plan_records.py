"""Plans as PlanRecords and back: in parts that the API server takes, with what became of each step."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count, islice
from typing import assert_never

from cluster.actions import Action, Bind, Evict, Move, Scale, SetPowerLease
from cluster.plans import Phase, Plan, Reason, Step
from controller.api.conditions import APPLIED, set_condition
from controller.api.plan_record import (
    LONGEST_WORDS,
    MAX_PHASES,
    MAX_STEPS,
    BindStep,
    EvictStep,
    MoveStep,
    PlanRecordSpec,
    PlanRecordStatus,
    PowerLeaseStep,
    RecordedPhase,
    RecordedReason,
    RecordedStep,
    ScaleStep,
    UndoneStep,
)
from controller.world import Outcome


def specs_from(plan: Plan, *, name: str, epoch: int, observed_at_s: float) -> tuple[PlanRecordSpec, ...]:
    """The plan's phases in as many parts as it takes; none for a plan that does nothing. Empty phases are left out.

    name: tells the plans of one epoch apart. Figures of reasons stay behind and long words are cut: a record is there
    to be finished from, the log tells the rest.
    """
    parts = list(_parts(plan.phases))
    return tuple(
        PlanRecordSpec(epoch=epoch, plan=name, part=n, parts=len(parts), observed_at=observed_at_s, phases=phases)
        for n, phases in enumerate(parts)
    )


def plan_from(specs: Iterable[PlanRecordSpec]) -> Plan:
    """The plan whose parts these are, in any order. Raises ValueError when a part is missing or of another plan."""
    parts = sorted(specs, key=lambda spec: spec.part)
    whose = {(spec.epoch, spec.plan, spec.parts) for spec in parts}
    if len(whose) > 1 or [spec.part for spec in parts] != list(range(parts[0].parts if parts else 0)):
        raise ValueError("these are not all parts of one plan")
    phases: list[Phase] = []
    for recorded in (phase for spec in parts for phase in spec.phases):
        steps = tuple(Step(_action(step), Reason(step.reason.code, step.reason.words)) for step in recorded.steps)
        if recorded.continued:
            phases[-1] = replace(phases[-1], steps=phases[-1].steps + steps)
        else:
            phases.append(Phase(recorded.name, steps, recorded.whole))
    return Plan(tuple(phases))


def statuses_from(
    specs: Sequence[PlanRecordSpec], outcome: Outcome, *, generation: int, at_s: float
) -> tuple[PlanRecordStatus, ...]:
    """What became of each part's steps. A step is known by what it does: a plan does nothing twice.

    generation: of the records, 1 as they never change. at_s: now, seconds since the epoch.
    """
    done = {_key(step.action) for step in outcome.done}
    undone = {_key(each.step.action): each.reason for each in outcome.undone}
    made = []
    for spec in specs:
        keys = [_key(_action(step)) for phase in spec.phases for step in phase.steps]
        failed = [(n, undone[key]) for n, key in enumerate(keys) if key in undone]
        succeeded = tuple(n for n, key in enumerate(keys) if key in done and key not in undone)
        made.append(_status(len(keys), succeeded, failed, generation=generation, at_s=at_s))
    return tuple(made)


def _status(
    steps: int, done: tuple[int, ...], undone: Sequence[tuple[int, Reason]], *, generation: int, at_s: float
) -> PlanRecordStatus:
    words = f"{len(done)} of {steps} steps done, {len(undone)} not done"
    if len(done) == steps:
        said = set_condition((), APPLIED, "True", "AllDone", words, generation=generation, at_s=at_s)
    else:
        reason = "StepsUndone" if undone else "Unfinished"
        said = set_condition((), APPLIED, "False", reason, words, generation=generation, at_s=at_s)
    return PlanRecordStatus(
        observed_generation=generation,
        conditions=said,
        done=done,
        undone=tuple(UndoneStep(step=n, reason=_reason(reason)) for n, reason in undone),
    )


def _key(action: Action) -> object:
    """What tells actions apart; a Scale and a lease hold a mapping, which has no hash."""
    match action:
        case Scale():
            return ("Scale", action.service)
        case SetPowerLease():
            return ("SetPowerLease", action.node, action.epoch, action.sequence)
    return action


def _parts(phases: Iterable[Phase]) -> Iterator[tuple[RecordedPhase, ...]]:
    """Phases in their order, cut where a record is full."""
    part: list[RecordedPhase] = []
    room = MAX_STEPS
    for phase in phases:
        steps = iter(phase.steps)
        for piece in count():
            if room == 0 or len(part) == MAX_PHASES:
                yield tuple(part)
                part, room = [], MAX_STEPS
            taken = tuple(_recorded(step) for step in islice(steps, room))
            if not taken:
                break
            room -= len(taken)
            part.append(RecordedPhase(name=phase.name, whole=phase.whole, continued=piece > 0, steps=taken))
    if part:
        yield tuple(part)


def _recorded(step: Step) -> RecordedStep:
    reason = _reason(step.reason)
    match step.action:
        case Bind(pod, node, devices):
            return RecordedStep(bind=BindStep(pod=pod, node=node, devices=devices), reason=reason)
        case Evict(pod, node):
            return RecordedStep(evict=EvictStep(pod=pod, node=node), reason=reason)
        case Move(pod, from_node, node, devices):
            move = MoveStep(pod=pod, from_node=from_node, node=node, devices=devices)
            return RecordedStep(move=move, reason=reason)
        case Scale(service, instances):
            return RecordedStep(scale=ScaleStep(service=service, instances=dict(instances)), reason=reason)
        case SetPowerLease(node, caps_w, sequence, epoch, for_s):
            lease = PowerLeaseStep(node=node, watts=dict(caps_w), sequence=sequence, epoch=epoch, seconds=for_s)
            return RecordedStep(power_lease=lease, reason=reason)
        case _:
            assert_never(step.action)


def _action(step: RecordedStep) -> Action:
    if step.bind:
        return Bind(step.bind.pod, step.bind.node, step.bind.devices)
    if step.evict:
        return Evict(step.evict.pod, step.evict.node)
    if step.move:
        return Move(step.move.pod, step.move.from_node, step.move.node, step.move.devices)
    if step.scale:
        return Scale(step.scale.service, step.scale.instances)
    if lease := step.power_lease:
        return SetPowerLease(lease.node, lease.watts, lease.sequence, lease.epoch, lease.seconds)
    raise ValueError("a recorded step holds no action")


def _reason(reason: Reason) -> RecordedReason:
    words = reason.words if len(reason.words) <= LONGEST_WORDS else f"{reason.words[: LONGEST_WORDS - 1]}…"
    return RecordedReason(code=reason.code, words=words)

"""Status of a PowerDomain and when to write it: conditions at once, figures when they have moved."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.errors import Mistake
from cluster.plans import Reason
from controller.api.conditions import ACCEPTED, DEGRADED, READY, Claim, ConditionStatus, condition_of, conditions_after
from controller.api.power_domain import CappedDevice, Culprit, PowerDomainStatus
from controller.loops.power.domain_facts import SHOWN_CULPRITS, DomainFacts, HeldBackDevice, Suspect
from controller.report.events import ReportedDecision
from controller.report.statuses import accepted
from power import watching
from power.safety.estimator import FAULT_WORDS, FAULTS

MOVED_SHARE = 0.02
"""Fraction of the budget by which a figure must move to be written again: an idle row would otherwise write for every
ripple."""
MOVED_HELD_SHARE = 0.05
FIGURES_EVERY_S = 15.0
"""Shortest interval between writes of figures alone; a busy row moves all the time, and metrics have the figures every
second."""
NAMED_NODES = 3
OVER_LEAST_W = 1.0
"""Resolution of caps: whole watts."""

_ACTIONS = {ACCEPTED: "Accepting", READY: "Keeping", DEGRADED: "Keeping"}


@dataclass(frozen=True, slots=True)
class StatusInputs:
    """Inputs of one PowerDomain's status."""

    generation: int
    """metadata.generation of the spec in force."""
    mistaken: Sequence[Mistake] = ()
    facts: DomainFacts | None = None
    """Facts; None while no table contains the domain."""
    held: tuple[HeldBackDevice, ...] = ()
    """Devices held back, with instants in seconds since the epoch."""
    unusable: str = ""
    """Reason why the domains together cannot be used at present."""
    is_observed: bool = False
    """Whether its mode, or that of a domain above it, forbids changing limits."""


def status_after(before: Mapping[str, Any], inputs: StatusInputs, at_s: float, *, may_refresh: bool) -> dict[str, Any]:
    """The status as plain data; equal to `before` when nothing needs to be written.

    at_s: now, seconds since the epoch. may_refresh: whether the last write of figures alone was long enough ago.
    """
    old, fresh = PowerDomainStatus.read(before), _figures(inputs)
    claims: tuple[Claim, ...] = (
        accepted(inputs.mistaken),
        (READY, *_ready(inputs)),
        (DEGRADED, *_degraded(inputs)),
    )
    conditions = conditions_after(old.conditions, claims, generation=inputs.generation, at_s=at_s)
    counted = ("budget_watts", "devices", "stale_devices", "culprits")  # figures that do not ripple
    is_news = conditions != old.conditions or any(getattr(old, name) != getattr(fresh, name) for name in counted)
    if not is_news and not (may_refresh and _has_moved(old, fresh)):
        return dict(before)
    same = {"observed_generation": inputs.generation, "conditions": conditions}
    return fresh.model_copy(update=same).plain()


def events_of_change(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[ReportedDecision]:
    """Events for each condition that changed, and for each device that is newly named and reports."""
    old, new = PowerDomainStatus.read(before), PowerDomainStatus.read(after)
    for each in new.conditions:
        was = condition_of(old.conditions, each.type)
        if was is not None and (was.status, was.reason) == (each.status, each.reason):
            continue
        is_good = (each.status == "True") != (each.type == DEGRADED)
        if was is None and is_good:
            continue  # the first conditions of a healthy object are no news
        yield ReportedDecision(
            "PowerDomain", name, _ACTIONS[each.type], Reason(each.reason, each.message), is_warning=not is_good
        )
    known = {(each.device, each.reason) for each in old.culprits}
    for culprit in new.culprits:
        if (culprit.device, culprit.reason) not in known and culprit.reason != "Stale":
            words = f"{culprit.device} on {culprit.node} {fault_words(culprit.reason)}"
            yield ReportedDecision("PowerDomain", name, "Watching", Reason(culprit.reason, words), is_warning=True)


State = tuple[ConditionStatus, Reason]

_BRAKE_WORDS = (
    "a hardware brake seems to hold clocks down: the draw came near the budget, and most working devices now draw far "
    "less; bursts are off until it releases. If this recurs, lower budgetWatts or move work away"
)


def _ready(inputs: StatusInputs) -> State:
    facts = inputs.facts
    if facts is None:
        return "False", Reason("NotUsed", inputs.unusable or "it is not in the power tree yet")
    if inputs.unusable:
        return "False", Reason("NotUsed", f"the previous domains stay in force: {inputs.unusable}")
    if facts.floors:
        return "False", Reason("FloorsOverBudget", facts.floors)
    if facts.over_w > OVER_LEAST_W:
        left = "limits are not changed here" if inputs.is_observed else "caps are being lowered as far as possible"
        return "False", Reason("OverBudget", f"at worst its devices may draw more than the budget; {left}")
    if facts.unheard_nodes:
        first, others = ", ".join(facts.unheard_nodes[:NAMED_NODES]), len(facts.unheard_nodes) - NAMED_NODES
        more = f" and {others} more" if others > 0 else ""
        return "False", Reason("AgentsUnheard", f"no agent has reported from {first}{more}")
    if facts.stale:
        return "False", Reason("DevicesSilent", f"{facts.stale} of {facts.devices} devices do not report")
    if inputs.is_observed:
        return "True", Reason("Observed", "its devices report; their limits are not changed")
    return "True", Reason("BudgetKept", "its devices report, and what they may draw fits the budget")


def _degraded(inputs: StatusInputs) -> State:
    facts = inputs.facts
    if inputs.unusable:
        return "True", Reason("NotUsed", inputs.unusable)
    if facts is not None and facts.floors:
        return "True", Reason("FloorsOverBudget", facts.floors)
    if facts is not None and facts.is_braked:
        return "True", Reason("BrakeHolds", _BRAKE_WORDS)
    if facts is not None and facts.suspects:
        heard = [each for each in facts.culprits if each.reason != FAULTS[1]]
        return "True", Reason("DevicesDisobey", f"{facts.suspects} devices, first {_suspect_words(heard[0])}")
    if facts is not None and facts.meters:
        many = f"{len(facts.meters)} meters, first " if len(facts.meters) > 1 else ""
        words = f"{many}the {_suspect_words(facts.meters[0])}"
        if facts.unaccounted_w:
            words += f"; the budget is reduced by {facts.unaccounted_w:.0f} W"
        return "True", Reason("MetersDisagree", words)
    if facts is not None and facts.stale:
        words = f"{facts.stale} of {facts.devices} devices do not report and count at their worst case"
        return "True", Reason("DevicesSilent", words)
    return "False", Reason("AsAsked", "nothing is known to be worse than asked")


def _figures(inputs: StatusInputs) -> PowerDomainStatus:
    facts = inputs.facts
    if facts is None:
        return PowerDomainStatus()
    return PowerDomainStatus(
        draw_watts=_whole(facts.draw_w),
        worst_watts=_whole(facts.worst_w),
        headroom_watts=_whole(facts.headroom_w),
        budget_watts=facts.budget_w,
        devices=facts.devices,
        stale_devices=facts.stale,
        capped_share=None if facts.held_share is None else round(facts.held_share, 4),
        culprits=tuple(
            Culprit(device=e.device, node=e.node, reason=e.reason)
            for e in (*facts.culprits, *facts.meters)[:SHOWN_CULPRITS]
        ),
        held_back_devices=facts.held,
        held_back=tuple(
            CappedDevice(
                device=each.device,
                node=each.node,
                service_class=each.service_class,
                cap_watts=round(each.cap_w),
                need_watts=round(each.need_w),
                limited_by=each.limited_by,
                since_time=float(int(each.since_s)),
                slower_share=round(each.slower_share, 3),
            )
            for each in inputs.held
        ),
    )


def _has_moved(old: PowerDomainStatus, new: PowerDomainStatus) -> bool:
    scale_w = new.budget_watts or max(new.worst_watts or 0.0, old.worst_watts or 0.0, 1.0)
    watts = ("draw_watts", "worst_watts", "headroom_watts")
    if any(_moved(getattr(old, name), getattr(new, name), MOVED_SHARE * scale_w) for name in watts):
        return True
    if (old.held_back_devices == 0) != (new.held_back_devices == 0):
        return True
    if _moved(old.capped_share, new.capped_share, MOVED_HELD_SHARE):
        return True
    return {(e.device, e.limited_by) for e in old.held_back} != {(e.device, e.limited_by) for e in new.held_back}


def _moved(old: float | None, new: float | None, least: float) -> bool:
    if old is None or new is None:
        return old is not new
    return abs(new - old) >= least


def _whole(watts: float | None) -> float | None:
    return None if watts is None else float(round(watts))


def _suspect_words(each: Suspect) -> str:
    return f"{each.device} on {each.node}, which {fault_words(each.reason)}"


def fault_words(reason: str) -> str:
    """Description of a fault of a device or a meter, as the end of a sentence that names it."""
    return _FAULT_WORDS.get(reason, reason)


_FAULT_WORDS = dict([*zip(FAULTS, FAULT_WORDS, strict=True), *zip(watching.FAULTS, watching.FAULT_WORDS, strict=True)])

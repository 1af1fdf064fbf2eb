"""First cycles of an operator with services: the mix's gap to the proven bound, its cost, and the time of planning."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, islice
from typing import Any

from benchmarks.operator.installation import Site, operator_of, until
from cli.verbs.bundle import bundle_at
from cluster.errors import ControlPlaneError, ObservationError
from controller.recording.bundle import RecordedCycle
from simulator.controlplane.commands import HOST

BINDING = "validatingadmissionpolicybinding/tonnage-marks"
APPLIED_WITHIN_S = 60.0
CYCLES_WITHIN_S = 600.0
"""Time for the cycles to happen, seconds; quiet ones come every 30 s."""


def first_cycles(site: Site, manifests: Sequence[Mapping[str, Any]], cycles: int) -> Iterator[Mapping[str, object]]:
    """One record for each of the first cycles that see these objects, and one for what the services' status shows then.

    The objects are there before the operator starts, and running pods are where it once placed them. Raises
    ControlPlaneError.
    """
    with marks_by_anybody(site):
        objects = {"apiVersion": "v1", "kind": "List", "items": [*manifests]}
        until(lambda: _is_applied(site, objects), "the objects are applied", APPLIED_WITHIN_S)
    with operator_of(site) as (_, probes):
        address = f"http://{HOST}:{probes}"
        until(lambda: _count(_recorded(address)) >= cycles, f"{cycles} cycles are recorded", CYCLES_WITHIN_S, 2.0)
        yield from islice(_records(_recorded(address)), cycles)
        yield {"cycle": "status", **_status(site)}


@contextmanager
def marks_by_anybody(site: Site) -> Iterator[None]:
    """Lets the administrator make pods that bear Tonnage's marks, as a cluster has them whose operator was away."""
    found = json.loads(site.kubectl("get", BINDING, "-o", "json"))
    kept = {name: value for name, value in found["metadata"].items() if name in ("name", "labels", "annotations")}
    site.kubectl("delete", BINDING)
    yield
    site.kubectl("create", "-f", "-", stdin={**found, "metadata": kept})


def _is_applied(site: Site, objects: Mapping[str, Any]) -> bool:
    """Whether the server took them all; it goes by a deleted binding for a moment."""
    try:
        site.kubectl("apply", "--server-side", "-f", "-", stdin=objects)
    except ControlPlaneError as error:
        if "ValidatingAdmissionPolicy" not in str(error):
            raise
        return False
    return True


def _recorded(address: str) -> list[RecordedCycle]:
    """Recorded cycles with at least one service."""
    try:
        return [each for each in bundle_at(address, 30.0).cycles() if each.snapshot.services]
    except ObservationError as error:
        raise ControlPlaneError(str(error)) from error


def _count(cycles: Sequence[RecordedCycle]) -> int:
    return sum(1 + each.entry.repeats for each in cycles)


def _records(cycles: Sequence[RecordedCycle]) -> Iterator[Mapping[str, object]]:
    """A record per cycle; cycles that repeat one exactly are counted in the bundle, and repeated here."""
    numbers = count(1)
    for cycle in cycles:
        for _ in range(1 + cycle.entry.repeats):
            yield {"cycle": next(numbers), **_figures(cycle)}


def _figures(cycle: RecordedCycle) -> Mapping[str, object]:
    """Figures of one recorded cycle. Gaps are fractions of the cost."""
    plan = cycle.guarded
    gaps = [each.certificate.gap for each in plan.services if each.certificate is not None]
    whole = plan.certificates.get("mix")
    return {
        "services": len(plan.services),
        "planned": len(gaps),
        "refused": sorted({each.refusal.code for each in plan.services if each.refusal is not None}),
        "cost_per_hour": round(sum(each.cost_per_hour for each in plan.services), 4),
        "gap": None if whole is None else round(whole.gap, 6),
        "widest_gap": round(max(gaps, default=0.0), 6),
        "plan_s": round(cycle.entry.stage_s.get("plan", 0.0), 3),
        "cut_short": sorted(reason.code for reason in plan.cut_short),
    }


def _status(site: Site) -> Mapping[str, object]:
    """The same figures from the services' status, as users see it."""
    seen = [each.get("status", {}) for each in site.items("modelservices", "--all-namespaces")]
    gaps = [float(each["gap"]) for each in seen if "gap" in each]
    return {
        "services": len(seen),
        "planned": len(gaps),
        "cost_per_hour": round(sum(float(each.get("costPerHour", 0.0)) for each in seen), 4),
        "widest_gap": round(max(gaps, default=0.0), 6),
    }

"""The GPU mix: cost, proof and time beside the textbook model, requests served with it, and an exact model.

The textbook model is the published one: one binary per slice and type, on PuLP's CBC with its defaults. Source: Mélange
(arXiv 2404.14527), section 5, written from the paper. It is more favourable than the published program in two points:
slices of empty buckets and on types that cannot serve them are omitted instead of given tiny numbers.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.cases import DATA, Row, case, numbers, say
from cli.inputs.planning import decider
from cluster import plans
from controller.settings import settings_from
from placement.mix import heuristics, problem
from tests.builders.many_services import tight_manifests
from tests.mix_exact.comparison import GAP, compare, observed
from tests.mix_exact.fleets import Switches
from tests.rigs.serving import replay_serving
from tests.rigs.solved_mix import profiles_from, service_of, solved_cases
from tests.rigs.textbook_mix import solve_textbook

PROFILES = DATA / "serving" / "synthetic_llama2_7b_4gpu.json"
COLUMNS = (
    *("workload", "slo", "rate", "cost_per_hour", "bound", "gap", "seconds", "instances", "infeasible"),
    *("textbook.cost_per_hour", "textbook.proven", "textbook.seconds"),
)
QUICK = {"profiles": None, "workloads": ("short",), "slos": ("40ms",), "rates": (2.0,)}


@case(
    "mix",
    "Cost, proven gap and time of the cheapest GPU mix beside the textbook model; 36 synthetic cases.",
    columns=COLUMNS,
    quick=QUICK,
)
@case(
    "mix-large",
    "Proven gap and time of the mix on 12 generated GPU types and 2,000 slices.",
    columns=COLUMNS,
    given={
        "profiles": None,
        "size": (12, 100),
        "workloads": (),
        "slos": (),
        "rates": (),
        "slice_factor": None,
        "gap": 0.005,
        "textbook_s": 0.0,
    },
    quick={"rates": (8.0,)},
)
def mix(
    *,
    profiles: Path | None = PROFILES,
    size: tuple[int, ...] | None = None,
    workloads: Sequence[str] = ("short", "long", "mixed"),
    slos: Sequence[str] = ("40ms", "120ms"),
    rates: Sequence[float] = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
    slice_factor: int | None = 8,
    headroom: float | None = 0.0,
    gap: float = 0.0,
    textbook_s: float = 15.0,
    seed: int = 42,
) -> Iterator[Row]:
    """A row for each workload, SLO and rate. Costs are US dollars per hour.

    size: GPU types and buckets of generated profiles, with 20 slices a bucket. headroom: fraction kept free; null: for
    bursts. textbook_s: time limit of the textbook model; 0: it is left out, as where headroom is for bursts, of which
    it knows nothing.
    """
    said = profiles_from(profiles, size, seed)
    terms: dict[str, Any] = {"slice_factor": slice_factor, "headroom": headroom}
    times: list[tuple[float, float]] = []
    for each in solved_cases(said, workloads, slos, rates, **terms, gap=gap):
        row, answer = dict(each.about), each.answer
        if isinstance(answer, plans.Reason):
            row |= {"infeasible": answer.words, "code": answer.code, "figures": dict(answer.figures)}
            row["seconds"] = round(each.seconds, 4)
        else:
            (need,), (found,) = each.question.needs, answer.mixes
            single = heuristics.best_single_type(need, each.question.stock)
            counts = zip(need.offers, found.instances.tolist(), strict=True)
            row |= {
                "cost_per_hour": round(answer.cost_per_hour, 6),
                "bound": round(answer.certificate.bound, 6),
                "gap": answer.certificate.gap,
                "seconds": round(each.seconds, 4),
                "solver": answer.certificate.solver,
                "instances": {offer.instance_type.name: count for offer, count in counts if count},
                "single_type": None
                if single is None
                else {
                    "gpu_type": need.offers[int(single.instances.argmax())].gpu_type,
                    "cost_per_hour": round(problem.mix_cost(need, single), 6),
                },
                "slice_factor": need.slice_factor,
            }
        # A bucket that no type serves leaves nothing to ask it.
        if textbook_s and headroom is not None and row.get("code") != "BucketUnserved":
            peer = solve_textbook(each.question, limit_s=textbook_s, clock=time.perf_counter)
            row["textbook"] = {
                "cost_per_hour": None if peer.cost_per_hour is None else round(peer.cost_per_hour, 6),
                "proven": peer.proven,
                "seconds": round(peer.seconds, 4),
            }
            times.append((peer.seconds, each.seconds))
        yield row
    if times:
        ratios = sorted(theirs / ours for theirs, ours in times)
        total = math.fsum(theirs for theirs, _ in times) / math.fsum(ours for _, ours in times)
        say(f"time of the textbook model over ours: median {ratios[len(ratios) // 2]:.1f}, in total {total:.1f}")


@case(
    "mix-replay",
    "Requests within their SLO under the mix, by routing and headroom (simulated requests).",
    quick={"profiles": None, "workloads": ("mixed",), "slos": ("120ms",), "rates": (8.0,), "for_s": 600.0},
    by=("workload", "slo", "rate"),
    columns=(
        *("workload", "slo", "rate", "cost_per_hour", "headroom_share_of_cost", "weights.met_share"),
        *("weights.stretch_p99", "random.met_share", "weights_without_headroom.met_share"),
    ),
)
def mix_replay(
    *,
    profiles: Path | None = PROFILES,
    workloads: Sequence[str] = ("short", "long", "mixed"),
    slos: Sequence[str] = ("40ms", "120ms"),
    rates: Sequence[float] = (8.0, 32.0),
    for_s: float = 1800.0,
    seeds: Sequence[int] = (42, 7, 8),
) -> Iterator[Row]:
    """A row for each case and seed: the mix with headroom under both routers, and the mix without it under ours."""
    said = profiles_from(profiles, None, 0)
    choice = (said, workloads, slos, rates)
    both = zip(
        solved_cases(*choice, slice_factor=None, headroom=None),
        solved_cases(*choice, slice_factor=None, headroom=0.0),
        strict=True,
    )
    for roomy, bare in both:
        if isinstance(roomy.answer, plans.Reason) or isinstance(bare.answer, plans.Reason):
            refused = roomy.answer if isinstance(roomy.answer, plans.Reason) else bare.answer
            yield {**roomy.about, "infeasible": refused.words if isinstance(refused, plans.Reason) else ""}
            continue
        cost, least = roomy.answer.cost_per_hour, bare.answer.cost_per_hour
        for seed in seeds:
            row = {
                **roomy.about,
                "seed": seed,
                "cost_per_hour": round(cost, 6),
                "cost_without_headroom": round(least, 6),
            }
            row["headroom_share_of_cost"] = cost / least - 1
            ways = (("weights", roomy, "weights"), ("random", roomy, "random"))
            for name, solved, router in (*ways, ("weights_without_headroom", bare, "weights")):
                service = service_of(solved, said)
                met = replay_serving(service, router=router, seed=seed, for_s=for_s, idle_share=problem.IDLE_SHARE)  # type: ignore[arg-type]
                row[name] = {
                    "requests": met.requests,
                    "met_share": met.met_share,
                    "stretch_p50": met.stretch_p50,
                    "stretch_p99": met.stretch_p99,
                    "misrouted_share": met.misrouted_share,
                }
            yield row


@case(
    "mix-exact",
    "Plans of random fleets with services beside an exact model that gives every instance a seat.",
    quick={"seeds": (1, 2)},
    columns=("seed", "services", "served", "objective", "exact", "gap", "cpu_s"),
)
@case(
    "mix-exact-all",
    "The same with selectors, CPU and memory, several widths of a GPU type, and spot nodes.",
    given={"options": ("selectors", "resources", "widths", "spot_nodes")},
    quick={"seeds": (1, 2)},
    columns=("seed", "services", "served", "objective", "exact", "gap", "cpu_s"),
)
def mix_exact(*, seeds: Sequence[int] = numbers("1-400"), options: Sequence[str] = ()) -> Iterator[Row]:
    """A row for each fleet; `wrong` where the plan does not agree with the exact model."""
    switches = replace(Switches(), **dict.fromkeys(options, True))
    gaps = []
    for seed in seeds:
        found = compare(seed, switches)
        gaps.append(found.gap)
        yield {
            "seed": seed,
            "services": found.services,
            "served": found.served,
            "objective": found.objective,
            "exact": found.exact,
            "gap": found.gap,
            "cpu_s": found.seconds,
            "wrong": f"seed {seed}: {'; '.join(found.disagreements)}" if found.disagreements else "",
        }
    say(f"{sum(gap > GAP for gap in gaps)} of {len(gaps)} plans state a gap above {GAP:.1%}, at most {max(gaps):.1%}")


@case(
    "mix-services",
    "Services served, gap and CPU time for 12 services on a stock that one solution uses up.",
    quick={"seeds": (1,)},
    by=("services",),
)
def mix_services(
    *, seeds: Sequence[int] = numbers("1-50"), services: int = 12, deadline_s: float = 2.0
) -> Iterator[Row]:
    """A row for each plan. deadline_s: nominal work each."""
    decide = decider(settings_from({"plan_deadline_s": deadline_s}), awaits_pods=True)
    for seed in seeds:
        snapshot = observed(tight_manifests(seed, services))
        began_s = time.process_time()
        plan = decide(snapshot)
        seconds = time.process_time() - began_s
        certificate = plan.certificates.get("mix")
        yield {
            "seed": seed,
            "served": sum(each.refusal is None for each in plan.services),
            "services": len(plan.services),
            "cost": sum(each.cost_per_hour for each in plan.services),
            "gap": certificate.gap if certificate else 0.0,
            "cpu_s": seconds,
        }

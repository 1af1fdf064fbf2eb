"""Health: verdicts on generated cases, clean and recorded jobs, and costs of the recorder."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from time import process_time

import numpy as np

from benchmarks.cases import DATA, Row, Rows, case, numbers
from benchmarks.tables import grouped
from health.analysis import excess as analysis_excess
from health.records.frames import decoded
from health.records.layout import layout_from
from health.stream import Analyser, Options
from health.verdicts.verdict import Cause, JobVerdict, Part, Syndrome
from tests.rigs.health.cases import case as drawn_case, queued_ahead, timed_on_device
from tests.rigs.health.clean_job import BASELINE, BLOCK, STEP_S, block_of, job_looked_at
from tests.rigs.health.clean_verdicts import LONGEST, NODES, found_in, is_quarantined
from tests.rigs.health.job import FAULTS, LIMITS, DisturbanceKind
from tests.rigs.health.joint_faults import JointKind, joint_case
from tests.rigs.health.recorded import recording
from tests.rigs.health.scored import CAUSES, PROBED, PROBED_ELSEWHERE, VARIANTS, names, score, verdicts_on
from tonnage.recorder import RING, Recorder
from tonnage.records import Op


def summary(rows: Sequence[Row]) -> Rows:
    """One row a variant.

    Precision: verdicts of the right class over all that blame. Recall: faults found with the right class; an abstention
    is no find. top1: of those of the right class, the right rank or node, NIC, link; what a group alone names is in no
    share. slow20: faults of at least 20 % of a step, found within 10 steps or 5 s, whichever is later.
    """
    for (variant,), own in grouped(rows, "variant").items():
        faults = [row for row in own if row["syndrome"] != Syndrome.NONE]
        others = [row for row in own if row["syndrome"] == Syndrome.NONE]
        right = [row for row in faults if row["class_right"]]
        wrong_parts = sum(row["class_right"] and not row["part_right"] for row in faults)
        false = max(sum(row["false_blames"] for row in own) - wrong_parts, 0)
        told_apart = [row for row in right if row["narrowed"] or not row["part_right"]]
        strong = [row for row in right if row["share"] >= 0.2]
        weak = [row for row in faults if 0 < row["share"] < 0.2]
        abstained = sum(row["abstained"] for row in faults)
        yield {
            "variant": variant,
            "cases": len(own),
            "faults": len(faults),
            "precision": len(right) / max(len(right) + false, 1),
            "recall": len(right) / max(len(faults), 1),
            "recall_decided": len(right) / max(len(faults) - abstained, 1),
            "abstained": abstained,
            "top1_rank": _share(row["part_right"] for row in right if row["part"] in (Part.RANK, Part.NODE)),
            "top1_nic": _share(row["narrowed"] for row in told_apart if row["part"] == Part.NIC),
            "top1_link": _share(row["narrowed"] for row in told_apart if row["part"] == Part.LINK),
            "by_group": len(right) - len(told_apart),
            "false_alarms": sum(row["false_blames"] > 0 for row in others),
            "causes_named": _share(row["cause_right"] for row in others if row["kind"] in CAUSES),
            "limits_blamed": sum(row["false_blames"] > 0 for row in others if row["kind"] in LIMITS),
            "hang_p95_s": _p95(row["latency_s"] for row in right if row["syndrome"].endswith("hang")),
            "dead_p95_s": _p95(row["latency_s"] for row in right if row["kind"] == DisturbanceKind.DEAD_RANK),
            "lost_node_p95_s": _p95(row["latency_s"] for row in right if row["kind"] == DisturbanceKind.DEAD_NODE),
            "slow20_p95_s": _p95(row["latency_s"] for row in strong),
            "slow20_in_time": _share(row["latency_s"] <= 5 or row["latency_steps"] <= 10 for row in strong),
            "slow10_p95_s": _p95(row["latency_s"] for row in weak if row["class_right"]),
            "slow10_recall": _share(row["class_right"] and row["latency_s"] <= 60 for row in weak),
            "probed": sum(row["answer"] != "" for row in own),
            "probes_s": max(row["probes_s"] for row in own),
            "acquitted": sum(row["answer"] == "sound" and row["part"] in (Part.NIC, Part.LINK) for row in own),
        }


def _share(found: Iterable[bool]) -> float | None:
    values = list(found)
    return sum(values) / len(values) if values else None


def _p95(values: Iterable[float]) -> float | None:
    found = list(values)
    return float(np.quantile(found, 0.95)) if found else None


@case(
    "health",
    "Precision, recall and latency of verdicts on 200 generated cases, half of them faults (simulated).",
    quick={"seeds": (9001, 9002), "ranks": 32},
    summary=summary,
)
@case(
    "health-features",
    "The same without each feature of the analyser (simulated).",
    given={"seeds": numbers("9301-9340"), "ranks": 32, "variants": tuple(VARIANTS)},
    quick={"seeds": (9302,), "variants": ("tonnage", "simple")},
    summary=summary,
)
@case(
    "health-probes",
    "The same with pair probes of a suspected network (simulated).",
    given={"seeds": numbers("9601-9700"), "variants": ("tonnage", PROBED, PROBED_ELSEWHERE)},
    quick={"seeds": (9602,), "ranks": 32},
    summary=summary,
)
def health(
    *,
    seeds: Sequence[int] = numbers("9001-9200"),
    ranks: int | None = None,
    variants: Sequence[str] = ("tonnage",),
) -> Iterator[Row]:
    """A row for each case and variant; even seeds are faults, odd ones disturbances. ranks: one size for all jobs."""
    for seed in seeds:
        drawn = drawn_case(seed, ranks=ranks)
        yield from (score(drawn, variant) for variant in variants)


JOINT_VARIANTS: Mapping[str, Options] = {
    "tonnage": Options(),
    "no comparison with peers": Options(peers=False),
    "one fault at a time": Options(peels=False),
    "no bytes": Options(loads=False),
}


@case(
    "health-joint",
    "Two faults at once, ranks slow from the first step, and experts that many tokens go to (simulated).",
    quick={"seeds": (1,), "kinds": ("slow from the first step", "hot expert that stays")},
    by=("variant", "kind"),
    columns=("variant", "kind", "all_named", "innocents"),
)
def health_joint(
    *,
    seeds: Sequence[int] = numbers("1-6"),
    kinds: Sequence[str] = tuple(JointKind),
    variants: Sequence[str] = tuple(JOINT_VARIANTS),
) -> Iterator[Row]:
    """A row for each variant, kind and seed: whether all that is at fault is named, and how often something else."""
    for seed in seeds:
        for kind in kinds:
            drawn = joint_case(JointKind(kind), seed)
            for variant in variants:
                analyser, found = Analyser(drawn.layout, JOINT_VARIANTS[variant]), []
                for now_s, frames in drawn.transcript.ticks():
                    analyser.take(frames, now_s)
                    found += [(each.part, each.ranks) for each in analyser.judge(now_s) if each.blames]
                right = [any(each in found for each in names) for names in drawn.truth]
                wrong = sum(not any(each in names for names in drawn.truth) for each in found)
                yield {
                    "variant": variant,
                    "kind": kind,
                    "seed": seed,
                    "all_named": int(all(right)),
                    "innocents": wrong,
                }


@case("health-recorded", "Verdicts on four recorded gloo jobs of eight ranks, three of them with a fault.")
def health_recorded(*, folder: Path = DATA / "health") -> Iterator[Row]:
    """A row for each job: the first verdict that blames."""
    for path in sorted(each for each in folder.iterdir() if (each / "truth.json").exists()):
        job = recording(path)
        ranks = np.arange(job.ranks)
        analyser = Analyser(layout_from(decoded(job.introductions), node=ranks, nic=ranks))
        verdicts: list[JobVerdict] = []
        for now_s, frames in job.ticks:
            analyser.take(frames, now_s)
            verdicts += analyser.judge(now_s)
        first = next((verdict for verdict in verdicts if verdict.blames), None)
        yield {
            "job": job.name,
            "fault": job.kind,
            "rank": job.rank,
            "syndrome": first.syndrome if first else "none",
            "part": first.part if first else "nothing",
            "ranks": first.ranks if first else (),
            "latency_s": round(first.at_s - job.fault_s, 2) if first else float("nan"),
            "blames": sum(verdict.blames for verdict in verdicts),
            "evidence": first.evidence if first else (),
        }


SLOW_KINDS = (*FAULTS[:4], DisturbanceKind.NONE, DisturbanceKind.ALL_SLOW, DisturbanceKind.UNEVEN_DATA)
AHEAD: Mapping[str, float] = {"half a step": 0.5, "a fifth": 0.2, "a twentieth": 0.05, "by the device's times": 0.0}


@case(
    "health-ahead",
    "What is said of slow jobs whose hosts queue operations ahead of their devices (simulated).",
    quick={"seeds": (1,), "sizes": (16,)},
    by=("ahead",),
    columns=("ahead", "faults", "named", "innocents", "needs_device_time"),
)
def health_ahead(*, seeds: Sequence[int] = numbers("1-3"), sizes: Sequence[int] = (16, 32, 64, 128)) -> Iterator[Row]:
    """A row for each case and how far hosts queue ahead: whether the fault is named, and who else."""
    for seed, ranks, kind in product(seeds, sizes, SLOW_KINDS):
        drawn = drawn_case(seed, kind=kind, ranks=ranks)
        for ahead, share in AHEAD.items():
            seen = queued_ahead(drawn, share) if share else timed_on_device(drawn)
            verdicts = verdicts_on(seen, Options())
            blames = [each for each in verdicts if each.blames]
            said = any(each.cause is Cause.NO_DEVICE_TIME for each in verdicts)
            yield {
                "ahead": ahead,
                "seed": seed,
                "ranks": ranks,
                "kind": kind,
                "faults": int(drawn.truth is not None),
                "named": int(any(names(drawn, each) for each in blames)),
                "innocents": sum(not names(drawn, each) for each in blames),
                "needs_device_time": int(said),
            }


@case(
    "health-recorder",
    "CPU time of the recorder per operation, in the job's thread and in its own.",
    quick={"rounds": 2},
)
def health_recorder(*, rounds: int = 20) -> Iterator[Row]:
    """One row: medians over the rounds."""
    recorder = Recorder(lambda _: None, rank=0)
    record_us, send_us = [], []
    for _ in range(rounds):
        began_s = process_time()
        for _ in range(RING):
            recorder.exit(recorder.enter(0, Op.ALL_REDUCE, 1 << 20))
        recorded_s = process_time()
        recorder.flush()
        record_us.append((recorded_s - began_s) / RING * 1e6)
        send_us.append((process_time() - recorded_s) / RING * 1e6)
    jobs_us, own_us = (sorted(each)[rounds // 2] for each in (record_us, send_us))
    yield {
        "in_the_jobs_thread_us": round(jobs_us, 2),
        "in_the_recorders_thread_us": round(own_us, 2),
        "share_at_100_per_s": round((jobs_us + own_us) * 1e-4, 6),
    }


@case(
    "health-clean",
    "What is blamed in 312,330 GPU-days of clean jobs of 1,024 ranks (simulated).",
    quick={"gpu_days": 1.0, "seeds": (4022,)},
)
def health_clean(*, gpu_days: float = 10_400.0, seeds: Sequence[int] = numbers("4001-4030")) -> Iterator[Row]:
    """A row a seed. The jobs have stalls, checkpoints, uneven data and congestion."""
    for seed in seeds:
        job, layout, slim, used = job_looked_at()
        random = np.random.default_rng([seed, 21])
        per_block = (BLOCK - BASELINE) * job.ranks * STEP_S / 86_400
        blocks = int(np.ceil(gpu_days / per_block))
        began_s = process_time()
        found: list[JobVerdict] = []
        quarantined = 0
        for _ in range(blocks):
            block = block_of(job, slim, random)
            seen = list(found_in(block, layout, slim, used))
            firsts: dict[object, JobVerdict] = {}
            for verdict in seen:
                firsts.setdefault(verdict.subject, verdict)
            found += firsts.values()
            quarantined += is_quarantined(block, [verdict for verdict in seen if not verdict.cause], layout)
        blames = [verdict for verdict in found if verdict.blames]
        on_nodes = sum(verdict.part in NODES for verdict in blames)
        yield {
            "seed": seed,
            "gpu_days": round(blocks * per_block),
            "looks": blocks * (BLOCK - BASELINE - LONGEST) * len(analysis_excess.TIERS) * (job.ranks + len(used)),
            "blamed": len(blames),
            "blamed_ranks_nodes_nics": on_nodes,
            "nodes_quarantined": quarantined,
            "abstained": sum(verdict.abstains for verdict in found),
            "upper_bound_per_1000_gpu_days": round((on_nodes + 3) / (blocks * per_block) * 1000, 4),
            "cpu_s": round(process_time() - began_s),
            "first": [f"{verdict.part} {verdict.ranks[:4]} {verdict.evidence}" for verdict in blames[:3]],
        }

"""Health on clean jobs: parts blamed for slowness in simulated GPU-days without a fault.

Works on the analyser's own tables (computing time per rank and step, transfer time per span and step), because records
of so many days would take weeks to make. Each window of each step is looked at. Hangs are not covered.
"""

from collections.abc import Iterator, Sequence
from time import process_time

import numpy as np

from benchmarks.cases import Row, case, numbers
from health.analysis import excess as analysis_excess
from health.verdicts.verdict import JobVerdict
from tests.rigs.health.clean_job import BASELINE, BLOCK, STEP_S, block_of, job_looked_at
from tests.rigs.health.clean_verdicts import LONGEST, NODES, found_in, is_quarantined


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

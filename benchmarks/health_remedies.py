"""Remediation: one simulated job that it decides on, and the effective training time of a large one under faults."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from math import inf
from time import process_time

import numpy as np

from benchmarks.cases import Row, Rows, case, numbers
from benchmarks.tables import grouped
from controller.api.health_policy import JobCosts
from health.remediation.advice import CLUSTER, FAULTS_PER_NODE_S, advised_interval_s, spares
from tests.rigs.health.responses import FaultResponse, Manual, Remediated, RestartOnTimeout, played
from tests.rigs.health.sizing import mean_out_s, mtbf_s
from tests.rigs.health.training_run import DAY_S, STOPS_PER_1000_NODE_DAYS, Setup, repairs_s

RESPONSES: Mapping[str, Callable[[], FaultResponse]] = {
    "tonnage": Remediated,
    "NCCL time-out + restart": RestartOnTimeout,
    "NCCL time-out + person": Manual,
}

T95 = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262, 12: 2.201, 16: 2.131}
"""Student's t at 97.5 % for so many seeds."""
SHOWN = ("down_share", "again_share", "checkpoints_share", "slow_share", "restarts_per_day")


def _summary(rows: Sequence[Row]) -> Rows:
    """Means over seeds; the interval of the mean ratio at 95 %, by Student's t over seeds."""
    for (variant,), own in grouped(rows, "variant").items():
        ratios = [100 * row["ettr"] for row in own]
        half = T95.get(len(own), 2.0) * float(np.std(ratios, ddof=1)) / np.sqrt(len(own)) if len(own) > 1 else inf
        mean = float(np.mean(ratios))
        yield {
            "variant": variant,
            "seeds": len(own),
            "ETTR %": mean,
            "worst": min(ratios),
            "95 % interval": f"{mean - half:.2f} to {mean + half:.2f}",
            **{key: float(np.mean([row[key] for row in own])) for key in SHOWN},
        }


DEFAULT_INTERVAL_S = JobCosts().checkpoint_interval
"""What a job is taken to do whose checkpoints nobody sees."""


@case(
    "health-ettr-defaults",
    "The same with half an hour between checkpoints or as advised, few spares, rigid and elastic (simulated).",
    quick={"seeds": (1,), "days": 1.0, "nodes": 64},
    by=("checkpoints", "spares_share", "least_share"),
    columns=("checkpoints", "spares_share", "least_share", "ettr", "restarts_per_day"),
)
def health_ettr_defaults(
    *,
    seeds: Sequence[int] = numbers("11-14"),
    days: float = 4.0,
    nodes: int = 250,
    spare_shares: Sequence[float] = (0.0, 0.01, 0.03),
    least_shares: Sequence[float] = (1.0, 0.9),
    save_s: float = 1.0,
) -> Iterator[Row]:
    """A row for each interval, share of spares, least size and seed."""
    advised_s = advised_interval_s(save_s, 1 / (nodes * FAULTS_PER_NODE_S))
    for checkpoints, interval_s in (("every half hour", DEFAULT_INTERVAL_S), ("as advised", advised_s)):
        for spares_share, least_share, seed in product(spare_shares, least_shares, seeds):
            spare, least = round(spares_share * nodes), round(least_share * nodes)
            setup = Setup(nodes, least, spare, days, interval_s=interval_s, save_s=save_s)
            run = played(setup, Remediated(), seed)
            yield {
                "checkpoints": checkpoints,
                "spares_share": spares_share,
                "least_share": least_share,
                "seed": seed,
                "ettr": run.ettr,
                "restarts_per_day": run.restarts / days,
            }


@case(
    "health-ettr",
    "Effective training time of 10,000 GPUs under faults, with remediation and with restarts (simulated).",
    quick={"seeds": (1,), "days": 1.0, "nodes": 64},
    summary=_summary,
)
def health_ettr(
    *,
    seeds: Sequence[int] = numbers("1-4"),
    days: float = 30.0,
    nodes: int = 1250,
    save_s: float = 1.0,
    variants: Sequence[str] = tuple(RESPONSES),
) -> Iterator[Row]:
    """A row for each variant and seed: the ratio of work that counts to time, and where the rest goes.

    save_s: stall of the job per checkpoint. A hundredth of the time all spares may be in use.
    """
    rate_s = sum(STOPS_PER_1000_NODE_DAYS.values()) / 1000 / DAY_S
    setup = Setup(
        nodes=nodes,
        spares=spares(nodes, rate_s, mean_out_s(repairs_s(), inf), miss_share=0.01, burst=CLUSTER),
        days=days,
        interval_s=advised_interval_s(save_s, mtbf_s(nodes, rate_s)),
        save_s=save_s,
    )
    for name in variants:
        for seed in seeds:
            began_s = process_time()
            response = RESPONSES[name]()
            run = played(setup, response, seed)
            row: Row = {
                "variant": name,
                "seed": seed,
                "ettr": run.ettr,
                "restarts_per_day": run.restarts / run.setup.days,
            }
            row |= {f"{what}_share": lost_s / run.now_s for what, lost_s in asdict(run.losses).items()}
            if isinstance(response, Remediated):
                row |= {each: float(count) for each, count in response.decided.items()}
            yield row | {"cpu_s": process_time() - began_s}

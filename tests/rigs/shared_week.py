"""A week of three teams on one fleet, by Tonnage's shares and by the published rules of Kueue and KAI.

    python -m tests.rigs.shared_week FOLDER_OF_DEMAND [PART_OF_A_NAME [SEED [LOADS]]]

Each team submits jobs as often as requests came to one of three recorded models; sizes and lengths are drawn by a seed.
Jobs are stopped and start again from their last checkpoint, made every half hour. Simulated.

Kueue: a ClusterQueue for each team in one cohort, BestEffortFIFO, `reclaimWithinCohort: Any`; who needs no loan first,
then by age; victims are of queues that borrow, the newest first, and those that need not go are spared.
Source: kueue.sigs.k8s.io/docs/concepts/cluster_queue and /preemption (classical).
KAI: fair share is quota, and what is left by weight; the queue with the least of its fair share is served first; one
within its fair share reclaims from those beyond theirs, the newest job first. Its consolidation is left out.
Source: NVIDIA/KAI-Scheduler, docs/fairness.
"""

import csv
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from statistics import median
from typing import Protocol

from cluster.actions import Evict, HoldSeats, Start
from cluster.teams import Amounts, Team
from controller.snapshot.teams import HALF_LIFE_S
from placement.engine.packer import Packer
from placement.packing.planner import pack
from placement.policies.published import BestFit
from tests.builders.fleet import node, pod, world

NODES, GPUS = 8, 8
SHARES: Mapping[str, int] = {"large": 24, "mid": 24, "small": 16}
FILES = {
    "large": "servegen_m-large_600s.csv",
    "mid": "servegen_m-mid_week1_600s.csv",
    "small": "servegen_m-small_600s.csv",
}
WEEK_S, TICK_S, SAVES_S = 7 * 86_400, 300, 1800
LOAD = 1.0
"""Devices that all jobs ask for in the mean, as a fraction of the fleet."""
USD = 4.0
"""Price of a device an hour."""


@dataclass(eq=False)
class Job:
    team: str
    name: str
    gpus: int
    left_s: float
    since_s: float
    """Since when it waits, or runs."""
    node: int = -1
    devices: tuple[int, ...] = ()
    saved_s: float = 0.0


@dataclass
class Fleet:
    """Jobs that wait and run at one instant."""

    now_s: float = 0.0
    jobs: list[Job] = field(default_factory=list)
    waits_s: list[tuple[str, float]] = field(default_factory=list)
    """(team, how long) of each wait that is over."""
    stops: int = 0
    lost_s: float = 0.0
    """Device-seconds of work that stops lost."""

    @property
    def waiting(self) -> list[Job]:
        return [each for each in self.jobs if each.node < 0]

    @property
    def running(self) -> list[Job]:
        return [each for each in self.jobs if each.node >= 0]

    def free(self, n: int) -> list[int]:
        taken = {device for each in self.running if each.node == n for device in each.devices}
        return [device for device in range(GPUS) if device not in taken]

    def start(self, job: Job, n: int, devices: Sequence[int]) -> None:
        self.waits_s.append((job.team, self.now_s - job.since_s))
        job.node, job.devices, job.since_s, job.saved_s = n, tuple(devices), self.now_s, self.now_s

    def start_anywhere(self, job: Job) -> bool:
        """On the fullest node where it fits."""
        free = {n: devices for n in range(NODES) if len(devices := self.free(n)) >= job.gpus}
        if free:
            n = min(free, key=lambda each: (len(free[each]), each))
            self.start(job, n, free[n][: job.gpus])
        return bool(free)

    def stop(self, job: Job) -> None:
        lost_s = self.now_s - job.saved_s
        self.stops, self.lost_s = self.stops + 1, self.lost_s + job.gpus * lost_s
        job.left_s += lost_s
        job.node, job.since_s = -1, self.now_s

    def used(self, team: str) -> int:
        return sum(each.gpus for each in self.running if each.team == team)


class Rule(Protocol):
    def decide(self, fleet: Fleet) -> None:
        """Stops and starts jobs."""


class Tonnage:
    """Plans of the packing decider, one after the other until nothing is left to do."""

    def __init__(self, max_wait_s: float = 86_400.0, *, knows_saves: bool = True) -> None:
        self._max_wait_s, self._knows_saves, self._usage = max_wait_s, knows_saves, dict.fromkeys(SHARES, 0.0)

    def decide(self, fleet: Fleet) -> None:
        kept = 0.5 ** (TICK_S / HALF_LIFE_S)
        for team, share in SHARES.items():
            self._usage[team] = kept * self._usage[team] + (1 - kept) * max(0, fleet.used(team) - share)
        for _ in range(6):
            jobs = {each.name: each for each in fleet.jobs}
            pods = [
                pod(job.name, job.gpus, on=f"n{job.node}" if job.node >= 0 else None,
                    devices=job.devices if job.node >= 0 else (), started_s=max(1, int(job.since_s)),
                    saved_s=int(job.saved_s) if job.node >= 0 and self._knows_saves else 0)
                for job in fleet.jobs
            ]  # fmt: skip
            made = world([node(f"n{n}", gpus=GPUS) for n in range(NODES)], pods)
            teams = tuple(
                Team(name, frozenset({name}), Amounts({"A100": 1000 * share}), min_run_s=300.0,
                     max_wait_s=self._max_wait_s, usage=self._usage[name])
                for name, share in SHARES.items()
            )  # fmt: skip
            now = replace(made, teams=teams, at_s=fleet.now_s)
            plan = pack(now, Packer(now, BestFit()))
            done = [each for each in plan.actions if not isinstance(each, HoldSeats)]
            for each in done:
                if isinstance(each, Evict):
                    fleet.stop(jobs[each.pod])
            for each in done:
                if isinstance(each, Start) and jobs[each.pod].node < 0:
                    fleet.start(jobs[each.pod], int(each.node.removeprefix("n")), each.devices)
            if not any(isinstance(each, Evict) for each in done):
                return


class Kueue:
    def __init__(self) -> None:
        self._admitted: dict[Job, float] = {}

    def _used(self, team: str) -> int:
        return sum(each.gpus for each in self._admitted if each.team == team)

    def decide(self, fleet: Fleet) -> None:
        self._admitted = {job: at_s for job, at_s in self._admitted.items() if job in set(fleet.jobs)}
        queues = {t: sorted((j for j in fleet.waiting if j.team == t and j not in self._admitted),
                            key=lambda job: job.since_s) for t in SHARES}  # fmt: skip
        while any(queues.values()):
            heads = [queue[0] for queue in queues.values() if queue]
            heads.sort(key=lambda job: (self._used(job.team) + job.gpus > SHARES[job.team], job.since_s))
            for job in heads:
                queues[job.team].pop(0)
                if self._has_quota(job) or self._preempts(job, fleet):
                    self._admitted[job] = fleet.now_s
        for job in sorted(self._admitted, key=lambda each: self._admitted[each]):
            if job.node < 0:
                fleet.start_anywhere(job)

    def _has_quota(self, job: Job) -> bool:
        return sum(map(self._used, SHARES)) + job.gpus <= NODES * GPUS

    def _preempts(self, job: Job, fleet: Fleet) -> bool:
        if self._used(job.team) + job.gpus > SHARES[job.team]:
            return False
        before, gone = dict(self._admitted), list[Job]()
        for victim in sorted((each for each in before if each.team != job.team), key=lambda each: -before[each]):
            if not self._has_quota(job) and self._used(victim.team) > SHARES[victim.team]:
                del self._admitted[victim]
                gone.append(victim)
        if not self._has_quota(job):
            self._admitted = before
            return False
        for victim in reversed(gone[:-1]):
            self._admitted[victim] = before[victim]
            if self._has_quota(job):
                gone.remove(victim)
            else:
                del self._admitted[victim]
        for victim in gone:
            if victim.node >= 0:
                fleet.stop(victim)
        return True


class Kai:
    def decide(self, fleet: Fleet) -> None:
        fair = self._fair(fleet)
        for may_reclaim in (False, True):
            waiting = sorted(fleet.waiting, key=lambda job: job.since_s)
            while waiting:
                job = min(waiting, key=lambda each: (fleet.used(each.team) / max(1, fair[each.team]), each.since_s))
                waiting.remove(job)
                if not fleet.start_anywhere(job) and may_reclaim:
                    self._reclaims(job, fleet, fair)

    def _fair(self, fleet: Fleet) -> dict[str, float]:
        """Quota as far as it is asked for, and what is left in equal parts."""
        asked = {team: sum(each.gpus for each in fleet.jobs if each.team == team) for team in SHARES}
        fair = {team: float(min(share, asked[team])) for team, share in SHARES.items()}
        left = NODES * GPUS - sum(fair.values())
        while left > 1e-6 and (open_ := [team for team in SHARES if asked[team] - fair[team] > 1e-6]):
            part = min(left / len(open_), *(asked[team] - fair[team] for team in open_))
            for team in open_:
                fair[team] += part
            left -= part * len(open_)
        return fair

    def _reclaims(self, job: Job, fleet: Fleet, fair: Mapping[str, float]) -> None:
        if fleet.used(job.team) + job.gpus > fair[job.team]:
            return
        gone, used = list[Job](), {team: fleet.used(team) for team in SHARES}
        able = sorted((j for j in fleet.running if j.team != job.team), key=lambda each: -each.since_s)
        free = [len(fleet.free(n)) for n in range(NODES)]
        for victim in able:
            if max(free) >= job.gpus:
                break
            if used[victim.team] > fair[victim.team]:
                gone.append(victim)
                used[victim.team] -= victim.gpus
                free[victim.node] += victim.gpus
        if max(free) < job.gpus:
            return
        target = max(range(NODES), key=lambda n: free[n])
        for victim in gone:
            if victim.node == target:
                fleet.stop(victim)
        fleet.start_anywhere(job)


@dataclass(frozen=True)
class Outcome:
    used_share: float
    """Of all device-time."""
    useful_share: float
    """Likewise, without what stops lost."""
    usd_per_useful_hour: float
    stops: int
    lost_h: float
    """Device-hours of work that stops lost."""
    waits_h: Mapping[str, tuple[float, float]]
    """Median and longest wait of each team, also those that go on at the end."""


def demand_of(folder: Path) -> dict[str, list[float]]:
    """Requests of each ten minutes by team; gaps of the collector are the mean."""
    found = {}
    for team, name in FILES.items():
        with (folder / name).open(newline="", encoding="utf-8") as lines:
            rows = [float(row["requests"] or 0.0) for row in csv.DictReader(lines)][: WEEK_S // 600]
        mean = sum(rows) / sum(each > 0 for each in rows)
        found[team] = [each / mean if each > 0 else 1.0 for each in rows]
    return found


def jobs_of(demand: Mapping[str, Sequence[float]], seed: int, load: float) -> list[Job]:
    chance = Random(seed)  # noqa: S311
    # Mean: 2 devices for 1.3 hours (a lognormal with the median of half an hour).
    per_job = 2.0 * 1.3 * 3600
    rate = load * NODES * GPUS / len(SHARES) / per_job
    jobs = list[Job]()
    for team, rows in demand.items():
        at_s = 0.0
        while at_s < WEEK_S:
            at_s += chance.expovariate(rate * rows[min(len(rows) - 1, int(at_s // 600))])
            gpus = chance.choices((1, 2, 4, 8), (0.62, 0.2, 0.12, 0.06))[0]
            jobs.append(Job(team, f"{team}/{len(jobs)}", gpus, min(86_400.0, chance.lognormvariate(7.5, 1.38)), at_s))
    return sorted(jobs, key=lambda job: job.since_s)


def week(rule: Rule, jobs: Sequence[Job], for_s: float = WEEK_S) -> Outcome:
    fleet, coming, held_s = Fleet(), list(jobs), 0.0
    for tick in range(int(for_s // TICK_S)):
        fleet.now_s = float(tick * TICK_S)
        for job in fleet.running:
            held_s += job.gpus * min(TICK_S, job.left_s)
            job.left_s -= TICK_S
            if fleet.now_s - job.saved_s >= SAVES_S:
                job.saved_s = fleet.now_s
        fleet.jobs = [each for each in fleet.jobs if each.left_s > 0]
        while coming and coming[0].since_s <= fleet.now_s:
            fleet.jobs.append(coming.pop(0))
        rule.decide(fleet)
        for n in range(NODES):
            taken = [device for each in fleet.running if each.node == n for device in each.devices]
            assert len(taken) == len(set(taken)), "a device has one job"
    total_s = NODES * GPUS * for_s
    waits = [*fleet.waits_s, *((each.team, fleet.now_s - each.since_s) for each in fleet.waiting)]
    by_team = {team: [each / 3600 for name, each in waits if name == team] for team in SHARES}
    useful_s = held_s - fleet.lost_s
    waits_h = {team: (median(each), max(each)) for team, each in by_team.items()}
    usd, lost_h = USD * total_s / useful_s, fleet.lost_s / 3600
    return Outcome(held_s / total_s, useful_s / total_s, usd, fleet.stops, lost_h, waits_h)


RULES: Mapping[str, Callable[[], Rule]] = {
    "Tonnage, maxWait 24 h": lambda: Tonnage(),
    "Tonnage, maxWait 6 h": lambda: Tonnage(6 * 3600.0),
    "Tonnage, no bound": lambda: Tonnage(1e9),
    "Tonnage, saves unknown": lambda: Tonnage(knows_saves=False),
    "Kueue": Kueue,
    "KAI": Kai,
}


def main() -> None:
    demand = demand_of(Path(sys.argv[1]))
    names, seed = sys.argv[2:3] or [""], int((sys.argv[3:4] or ["1"])[0])
    for load in [float(each) for each in sys.argv[4:]] or (0.9, 1.1):
        for name, rule in ((name, rule) for name, rule in RULES.items() if names[0] in name):
            found = week(rule(), jobs_of(demand, seed, load))
            waits = ", ".join(f"{team} {mid:.2f} / {most:.1f} h" for team, (mid, most) in found.waits_h.items())
            shares = f"used {100 * found.used_share:.1f} %, useful {100 * found.useful_share:.1f} %"
            usd = f"${found.usd_per_useful_hour:.2f} a useful hour"
            stops = f"{found.stops} stops lose {found.lost_h:.0f} h"
            print(f"{load:.1f} {name:22} {shares}, {usd}, {stops}; waits {waits}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()

"""Cases: jobs of 8 to 1,024 ranks, each with one fault or one disturbance that is none, and pair probes in them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from controller.loops.health.probing import DEADLINE_S
from health.probing import CONTROLS, Answer, AnswerKind, answer, pairs_of, question_of, ring_of
from health.records.layout import Layout, layout_from
from health.verdicts.verdict import Cause, Fact, FactKind, JobVerdict, Part, Syndrome
from tests.rigs.health.job import FAULTS, LIMITS, NO_FAULTS, STOPS, Disturbance, DisturbanceKind, TrainingJob
from tests.rigs.health.recorder_frames import Transcript, arriving_frames, clocks_of
from tests.rigs.health.training_steps import Steps, Timeline, step_length_s
from tonnage.pairs import Pair, PairSpeed, bad_pairs, rounds_of
from tonnage.records import Kind, Times

SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)
WARM_UP = 44
"""Steps before the disturbance: three fits of the clocks, a baseline of 16 steps, and a few that are clean."""
SEEN_S = 60.0
"""Time after the beginning of a slow-down that a case lasts, and at most SEEN_STEPS."""
SEEN_STEPS = 64
HANG_SEEN_S = 9.0


@dataclass(frozen=True, slots=True)
class Truth:
    """What a verdict must say to be right."""

    syndrome: Syndrome
    parts: tuple[tuple[Part, tuple[int, ...]], ...]
    """Right answers: for what only one ring uses, its group too, since only a probe can tell more."""
    fault_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One job, what happened to it, and its frames."""

    seed: int
    job: TrainingJob
    disturbance: Disturbance
    share: float
    """Slow-down of the step by a slow fault."""
    truth: Truth | None
    """None where there is no fault."""
    layout: Layout
    transcript: Transcript
    facts: tuple[Fact, ...]
    step_s: float

    def facts_at(self, now_s: float) -> Sequence[Fact]:
        return [fact for fact in self.facts if fact.since_s <= now_s]


SYNDROMES = {
    DisturbanceKind.SLOW_RANK: Syndrome.OTHER_SLOW,
    DisturbanceKind.SLOW_NODE: Syndrome.OTHER_SLOW,
    DisturbanceKind.SLOW_NIC: Syndrome.COMMUNICATION_SLOW,
    DisturbanceKind.SLOW_LINK: Syndrome.COMMUNICATION_SLOW,
    DisturbanceKind.HANG_RANK: Syndrome.OTHER_HANG,
    DisturbanceKind.FROZEN_RANK: Syndrome.OTHER_HANG,
    DisturbanceKind.HANG_LINK: Syndrome.COMMUNICATION_HANG,
    DisturbanceKind.HANG_NIC: Syndrome.COMMUNICATION_HANG,
    DisturbanceKind.DEAD_RANK: Syndrome.DEAD_PROCESS,
    DisturbanceKind.DEAD_NODE: Syndrome.DEAD_PROCESS,
}
PARTS = {
    DisturbanceKind.SLOW_NODE: Part.NODE,
    DisturbanceKind.DEAD_NODE: Part.NODE,
    DisturbanceKind.SLOW_NIC: Part.NIC,
    DisturbanceKind.HANG_NIC: Part.NIC,
    DisturbanceKind.SLOW_LINK: Part.LINK,
    DisturbanceKind.HANG_LINK: Part.LINK,
}


def case(seed: int, kind: DisturbanceKind | None = None, ranks: int | None = None) -> Case:
    """The case of a seed; even seeds are faults and odd ones are none, each kind in turn."""
    random = np.random.default_rng([seed, 19])
    kinds = NO_FAULTS if seed % 2 else FAULTS
    kind = kind or kinds[(seed // 2) % len(kinds)]
    size = ranks or int(random.choice(SIZES))
    job = drawn_job(size, kind, random)
    which, share = _disturbance(job, kind, random)
    step_s = step_length_s(job, replace(which, kind=DisturbanceKind.NONE, every=0))
    after = SEEN_STEPS if kind not in STOPS else 4
    steps = which.step + int(np.clip(SEEN_S / step_s, 24, after)) if kind not in STOPS else which.step + after
    timeline = Steps(job, which, random).run(steps)
    until_s = timeline.fault_s + HANG_SEEN_S if kind in STOPS else timeline.end_s
    clocks = clocks_of(job.ranks, random, until_s, steps=bool(random.random() < 0.25))
    transcript = arriving_frames(job, which, timeline, clocks, random, until_s)
    layout = layout_from(transcript.introductions, node=job.node, nic=job.nic)
    facts = _facts(job, which, timeline, random)
    return Case(seed, job, which, share, _truth(job, which, timeline), layout, transcript, facts, step_s)


def queued_ahead(found: Case, ahead: float) -> Case:
    """The same as hosts tell it that queue this share of a step ahead of their devices."""
    rows, ahead_ns = found.transcript.rows.copy(), int(ahead * found.step_s * 1e9)
    done = rows["kind"] == Kind.OPERATION
    rows["at_ns"][done] -= ahead_ns
    rows["for_ns"][done] += ahead_ns
    seen = replace(found.transcript, rows=rows)
    return replace(found, transcript=seen, layout=replace(found.layout, times=Times.QUEUED))


def timed_on_device(found: Case) -> Case:
    """The same as records that bear the device's times."""
    return replace(found, layout=replace(found.layout, times=Times.DEVICE))


def drawn_job(size: int, kind: DisturbanceKind, random: np.random.Generator) -> TrainingJob:
    """A job of so many ranks that has what the disturbance concerns."""
    for _ in range(200):
        tensor = int(random.choice([1, 2, 4, 8]))
        pipeline = int(random.choice([1, 2, 4, 8]))
        data = size // (tensor * pipeline)
        gpus = 8 if size > 16 else int(random.choice([1, 2, 4]))
        job = TrainingJob(tensor, data, pipeline, gpus) if data >= 2 and tensor <= gpus else None
        if job is not None and _suits(job, kind):
            # A job with steps of 0.1 to 1.5 s, 10 to 40 % of it in transfers.
            microbatches = int(random.choice([1, 2, 4]))
            step_s = float(np.exp(random.uniform(np.log(0.1), np.log(1.5))))
            passes = 2 * (microbatches + job.pipeline - 1)
            transfers = random.uniform(0.1, 0.4)
            pass_s = step_s * (1 - transfers) / passes
            load = np.ones(job.pipeline)
            if kind is DisturbanceKind.STAGE_LOAD:
                load[random.integers(job.pipeline)] = random.uniform(1.25, 1.8)
            return replace(
                job,
                microbatches=microbatches,
                pass_s=pass_s,
                tensor_s=pass_s * random.uniform(0.02, 0.08),
                pipeline_s=step_s * transfers * 0.5 / passes,
                data_s=step_s * transfers * random.uniform(0.4, 0.6),
                world=bool(random.random() < 0.7),
                blocking_sends=bool(random.random() < 0.5),
                compute_noise=float(random.uniform(0.005, 0.03)),
                transfer_noise=float(random.uniform(0.05, 0.15)),
                stall_s=1.0 if random.random() < 0.3 else 0.0,
                stage_load=tuple(load.tolist()) if kind is DisturbanceKind.STAGE_LOAD else (),
            )
    raise AssertionError(f"no job of {size} ranks suits {kind}")


def _suits(job: TrainingJob, kind: DisturbanceKind) -> bool:
    """Whether the job has what the disturbance concerns."""
    if kind in (DisturbanceKind.LONG_REPLICA, DisturbanceKind.STAGE_LOAD):
        spread = job.data * job.tensor >= 2 * job.gpus_per_node
        return job.pipeline > 1 and spread
    if kind in (DisturbanceKind.SLOW_NIC, DisturbanceKind.HANG_NIC):
        return job.rings_cross or (job.pipeline > 1 and job.data * job.tensor == job.gpus_per_node)
    if kind in (DisturbanceKind.SLOW_NODE, DisturbanceKind.DEAD_NODE):
        return job.gpus_per_node > 1 and job.ranks >= 2 * job.gpus_per_node
    return True


def _disturbance(job: TrainingJob, kind: DisturbanceKind, random: np.random.Generator) -> tuple[Disturbance, float]:
    which = Disturbance(kind, int(WARM_UP + random.integers(12)), _concerned(job, kind, random))
    if kind in (
        DisturbanceKind.STALLS,
        DisturbanceKind.CHECKPOINT,
        DisturbanceKind.UNMARKED_CHECKPOINT,
        DisturbanceKind.EVALUATION,
    ):
        for_s = float(random.uniform(0.2, 2.5) if kind is DisturbanceKind.STALLS else random.uniform(1.0, 8.0))
        return replace(which, for_s=for_s, every=int(random.integers(5, 15))), 0.0
    if kind is DisturbanceKind.COMPILATION:
        return replace(which, for_s=float(random.uniform(3.0, 12.0)), every=int(random.integers(10, 25))), 0.0
    if kind is DisturbanceKind.UNEVEN_DATA:
        return replace(which, step=0, strength=float(random.uniform(0.08, 0.25))), 0.0
    slow = (
        *LIMITS,
        DisturbanceKind.SLOW_RANK,
        DisturbanceKind.SLOW_NODE,
        DisturbanceKind.SLOW_NIC,
        DisturbanceKind.SLOW_LINK,
    )
    if kind in (*slow, DisturbanceKind.LONG_REPLICA, DisturbanceKind.ALL_SLOW):
        share = float(random.uniform(0.1, 0.2) if random.random() < 0.5 else random.uniform(0.2, 0.6))
        # Strength that makes the step longer by a share, by bisection on steps without noise.
        normal_s = step_length_s(job, replace(which, kind=DisturbanceKind.NONE, every=0))
        low, high = 0.0, 1.0
        while step_length_s(job, replace(which, strength=high)) < normal_s * (1 + share) and high < 4096:
            high *= 2
        for _ in range(12):
            middle = (low + high) / 2
            shorter = step_length_s(job, replace(which, strength=middle)) < normal_s * (1 + share)
            low, high = (middle, high) if shorter else (low, middle)
        return replace(which, strength=high), share
    return which, 0.0


def _concerned(job: TrainingJob, kind: DisturbanceKind, random: np.random.Generator) -> tuple[int, ...]:
    rank = int(random.integers(job.ranks))
    if kind in (DisturbanceKind.SLOW_NODE, DisturbanceKind.DEAD_NODE):
        return tuple(np.flatnonzero(job.node == job.node[rank]).tolist())
    if kind is DisturbanceKind.LONG_REPLICA:
        return tuple(job.numbers[:, random.integers(job.data)].ravel().tolist())
    if kind in LIMITS:
        capped = np.flatnonzero(job.node == job.node[rank]) if random.random() < 0.5 else np.array([rank])
        return tuple(capped.tolist())
    if kind in (DisturbanceKind.SLOW_LINK, DisturbanceKind.HANG_LINK):
        stage, replica, shard = (int(random.integers(size)) for size in job.shape)
        between_stages = job.pipeline > 1 and (random.random() < 0.8 or not job.rings_cross)
        if between_stages:
            stage = min(stage, job.pipeline - 2)
            other = job.numbers[stage + 1, replica, shard]
        else:
            other = job.numbers[stage, (replica + 1) % job.data, shard]
        return tuple(sorted((int(job.numbers[stage, replica, shard]), int(other))))
    return (rank,)


def _truth(job: TrainingJob, which: Disturbance, timeline: Timeline) -> Truth | None:
    if which.kind not in FAULTS:
        return None
    part = PARTS.get(which.kind, Part.RANK)
    parts = [(part, tuple(sorted(which.ranks)))]
    if part is Part.LINK and (group := _ring(job, which.ranks)) is not None:
        parts.append((Part.GROUP, group))
    if which.kind is DisturbanceKind.SLOW_NIC and job.pipeline == 1 and job.data > 2:
        _, _, shard = np.unravel_index(which.ranks[0], job.shape)
        parts.append((Part.GROUP, tuple(job.numbers[0, :, shard].tolist())))
    return Truth(SYNDROMES[which.kind], tuple(parts), timeline.fault_s)


def _ring(job: TrainingJob, link: tuple[int, ...]) -> tuple[int, ...] | None:
    """Data-parallel group around a link between replicas, when it has more than the two."""
    stage, replica, shard = np.unravel_index(list(link), job.shape)
    if stage[0] != stage[1] or replica[0] == replica[1] or job.data == 2:
        return None
    return tuple(sorted(job.numbers[stage[0], :, shard[0]].tolist()))


def _facts(job: TrainingJob, which: Disturbance, timeline: Timeline, random: np.random.Generator) -> tuple[Fact, ...]:
    facts: list[Fact] = []
    at_s = timeline.fault_s + random.uniform(0.5, 2.0)
    if which.kind in LIMITS:
        kind = FactKind.POWER_CAP if which.kind is DisturbanceKind.POWER_CAP else FactKind.CGROUP_LIMIT
        share = 1 / (1 + which.strength)
        facts += [Fact(kind, rank, timeline.fault_s - 0.1, float(share)) for rank in which.ranks]
    if which.kind is DisturbanceKind.HANG_NIC:
        facts.append(Fact(FactKind.NIC_ERRORS, which.ranks[0], at_s))
    if which.kind is DisturbanceKind.HANG_LINK and random.random() < 0.6:
        facts += [Fact(FactKind.RETRANSMISSIONS, a, at_s, peer=b) for a, b in (which.ranks, which.ranks[::-1])]
    if which.kind is DisturbanceKind.DEAD_RANK and random.random() < 0.5:
        facts.append(Fact(FactKind.PROCESS_GONE, which.ranks[0], at_s))
    if random.random() < 0.1:  # a sign on a healthy rank that means nothing
        kind = FactKind.XID if random.random() < 0.5 else FactKind.NIC_ERRORS
        facts.append(Fact(kind, int(random.integers(job.ranks)), float(random.uniform(0, timeline.end_s))))
    return tuple(facts)


SOUND_BYTES_PER_S, SOUND_RTT_S = 2.0e9, 60e-6
NOISE = 0.05
"""Standard deviation of the logarithm of a pair's best burst."""
BUSY_SHARE = 0.03
"""Share of measurements in which other traffic leaves 30 to 90 % of the bandwidth."""
ORDER_S, PAIR_S, LOST_S = 0.5, 2.0, 3.5
"""Time of an order and its report, of a pair, and of one that does not answer: upper ends of what
`tests/agents/test_pair_probes.py` sees."""


@dataclass(frozen=True, slots=True)
class Probed:
    """Conclusion of the probes that a verdict called for."""

    verdict: JobVerdict
    """The verdict as it is after them."""
    found: AnswerKind
    pairs: int
    took_s: float


class SimulatedNetwork:
    """Network between a job's nodes and two spare ones, while the case's disturbance lasts.

    hidden: whether the fault is on a network that probes do not pass, as where the interface is not that of the job.
    """

    def __init__(self, drawn: Case, random: np.random.Generator, *, hidden: bool = False) -> None:
        self._case, self._random, self._hidden = drawn, random, hidden
        nodes = int(drawn.job.node.max()) + 1
        self.nodes = tuple(f"n{number:04}" for number in range(nodes))
        self.spares = ("spare0", "spare1")

    def controls(self, suspects: Sequence[str]) -> tuple[str, ...]:
        """Nodes of the job that are not suspected, then spare ones."""
        return tuple(node for node in (*self.nodes, *self.spares) if node not in suspects)[:CONTROLS]

    def measure(self, pair: Pair) -> PairSpeed:
        factor = self._factor(pair)
        if np.isinf(factor):
            return PairSpeed(lost=True)
        noise = float(np.exp(self._random.normal(0.0, NOISE)))
        if self._random.random() < BUSY_SHARE:
            noise *= float(self._random.uniform(0.3, 0.9))
        return PairSpeed(SOUND_RTT_S / noise, SOUND_BYTES_PER_S * noise / factor)

    def _factor(self, pair: Pair) -> float:
        """Multiple of the transfer time between two nodes."""
        which = self._case.disturbance
        factor = float("inf") if which.kind in STOPS else 1.0 + which.strength
        at = {self.nodes[int(self._case.job.node[rank])] for rank in which.ranks}
        if self._hidden or not at:
            return 1.0
        if which.kind in (DisturbanceKind.SLOW_NIC, DisturbanceKind.HANG_NIC):
            return factor if at & set(pair) else 1.0
        if which.kind in (DisturbanceKind.SLOW_LINK, DisturbanceKind.HANG_LINK):
            return factor if at == set(pair) else 1.0
        return 1.0


def _narrowed_ranks(verdict: JobVerdict, layout: Layout, nodes: Sequence[str], found: Answer) -> tuple[int, ...]:
    """Ranks behind an answer: of those that the verdict names, the ones on the NIC's node, or at the link's ends."""
    ring = ring_of(verdict, layout) if verdict.part is Part.GROUP else verdict.ranks
    on = [nodes[int(node)] for node in layout.node[list(ring)]]
    if found.found is AnswerKind.LINK:
        ends = {
            rank
            for index, rank in enumerate(ring)
            for step in (-1, 1)
            if {on[index], on[(index + step) % len(ring)]} == set(found.nodes)
        }
        return tuple(sorted(ends))
    return tuple(sorted(rank for rank, node in zip(ring, on, strict=True) if node in found.nodes))


def probed(drawn: Case, verdict: JobVerdict, network: SimulatedNetwork) -> Probed | None:
    """What pair probes make of a verdict; None where they are not called for."""
    question = question_of(verdict, drawn.layout, network.nodes)
    if question is None:
        return None
    controls = network.controls(question.suspects)
    rounds = list(rounds_of(pairs_of(question, controls)))
    measured: dict[Pair, PairSpeed] = {}
    took_s = 0.0
    for each in rounds:
        if took_s < DEADLINE_S - 2.0:
            took_s += _measure(each, network, measured)
    for each in rounds_of(sorted(bad_pairs(measured, controls))):
        if took_s < DEADLINE_S - 2.0:
            took_s += _measure(each, network, measured)
    found = answer(question, controls, measured)
    after = replace(verdict, at_s=verdict.at_s + took_s)
    if found.found in (AnswerKind.NIC, AnswerKind.LINK):
        ranks = _narrowed_ranks(verdict, drawn.layout, network.nodes, found)
        part = Part.NIC if found.found is AnswerKind.NIC else Part.LINK
        after = replace(after, part=part, ranks=ranks, probe="", evidence=(*verdict.evidence, found.note))
    elif found.found is AnswerKind.SOUND and (verdict.part in (Part.NOTHING, Part.GROUP)):
        after = replace(
            after,
            syndrome=Syndrome.NONE,
            part=Part.NOTHING,
            cause=Cause.NETWORK_SOUND,
            probe="",
            evidence=(found.note,),
        )
    return Probed(after, found.found, len(measured), took_s)


def _measure(pairs: Sequence[Pair], network: SimulatedNetwork, measured: dict[Pair, PairSpeed]) -> float:
    """Measures one round, keeps the better of two values of a pair; its length in seconds."""
    lost = False
    for pair in pairs:
        made = network.measure(pair)
        before = measured.get(pair)
        lost |= made.lost
        if before is None or before.lost or (not made.lost and made.bytes_per_s > before.bytes_per_s):
            measured[pair] = made
    return ORDER_S + (LOST_S if lost else PAIR_S)

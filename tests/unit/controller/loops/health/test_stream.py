"""Stream of health: what a job's records say, and that they speak for that job alone."""

import math
import time
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from controller.loops.health.analyser_process import AnalyserProcess, AnalysisOf
from controller.loops.health.job_stream import JobStream, frames_in
from controller.loops.health.members import JobMember, Members
from controller.loops.health.stream import HealthStream, OwnLimit
from health.records.frames import Evidence as Found, HealthReport, ProbeAddress, Source as FoundBy, packed
from health.records.layout import Layout
from health.remediation.facts import FaultEvidence, NodeKey, Origin
from health.stream import Analyser
from health.verdicts.findings import Severity
from health.verdicts.verdict import FactKind, JobVerdict, Part, Syndrome
from tests.builders.frame_header import header
from tests.rigs.health.cases import Case, case
from tests.rigs.health.job import DisturbanceKind
from tonnage import records
from tonnage.records import Kind, Op, Phase, Role

JOB = "ns/train"
START_S = 1_000_000.0


@cache
def hang() -> Case:
    return case(0, kind=DisturbanceKind.HANG_RANK, ranks=16)


def node_of(rank: int) -> str:
    return f"n{int(hang().job.node[rank])}"


def members(job: str = JOB) -> Members:
    """One pod of the job on each of its nodes, and a pod of another job on the first."""
    names = sorted({node_of(rank) for rank in range(16)})
    mine = tuple(JobMember(f"u-{name}", f"ns/p-{name}", job, name, START_S - 100) for name in names)
    other = JobMember("u-other", "ns/other", "ns/other", "n0", START_S - 100)
    return Members({each.uid: each for each in (*mine, other)}, {job: mine, "ns/other": (other,)})


class Fleet:
    """A stream, and the agents that report to it."""

    def __init__(self, analysis_of: AnalysisOf = Analyser) -> None:
        self.stream = HealthStream(analysis_of)
        self.stream.follow(members(), {f"n{n}": f"key-n{n}" for n in range(16)})
        self.sequence = 0

    def report(self, node: str, now_s: float, frames: dict[str, bytes], *found: Found) -> None:
        self.sequence += 1
        report = HealthReport(node, "life", self.sequence, frames, found or None)
        self.stream.take(node, packed(report), now_s)

    def cap(self, node: str, speed_share: float) -> None:
        """Our own watts leave a node this speed."""
        self.stream.limits = {node: OwnLimit(speed_share, START_S - 100)}

    def play(self, forged: dict[str, bytes] | None = None) -> list[FaultEvidence]:
        """The whole job, each node's agent reporting its own pod; what was found."""
        heard: list[FaultEvidence] = []
        for now_s, by_node in told():
            for node, frames in by_node.items():
                self.report(node, now_s, {f"u-{node}": frames, **(forged or {})})
            heard += self.stream.judge(now_s)
            heard += self.late(now_s)
        return heard

    def late(self, now_s: float) -> tuple[FaultEvidence, ...]:
        """What another process answers to the last request; nothing where the analysis is in this one."""
        stream = self.stream.jobs.get(JOB)
        analysis = stream._analyser if stream is not None else None
        if not isinstance(analysis, AnalyserProcess):
            return ()
        answered(analysis)
        found = self.stream.judge(now_s)
        answered(analysis)  # it was asked once more
        return found


def answered(analysis: AnalyserProcess) -> None:
    ends_s = time.monotonic() + 30.0
    while analysis._child.is_asked and time.monotonic() < ends_s:
        time.sleep(0.001)


def told() -> Iterator[tuple[float, dict[str, bytes]]]:
    """Frames of the hanging job by node, tick by tick; its introduction first."""
    made = hang().transcript
    first: dict[str, bytes] = {}
    for rank in range(16):
        rows = made.introductions.rows[made.introductions.rank == rank]
        first[node_of(rank)] = first.get(node_of(rank), b"") + frame(rank, rows.tobytes())
    yield START_S, first
    yield START_S + 2.0, {}
    for at_s, frames in made.ticks():
        by_node: dict[str, bytes] = {}
        for rank, _, one in frames_in(frames):
            by_node[node_of(rank)] = by_node.get(node_of(rank), b"") + one
        yield START_S + 2.0 + at_s, by_node


def frame(rank: int, rows: bytes) -> bytes:
    head = header(len(rows) // 32, rank=rank, at_ns=0)
    return head + rows


def test_a_hang_names_the_pod_and_the_node_of_its_rank() -> None:
    fleet = Fleet()

    (found,) = [each for each in fleet.play() if each.part is not Part.NOTHING]

    truth = hang().truth
    assert truth is not None
    (rank,) = truth.parts[0][1]
    assert (found.job, found.syndrome, found.source) == (JOB, Syndrome.OTHER_HANG, Origin.JOB)
    assert found.nodes == (NodeKey(node_of(rank), f"key-{node_of(rank)}"),)
    assert found.pods == (f"u-{node_of(rank)}",)


def test_an_analysis_in_another_process_finds_the_same_and_its_end_leaves_out_the_job() -> None:
    here, apart = Fleet(), Fleet(AnalyserProcess)

    assert apart.play() == here.play()

    analysis = apart.stream.jobs[JOB]._analyser
    assert isinstance(analysis, AnalyserProcess)
    analysis.process.kill()
    ends_s = time.monotonic() + 30.0
    while JOB in apart.stream.jobs and time.monotonic() < ends_s:
        apart.stream.judge(START_S + 601)
        time.sleep(0.01)
    assert apart.stream.refused["not analysable"] == 1


class Recovered(JobStream):
    """A job whose rank 5 was slow and is as fast as before."""

    def ended(self, now_s: float) -> tuple[JobVerdict, ...]:
        return (JobVerdict(now_s - 60, Syndrome.OTHER_SLOW, Part.RANK, (5,), now_s - 70, 0.9, ("computes longer",)),)


def test_a_slow_rank_that_has_recovered_ends_its_incident() -> None:
    fleet = Fleet()
    fleet.play()
    recovered = Recovered(JOB, fleet.stream.members.incarnation(JOB))
    recovered.seats = fleet.stream.jobs[JOB].seats
    fleet.stream.jobs[JOB] = recovered

    (found,) = fleet.stream.judge(START_S + 600)

    assert (found.over, found.syndrome, found.at_s) == (True, Syndrome.OTHER_SLOW, START_S + 600)
    assert found.nodes == (NodeKey(node_of(5), f"key-{node_of(5)}"),)


def test_another_jobs_pod_cannot_speak_for_a_rank_of_this_one() -> None:
    """It forges each rank's records, on its own node's connection and under its own name: they are of its own job."""
    fleet = Fleet()
    lies = b"".join(frame(rank, records.packed(Kind.BEAT, seq=9, at_ns=1, for_ns=10**12)) for rank in range(16))

    found = [each for each in fleet.play({"u-other": lies}) if each.part is not Part.NOTHING]

    assert {each.job for each in found} == {JOB}
    assert {seat.pod for seat in fleet.stream.jobs[JOB].seats.values()} == {f"u-{node_of(rank)}" for rank in range(16)}


def test_a_pod_of_the_job_cannot_take_anothers_rank() -> None:
    fleet = Fleet()
    fleet.play()
    before = dict(fleet.stream.jobs[JOB].seats)

    for rank in range(16):
        fleet.report("n0", START_S + 500, {"u-n0": frame(rank, records.packed(Kind.END))})

    fleet.stream.judge(START_S + 500)
    assert fleet.stream.jobs[JOB].seats == before
    assert fleet.stream.refused["another pod's rank"] == sum(node_of(rank) != "n0" for rank in range(16))


def test_an_agent_speaks_only_for_pods_that_are_on_its_node() -> None:
    fleet = Fleet()

    fleet.report("n9", START_S, {"u-n0": frame(0, records.packed(Kind.BEAT)), "u-nobody": b""})

    assert not fleet.stream.jobs
    assert fleet.stream.refused == {"not a member here": 2}


def test_a_repeated_report_counts_once() -> None:
    stream = HealthStream()
    body = packed(HealthReport("n0", "life", 7, {}))

    for _ in range(3):
        stream.take("n0", body, START_S)

    assert stream.refused == {"replayed": 2}


def test_a_report_of_another_node_and_one_that_cannot_be_read_are_refused() -> None:
    stream = HealthStream()

    stream.take("n1", packed(HealthReport("n0", "life", 7, {})), START_S)
    stream.take("n1", b"\x80\x04.", START_S)  # a pickle
    stream.take("n1", packed(HealthReport("n1", "another", 8, {})).replace(b"another", b"anothe\xff"), START_S)
    stream.take("n1", b"\x81\xa4deep" + b"\x91" * 100_000 + b"\x90", START_S)

    assert stream.refused == {"replayed": 1, "unreadable": 3}


@pytest.mark.parametrize("seed", range(3))
def test_a_job_that_writes_anything_stops_no_other(seed: int) -> None:
    random = np.random.default_rng(seed)
    fleet = Fleet()
    rows = random.integers(0, 256, (64, 32), dtype=np.uint8)
    rows[:, 0] = random.integers(1, 8, 64)
    introduced = records.packed(Kind.PLACE, step=1) + records.packed(Kind.MEMBER, at_ns=5, step=1)
    garbage = frame(0, introduced + rows.tobytes())

    for second in range(5):
        fleet.report("n0", START_S + second, {"u-other": garbage})
        fleet.stream.judge(START_S + second)
    found = [each for each in fleet.play() if each.part is not Part.NOTHING and each.job == JOB]

    assert [each.syndrome for each in found] == [Syndrome.OTHER_HANG]


def test_a_job_for_which_there_is_no_memory_is_left_out_and_the_others_go_on() -> None:
    """It claims a hundred groups for each of its sixteen ranks."""
    begun = list[Layout]()

    def counted(layout: Layout) -> Analyser:
        begun.append(layout)
        return Analyser(layout)

    fleet = Fleet(counted)
    fleet.stream.most_bytes = 1_000_000
    claims = b"".join(
        frame(
            rank,
            records.packed(Kind.PLACE, step=16)
            + b"".join(
                records.packed(Kind.MEMBER, group=number, at_ns=100 * 8 * (rank // 8) + number, seq=rank % 8, step=8)
                for number in range(100)
            ),
        )
        for rank in range(16)
    )

    found = [each for each in fleet.play({"u-other": claims}) if each.part is not Part.NOTHING]

    assert [each.job for each in found] == [JOB]
    assert fleet.stream.refused["no memory"] > 0
    assert [len(layout.groups) for layout in begun] == [len(hang().layout.groups)]


def test_a_restarted_pod_begins_another_run() -> None:
    fleet = Fleet()
    fleet.play()
    whole = members()
    left = tuple(each for each in whole.jobs[JOB] if each.node != "n0")

    fleet.stream.follow(Members({each.uid: each for each in left}, {JOB: left}), fleet.stream.node_uids)

    assert JOB not in fleet.stream.jobs


def test_checkpoints_are_measured_by_when_they_are_seen_under_way() -> None:
    stream = JobStream(JOB, "run")
    for begin_s in (100.0, 700.0, 1300.0):
        for after_s in (0.0, 1.0, 2.0):
            stream.take("u-n0", "n0", frame(0, records.packed(Kind.BEAT, phase=Phase.CHECKPOINT)), begin_s + after_s)
            stream.judge(begin_s + after_s)
    assert (stream.save_s, stream.save_every_s) == (2.0, 600.0)

    assert JobStream(JOB, "run").save_s == 0.0
    assert JobStream(JOB, "run").save_every_s is None


def test_the_checkpoint_of_an_earlier_run_is_known_to_the_next() -> None:
    fleet = Fleet()
    fleet.play()
    fleet.stream.jobs[JOB].checkpoint_s = START_S + 7
    whole = members()
    left = tuple(each for each in whole.jobs[JOB] if each.node != "n0")
    fleet.stream.follow(Members({each.uid: each for each in left}, {JOB: left}), fleet.stream.node_uids)

    fleet.stream.follow(whole, fleet.stream.node_uids)
    fleet.report("n1", START_S + 900, {"u-n1": frame(1, records.packed(Kind.BEAT))})

    assert fleet.stream.jobs[JOB].checkpoint_s == START_S + 7


def test_one_silent_agent_does_not_silence_the_others() -> None:
    fleet = Fleet()
    fleet.play()
    nodes = {seat.node for seat in fleet.stream.jobs[JOB].seats.values()}
    at_s = max(host.heard_s for host in fleet.stream.hosts.values())
    assert len(nodes) > 2

    del fleet.stream.hosts["n0"]
    assert fleet.stream.heard_share(at_s) == 1.0
    del fleet.stream.hosts["n1"]
    assert fleet.stream.heard_share(at_s) == 1 - 1 / len(nodes)


def xid(number: int) -> Found:
    return Found(FoundBy.KERNEL, f"Xid{number}", "0000:3b:00", 5.0)


def test_a_gpu_error_of_the_hardware_suspects_its_node_and_one_of_a_program_none() -> None:
    fleet = Fleet()
    fleet.report("n0", START_S, {}, xid(79))
    fleet.report("n1", START_S, {}, xid(31))

    (found,) = fleet.stream.node_evidence(START_S + 1)

    assert (found.nodes, found.source, found.at_s) == ((NodeKey("n0", "key-n0"),), Origin.NODE, START_S - 5.0)
    assert not fleet.stream.is_clean("n0", START_S + 1)
    assert fleet.stream.is_clean("n1", START_S + 1)
    assert not fleet.stream.is_clean("n2", START_S + 1)  # its agent is not heard


def test_what_only_asks_to_be_watched_stands_beside_what_accuses_the_node() -> None:
    fleet = Fleet()
    for name in sorted({node_of(rank) for rank in range(16)}):
        fleet.report(name, START_S, {}, xid(94))
    found = [each for each in fleet.play() if each.part is not Part.NOTHING]

    assert found
    assert all(any("Xid94 on 0000:3b:00" in line for line in each.shown) for each in found)
    assert not fleet.stream.node_evidence(START_S + 1)


def test_an_operator_may_choose_what_a_finding_asks_for_on_the_nodes_of_a_policy() -> None:
    fleet = Fleet()
    for node in ("n0", "n1"):
        fleet.report(node, START_S, {}, xid(63))
    fleet.stream.severities = {"n1": {"Xid63": Severity.AFTER_JOB}}

    (found,) = fleet.stream.node_evidence(START_S + 1)

    assert (found.nodes, found.after_job) == ((NodeKey("n1", "key-n1"),), True)
    assert found.at_s == START_S  # it stands for as long as its agent tells of it
    assert fleet.stream.is_clean("n0", START_S + 1)
    assert not fleet.stream.is_clean("n1", START_S + 1)


@pytest.mark.parametrize(
    "odd",
    [
        Found(FoundBy.KERNEL, "Xid²", "gpu-0", 5.0),
        Found(FoundBy.KERNEL, "Xid" + "9" * 5000, "gpu-0", 5.0),
        Found(FoundBy.NIC, "LinkDown", "mlx5_0", math.inf),
        Found(FoundBy.NIC, "LinkDown", "mlx5_0", math.nan),
    ],
)
def test_a_finding_that_cannot_be_stops_nothing_that_others_find(odd: Found) -> None:
    """The first two ended each cycle of the operator; the others all reports of incidents, which hold no infinity."""
    fleet = Fleet()
    fleet.report("n0", START_S, {}, odd)
    fleet.report("n1", START_S, {}, xid(79))

    (found,) = fleet.stream.node_evidence(START_S + 1)

    assert found.nodes == (NodeKey("n1", "key-n1"),)
    assert fleet.stream.is_clean("n0", START_S + 1)


def lost(age_s: float = 5.0) -> Found:
    return Found(
        FoundBy.PROCESS, "RankLost", "NCCL", age_s, "rank 5 on 10.0.0.2: the process does not answer the others"
    )


def test_what_nccl_tells_of_ranks_on_a_node_is_a_word_of_the_job_there_and_takes_no_node_out_by_itself() -> None:
    fleet = Fleet()
    fleet.report("n1", START_S, {}, lost())  # on n0 is another job, too

    (found,) = fleet.stream.node_evidence(START_S + 1)

    assert (found.job, found.syndrome, found.source) == (JOB, Syndrome.DEAD_PROCESS, Origin.JOB)
    assert found.nodes == (NodeKey("n1", "key-n1"),)
    assert fleet.stream.is_clean("n1", START_S + 1)

    fleet.report("n0", START_S, {}, lost())
    assert fleet.stream.node_evidence(START_S + 1) == (found,)


def test_what_nccl_told_of_an_earlier_run_or_of_a_job_with_a_recorder_is_no_evidence() -> None:
    fleet = Fleet()
    created_s = max(each.created_s for each in fleet.stream.members.jobs[JOB])
    fleet.report("n1", START_S, {}, lost(age_s=START_S - created_s + 60.0))
    assert not fleet.stream.node_evidence(START_S + 1)

    recorded = Fleet()
    recorded.play()
    at_s = max(host.heard_s for host in recorded.stream.hosts.values())
    recorded.report("n1", at_s, {}, lost())
    assert not recorded.stream.node_evidence(at_s)


def test_a_finding_of_the_future_is_one_of_now() -> None:
    fleet = Fleet()
    fleet.report("n0", START_S, {}, Found(FoundBy.KERNEL, "Xid79", "0000:3b:00", -1e9))

    (found,) = fleet.stream.node_evidence(START_S + 1)

    assert found.since_s == START_S


@pytest.mark.parametrize(
    ("address", "is_taken"),
    [
        (ProbeAddress("10.0.0.7", 9468), True),
        (ProbeAddress("2001:db8::7", 9468), True),
        (ProbeAddress("169.254.169.254", 80), False),
        (ProbeAddress("::1", 9468), False),
        (ProbeAddress("0.0.0.0", 9468), False),  # noqa: S104 - not listened on
        (ProbeAddress("kubernetes.default", 443), False),
        (ProbeAddress("x" * 300, 9468), False),
        (ProbeAddress("10.0.0.7", 70_000), False),
    ],
)
def test_an_agent_sends_others_to_no_address_but_that_of_a_node(address: ProbeAddress, *, is_taken: bool) -> None:
    """Where it says that it is probed, others connect: to anything, and a name of 300 letters ended their prober."""
    stream = HealthStream()

    stream.take("n0", packed(HealthReport("n0", "life", 1, probes_at=address)), START_S)

    assert (stream.hosts["n0"].probes_at is not None) is is_taken


def test_own_caps_and_throttled_cgroups_reach_the_analysis_as_facts() -> None:
    fleet = Fleet()
    fleet.play()
    throttled = Found(FoundBy.CGROUP, "Throttled", "process 7", 3.0, "", f"u-{node_of(5)}", 5, 0.6)
    fleet.report(node_of(5), START_S + 600, {}, throttled)
    fleet.stream.limits = {node_of(3): OwnLimit(0.8, START_S)}
    seats = fleet.stream.jobs[JOB].seats

    facts = [fact for each in fleet.stream._facts(START_S + 600).values() for fact in each]
    caps = fleet.stream._own_caps(seats)

    assert [(fact.kind, fact.rank, fact.speed_share) for fact in facts] == [(FactKind.CGROUP_LIMIT, 5, 0.6)]
    assert {fact.rank for fact in caps} == {rank for rank in range(16) if node_of(rank) == node_of(3)}


def test_a_group_whose_members_are_not_all_introduced_does_not_break_the_analysis() -> None:
    stream = JobStream(JOB, "run")
    for rank in range(2):
        place = records.packed(Kind.PLACE, step=2, at_ns=rank)
        whole = records.packed(Kind.MEMBER, op=Role.WORLD, group=1, seq=rank, at_ns=78, step=2)
        member = records.packed(Kind.MEMBER, op=Role.DATA, group=0, seq=rank, at_ns=77, step=2)
        done = records.packed(Kind.OPERATION, op=Op.ALL_REDUCE, group=0, seq=1, at_ns=10**9, for_ns=1000, step=1)
        said = b"".join([place, whole, *([member] if rank else []), done])
        stream.take(f"u-{rank}", "n0", frame(rank, said), START_S)

    assert stream.judge(START_S + 5.0) == ()
    assert stream.layout is not None


def test_a_job_without_a_whole_group_is_not_analysed_yet() -> None:
    stream = JobStream(JOB, "run")
    for rank in range(2):
        stream.take(f"u-{rank}", "n0", frame(rank, records.packed(Kind.PLACE, step=2, at_ns=rank)), START_S)

    assert stream.judge(START_S + 5.0) == ()
    assert stream.layout is None

"""What is done about a verdict, and what is not."""

from dataclasses import replace

from health.remediation.decision import HealthDecision
from health.remediation.facts import FaultEvidence, NodeKey, Origin, OurTaint
from health.remediation.incidents import Incident, IncidentPhase, JobDo, NodeDo, Remedy
from health.verdicts.verdict import Cause, Part, Syndrome
from tests.builders.remedies import START_S, PretendFleet, evidence, fleet, node, slow

AT_S = START_S + 100.0


def jobs_do(decision: HealthDecision) -> list[JobDo]:
    return [each.do for each in decision.jobs]


def only(incidents: tuple[Incident, ...]) -> Incident:
    assert len(incidents) == 1, incidents
    return incidents[0]


def the_job(of: PretendFleet):
    return of.jobs["train/a"]


def hang(of: PretendFleet, *nodes: str, at_s: float = AT_S, **facts: object):
    return evidence(the_job(of), *nodes, at_s=at_s, **facts)


def test_a_hanging_rank_is_tainted_first_and_its_gang_restarted_elsewhere() -> None:
    world = fleet()
    decision = world.cycle([hang(world, "n3")], at_s=AT_S)
    assert world.node_dos(decision) == [(NodeDo.TAINT, "n3")]
    assert jobs_do(decision) == [JobDo.EVICT_NOW]
    assert "n3" not in {pod.node for pod in the_job(world).pods}


def test_a_restart_waits_until_every_decision_behind_it_is_on_record_and_a_taint_does_not() -> None:
    world = fleet()
    world.now_s = AT_S
    decision = world.decision([hang(world, "n3"), hang(world, "n20", program_error=True)])
    acts = [each.act for each in decision.incidents if each.act is not None]
    assert len(acts) == 2
    for recorded in ([], acts[:1], acts[1:]):
        assert decision.due(recorded) == ()
    assert decision.due(acts) == decision.jobs


def test_a_decision_that_left_only_its_taint_still_restarts_the_job_elsewhere() -> None:
    world = fleet()
    world.now_s = AT_S
    (taint,) = world.decision([hang(world, "n3")]).nodes
    world.carry_out(taint)  # and then the controller dies, with nothing on record

    decision = world.cycle([hang(world, "n3")], at_s=AT_S + 1)

    assert jobs_do(decision) == [JobDo.EVICT_NOW]
    assert "n3" not in {pod.node for pod in the_job(world).pods}


def test_a_program_error_restarts_the_job_where_it_is() -> None:
    world = fleet()
    decision = world.cycle([hang(world, "n3", program_error=True, syndrome=Syndrome.DEAD_PROCESS)], at_s=AT_S)
    assert jobs_do(decision) == [JobDo.RESTART_IN_PLACE]
    assert not world.tainted()


def test_a_program_error_that_comes_back_on_the_node_takes_the_node_out() -> None:
    world = fleet()
    died = {"program_error": True, "syndrome": Syndrome.DEAD_PROCESS}
    world.cycle([hang(world, "n3", **died)], at_s=AT_S)
    world.cycle(at_s=AT_S + 5)
    later_s = the_job(world).started_s + 100
    decision = world.cycle([hang(world, "n3", at_s=later_s, **died)], at_s=later_s)
    assert jobs_do(decision) == [JobDo.EVICT_NOW]


def test_a_slow_rank_is_tolerated_until_it_has_cost_what_moving_costs() -> None:
    # Moving costs a job that saves when it is stopped the restart of 180 s and the node's time out, 0.24 of 1,800 s
    # over 40 nodes: 11 s. At 30 % slower that much is lost after 191 / 0.3 = 636 s.
    world = fleet(saves_when_stopped=True, checkpoint_interval_s=1e6)
    at = {"since_s": START_S, "share": 0.3}
    early_s, late_s = START_S + 600, START_S + 660
    assert jobs_do(world.cycle([slow(the_job(world), "n3", at_s=early_s, **at)], at_s=early_s)) == [JobDo.TOLERATE]
    late = world.cycle([slow(the_job(world), "n3", at_s=late_s, **at)], at_s=late_s)
    assert jobs_do(late) == [JobDo.EVICT_NOW]
    assert world.tainted() == {"n3"}


def test_right_after_a_checkpoint_a_slow_job_is_evicted_and_late_after_it_moved_at_the_next() -> None:
    # 5 s after a checkpoint 5 s are done again, against 30 % of 595 s of waiting; 500 s after, 500 against 30 % of 100.
    for age_s, do in ((5.0, JobDo.EVICT_NOW), (500.0, JobDo.MOVE_AT_CHECKPOINT)):
        now_s = START_S + 4000
        world = fleet(checkpoint_at_s=now_s - age_s, checkpoint_interval_s=600.0)
        heard = slow(the_job(world), "n3", at_s=now_s, since_s=START_S, share=0.3)
        assert jobs_do(world.cycle([heard], at_s=now_s)) == [do]


def test_a_job_that_moves_at_its_checkpoint_is_stopped_once_that_is_saved_or_has_cost_too_much() -> None:
    # 500 s at risk when it is decided, at 30 %: waiting longer than 500 / 0.3 = 1,667 s costs more than they do.
    now_s = START_S + 4000
    world = fleet(checkpoint_at_s=now_s - 500, checkpoint_interval_s=600.0)
    world.now_s = now_s
    heard = slow(the_job(world), "n3", at_s=now_s, since_s=START_S, share=0.3)
    world.incidents = world.decision([heard]).incidents

    def later(after_s: float, saving_s: float | None = None) -> list[JobDo]:
        if saving_s is not None:
            world.jobs["train/a"] = replace(the_job(world), checkpoint_at_s=now_s + saving_s)
        world.now_s = now_s + after_s
        return jobs_do(world.decision())

    assert later(120.0) == [JobDo.MOVE_AT_CHECKPOINT]
    assert later(1667.0) == [JobDo.EVICT_NOW]
    assert later(130.0, saving_s=129.0) == [JobDo.MOVE_AT_CHECKPOINT]  # it may be saving still
    assert later(160.0, saving_s=155.0) == [JobDo.EVICT_NOW]


def test_a_slow_job_that_stops_while_it_waits_for_its_checkpoint_is_evicted_now() -> None:
    world = fleet(checkpoint_at_s=START_S + 3500, checkpoint_interval_s=600.0)
    now_s = START_S + 4000
    heard = slow(the_job(world), "n3", at_s=now_s, since_s=START_S, share=0.3)
    world.now_s = now_s
    world.incidents = world.decision([heard]).incidents  # written, not carried out
    decision = world.cycle([hang(world, "n3", at_s=now_s + 5)], at_s=now_s + 5)
    assert jobs_do(decision) == [JobDo.EVICT_NOW]


def test_what_our_own_limit_explains_is_left_alone() -> None:
    world = fleet()
    world.nodes["n3"] = replace(world.nodes["n3"], own_speed_share=0.75, limited_since_s=START_S)
    heard = slow(the_job(world), "n3", at_s=START_S + 4000, since_s=START_S, share=0.25)
    assert world.cycle([heard], at_s=START_S + 4000).incidents == ()


def test_slowness_beyond_our_own_limit_is_not_excused_by_it() -> None:
    world = fleet()
    world.nodes["n3"] = replace(world.nodes["n3"], own_speed_share=0.9, limited_since_s=START_S)
    heard = slow(the_job(world), "n3", at_s=START_S + 4000, since_s=START_S, share=0.5)
    assert world.cycle([heard], at_s=START_S + 4000).nodes


def test_a_cause_that_is_no_fault_opens_no_incident() -> None:
    world = fleet()
    heard = hang(world, "n3", cause=Cause.DATA_IMBALANCE, part=Part.NOTHING)
    assert world.cycle([heard], at_s=AT_S).incidents == ()


def test_ranks_in_different_operations_are_restarted_in_place() -> None:
    world = fleet()
    heard = replace(hang(world, cause=Cause.CALL_ORDER, part=Part.NOTHING, syndrome=Syndrome.OTHER_HANG))
    assert jobs_do(world.cycle([heard], at_s=AT_S)) == [JobDo.RESTART_IN_PLACE]


def test_an_abstention_waits_for_its_probe_then_restarts_once_and_then_asks_a_person() -> None:
    world = fleet()
    vague = {"part": Part.NOTHING, "probe": "stacks of these ranks", "confidence": 0.5}
    first = world.cycle([hang(world, "n3", "n9", **vague)], at_s=AT_S)
    assert jobs_do(first) == []
    assert only(first.incidents).waits_for == "probe: stacks of these ranks"
    assert jobs_do(world.cycle(at_s=AT_S + 40)) == [JobDo.RESTART_IN_PLACE]
    again_s = the_job(world).started_s + 60
    world.cycle(at_s=again_s - 30)
    world.cycle([hang(world, "n3", "n9", at_s=again_s, **vague)], at_s=again_s)
    asked = world.cycle([hang(world, "n3", "n9", at_s=again_s + 40, **vague)], at_s=again_s + 40)
    assert (only(asked.incidents).phase, only(asked.incidents).probe) == (IncidentPhase.PAGED, "stacks of these ranks")
    assert jobs_do(asked) == []


def test_a_link_moves_the_job_and_taints_neither_end() -> None:
    world = fleet(spares=3, nodes=39)
    heard = hang(world, "n3", "n30", part=Part.LINK, syndrome=Syndrome.COMMUNICATION_HANG, source=Origin.NODE)
    decision = world.cycle([heard], at_s=AT_S)
    assert jobs_do(decision) == [JobDo.EVICT_NOW]
    assert not world.tainted()


def test_two_suspects_under_one_switch_are_one_incident_of_the_switch() -> None:
    world = fleet(spares=4)
    world.cycle([hang(world, "n1", source=Origin.NODE)], at_s=AT_S)
    assert world.tainted() == {"n1"}
    heard = evidence(the_job(world), "n2", at_s=AT_S + 60, source=Origin.NODE, pods=(), incarnation="")
    decision = world.cycle([heard], at_s=AT_S + 60)
    opened = [each for each in decision.incidents if each.is_open]
    assert [each.domain for each in opened] == ["switch/0"]
    assert {key.name for key in opened[0].nodes} == {"n1", "n2"}
    world.cycle(at_s=AT_S + 61)
    assert world.tainted() == set()


def test_the_incident_of_a_domain_keeps_no_runs_that_have_ended() -> None:
    """One went on for days in which its job was restarted two thousand times."""
    world = fleet()
    for number in range(4):
        at_s = AT_S + 100 * number
        heard = [hang(world, name, at_s=at_s, source=Origin.NODE) for name in ("n1", "n2")]
        world.cycle(heard, at_s=at_s)
    (domain,) = [each for each in world.incidents if each.domain]

    assert len(world.restarts) > 1
    assert len(domain.runs) <= 1


def test_suspects_under_different_switches_stay_apart() -> None:
    world = fleet(nodes=200, spares=4)
    decision = world.cycle([hang(world, "n1"), hang(world, "n20")], at_s=AT_S)
    assert len(decision.incidents) == 2
    assert not any(each.domain for each in decision.incidents)


def test_a_shared_node_is_not_quarantined_on_a_jobs_own_word() -> None:
    world = fleet()
    world.nodes["n3"] = replace(world.nodes["n3"], shared=True)
    assert only(world.cycle([hang(world, "n3")], at_s=AT_S).incidents).remedy is Remedy.AVOID
    assert not world.tainted()
    other = fleet()
    other.nodes["n3"] = replace(other.nodes["n3"], shared=True)
    other.cycle([hang(other, "n3", source=Origin.NODE)], at_s=AT_S)
    assert other.tainted() == {"n3"}


def test_a_job_speaks_only_of_nodes_under_its_own_pods() -> None:
    world = fleet()
    forged = replace(hang(world, "n3"), nodes=(NodeKey("n41", "uid-n41"),))
    assert world.cycle([forged], at_s=AT_S).incidents == ()


def test_little_heard_means_nothing_new_is_done() -> None:
    world = fleet()
    world.heard_share = 0.8
    assert world.cycle([hang(world, "n3")], at_s=AT_S).incidents == ()


def test_a_disruption_budget_that_never_allows_is_reported() -> None:
    world = fleet(disruptions_allowed=0)
    decision = world.cycle([hang(world, "n3", source=Origin.NODE, part=Part.NODE)], at_s=AT_S)
    world.cycle(at_s=AT_S + 1)
    again_s = the_job(world).started_s + 60
    decision = world.cycle([hang(world, "n3", at_s=again_s, source=Origin.NODE, part=Part.NODE)], at_s=again_s)
    assert "DrainBlocked" in only(decision.incidents).waits_for


def test_without_a_spare_a_job_is_not_brought_below_its_least_size() -> None:
    world = fleet(spares=0)
    decision = world.cycle([slow(the_job(world), "n3", at_s=START_S + 9000, since_s=START_S)], at_s=START_S + 9000)
    assert jobs_do(decision) == [JobDo.TOLERATE]


def test_an_elastic_job_goes_on_with_fewer_pods_when_no_spare_is_left() -> None:
    world = fleet(nodes=400, spares=0, min_available=390)
    decision = world.cycle([hang(world, "n3", part=Part.NODE)], at_s=AT_S)
    (restart,) = decision.jobs
    assert (restart.do, restart.pods) == (JobDo.EVICT_NOW, 399)


def test_a_node_of_another_remediation_is_left_to_it_and_the_incident_says_so() -> None:
    world = fleet()
    world.nodes["n3"] = replace(world.nodes["n3"], owner="nvsentinel")
    decision = world.cycle([hang(world, "n3")], at_s=AT_S)
    assert world.node_dos(decision) == []
    assert only(decision.incidents).waits_for == "another owner: nvsentinel"
    assert jobs_do(decision) == [JobDo.EVICT_NOW]


def test_a_person_who_releases_a_node_closes_its_incident() -> None:
    world = fleet()
    world.cycle([hang(world, "n3")], at_s=AT_S)
    world.broken = {"n3"}
    world.cycle(at_s=AT_S + 1)
    world.nodes["n3"] = replace(world.nodes["n3"], released_s=AT_S + 10)
    decision = world.cycle(at_s=AT_S + 11)
    assert world.node_dos(decision) == [(NodeDo.UNTAINT, "n3")]
    assert only(decision.incidents).phase is IncidentPhase.CLOSED


def test_a_tested_node_goes_through_probation_and_is_released() -> None:
    world = fleet()
    world.cycle([hang(world, "n3")], at_s=AT_S)
    steps = [world.node_dos(world.cycle(at_s=AT_S + later)) for later in (1, 2, 3, 4 * 3600 + 3)]
    assert steps == [
        [],
        [(NodeDo.PROBATION, "n3")],
        [],
        [(NodeDo.UNTAINT, "n3")],
    ]


def test_a_relapse_on_probation_is_a_new_generation() -> None:
    world = fleet(nodes=40, spares=0)
    world.nodes["n40"] = node("n40", domains=("switch/5",))
    world.cycle([hang(world, "n3")], at_s=AT_S)
    for later in (1, 2, 3):
        world.cycle(at_s=AT_S + later)
    other = replace(the_job(world), name="train/b", incarnation="b-0", pods=())
    world.jobs["train/b"] = replace(
        other, pods=(replace(the_job(world).pods[0], uid="b0", node="n3"),), min_available=1
    )
    later_s = the_job(world).started_s + 100
    decision = world.cycle([evidence(world.jobs["train/b"], "n3", at_s=later_s)], at_s=later_s)
    assert only(decision.incidents).generation == 2


def test_a_node_replaced_under_the_same_name_is_left_alone() -> None:
    world = fleet()
    world.cycle([hang(world, "n3")], at_s=AT_S)
    world.nodes["n3"] = node("n3", uid="another", domains=("switch/0",))
    decision = world.cycle([hang(world, "n3")], at_s=AT_S + 5)
    assert world.node_dos(decision) == []
    assert only(decision.incidents).phase is IncidentPhase.CLOSED


def test_a_taint_without_a_record_is_a_record() -> None:
    world = fleet()
    world.nodes["n3"] = replace(world.nodes["n3"], taint=OurTaint("node-n3", 4, START_S))
    found = only(world.cycle(at_s=AT_S).incidents)
    assert (found.id, found.generation, found.phase) == ("node-n3", 4, IncidentPhase.QUARANTINED)


def test_evidence_from_before_the_restart_restarts_nothing() -> None:
    world = fleet()
    world.cycle([hang(world, "n3")], at_s=AT_S)
    world.cycle([hang(world, "n3"), hang(world, "n5", at_s=AT_S)], at_s=AT_S + 1)
    assert len(world.restarts) == 1


def test_a_hang_that_is_over_is_forgotten_even_when_nobody_says_so() -> None:
    world = fleet(nodes=4, spares=0, disruptions_allowed=0)
    vague = hang(world, "n1", "n2", part=Part.NOTHING, probe="stacks")
    world.cycle([vague], at_s=AT_S)
    world.jobs["train/a"] = replace(the_job(world), progressed_s=AT_S + 20)
    assert only(world.cycle(at_s=AT_S + 60).incidents).phase is IncidentPhase.CLOSED
    assert world.restarts == []


def test_a_job_that_suffers_twice_at_once_is_restarted_once_without_both_nodes() -> None:
    world = fleet(nodes=400, spares=4)
    decision = world.cycle([hang(world, "n3"), hang(world, "n30")], at_s=AT_S)
    (restart,) = decision.jobs
    assert {key.name for key in restart.avoid} == {"n3", "n30"}


def test_hardware_evidence_without_a_job_taints_the_node_alone() -> None:
    world = fleet()
    heard = evidence(
        the_job(world), "n41", at_s=AT_S, source=Origin.NODE, syndrome=Syndrome.NONE, part=Part.NODE, job="", pods=()
    )
    decision: HealthDecision = world.cycle([heard], at_s=AT_S)
    assert world.tainted() == {"n41"}
    assert jobs_do(decision) == []
    assert len(decision.nodes) == 1


def of_the_node(on: str, at_s: float, *, after_job: bool = True, **facts: object):
    """What a node's agent says of its own hardware."""
    found = FaultEvidence(
        job="",
        incarnation="",
        syndrome=Syndrome.NONE,
        part=Part.NODE,
        nodes=(NodeKey(on, f"uid-{on}"),),
        pods=(),
        since_s=AT_S,
        at_s=at_s,
        confidence=0.9,
        source=Origin.NODE,
        after_job=after_job,
    )
    return replace(found, **facts)


def test_a_node_with_a_fault_that_can_wait_keeps_its_job_and_leaves_with_its_end() -> None:
    world = fleet()
    for minute in range(30):  # longer than evidence of an instant counts
        world.cycle([of_the_node("n3", AT_S + 60 * minute)], at_s=AT_S + 60 * minute)
        assert not world.tainted()
    assert only(world.incidents).waits_for == "after the job: train/a"

    world.jobs.clear()
    world.cycle([of_the_node("n3", AT_S + 1800)], at_s=AT_S + 1800)

    assert world.tainted() == {"n3"}
    assert not world.restarts


def test_a_node_with_a_fault_that_can_wait_is_taken_out_at_once_where_no_job_is_on_it() -> None:
    world = fleet()
    world.cycle([of_the_node("n41", AT_S)], at_s=AT_S)
    assert world.tainted() == {"n41"}


def test_a_fatal_fault_beside_one_that_can_wait_takes_the_node_out() -> None:
    world = fleet()
    world.cycle([of_the_node("n3", AT_S)], at_s=AT_S)
    assert not world.tainted()

    world.cycle([of_the_node("n3", AT_S + 1, after_job=False)], at_s=AT_S + 1)

    assert world.tainted() == {"n3"}


def test_a_person_who_released_a_node_is_asked_no_more_for_what_was_there_by_then() -> None:
    world = fleet()
    world.nodes["n3"] = replace(world.nodes["n3"], released_s=AT_S + 10)
    world.cycle([of_the_node("n3", AT_S + 60)], at_s=AT_S + 60)
    assert not world.incidents

    world.cycle([of_the_node("n3", AT_S + 60, since_s=AT_S + 50)], at_s=AT_S + 60)
    assert only(world.incidents).is_open


def told_twice(world: PretendFleet, *, first: float = 0.99, then: float = 0.99) -> HealthDecision:
    """A slow link between n1 and n3, and half a second later a slow NIC at one end of it; both go on for an hour."""
    for second in range(0, 3600, 120):
        for delay_s, part, nodes, confidence in ((0.0, Part.LINK, ("n1", "n3"), first), (0.5, Part.NIC, ("n1",), then)):
            at_s = AT_S + 10 + second + delay_s
            found = evidence(
                the_job(world), *nodes, at_s=at_s, since_s=AT_S, part=part, confidence=confidence,
                syndrome=Syndrome.COMMUNICATION_SLOW, slow_share=0.3,
            )  # fmt: skip
            decision = world.cycle([found], at_s=at_s)
            if second == 0 and delay_s:
                assert len([each for each in decision.incidents if each.is_open]) == 1
    return decision


def test_one_disturbance_that_is_told_as_a_link_and_as_one_end_of_it_is_one_incident_and_taints_no_end() -> None:
    world = fleet()

    told_twice(world)

    assert not world.tainted()
    assert [sorted(key.name for key in each.avoid) for each in world.restarts] == [["n1", "n3"]]


def test_a_later_verdict_on_the_same_disturbance_replaces_the_earlier_one_on_more_evidence() -> None:
    world = fleet()

    told_twice(world, first=0.6, then=0.99)

    assert world.tainted() == {"n1"}


def test_a_group_that_is_an_open_question_is_closed_when_one_of_its_nodes_is_named() -> None:
    world = fleet()
    group = hang(world, "n1", "n2", "n3", part=Part.GROUP, syndrome=Syndrome.COMMUNICATION_HANG, probe="pair probes")
    world.cycle([group], at_s=AT_S)

    world.cycle([replace(hang(world, "n2", at_s=AT_S + 2), part=Part.NIC)], at_s=AT_S + 2)

    assert [each.part for each in world.incidents if each.is_open] == [Part.NIC]
    assert world.tainted() == {"n2"}


def test_a_hang_on_the_nodes_of_a_slow_part_is_another_disturbance() -> None:
    world = fleet()
    world.cycle([slow(the_job(world), "n3", at_s=AT_S, since_s=AT_S - 5)], at_s=AT_S)

    world.cycle([hang(world, "n3", "n12", at_s=AT_S + 9, part=Part.LINK)], at_s=AT_S + 9)

    assert [each.part for each in world.incidents if each.remedy is not Remedy.NONE] == [Part.LINK]

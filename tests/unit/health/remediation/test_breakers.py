"""Breakers: they stop new harm, and never recovery."""

from dataclasses import replace

from health.remediation.facts import Origin
from health.remediation.incidents import IncidentPhase, JobDo, NodeDo, Remedy
from tests.builders.remedies import START_S, PretendFleet, evidence, fleet, slow

AT_S = START_S + 100.0


def on(world: PretendFleet):
    return world.jobs["train/a"]


def test_the_clusters_breaker_takes_no_more_nodes_and_still_restarts_the_job() -> None:
    # 2 % of 44 nodes is less than one, so one node may go within 10 minutes; the second job's restart goes on.
    world = fleet(spares=4)
    world.cycle([evidence(on(world), "n3", at_s=AT_S, source=Origin.NODE)], at_s=AT_S)
    later_s = on(world).started_s + 60
    decision = world.cycle([evidence(on(world), "n20", at_s=later_s, source=Origin.NODE)], at_s=later_s)
    assert world.tainted() == {"n3"}
    assert [each.do for each in decision.jobs] == [JobDo.EVICT_NOW]
    assert {each.remedy for each in decision.incidents} == {Remedy.QUARANTINE, Remedy.AVOID}


def test_an_open_breaker_makes_a_slow_job_wait() -> None:
    world = fleet(spares=4)
    world.cycle([evidence(on(world), "n3", at_s=AT_S, source=Origin.NODE)], at_s=AT_S)
    later_s = AT_S + 500
    heard = slow(on(world), "n20", at_s=later_s, since_s=later_s - 5, share=0.9)
    heard = replace(heard, since_s=on(world).started_s - 100_000)
    decision = world.cycle([heard], at_s=later_s)
    waiting = [each for each in decision.incidents if each.phase is IncidentPhase.SUSPECTED]
    assert ["breaker: cluster" in each.waits_for for each in waiting] == [True]


def test_probation_and_release_go_on_while_breakers_are_open() -> None:
    world = fleet(spares=4)
    world.cycle([evidence(on(world), "n3", at_s=AT_S, source=Origin.NODE)], at_s=AT_S)
    world.policy = replace(world.policy, out_share=0.0, cluster_share=0.0)
    dos = [world.node_dos(world.cycle(at_s=AT_S + later)) for later in (1, 2, 3, 4 * 3600 + 3)]
    assert [each[0][0] for each in dos if each] == [NodeDo.PROBATION, NodeDo.UNTAINT]


def test_a_failure_domain_keeps_most_of_its_nodes() -> None:
    # A quarter of 8 nodes under the switch is 2; the third stays, though cluster and job would allow it.
    world = fleet(nodes=400, spares=8, leaf=8)
    for number, name in enumerate(("n1", "n2", "n3")):
        at_s = AT_S + number * 4000
        world.broken.add(name)
        world.cycle([evidence(on(world), name, at_s=at_s, source=Origin.NODE)], at_s=at_s)
        world.cycle(at_s=at_s + 1)
    assert world.tainted() == {"n1", "n2"}


def test_a_job_that_accuses_node_after_node_is_restarted_in_place() -> None:
    world = fleet(nodes=400, spares=8)
    at_s = AT_S
    for name in ("n1", "n50", "n100"):
        decision = world.cycle([evidence(on(world), name, at_s=at_s)], at_s=at_s)
        at_s = on(world).started_s + 10
    assert [each.do for each in decision.jobs] == [JobDo.RESTART_IN_PLACE]
    assert world.tainted() == {"n1", "n50"}


def test_a_job_that_stops_after_each_restart_is_left_to_a_person() -> None:
    world = fleet(nodes=400, spares=8)
    at_s = AT_S
    for number in range(8):
        world.cycle([evidence(on(world), f"n{number * 30}", at_s=at_s)], at_s=at_s)
        at_s = on(world).started_s + 10
        world.cycle(at_s=at_s)
    assert len(world.restarts) == 6
    assert [each.phase for each in world.incidents if each.phase is IncidentPhase.PAGED]

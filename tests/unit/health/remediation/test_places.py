"""Places: no two restarts count on one node, and none on a node that is taken out by the same plan."""

from dataclasses import replace

from health.remediation.decision import HealthDecision
from health.remediation.facts import Origin, RemedyPolicy
from health.remediation.incidents import JobDo, NodeDo
from health.verdicts.verdict import Part, Syndrome
from tests.builders.remedies import START_S, PretendFleet, evidence, fleet, job, node

AT_S = START_S + 100.0
GENEROUS = RemedyPolicy(cluster_share=1.0, out_share=1.0, domain_share=1.0, innocent_out_s=0.0)


def moved(decision: HealthDecision) -> list[str]:
    return [each.job for each in decision.jobs if each.do is JobDo.EVICT_NOW]


def two_jobs(spares: int) -> PretendFleet:
    names = [f"n{index}" for index in range(4 + spares)]
    jobs = {name: job(name, on) for name, on in (("train/a", names[:2]), ("train/b", names[2:4]))}
    return PretendFleet({name: node(name) for name in names}, jobs, GENEROUS, now_s=AT_S)


def test_two_restarts_do_not_count_on_one_spare_node() -> None:
    world = two_jobs(spares=2)
    heard = [evidence(world.jobs["train/a"], "n0", at_s=AT_S), evidence(world.jobs["train/b"], "n2", at_s=AT_S)]
    decision = world.decision(heard)
    assert moved(decision) == ["train/a", "train/b"]

    world.incidents = decision.incidents
    del world.nodes["n5"]

    assert len(moved(world.decision(heard))) == 1


def test_a_node_of_work_of_lower_priority_is_a_place_where_no_node_is_free() -> None:
    world = two_jobs(spares=0)
    heard = [evidence(world.jobs["train/a"], "n0", at_s=AT_S)]
    alone = moved(world.decision(heard))
    world.jobs["train/a"] = replace(world.jobs["train/a"], borrowable=1)

    assert (alone, moved(world.decision(heard))) == ([], ["train/a"])


def test_a_restart_counts_on_no_node_that_the_same_plan_takes_out() -> None:
    """Of four nodes and a spare n0 hangs and n1 shows a fault: three are left for four pods."""
    world = fleet(4, 1, leaf=1)
    world.policy, world.now_s = GENEROUS, AT_S
    on = world.jobs["train/a"]
    sick = replace(
        evidence(on, "n1", at_s=AT_S, source=Origin.NODE, part=Part.NODE, syndrome=Syndrome.NONE), job="", pods=()
    )

    decision = world.decision([evidence(on, "n0", at_s=AT_S), sick])

    assert (NodeDo.TAINT, "n1") in world.node_dos(decision)
    assert moved(decision) == []

"""Rules of what is reported of checkpoints: in a policy's status, and as a metric."""

from dataclasses import replace

from controller.api.health_policy import HealthPolicyStatus
from controller.deciders.remediation import HealthOutcome, HealthRules
from controller.loops.health.reporter import Reported, _policy_status, samples_of
from health.remediation.facts import RemedyPolicy
from tests.builders.remedies import START_S, fleet

NODES = frozenset({"n0", "n1"})


def reported(save_s: float) -> Reported:
    world = fleet(nodes=2, spares=1, checkpoint_save_s=save_s, checkpoint_interval_s=1800.0)
    return Reported(HealthOutcome(), world.situation(), (HealthRules("all", RemedyPolicy(), NODES),))


def test_a_policy_tells_the_advice_for_jobs_on_its_nodes_with_two_figures() -> None:
    found = reported(10.123)
    of_others = replace(found.rules[0], nodes=frozenset({"n9"}))

    (told,) = HealthPolicyStatus.read(_policy_status({}, found.rules[0], found, 1, START_S)).checkpoints
    assert (told.job, told.save, told.interval) == ("train/a", 10.0, 1800.0)
    assert told.advised > told.interval  # two nodes fail once in 119 days
    assert told.advised_lost_share < told.lost_share
    assert HealthPolicyStatus.read(_policy_status({}, of_others, found, 1, START_S)).checkpoints == ()


def test_what_checkpoints_cost_is_a_metric_and_0_where_none_was_seen() -> None:
    def lost(save_s: float) -> list[float]:
        samples = samples_of(reported(save_s), {}, {}, {}, 0)
        return [each.value for each in samples if each.name == "tonnage_health_checkpoint_lost_share"]

    now, advised = lost(10.0)
    assert now > advised > 0
    assert lost(0.0) == [0.0, 0.0]

"""The simulated training job: what a fault costs it, and what remediation saves."""

from dataclasses import replace
from math import isclose

import numpy as np

from tests.rigs.health.responses import Manual, Remediated, RestartOnTimeout, played
from tests.rigs.health.training_run import SLOW, NodeFault, NodeFaultKind, Setup, TrainingRun, faults

SMALL = Setup(nodes=256, spares=24, days=6.0, interval_s=400.0)


def run(setup: Setup = SMALL) -> TrainingRun:
    return TrainingRun(setup, np.random.default_rng(1), seats=list(range(setup.nodes)))


def test_without_faults_only_checkpoints_cost_time() -> None:
    job = run()
    job.advance(401.0 * 100)
    assert isclose(job.ettr, 400 / 401)


def test_a_restart_does_the_work_since_the_last_checkpoint_again() -> None:
    job = run()
    job.advance(500.0)  # 400 s, 1 s of checkpoint, 99 s
    job.restart(job.seats, 60.0)
    job.advance(560.0)
    job.started()
    assert (job.work_s, job.losses.again, job.losses.down) == (400.0, 99.0, 60.0)


def test_the_slowest_node_sets_the_pace_while_it_is_in_the_job() -> None:
    job = run()
    job.strike(NodeFault(0.0, 3, NodeFaultKind.SLOW_NIC, 0.0, slow_share=0.5, for_s=1e9))
    job.strike(NodeFault(0.0, 260, NodeFaultKind.SLOW_NIC, 0.0, slow_share=0.9, for_s=1e9))
    job.advance(100.0)
    assert (job.work_s, job.losses.slow) == (50.0, 50.0)


def test_a_broken_node_stops_each_start_until_it_is_left_out() -> None:
    job = run()
    job.strike(NodeFault(0.0, 3, NodeFaultKind.CRASH, repair_s=1e9))
    for seats, stops in (([*range(256)], True), ([*range(3), *range(4, 257)], False)):
        job.restart(seats, 60.0)
        job.advance(job.now_s + 60.0)
        job.started()
        assert (job.stopped is not None) == stops


def test_faults_are_as_many_as_measured_and_few_nodes_carry_many() -> None:
    # 4.2 per 1,000 node-days over 1,000 nodes and 200 days: 840 events, of which a switch's hit three nodes.
    found = [each for each in faults(1000, 200.0, 32, seed=5) if each.kind not in SLOW]
    events = sum(1 if each.kind is not NodeFaultKind.SWITCH else 1 / 3 for each in found)
    assert 740 < events < 940
    hit = np.sort(np.bincount([each.node for each in found], minlength=1000))[::-1]
    assert 0.35 < hit[:100].sum() / hit.sum() < 0.75  # 41 % in the StepFun trace


def test_remediation_gets_more_done_than_time_outs_under_the_same_faults() -> None:
    ratios = [played(SMALL, response, 4).ettr for response in (Remediated(), RestartOnTimeout(), Manual())]
    assert ratios[0] > max(ratios[1:])


def test_the_same_seed_gives_the_same_run() -> None:
    short = replace(SMALL, days=2.0)
    assert played(short, Remediated(), 7).ettr == played(short, Remediated(), 7).ettr

"""Comparisons are fair: the same arrivals for every policy, no luck in names, nothing above the proven bound."""

import pytest

from cluster.errors import ConfigError
from cluster.snapshot import Snapshot
from placement.policies import POLICIES
from simulator.openb.generator import generate, trace_of
from simulator.packing.policy_comparison import bounds_of, check_contest, play
from simulator.sweep.runner import PolicyRun
from tests.builders.fleet import node, pod, world
from tests.builders.renamed import with_renamed_nodes

TRACES = {"small": trace_of(generate(40, mix="gpuspec33", seed=3), {"G2": 1.0})}


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - {"random"}))  # lots are drawn in the order of the table
def test_names_of_nodes_decide_nothing(policy: str) -> None:
    run = PolicyRun("small", policy, seed=7)

    as_named = play(run, TRACES)
    renamed = play(run, {name: with_renamed_nodes(trace, seed=7) for name, trace in TRACES.items()})

    assert as_named.curve.allocation_pct.tolist() == renamed.curve.allocation_pct.tolist()


def test_the_same_run_places_the_same_pods_again() -> None:
    first, second = (play(PolicyRun("small", "tonnage", seed=7), TRACES) for _ in range(2))

    assert first.curve.allocation_pct.tolist() == second.curve.allocation_pct.tolist()
    assert first.shortages == second.shortages


def test_every_policy_meets_the_same_arrivals() -> None:
    curves = [play(PolicyRun("small", policy, seed=7), TRACES).curve for policy in ("bestfit", "fgd")]

    assert curves[0].arrived_pct.tolist() == curves[1].arrived_pct.tolist()


def test_no_policy_passes_the_bound() -> None:
    runs = [PolicyRun("small", policy, seed=7) for policy in ("bestfit", "fgd", "tonnage")]

    bound = bounds_of(runs, TRACES)["small"]

    for run in runs:
        curve = play(run, TRACES).curve
        # The sample at 100 % is taken at the first pod that reaches it, and the bound is of that pod, too.
        assert curve.at(100, curve.allocation_pct) <= bound + 1e-6


def test_why_pods_found_no_place_adds_up() -> None:
    played = play(PolicyRun("small", "fgd", seed=7), TRACES)

    assert sum(played.shortages.values()) > 0


def refused(traces: dict[str, Snapshot], *policies: str) -> list[str]:
    with pytest.raises(ConfigError) as wrong:
        check_contest(traces, policies)
    return [mistake.place for mistake in wrong.value.mistakes]


def test_what_makes_no_sense_is_refused_before_any_replay() -> None:
    no_gpus = world([node("a")], [pod("p", 0)])

    assert refused({"t": no_gpus}, "fgd", "first-fit") == ["policy 'first-fit'", "trace t", "trace t"]

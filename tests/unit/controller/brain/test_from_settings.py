"""Brain built from settings: the same decisions for operator, `tonnage plan` and simulator."""

from dataclasses import fields
from pathlib import Path

from controller.brain.inline import InlineBrain, decisions_from, limits_from
from controller.cycle import run_cycle
from controller.deciders.decisions import Decisions
from controller.guard import Limits
from controller.objects.manifests import read_manifests
from controller.settings import OperatorSettings, settings_from
from controller.snapshot.from_manifests import snapshot_from
from placement.budget import stopped
from simulator.world import SimulatedWorld

EXAMPLES = Path(__file__).parents[4] / "examples"


def test_the_operators_defaults_prove_the_repositorys_example_in_the_first_cycle() -> None:
    settings = settings_from({})
    seen = snapshot_from(read_manifests([str(EXAMPLES)])).snapshot
    brain = InlineBrain(decisions_from(settings, awaits_pods=False), stopped)

    # The settings limit the work; the solver has real time enough for it, also on a busy machine.
    cycle = run_cycle(SimulatedWorld(seen), brain, limits_from(settings), 60.0)

    proofs = {each.service: each.certificate for each in cycle.plan.services if each.refusal is None}
    assert {name: proof and (proof.gap, proof.cut_short) for name, proof in proofs.items()} == {
        "default/chat": (0.0, ""),
        "default/code-completion": (0.0, ""),
        "default/summaries": (0.0, ""),
    }
    assert cycle.plan.cut_short == ()


def test_decisions_are_the_operators_to_the_last_setting() -> None:
    """Each with another value than its default; a setting that no decider is given would not show here."""
    settings = settings_from(
        {
            "policy": "bestfit",
            "returns_idle_nodes": True,
            "preempt": False,
            "plan_deadline_s": 3.0,
            "gang_deadline_s": 12.0,
            "release_deadline_s": 13.0,
            "limits": {"max_evictions_share": 0.2, "max_evictions_floor": 3, "max_age_s": 14.0},
        }
    )

    decisions, limits = decisions_from(settings), limits_from(settings)

    assert (decisions.policy, decisions.returns_idle_nodes) == ("bestfit", True)
    assert not decisions.preempt
    assert decisions.within_s == 3.0
    assert (decisions.gang_deadline_s, decisions.release_deadline_s) == (12.0, 13.0)
    assert (limits.max_evictions_share, limits.max_evictions_floor, limits.max_age_s) == (0.2, 3, 14.0)


def test_a_second_cycle_in_a_world_that_obeys_plans_nothing() -> None:
    settings = settings_from({})
    world = SimulatedWorld(snapshot_from(read_manifests([str(EXAMPLES)])).snapshot)
    brain = InlineBrain(decisions_from(settings, awaits_pods=False), stopped)
    run_cycle(world, brain, limits_from(settings), settings.plan_deadline_s)

    assert run_cycle(world, brain, limits_from(settings), settings.plan_deadline_s).is_quiet


def test_what_is_not_set_is_as_shipped_wherever_decisions_and_limits_are_made() -> None:
    """The simulator once ran with another age limit."""
    shipped = OperatorSettings.model_fields
    both = {each.name: each.default for each in fields(Decisions) if each.name in shipped}

    assert {"policy", "returns_idle_nodes", "preempt", "gang_deadline_s", "release_deadline_s"} <= both.keys()
    assert both == {name: shipped[name].default for name in both}
    assert limits_from(settings_from({})) == Limits()

"""The brain that the operator's settings ask for."""

from pathlib import Path

from controller.brain.from_settings import brain_from
from controller.cycle import run_cycle
from controller.guard import Limits
from controller.objects.manifests import read_manifests
from controller.settings import OperatorSettings
from controller.snapshot.from_manifests import snapshot_from
from placement.budget import stopped
from simulator.world import SimulatedWorld

EXAMPLES = Path(__file__).parents[4] / "examples"


def test_the_operators_defaults_prove_the_repositorys_example_in_the_first_cycle() -> None:
    settings = OperatorSettings()
    seen = snapshot_from(read_manifests([str(EXAMPLES)])).snapshot
    brain = brain_from(settings, clock=stopped)

    cycle = run_cycle(SimulatedWorld(seen), brain, Limits(), settings.plan_deadline_s)

    proofs = {each.service: each.certificate for each in cycle.plan.services if each.refusal is None}
    assert {name: proof and (proof.gap, proof.cut_short) for name, proof in proofs.items()} == {
        "default/chat": (0.0, ""),
        "default/code-completion": (0.0, ""),
        "default/summaries": (0.0, ""),
    }
    assert cycle.plan.cut_short == ()

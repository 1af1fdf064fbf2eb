"""Mixes searched beside the plans: they warm the next plan, survive moved demand, and can make no plan wrong."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from cluster.frame import FrameError, framed
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.background.kinds import KINDS
from controller.background.mix_search import KIND, MixSearches, answered, answers_in, tasks_of
from controller.background.tasks import BackgroundTask, TaskResult
from placement.budget import Budget
from placement.mix.memory import SearchMemory
from placement.mix.optimizer import work_of
from placement.mix.own_search import OwnAnswer
from placement.mix.planner import MixSettings, plan_mix
from placement.mix.problem import Mix
from tests.builders.many_services import tight_manifests
from tests.mix_exact.comparison import observed

SETTINGS = MixSettings(explain=False)


class AtOnce:
    """Background that runs its tasks when its results are asked for."""

    def __init__(self) -> None:
        self.tasks = dict[str, BackgroundTask]()

    def submit(self, tasks: Iterable[BackgroundTask]) -> None:
        self.tasks |= {task.digest: task for task in tasks}

    def results(self, kind: str) -> list[TaskResult]:
        asked, self.tasks = self.tasks, {}
        return [TaskResult(kind, digest, KINDS[kind](*task.inputs)) for digest, task in asked.items()]


def planned(snapshot: Snapshot, memory: SearchMemory, within_s: float = 0.02) -> Plan:
    return plan_mix(snapshot, Budget(work_of(within_s)), SETTINGS, memory)


def figures(plan: Plan) -> tuple[float, float]:
    certificate = plan.certificates["mix"]
    return certificate.objective, certificate.gap


@pytest.fixture(scope="module")
def short() -> Snapshot:
    """Five services on a stock that barely holds them."""
    return observed(tight_manifests(3, services=5))


@pytest.fixture(scope="module")
def ample(short: Snapshot) -> Snapshot:
    """The same services without any limit."""
    return replace(short, gpu_types=tuple(replace(each, inventory=None) for each in short.gpu_types))


def after_searches(snapshot: Snapshot, turns: int) -> SearchMemory:
    memory = SearchMemory()
    searches = MixSearches(memory, AtOnce())
    for _ in range(turns):
        planned(snapshot, memory)
        searches.turn()
        searches.turn()
    return memory


def test_what_a_plan_had_no_work_for_is_proven_in_the_next_one(ample: Snapshot) -> None:
    cold = planned(ample, SearchMemory())
    warm = planned(ample, after_searches(ample, 1))

    assert figures(cold)[1] > 10 * SETTINGS.gap
    assert figures(warm)[1] <= SETTINGS.gap
    assert figures(warm)[0] < figures(cold)[0]


def test_services_that_compete_are_searched_at_the_prices_of_their_stock(short: Snapshot) -> None:
    cold = planned(short, SearchMemory())
    warm = planned(short, after_searches(short, 2))

    assert figures(warm)[1] < figures(cold)[1] / 2
    assert figures(warm)[0] <= figures(cold)[0]
    assert {each.refusal for each in warm.services} == {None}


def test_mixes_survive_a_demand_that_moved(ample: Snapshot) -> None:
    services = []
    for each in ample.services:
        assert each.demand is not None
        services.append(replace(each, demand=replace(each.demand, rate_per_s=0.99 * each.demand.rate_per_s)))
    moved = replace(ample, services=tuple(services))

    cold, warm = planned(moved, SearchMemory()), planned(moved, after_searches(ample, 1))

    assert figures(warm)[0] < figures(cold)[0]


def nonsense(good: OwnAnswer) -> list[OwnAnswer]:
    (mix,) = good.mixes
    share, counts = mix.share, mix.instances
    return [
        replace(good, mixes=()),
        replace(good, mixes=(Mix(0 * counts, share),)),
        replace(good, mixes=(Mix(counts, np.full_like(share, np.nan)),)),
        replace(good, mixes=(Mix(counts, -share),)),
        replace(good, mixes=(Mix(counts, share[:, :1]),)),
        replace(good, bound=float("nan")),
        replace(good, bound=1e9),
    ]


@pytest.mark.parametrize("number", range(7))
def test_a_wrong_answer_costs_a_plan_nothing_but_a_start(ample: Snapshot, number: int) -> None:
    memory = SearchMemory()
    cold = planned(ample, memory)
    answers = [each for task in tasks_of(memory.open) for each in answers_in(answered(*task.inputs))]
    memory.learn(nonsense(each)[number] for each in answers)

    warm = planned(ample, memory)

    assert {each.refusal for each in warm.services} == {None}
    for before, after in zip(cold.services, warm.services, strict=True):
        assert 0 < after.cost_per_hour <= before.cost_per_hour + 1e-9
        assert after.certificate is not None
        assert after.certificate.bound <= after.certificate.objective


def test_answers_of_another_form_are_refused() -> None:
    with pytest.raises(FrameError):
        answers_in(framed({"answers": 3}))


def test_an_answer_is_for_its_question_alone(ample: Snapshot) -> None:
    """The same services at half their demand cost less than the bound at all of it."""
    services = []
    for each in ample.services:
        assert each.demand is not None
        services.append(replace(each, demand=replace(each.demand, rate_per_s=0.5 * each.demand.rate_per_s)))
    memory = after_searches(ample, 1)

    objective, gap = figures(planned(replace(ample, services=tuple(services)), memory))

    assert gap > 0, "nothing is proven yet"
    assert objective < sum(each.bound for each in memory.found.values())


def test_the_answers_of_a_service_that_is_gone_are_forgotten(ample: Snapshot) -> None:
    memory = after_searches(ample, 1)
    before = set(memory.found)
    fewer = replace(ample, services=ample.services[:1])

    planned(fewer, memory)

    assert memory.found.keys() == before & {fewer.services[0].name}
    assert len(before) > 1


def test_the_next_questions_wait_until_no_task_is_open(ample: Snapshot) -> None:
    class Never(AtOnce):
        def results(self, kind: str) -> list[TaskResult]:
            return []

    memory, background = SearchMemory(), Never()
    searches = MixSearches(memory, background)
    planned(ample, memory)
    searches.turn()
    (first,) = background.tasks
    background.tasks = {}  # as in a replica that led no longer, and leads again
    planned(replace(ample, services=ample.services[:2]), memory)
    searches.turn()

    assert list(background.tasks) == [first]
    assert background.tasks[first].kind == KIND

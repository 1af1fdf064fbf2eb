"""Fast power loop as the operator runs it: from watched objects and agents on loopback to leases and statuses."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from controller.api.structs import Node, OwnObject
from controller.kube.cache import Cache
from controller.kube.sender import Applier
from controller.kube_world.observer import NODES
from controller.loops.loop import LoopClocks, repeat
from controller.loops.power.control import (
    EVERY_S,
    POWER_DOMAINS,
    PowerLoopMetrics,
    PowerReporter,
    PowerWatcher,
    samples_of,
)
from controller.loops.power.domain_facts import facts_of, held_of
from controller.loops.power.loop import LOOK_S, PowerLoop
from controller.metrics.registry import Meter, Sample
from controller.report.events import ReportedDecision
from nodeagent.controller_link import ControllerLink
from nodeagent.out_of_band import MeterReading
from nodeagent.recovery import AgentRules
from power.rules import PowerRules
from tests.agents.credentials import credentials, names_itself
from tests.builders.leading import Leading
from tests.builders.loop_context import loop_context
from tests.builders.watch_events import listed
from tests.fake_devices import FakeDevice, FakeDevices
from tests.node_agents import agent_of
from tests.until import until_async

FAST = PowerRules(control_delay_s=0.2, lease_s=3.0, stale_s=3.0)
PATIENCE_S = 40.0
until = partial(until_async, within_s=PATIENCE_S)
GPU = "nvidia.com/gpu"


def domain(name: str, generation: int = 1, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"u-{name}", "generation": generation}, "spec": spec, "status": {}}


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "status": {"capacity": {GPU: "1"}}}


def row(budget_w: float, generation: int = 1) -> list[dict[str, Any]]:
    return [
        domain("row", generation, type="row", budgetWatts=budget_w),
        domain("rack", type="rack", feeds=[{"name": "row"}], nodes={"key": "rack", "values": ["a"]}),
    ]


class Cluster:
    """Objects as the watches would show them, a loop that leads on request, and an agent for each device."""

    def __init__(self, folder: Path, objects: Sequence[dict[str, Any]], nodes: Sequence[dict[str, Any]]) -> None:
        self.clock = asyncio.get_running_loop().time
        self.folder, self.leader = folder, Leading()
        self.domains: Cache[OwnObject] = Cache(POWER_DOMAINS, lambda: None)
        self.nodes: Cache[Node] = Cache(NODES, lambda: None)
        self.store(objects)
        self.nodes.take_page(listed(nodes), 0.0, is_first=True)
        clocks = LoopClocks(self.clock, lambda: 1_700_000_000.0 + self.clock())
        watcher = PowerWatcher(self.domains, self.nodes, frozenset({GPU}))
        self.meter = Meter()
        self.metrics = PowerLoopMetrics(self.meter, 0.0)
        self.loop = PowerLoop(watcher.see, self.leader, names_itself, self.clock, FAST)
        self.devices: dict[str, FakeDevice] = {}
        self.metered_w: dict[str, float] = {}
        """What nodes' own meters show; those that are not in it have none."""
        self.written: list[tuple[str, dict[str, Any]]] = []
        self.said: list[ReportedDecision] = []
        self.samples: tuple[Sample, ...] = ()
        me: Any = self
        context = loop_context(applier=Applier(me, Leading()), meter=me, clocks=clocks)
        self.reporter = PowerReporter(self.domains, self.loop, context, me, FAST.stale_s)

    def store(self, objects: Sequence[dict[str, Any]]) -> None:
        self.domains.take_page(listed(objects), 0.0, is_first=True)

    async def write(self, method: str, path: str, body: Any, *_: object) -> bytes:
        self.written.append((f"PowerDomain/{body['metadata']['name']}", dict(body["status"])))
        return b"{}"

    async def publish_metrics(self) -> None:
        self.metrics.publish(self.loop)

    def say(self, several: Iterable[ReportedDecision]) -> None:
        self.said += several

    def publish(self, _: str, samples: Iterable[Sample]) -> None:
        self.samples = tuple(samples)

    def status(self, name: str) -> dict[str, Any]:
        return next((status for about, status in reversed(self.written) if about == f"PowerDomain/{name}"), {})

    def ready(self, name: str) -> str:
        conditions = self.status(name).get("conditions", [])
        return next((f"{e['status']} {e['reason']}" for e in conditions if e["type"] == "Ready"), "")

    def limits_w(self) -> list[float]:
        return [device.enforced_w(self.clock()) for device in self.devices.values()]

    async def start(self, stack: AsyncExitStack, *nodes: str) -> None:
        port = await self.loop.listen("127.0.0.1", 0, credentials().serves())
        self._begin(stack, self.loop.run())
        self._begin(stack, repeat(self.publish_metrics, LOOK_S, "metrics failed"))
        self._begin(stack, repeat(self.reporter.report, EVERY_S, "reporting power failed"))
        for name in nodes:
            await self._agent(stack, name, port)

    async def _agent(self, stack: AsyncExitStack, name: str, port: int) -> None:
        device = self.devices[name] = FakeDevice(f"g-{name}", obeys_after_s=0.0)
        line = list[ControllerLink]()
        agent = agent_of(
            name, "life", "boot", FakeDevices([device], self.clock), self.folder / name,
            AgentRules(period_s=0.1, mean_s=0.1), self.clock,
            lambda message: line[0].send(message), lambda: self._metered(name),
        )  # fmt: skip
        await agent.start()
        chance = Random(1)  # noqa: S311 - spreads attempts
        shown = name.encode, "127.0.0.1", port, agent.receive, chance
        line.append(ControllerLink(*shown, credentials().trusts, agent.inventory))
        stack.callback(agent.close)
        self._begin(stack, agent.run(asyncio.Event()))
        self._begin(stack, line[0].keep_up())

    def _metered(self, name: str) -> MeterReading | None:
        return MeterReading(self.metered_w[name], self.clock()) if name in self.metered_w else None

    def _begin(self, stack: AsyncExitStack, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)

        async def end() -> None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

        stack.push_async_callback(end)


def lived(story: Callable[[AsyncExitStack], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with AsyncExitStack() as stack:
            await story(stack)
        await asyncio.sleep(0.1)  # until connections have ended

    asyncio.run(asyncio.wait_for(whole(), PATIENCE_S))


def test_a_budget_that_is_lowered_takes_watts_and_the_status_speaks_of_its_generation(tmp_path: Path) -> None:
    async def story(stack: AsyncExitStack) -> None:
        cluster = Cluster(tmp_path, row(2000.0), [node("n0", rack="a"), node("n1", rack="a")])
        await cluster.start(stack, "n0", "n1")
        await until(lambda: cluster.ready("row") == "True BudgetKept" and min(cluster.limits_w()) > 600)
        await until(lambda: cluster.status("row")["devices"] == 2)

        cluster.store(row(1000.0, generation=2))
        await until(lambda: 1.05 * sum(cluster.limits_w()) <= 1000.0)
        await until(lambda: cluster.status("row").get("heldBackDevices") == 2)

        await until(lambda: cluster.status("row")["observedGeneration"] == 2)
        await until(lambda: cluster.status("rack").get("heldBack"))
        assert {each["limitedBy"] for each in cluster.status("rack")["heldBack"]} == {"row"}
        loop_state = cluster.loop.loop_state
        assert loop_state is not None
        assert set(held_of(loop_state)) == {"rack"}
        named = {sample.name for sample in samples_of(facts_of(loop_state))}
        assert "tonnage_power_headroom_watts" in named
        table = loop_state.power_table()
        assert table is not None
        assert set(table.headroom_w) == {"row", "rack", "n0", "n1"}

    lived(story)


def test_watts_that_a_nodes_meter_finds_are_named_and_kept_free_of_leases(tmp_path: Path) -> None:
    async def story(stack: AsyncExitStack) -> None:
        cluster = Cluster(tmp_path, row(1600.0), [node("n0", rack="a"), node("n1", rack="a")])
        await cluster.start(stack, "n0", "n1")
        await until(lambda: cluster.ready("row") == "True BudgetKept" and min(cluster.limits_w()) > 600)

        # Somebody plugged in a thing: one device of 700 W at most and nothing else is known there.
        cluster.metered_w["n0"] = 1000.0
        await until(lambda: cluster.status("row").get("culprits"))
        assert cluster.status("row")["culprits"] == [{"device": "meter", "node": "n0", "reason": "MeterShowsMore"}]
        degraded = next(e for e in cluster.status("row")["conditions"] if e["type"] == "Degraded")
        assert degraded["reason"] == "MetersDisagree"
        await until(lambda: 1.05 * sum(cluster.limits_w()) <= 1300.0)
        assert any(each.reason.code == "MeterShowsMore" for each in cluster.said)

        cluster.metered_w["n0"] = 9000.0
        await until(lambda: [e["reason"] for e in cluster.status("row")["culprits"]] == ["MeterImpossible"])

    lived(story)


def test_a_hardware_brake_is_told_of_the_domain_whose_budget_was_reached_until_it_lets_go(tmp_path: Path) -> None:
    """Two devices at their floors of 350 W draw 3 % more, 721 of 750 W; the rack has no budget of its own."""

    async def story(stack: AsyncExitStack) -> None:
        cluster = Cluster(tmp_path, row(750.0), [node("n0", rack="a"), node("n1", rack="a")])

        def brakes() -> dict[str, float]:
            return {each.labels[0]: each.value for each in cluster.samples if each.name == "tonnage_power_brake"}

        def degraded(name: str) -> str:
            conditions = cluster.status(name).get("conditions", [])
            return next((each["reason"] for each in conditions if each["type"] == "Degraded"), "")

        await cluster.start(stack, "n0", "n1")
        await until(lambda: cluster.ready("row") == "True BudgetKept" and cluster.status("row")["drawWatts"] > 715)
        assert brakes() == {"row": 0.0, "rack": 0.0}

        for device in cluster.devices.values():
            device.brake_w = 150.0
        await until(lambda: degraded("row") == "BrakeHolds")
        assert brakes() == {"row": 1.0, "rack": 0.0}
        assert degraded("rack") == "AsAsked"

        for device in cluster.devices.values():
            device.brake_w = None
        await until(lambda: degraded("row") == "AsAsked")
        assert brakes() == {"row": 0.0, "rack": 0.0}
        assert [each.reason.code for each in cluster.said if each.name == "row"].count("BrakeHolds") == 1

    lived(story)


def test_only_who_leads_serves_and_a_new_term_takes_over(tmp_path: Path) -> None:
    async def story(stack: AsyncExitStack) -> None:
        cluster = Cluster(tmp_path, row(2000.0), [node("n0", rack="a")])
        await cluster.start(stack, "n0")
        await until(lambda: cluster.ready("row") == "True BudgetKept" and max(cluster.limits_w()) > 600)
        cluster.leader.leads = False
        await until(lambda: cluster.limits_w() == [350.0])
        assert cluster.loop.loop_state is None
        await until(lambda: cluster.samples == ())

        cluster.leader.leads, cluster.leader.epoch = True, 7
        await until(lambda: max(cluster.limits_w()) > 600)
        assert cluster.loop.loop_state is not None
        assert cluster.loop.loop_state.epoch == 7

    lived(story)


def test_a_term_goes_on_after_a_gap_without_the_lease(tmp_path: Path) -> None:
    async def story(stack: AsyncExitStack) -> None:
        cluster = Cluster(tmp_path, row(2000.0), [node("n0", rack="a")])
        await cluster.start(stack, "n0")
        await until(lambda: cluster.ready("row") == "True BudgetKept" and max(cluster.limits_w()) > 600)
        cluster.leader.leads = False
        await until(lambda: cluster.limits_w() == [350.0])

        cluster.leader.leads = True  # the Lease was renewed after all: the epoch is the same, and numbers must go on
        await until(lambda: max(cluster.limits_w()) > 600)
        assert "Replayed" not in cluster.loop.counts.refused

    lived(story)


def test_a_node_that_was_never_heard_counts_at_its_worst(tmp_path: Path) -> None:
    async def story(stack: AsyncExitStack) -> None:
        cluster = Cluster(tmp_path, row(4000.0), [node("n0", rack="a"), node("n1", rack="a")])
        await cluster.start(stack, "n0")
        await until(lambda: cluster.ready("row").startswith("False"))

        assert cluster.ready("row") == "False AgentsUnheard"
        assert (cluster.status("row")["devices"], cluster.status("row")["staleDevices"]) == (2, 1)
        # A GPU of which nothing is known: 1400 W and 5 %, beside what the other one may draw, 700 W at most.
        assert 1470.0 < cluster.status("row")["worstWatts"] <= 1470.0 + 735.0

    lived(story)


def test_a_node_in_no_domain_gets_back_the_limit_that_was_found(tmp_path: Path) -> None:
    async def story(stack: AsyncExitStack) -> None:
        cluster = Cluster(tmp_path, row(2000.0), [node("n0", rack="a"), node("n1", rack="elsewhere")])
        await cluster.start(stack, "n0", "n1")
        await until(lambda: cluster.limits_w()[0] > 600 and cluster.limits_w()[1] == 700.0)

    lived(story)


def test_nothing_is_granted_before_the_domains_were_seen(tmp_path: Path) -> None:
    async def story(stack: AsyncExitStack) -> None:
        cluster = Cluster(tmp_path, row(2000.0), [node("n0", rack="a")])
        cluster.domains.synced.clear()
        await cluster.start(stack, "n0")
        await until(lambda: cluster.limits_w() == [350.0])
        await asyncio.sleep(1.0)
        assert cluster.loop.loop_state is None

        cluster.domains.synced.set()
        await until(lambda: max(cluster.limits_w()) > 600)

    lived(story)


def test_a_circle_leaves_the_domains_that_were_and_says_so(tmp_path: Path) -> None:
    async def story(stack: AsyncExitStack) -> None:
        cluster = Cluster(tmp_path, row(2000.0), [node("n0", rack="a")])
        await cluster.start(stack, "n0")
        await until(lambda: cluster.ready("row") == "True BudgetKept")
        wrong = domain("row", 2, type="row", budgetWatts=900.0, feeds=[{"name": "rack"}])
        cluster.store([wrong, row(1.0)[1]])
        await until(lambda: cluster.ready("row") == "False NotUsed")

        assert cluster.status("row")["budgetWatts"] == 2000.0
        assert max(cluster.limits_w()) > 600
        accepted = next(e for e in cluster.status("row")["conditions"] if e["type"] == "Accepted")
        assert accepted["message"] == "spec.feeds: draws through itself"

    lived(story)


def test_what_was_counted_is_told_once(tmp_path: Path) -> None:
    async def story(stack: AsyncExitStack) -> None:
        cluster = Cluster(tmp_path, row(2000.0), [node("n0", rack="a")])
        await cluster.start(stack, "n0")
        await until(lambda: cluster.loop.counts.leases > 3)
        await asyncio.sleep(1.0)
        value = cluster.meter.registry.get_sample_value

        assert value("tonnage_power_reports_total") == pytest.approx(cluster.loop.counts.reports, abs=12)
        assert value("tonnage_power_agents") == 1.0
        assert (value("tonnage_power_reaction_seconds_count") or 0) > 3

    lived(story)


def test_a_status_is_plain_json(tmp_path: Path) -> None:
    async def story(stack: AsyncExitStack) -> None:
        cluster = Cluster(tmp_path, row(2000.0), [node("n0", rack="a")])
        await cluster.start(stack, "n0")
        await until(lambda: cluster.status("row"))

        assert msgspec.json.decode(msgspec.json.encode(cluster.status("row"))) == cluster.status("row")

    lived(story)

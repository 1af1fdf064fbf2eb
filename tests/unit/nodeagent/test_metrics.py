"""Metrics of the agent: well-formed, complete, and documented."""

import asyncio
import re
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from nodeagent.metrics import DCGM, Scraped, agent_metrics
from nodeagent.out_of_band import MeterReading
from nodeagent.recovery import AgentRules
from tests.clock import HandClock
from tests.fake_devices import FakeDevice, FakeDevices
from tests.node_agents import agent_of

PAGE = (Path(__file__).parents[3] / "docs" / "power.md").read_text(encoding="utf-8")


def scraped(folder: Path, *devices: FakeDevice, as_dcgm: bool = False) -> str:
    """Scrape after one reading by an agent with a meter, 2 s after discovery; by default two devices, one of which
    fails.
    """

    async def story() -> str:
        clock = HandClock(998.0)
        there = devices or (FakeDevice("g0"), FakeDevice("g1", silent_from_s=0.0))
        backend = FakeDevices(there, clock)
        agent = agent_of(
            *("n1", "life", "boot", backend, folder / "record", AgentRules(), clock, lambda _: None),
            lambda: MeterReading(1900.0, 995.0),
        )
        await agent.start()
        clock.now_s = 1000.0
        await agent.turn(looks=True)
        agent.receive(b"no message")
        registry = CollectorRegistry()
        registry.register(Scraped(partial(agent_metrics, agent, "n1", clock, lambda: True, as_dcgm=as_dcgm)))
        agent.close()
        return generate_latest(registry).decode()

    return asyncio.run(story())


def test_limits_draws_and_failures_are_told(tmp_path: Path) -> None:
    lines = scraped(tmp_path).splitlines()

    assert 'tonnage_agent_device_limit_watts{device="g0"} 350.0' in lines
    assert 'tonnage_agent_device_allowed_watts{device="g1"} 350.0' in lines
    assert 'tonnage_agent_device_draw_watts{device="g0"} 600.0' in lines
    assert 'tonnage_agent_leases_refused_total{code="Unreadable"} 1.0' in lines
    assert any(line.startswith('tonnage_agent_device_errors_total{code="Silent"}') for line in lines)
    assert "tonnage_agent_lease_remaining_seconds 0.0" in lines
    assert "tonnage_agent_node_draw_watts 1900.0" in lines


def test_what_holds_clocks_down_is_told_by_reason_of_devices_that_tell(tmp_path: Path) -> None:
    """A brake leaves g0 200 W; g1 does not report its clocks; g2 wants 300 W under a limit of 700 W."""
    braked = FakeDevice("g0", brake_w=200.0)
    mute = FakeDevice("g1", tells_throttles=False)
    free = FakeDevice("g2", wants_w=lambda _: 300.0)
    lines = scraped(tmp_path, braked, mute, free).splitlines()

    name = "tonnage_agent_device_throttled"
    assert [line.removeprefix(name) for line in lines if line.startswith(f"{name}{{")] == [
        '{device="g0",reason="power_cap"} 0.0',
        '{device="g0",reason="hw_slowdown"} 1.0',
        '{device="g0",reason="thermal"} 0.0',
        '{device="g0",reason="power_brake"} 1.0',
        '{device="g2",reason="power_cap"} 0.0',
        '{device="g2",reason="hw_slowdown"} 0.0',
        '{device="g2",reason="thermal"} 0.0',
        '{device="g2",reason="power_brake"} 0.0',
    ]


def test_dcgms_names_and_labels_are_told_where_they_are_asked_for(tmp_path: Path) -> None:
    text = scraped(tmp_path, as_dcgm=True)

    assert "DCGM_FI" not in scraped(tmp_path)
    power = [line for line in text.splitlines() if line.startswith("DCGM_FI_DEV_POWER_USAGE{")]
    assert power == [
        'DCGM_FI_DEV_POWER_USAGE{Hostname="n1",UUID="g0",device="nvidia0",gpu="0",modelName="Pretend H100"} 600.0'
    ]
    energy = [line for line in text.splitlines() if line.startswith("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{")]
    # 600 W for 2 s, in millijoules.
    assert energy == [power[0].replace("POWER_USAGE", "TOTAL_ENERGY_CONSUMPTION").replace("600.0", "1.2e+06")]
    assert {name for name, *_ in DCGM} <= set(re.findall(r"DCGM_FI_DEV_[A-Z_]+", text))


def test_every_metric_of_the_agent_is_on_its_page(tmp_path: Path) -> None:
    told = set(re.findall(r"^# TYPE (tonnage_agent_\w+)", scraped(tmp_path), re.MULTILINE))
    table = PAGE.partition("### Metrics of the agent")[2].partition("###")[0]
    written = set(re.findall(r"`(tonnage_agent_\w+)`", table))

    assert told == written

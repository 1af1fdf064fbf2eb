"""`tonnage-agent`: the process on each node."""

import asyncio
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Literal

import click
import structlog
from prometheus_client import CollectorRegistry

from cluster.errors import ConfigError, TonnageError
from nodeagent import out_of_band
from nodeagent.agent import Controller, Hardware, NodeAgent, new_life
from nodeagent.controller_link import ControllerLink
from nodeagent.device_process import DeviceProcess
from nodeagent.health.dcgm_exporter import DcgmExporter, fetched, own_gpus, page_of
from nodeagent.health.feed import HealthFeed, Probes, forward
from nodeagent.health.host_evidence import DeviceEvidence, HostEvidence, KernelLog, NicCounters, kmsg
from nodeagent.health.pod_sockets import Deliver, PodSockets
from nodeagent.health.probe_listener import ProbeListener, address_of
from nodeagent.health.prober import Prober
from nodeagent.health.processes import ProcessTable, Ranks, Senders
from nodeagent.health.ras_service import RasService, asked, is_own
from nodeagent.logs import configure_logs
from nodeagent.loops import kept_up
from nodeagent.metrics import Scraped, agent_metrics, dcgm_metrics, feed_metrics, probe_metrics, probes, serve
from nodeagent.out_of_band import READ_S, Bmc, NodeMeter
from nodeagent.pretend_devices import PretendDevices
from nodeagent.recovery import RESTORE_S, AgentRules, Session
from nodeagent.sandboxes.process import ProcessSettings, SandboxSupervisor
from nodeagent.settings import AgentSettings, read_settings
from nodeagent.state_file import boot_id
from power.devices.amd_smi import AmdSmi
from power.devices.backend import Backend, DeviceError, DeviceReading
from power.devices.nvml import Nvml
from power.devices.redfish import ChassisMeter

log = structlog.get_logger(__name__)
FAILED, WRONG_INPUT = 1, 2
BMC_START_S = 90.0
"""Time limit for searching a BMC: three requests of 0.3 s for each of 16 processors, at five times the usual
duration."""
OUT_OF_BAND_RESTORE_S = 150.0
"""Time for restoring limits out of band: two limits one after the other through a slow BMC, with the pauses between
them."""


def clock() -> float:
    """Seconds of a monotonic clock that continues while the machine sleeps and while this process restarts."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class _Errors(click.Group):
    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except TonnageError as error:
            for mistake in error.mistakes if isinstance(error, ConfigError) else (error,):
                click.echo(f"error: {mistake}", err=True)
            ctx.exit(WRONG_INPUT if isinstance(error, ConfigError) else FAILED)


@click.group(cls=_Errors, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """The node agent of Tonnage: reads this node's GPUs and keeps them within a power lease."""
    configure_logs()


SETTINGS = click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=Path("/etc/tonnage/agent.yaml"),
    show_default=True,
    help="The agent's settings file.",
)
NODE = click.option("--node", envvar="NODE_NAME", help="This node's name in the cluster. [env: NODE_NAME]")


@main.command()
@SETTINGS
@NODE
@click.option(
    "--address",
    default="",
    envvar="NODE_ADDRESS",
    help="This node's IP address, for health.dcgm_url. [env: NODE_ADDRESS]",
)
def run(config: Path, node: str | None, address: str) -> None:
    """Keep this node's devices within a power lease until SIGTERM."""
    asyncio.run(_run(read_settings(config, node), address))


@main.command()
@SETTINGS
@NODE
def restore(config: Path, node: str | None) -> None:
    """Restore the limit that every device had before Tonnage; for uninstalling by hand, with the agent stopped."""
    asyncio.run(_restore(read_settings(config, node)))


@main.command()
@click.option(
    "--backend", type=click.Choice(["nvml", "amdsmi"]), help="Back end of this machine's devices. [default: nvml]"
)
@click.option(
    "--config", type=click.Path(path_type=Path), help="The agent's settings file, which names the back end and the BMC."
)
@NODE
def devices(backend: Literal["nvml", "amdsmi"] | None, config: Path | None, node: str | None) -> None:
    """List this node's devices, their ranges and their draws. Changes nothing."""
    if config is not None and backend is None:
        found = _backend(read_settings(config, node))
    else:
        found = _vendors(backend or "nvml")
    try:
        facts, seen = found.discover(), found.read()
    finally:
        found.close()
    for each in facts:
        reading = seen.get(each.uuid)
        now = (
            f"draws {reading.draw_w or 0:.0f} W, limit {reading.limit_w or 0:.0f} W"
            if isinstance(reading, DeviceReading)
            else str(reading)
        )
        may = f"{each.min_w:g} to {each.max_w:g} W" if each.can_limit else f"cannot be limited: {each.why_not}"
        click.echo(f"{each.uuid}  {each.model}  {may}, default {each.default_w:g} W{each.remarks}; {now}")


@main.command()
@SETTINGS
@NODE
@click.option(
    "--at-most",
    "at_most_mhz",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MHZ",
    help="Limit clocks to at most this.",
)
@click.option("--free", is_flag=True, help="Release the clocks.")
@click.pass_context
def clocks(ctx: click.Context, config: Path, node: str | None, at_most_mhz: float | None, *, free: bool) -> None:
    """Limit the clocks of this node's devices by hand, or release them.

    For devices whose power cannot be limited, or to measure at one clock. The agent itself limits power only: a clock
    does not bound a draw. Locked clocks are not recorded anywhere, so release them yourself; a reboot releases them
    too.
    """
    if free == (at_most_mhz is not None):
        raise click.UsageError("give --at-most MHZ or --free")
    settings = read_settings(config, node)
    backend = _backend(settings)
    failed: list[str] = []
    try:
        facts = [each for each in backend.discover() if settings.manages is None or each.uuid in settings.manages]
        for each in facts:
            low, high = each.clocks_mhz or (0.0, float("inf"))
            why = "" if at_most_mhz is None or low <= at_most_mhz <= high else f"its clocks are {low:g} to {high:g} MHz"
            if not why:
                try:
                    backend.set_clocks(each.uuid, at_most_mhz)
                except DeviceError as error:
                    why = str(error)
            if why:
                click.echo(f"error: {each.uuid}: {why}", err=True)
                failed.append(each.uuid)
        seen = backend.read()
    finally:
        backend.close()
    for each in facts:
        reading = seen.get(each.uuid)
        if each.uuid not in failed and isinstance(reading, DeviceReading) and reading.sm_clock_mhz is not None:
            click.echo(f"{each.uuid}  {each.model}  now at {reading.sm_clock_mhz:g} MHz")
    if failed:
        ctx.exit(FAILED)


async def _run(settings: AgentSettings, address: str) -> None:
    node, health = settings.node, settings.health
    page = page_of(health.dcgm_url, node, address) if health.enabled and health.dcgm_url else None
    ras_at = page_of(health.ras, node, address) if health.enabled and health.ras else None
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    receivers: list[Callable[[bytes], bool]] = []
    """Each takes the messages that are its own."""

    def receive(message: bytes) -> None:
        if not any(takes(message) for takes in receivers):
            agent.receive(message)

    at = settings.controller
    chance = Random()  # noqa: S311 - spreads attempts and readings, hides nothing
    link = ControllerLink(at.token.read_bytes, at.host, at.port, receive, chance, at.context, lambda: agent.inventory())
    backend = _backend(settings)
    meter = None
    if settings.meter and (bmc := settings.bmc) is not None:  # over a connection of its own
        meter = NodeMeter(ChassisMeter(Bmc(bmc, READ_S), bmc.chassis).read_w, clock, chance, bmc.look_s)
    agent = _agent(settings, backend, link, meter)
    closes = [backend.close, agent.close]
    registry, tasks = CollectorRegistry(), [kept_up("link", link.keep_up)]
    about_agent = partial(agent_metrics, agent, node, clock, lambda: link.is_up, as_dcgm=settings.as_dcgm)
    registry.register(Scraped(about_agent))
    try:
        await agent.start()
        if meter is not None:
            meter.loop.start()
            closes.append(meter.loop.close)
        if health.enabled:
            sources: list[HostEvidence] = [NicCounters(health.sys), DeviceEvidence(lambda: agent.readings)]
            threads: list[DcgmExporter | RasService | HealthFeed | Prober] = []
            if page is not None:
                dcgm = DcgmExporter(partial(fetched, page), own_gpus(node, lambda: agent.facts), clock)
                registry.register(Scraped(partial(dcgm_metrics, dcgm)))
                sources.append(dcgm)
                threads.append(dcgm)
            if ras_at is not None:
                host, _, port = ras_at.rpartition(":")
                service = RasService(partial(asked, host.strip("[]"), int(port)), is_own, clock)
                sources.append(service)
                threads.append(service)
            feed = _health_feed(settings, sources)
            registry.register(Scraped(partial(feed_metrics, feed)))
            threads.append(feed)
            if health.probes.enabled and (prober := _prober(settings, feed, link)) is not None:
                receivers.append(prober.receive)
                registry.register(Scraped(partial(probe_metrics, prober)))
                threads.append(prober)
            tasks.append(kept_up("forwarding", partial(forward, feed, agent, link)))
            for each in threads:
                each.start()
                closes.append(each.close)
        isolation = None
        if (about := settings.sandboxes) is not None:
            paths = (str(about.cgroups), str(about.sockets), str(about.record))
            process = ProcessSettings(node, *paths, about.memory_share, about.cgroup_root.strip("/"))
            isolation = SandboxSupervisor(process, link.send)
            receivers.append(isolation.receive)
            tasks.append(kept_up("isolation", isolation.keep_up))
        server = serve(settings.metrics_host, settings.metrics_port, registry, probes(agent, clock))
        running = [asyncio.create_task(each) for each in tasks]
        log.info("agent is up", node=node, devices=len(agent.facts), metrics_port=server.server_port)
        await agent.run(stop)
        if isolation is not None:
            await isolation.stop()
        for task in running:
            task.cancel()
        server.shutdown()
        if settings.on_stop == "restore":
            await agent.restore()
    finally:
        if settings.on_stop == "keep":
            await agent.end_bursts()
        for close in reversed(closes):
            close()


def _health_feed(settings: AgentSettings, sources: list[HostEvidence]) -> HealthFeed:
    """The feed of health from these sources, the kernel's log, the pods' sockets and their processes."""
    about = settings.health
    if about.kernel_log is not None:
        try:
            sources.insert(0, KernelLog(kmsg(str(about.kernel_log))))
        except OSError as error:
            log.warning("the kernel's log cannot be read: no GPU errors from it", why=str(error))
    processes = ProcessTable(about.proc)

    def sockets(deliver: Deliver) -> PodSockets:
        return PodSockets(about.folder, Senders(processes, clock), deliver, clock)

    return HealthFeed(settings.node, new_life(), sockets, Ranks(processes, about.cgroups), sources, clock)


def _prober(settings: AgentSettings, feed: HealthFeed, link: ControllerLink) -> Prober | None:
    """Pair probes, which report with the feed; None where their address is not available."""
    about = settings.health.probes
    try:
        source = address_of(about.interface) if about.interface else ""
        listener = ProbeListener(source, about.port)
    except OSError as error:
        log.warning("this node takes no part in pair probes", interface=about.interface, why=str(error))
        return None
    prober = Prober(settings.node, feed.life, listener, clock, feed.sent_s, source)

    def probes() -> Probes:
        host = link.own_address
        return Probes(prober.address(host) if host else None, prober.results(), prober.is_under_way)

    feed.report_with(probes)
    return prober


class _NoController:
    """Implements `Controller` for an agent that only restores limits."""

    def send(self, message: bytes) -> None:
        """Nobody takes it."""

    def reconnect(self) -> None:
        """Nobody is connected."""


async def _restore(settings: AgentSettings) -> None:
    backend = _backend(settings)
    agent = _agent(settings, backend, _NoController(), None)
    try:
        await agent.start()
        await agent.restore()
    finally:
        agent.close()
        backend.close()


def _backend(settings: AgentSettings) -> DeviceProcess:
    match settings.backend:
        case "redfish" if (bmc := settings.bmc) is not None:
            return DeviceProcess(partial(out_of_band.started, bmc), clock, start_s=BMC_START_S)
        case "pretend":
            log.warning("devices are simulated: no GPU of this node is read or limited")
            made = partial(PretendDevices, settings.node, settings.pretend.devices, time.monotonic)
            return DeviceProcess(made, clock)
        case "nvml" | "amdsmi":
            return _vendors(settings.backend)
        case _:
            return DeviceProcess(partial(PretendDevices, settings.node, 0, time.monotonic), clock)


def _vendors(name: Literal["nvml", "amdsmi"]) -> DeviceProcess:
    made: Callable[[], Backend] = partial(Nvml if name == "nvml" else AmdSmi, time.monotonic)
    return DeviceProcess(made, clock, renews=True)


def _agent(
    settings: AgentSettings, backend: DeviceProcess, controller: Controller, meter: NodeMeter | None
) -> NodeAgent:
    is_out_of_band = settings.backend == "redfish"
    rules = AgentRules(
        period_s=settings.period,
        floor_share=settings.floor_share,
        manages=None if settings.manages is None else frozenset(settings.manages),
        bursts=not is_out_of_band,
        restore_s=OUT_OF_BAND_RESTORE_S if is_out_of_band else RESTORE_S,
    )
    hardware = Hardware(backend, backend.leave_at, lambda: None if meter is None else meter.reading)
    session = Session(settings.node, new_life(), boot_id())
    return NodeAgent(session, hardware, settings.record, rules, clock, controller)


if __name__ == "__main__":
    main()

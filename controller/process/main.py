"""Operator process: watches, leads or stands by, runs the loop, answers probes, and stops in order."""

import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from threading import Event, Lock, Thread
from typing import Any

import structlog

from cluster.errors import ConfigError, Mistake, ObservationError
from controller.background.host import BackgroundHost, background_from
from controller.background.mix_search import MixSearches
from controller.brain.inline import InlineBrain, decisions_from, limits_from
from controller.cycle import Cycle, run_cycle
from controller.fair_shares import Shares
from controller.guard import Limits
from controller.kube.leader_election import IDENTITY_PATH
from controller.loops.loop import ControlLoop
from controller.metrics.registry import Meter, metrics_endpoint
from controller.process.cluster import PRODUCT, ClusterWriter, Registries, WatchedCluster
from controller.recording.bundle import about, files_of, shown, write_tar
from controller.recording.ring import Ring
from controller.report.cycle_reporter import CycleReporter
from controller.settings import OperatorSettings

Probe = Callable[[], str | None]
"""Function that returns None when all is well, else the problem."""


MOST_CLIENTS, MOST_OF_ONE = 64, 8
"""Most connections to the probe port, in all and from one address: nobody keeps the kubelet out. More are closed."""
CLIENT_TIMEOUT_S = 5.0


class _ProbeServer(ThreadingHTTPServer):
    """A thread for each connection, and so many at most."""

    def __init__(self, at: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._lock, self._clients = Lock(), Shares(MOST_CLIENTS, MOST_OF_ONE)
        super().__init__(at, handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002 - the server's own interface
        with self._lock:
            return self._clients.take(str(client_address[0]))

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._clients.give_back(str(client_address[0]))


@contextmanager
def probes_endpoint(
    host: str, port: int, probes: Mapping[str, Probe], recorder: "Recorder", identity: str = ""
) -> Iterator[int]:
    """Answers these paths, who this process is, and what was recorded, while the block runs; yields the port (a free
    one when it is 0).

    Raises ConfigError when the port cannot be opened.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = CLIENT_TIMEOUT_S

        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            if path == PATH and recorder.ring is not None and recorder.is_for(self.client_address[0], query):
                self.send_response(200)
                self.send_header("Content-Type", "application/x-tar")
                self.end_headers()
                with suppress(OSError):  # the client has disconnected, or reads nothing
                    recorder.send(self.wfile.write)
                return
            probe = probes.get(path)
            if path == IDENTITY_PATH:
                status, words = 200, identity
            elif probe is None:
                status, words = 404, "there is no such path"
            else:
                wrong = probe()
                status, words = (503, wrong) if wrong else (200, "ok")
            body = words.encode() + b"\n"
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Logs nothing: a line for every probe would bury everything else."""

    try:
        server = _ProbeServer((host, port), Handler)
    except OSError as error:
        raise ConfigError(Mistake(f"probe address {host}:{port}", f"cannot be opened: {error}")) from error
    thread = Thread(target=server.serve_forever, name="probes", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


log = structlog.get_logger(__name__)

PATH = "/debug/bundle"
"""Path on the probe port under which a bundle of the recorded cycles is downloaded."""


class Recorder:
    """Recorder of an operator."""

    def __init__(self, settings: OperatorSettings) -> None:
        asked, self._settings = settings.record, settings
        self.ring = Ring(asked.keep_s, asked.most_cycles, asked.most_bytes) if asked.enabled else None
        """None where recording is off."""

    def put(self, cycle: Cycle) -> None:
        """Records a cycle. A failure to record is only logged: the cycle itself is complete."""
        if self.ring is None:
            return
        try:
            self.ring.put(cycle)
        except Exception:
            log.exception("a cycle was not recorded")

    def is_for(self, client: str, query: str) -> bool:
        """Whether a client may read it: one that knows this pod, or on this machine, as through a port-forward."""
        key = self._settings.record.key.get_secret_value()
        return ip_address(client).is_loopback or (bool(key) and compare_digest(query.encode(), f"pod={key}".encode()))

    def send(self, write: Callable[[bytes], object]) -> None:
        """Writes the files of a bundle as a tar stream."""
        if self.ring is None:
            return
        recording, at_s = self.ring.copy(), time.time()
        says = about(recording, shown(self._settings), self._settings.identity, at_s)
        write_tar(write, files_of(says, recording), at_s)


STUCK_AFTER_S = 120.0
"""Seconds without a pass of the loop after which the kubelet restarts the process. Twice the longest planning
deadline."""
FAILURES_IN_A_ROW = 3
"""Failed cycles in a row after which the process is not ready and leaves the Lease to another replica."""
REST, LEAST_APART_S = 10.0, 0.1
"""Longest part of the time that cycles take, as its inverse, and their least distance in seconds. Chosen: a cycle that
places one pod among 1,000 nodes takes 10 ms, so that the next pod is not kept waiting, at a tenth of a core."""
SETTLE_S = 0.04
"""Seconds without a change after which a cycle begins; it waits no longer than `interval_s` for them. Chosen: longer
than one deletion after another takes, and short beside the tenth of a second in which a pod alone is bound."""
POLL_S = 0.02
"""Seconds between two checks whether it is time for a cycle, once something has changed."""
IDLE_POLL_S = 0.25
"""Longest time without a look at the clock and the Lease while nothing changes, in seconds."""
SWITCH_S = 0.0005
"""Longest time that a thread computes before another gets its turn, in seconds. With Python's default of 5 ms, each
answer of the API server would wait that long while the main thread decides or logs: writes, and renewals of the
Lease, would be slow."""


class Heartbeat:
    """State of the main thread for the probes: its last pass, and the cycles that failed in a row."""

    def __init__(self) -> None:
        self.failures = 0
        """Cycles that have failed by a bug since the last one that did not."""
        self.beat()

    def beat(self) -> None:
        self._beat_at_s = time.monotonic()

    def probe(self) -> str | None:
        still_s = time.monotonic() - self._beat_at_s
        return f"the loop has not completed a pass for {still_s:.0f} s" if still_s > STUCK_AFTER_S else None

    def readiness(self) -> str | None:
        """Problem that another replica may not have; None when there is none."""
        is_failing = self.failures >= FAILURES_IN_A_ROW
        return f"the last {self.failures} cycles failed: see the log" if is_failing else None


@dataclass(frozen=True, slots=True)
class Operator:
    """Running operator: all that its loop uses."""

    settings: OperatorSettings
    cluster: WatchedCluster
    writer: ClusterWriter
    brain: InlineBrain
    limits: Limits
    background: BackgroundHost
    mix_searches: MixSearches
    loops: tuple[ControlLoop, ...]
    """Those beside the cycle that the settings enable."""
    reporter: CycleReporter
    recorder: Recorder
    heartbeat: Heartbeat
    probe_port: int = 0
    metrics_port: int = 0
    ports: Mapping[str, int] = field(default_factory=dict)
    """Further ports, by the name of the loop that listens there."""


def operate(
    settings: OperatorSettings,
    stop: Event,
    on_start: Callable[[Operator], None] = lambda _: None,
    registries: Registries = PRODUCT,
) -> None:
    """Run until `stop` is set. Raises ConfigError when it cannot start."""
    sys.setswitchinterval(SWITCH_S)
    with started(settings, registries) as operator:
        on_start(operator)
        run_loop(operator, stop)


@contextmanager
def started(settings: OperatorSettings, registries: Registries = PRODUCT) -> Iterator[Operator]:
    """The operator with all parts running. On leaving the block it stops writing, then releases the Lease."""
    with ExitStack() as stack:
        meter, heartbeat, recorder = Meter(), Heartbeat(), Recorder(settings)
        loops = tuple(loop for loop_of in registries.loops if (loop := loop_of(settings)) is not None)
        cluster = WatchedCluster(settings, registries, loops, meter, stack)
        writer = ClusterWriter(settings, cluster, meter, stack)
        background = background_from(settings, meter)
        stack.callback(background.close)
        context = writer.loop_context(background)
        ports = {name: port for loop in loops for name, port in loop.start(context).items()}
        probes = {
            "/healthz": lambda: heartbeat.probe() or next(filter(None, (loop.probe() for loop in loops)), None),
            "/readyz": lambda: heartbeat.readiness() if cluster.is_synced() else "the watches are not synced yet",
        }
        served = probes_endpoint(settings.host, settings.probe_port, probes, recorder, cluster.leadership.identity)
        probe_port = stack.enter_context(served)
        cluster.leadership.answers_at(own_address(settings.host, probe_port))
        brain = InlineBrain(decisions_from(settings), order=registries.order)
        yield Operator(
            settings,
            cluster,
            writer,
            brain,
            limits_from(settings),
            background,
            MixSearches(brain.memory.mix, background),
            loops,
            CycleReporter(meter, structlog.get_logger("cycle"), time.time),
            recorder,
            heartbeat,
            probe_port=probe_port,
            metrics_port=stack.enter_context(metrics_endpoint(meter, settings.host, settings.metrics_port)),
            ports=ports,
        )


def own_address(host: str, port: int) -> str:
    """Where other replicas reach a port of this process; empty where its host has no name that it knows."""
    with suppress(OSError):
        is_one = host not in ("", "0.0.0.0", "::")  # noqa: S104 - compared, not opened
        return f"{host if is_one else socket.gethostbyname(socket.gethostname())}:{port}"
    return ""


def run_loop(operator: Operator, stop: Event) -> None:
    """Runs cycles while this replica leads, until `stop`.

    A cycle runs when something changed, and regularly without a change (`resync_s`). Cycles take at most one part in
    `REST` of the time, until they are `interval_s` apart: on a quiet operator a pod waits for a twentieth of a second,
    and a busy one gathers what changes.
    """
    settings, cluster, reporter = operator.settings, operator.cluster, operator.reporter
    heartbeat, trigger = operator.heartbeat, operator.cluster.trigger
    term: int | None = None
    next_at_s = rested_at_s = quiet_until_s = 0.0
    while not stop.wait(POLL_S if trigger.is_set else 0.0):
        trigger.wait(IDLE_POLL_S)
        heartbeat.beat()
        leads = cluster.leadership.may_write()
        present = cluster.leadership.epoch if leads else None  # the term: others may have led while a cycle lasted
        if present != term:
            term, next_at_s = present, 0.0
            reporter.report_leadership(leads=leads, epoch=cluster.leadership.epoch)
            if leads:
                is_fenced = settings.fenced and operator.writer.fence()
                cluster.thread.run(cluster.listed_anew())
                cluster.reservations.lead(is_guarded=is_fenced)
                if settings.fenced and not is_fenced:
                    reporter.report_unfenced()
                    quiet_until_s = time.monotonic() + cluster.leadership.rest_s  # what was sent before may still come
            operator.background.want(wanted=leads)
        now_s = time.monotonic()
        # What is deleted or made together arrives together: a gang is not judged by a half of it.
        has_settled = now_s >= rested_at_s and trigger.has_settled(SETTLE_S, settings.interval_s)
        is_due = now_s >= next_at_s or (trigger.is_set and (trigger.is_urgent or has_settled))
        if not leads or not cluster.is_synced() or not is_due or now_s < quiet_until_s:
            continue
        trigger.clear()
        next_at_s = now_s + settings.resync_s
        _one_cycle(operator)
        took_s = time.monotonic() - now_s
        rested_at_s = now_s + min(settings.interval_s, max(LEAST_APART_S, REST * took_s))
        if heartbeat.failures and heartbeat.failures % FAILURES_IN_A_ROW == 0:
            reporter.report_stepping_down(heartbeat.failures)
            cluster.step_down()


def _one_cycle(operator: Operator) -> None:
    reporter, deadline_s = operator.reporter, operator.settings.plan_deadline_s
    try:
        if operator.mix_searches.asked:
            operator.mix_searches.turn()
        cycle = run_cycle(operator.writer.world, operator.brain, operator.limits, deadline_s, time.monotonic)
        if cycle.plan.services:
            operator.mix_searches.turn()
    except ObservationError as error:
        reporter.report_blind(error)
    except Exception as error:  # noqa: BLE001 - a bug in one cycle must not end the process that holds the Lease
        operator.heartbeat.failures += 1
        reporter.report_failed(error)
    else:
        operator.heartbeat.failures = 0
        reporter.report_cycle(cycle)
        operator.recorder.put(cycle)
        for loop in operator.loops:
            loop.learn(cycle.plan)

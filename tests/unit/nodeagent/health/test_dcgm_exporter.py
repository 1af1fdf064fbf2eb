"""Reading of a DCGM exporter: nonsense, strangers and silence stop nothing; from its page to the controller."""

from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from threading import Event, Thread

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from structlog.testing import capture_logs

from cluster.errors import ConfigError
from controller.loops.health.stream import HealthStream
from health.records.frames import Evidence, Source, packed
from health.remediation.facts import subject_of
from nodeagent.health.dcgm_exporter import (
    EVERY_S,
    LONGEST_LINE,
    MOST_LINES,
    DcgmExporter,
    PageError,
    fetched,
    own_gpus,
    page_of,
    samples_in,
)
from nodeagent.health.feed import HealthFeed
from nodeagent.health.host_evidence import HostEvidence
from nodeagent.health.pod_sockets import PodSockets
from nodeagent.health.processes import ProcessTable, Ranks, Senders
from nodeagent.metrics import Scraped, dcgm_metrics
from tests.clock import HandClock
from tests.unit.nodeagent.health.dcgm_pages import BUS, DBE, UUID, XIDS, Exporter, line, page
from tests.unit.nodeagent.health.scripted_evidence import ScriptedEvidence

NONSENSE = (
    f"{DBE}{{gpu=",
    f"{DBE} ",
    f'{DBE}{{UUID="{UUID}"}} many',
    f'{DBE}{{UUID="{UUID}"}} {"9" * 400}',
    f'{DBE}{{UUID="{UUID}",pod="{"p" * LONGEST_LINE}"}} 7',
    f'{DBE}{{UUID="{UUID}" 7',
    f'{DBE}{{=,,}}}}"\\" 7',
    f'{XIDS}{{UUID="{UUID}"}} 123456',
    f'DCGM_EXP_XID_ERRORS_TOTAL{{UUID="{UUID}",xid="high"}} 1',
)


def test_lines_that_nobody_can_read_spoil_no_others_and_are_told_once() -> None:
    exporter = Exporter()
    with capture_logs() as logged:
        exporter.tell(line(DBE, 5))
        for count in range(6, 10):
            assert exporter.tell(*NONSENSE, line(DBE, count)) == [f"UncorrectedErrors on {UUID}"]
        exporter.tell(line(DBE, 10))
        exporter.tell(*NONSENSE, line(DBE, 11))

    assert exporter.reader.failed == {"Malformed": 5}
    assert [each["event"] for each in logged] == [
        "the DCGM exporter cannot be read",
        "the DCGM exporter can be read again",
    ]
    assert logged[0]["why"] == f"{len(NONSENSE)} lines about health cannot be read"


def test_whatever_is_written_is_read_without_an_error() -> None:
    random = Random(5)  # noqa: S311 - reproducible, no secret
    text = page(line(XIDS, 79), line(DBE, 1), line("DCGM_EXP_XID_ERRORS_COUNT", 1, xid="48"))
    signs = '{}"\\=, #\n\t\0\x85é_19eE+-.'
    for _ in range(400):
        broken = list(text)
        for _ in range(random.randrange(1, 20)):
            broken[random.randrange(len(broken))] = random.choice(signs)
        samples, unread = samples_in("".join(broken))
        assert len(samples) + unread <= text.count("\n")


def test_a_text_of_many_lines_is_read_in_part() -> None:
    samples, unread = samples_in("\n".join([line(DBE, 1)] * (MOST_LINES + 10)))

    assert (len(samples), unread) == (MOST_LINES, 10)


@pytest.mark.parametrize(
    ("labels", "known", "found"),
    [
        ({"pci_bus_id": ""}, (), f"Xid79 on {UUID}"),  # older releases
        ({"pci_bus_id": "..", "Hostname": ""}, (), f"Xid79 on {UUID}"),
        ({"UUID": ""}, (), f"Xid79 on {BUS}"),
        ({"UUID": "a\\nb", "pci_bus_id": ""}, (), "Xid79 on nvidia0"),
        ({"UUID": "", "device": "", "gpu": ""}, (), ""),  # of a switch
        ({"Hostname": "n1.example.com"}, (), f"Xid79 on {BUS}"),
        ({"Hostname": "n2"}, (), ""),  # of another node: a Service chose it
        ({"Hostname": "n2"}, (UUID,), f"Xid79 on {BUS}"),  # our device, whatever the host is called
        ({"Hostname": ""}, ("GPU-other",), ""),
    ],
)
def test_a_gpu_is_named_by_what_labels_there_are_and_only_ours_are_ours(
    labels: dict[str, str], known: tuple[str, ...], found: str
) -> None:
    exporter = Exporter(*known)
    exporter.tell(line(XIDS, 0, **labels))

    exporter.tell(line(XIDS, 79, **labels))

    assert exporter.known() == ([found] if found else [])


def test_an_answer_of_another_node_or_about_no_gpu_counts_as_failed() -> None:
    exporter = Exporter()
    for exporter.page in (line(XIDS, 79, Hostname="n2"), "<html>hello</html>", ""):
        exporter.reader.look()

    assert exporter.reader.failed == {"OtherNode": 1, "Empty": 2}


def test_an_exporter_that_fails_is_told_once_and_counted_each_time() -> None:
    exporter = Exporter()
    with capture_logs() as logged:
        for _ in range(5):
            exporter.down = PageError("Silent", "no whole answer within 5 s")
            exporter.looked()
        exporter.tell()

    registry = CollectorRegistry()
    registry.register(Scraped(lambda: dcgm_metrics(exporter.reader)))
    told = generate_latest(registry).decode().splitlines()
    assert "tonnage_agent_health_dcgm_reads_total 6.0" in told
    assert 'tonnage_agent_health_dcgm_failed_reads_total{code="Silent"} 5.0' in told
    assert [each["log_level"] for each in logged] == ["warning", "info"]


def test_a_page_has_the_nodes_name_and_address_in_it() -> None:
    assert page_of("http://{node}.gpus:9400/", "n1", "") == "http://n1.gpus:9400/"
    assert page_of("http://{address}:9400/", "n1", "fd00::1") == "http://[fd00::1]:9400/"
    with pytest.raises(ConfigError, match="NODE_ADDRESS"):
        page_of("http://{address}:9400/", "n1", "")


def feed_of(folder: Path, clock: HandClock, *sources: HostEvidence) -> HealthFeed:
    def sockets(deliver):  # type: ignore[no-untyped-def]
        return PodSockets(folder, Senders(ProcessTable(), clock), deliver, clock)

    return HealthFeed("n1", "life", sockets, Ranks(ProcessTable()), sources, clock)


def test_an_exporter_that_hangs_delays_no_other_evidence(short_path: Path) -> None:
    asked, goes_on, clock = Event(), Event(), HandClock(100.0)

    def hangs() -> str:
        asked.set()
        goes_on.wait(10.0)
        return page()

    dcgm = DcgmExporter(hangs, own_gpus("n1", tuple), clock)
    feed = feed_of(short_path, clock, ScriptedEvidence([(0.0, Evidence(Source.NIC, "LinkDown", "eth0", 0.0))]), dcgm)
    dcgm.start()
    assert asked.wait(5.0)

    feed.turn(0)
    report = feed.next_report()

    dcgm.close()
    goes_on.set()
    feed.close()
    assert report is not None
    assert [each.code for each in report.evidence or ()] == ["LinkDown"]


@pytest.fixture
def served() -> Iterator[tuple[str, list[str]]]:
    """A real HTTP server, and the page that it serves."""
    pages = [page()]

    class Metrics(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            """As Go's server does with a page that it does not know the length of: in chunks."""
            self.send_response(200 if self.path == "/metrics" else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            body = pages[0].encode()
            for piece in (body[at : at + 2048] for at in range(0, len(body), 2048)):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Metrics)
    Thread(target=partial(server.serve_forever, 0.01), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/metrics", pages
    server.shutdown()
    server.server_close()


def test_an_error_that_an_exporter_and_the_kernel_tell_of_is_one_suspicion_of_the_node(
    short_path: Path, served: tuple[str, list[str]]
) -> None:
    """From the exporter's page over HTTP, the agent's feed and a packed report to the evidence of the node."""
    (url, pages), clock = served, HandClock(100.0)
    dcgm = DcgmExporter(partial(fetched, url), own_gpus("n1", tuple), clock)
    kernel = ScriptedEvidence([(112.0, Evidence(Source.KERNEL, "Xid79", BUS, 0.0, "GPU has fallen off the bus"))])
    alone, both = feed_of(short_path, clock, dcgm), feed_of(short_path, clock, kernel, dcgm)
    streams = HealthStream(node_uids={"n1": "uid-1"}), HealthStream(node_uids={"n1": "uid-1"})

    def pass_on() -> list[list[tuple[float, float]]]:
        """When faults of the node were seen first and last, by either stream, whose clock is 5,000 s ahead."""
        dcgm.look()
        for feed, stream in zip((alone, both), streams, strict=True):
            feed.turn(0)
            report = feed.next_report()
            assert report is not None
            stream.take("n1", packed(report), clock() + 5000.0)
        found = [stream.node_evidence(clock() + 5000.0) for stream in streams]
        assert len({subject_of(each) for one in found for each in one}) <= 1
        return [[(each.since_s, each.at_s) for each in one] for one in found]

    pages[0] = page(line(XIDS, 63), line(DBE, 0))  # of last week
    assert pass_on() == [[], []]
    clock.now_s += EVERY_S
    pages[0] = page(line(XIDS, 79), line(DBE, 0))

    assert pass_on() == [[(5115.0, 5115.0)], [(5112.0, 5112.0)]]  # the kernel's message tells the instant
    assert not any(stream.is_clean("n1", clock() + 5000.0) for stream in streams)
    clock.now_s += 60.0
    assert pass_on() == [[(5115.0, 5115.0)], [(5112.0, 5112.0)]]  # and stays an instant while the exporter repeats it
    pages[0] = page(line(XIDS, 79), line(DBE, 2))
    clock.now_s += EVERY_S
    assert pass_on() == [[(5115.0, 5115.0), (5190.0, 5190.0)], [(5112.0, 5112.0), (5190.0, 5190.0)]]

    alone.close()
    both.close()

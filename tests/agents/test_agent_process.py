"""Agents as processes: stopping, crashing and uninstalling leave devices as they should be, in band and out of band."""

import signal
import ssl
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry, Gauge

from nodeagent.metrics import serve
from power.devices.backend import BROKEN, SILENT, DeviceError, DeviceReading
from simulator.controlplane.commands import AUTHORITY, SERVER
from simulator.controlplane.pki import write_pki
from tests.agents.agent_process import command, limits_w, running, settings_file, stopped, until_agent
from tests.agents.burst_controller import Granted, granting
from tests.agents.scripted_devices import ScriptedDevices
from tests.unit.power.devices.fake_bmc import GPUS, FakeBmc
from tests.until import until

FOUND_W, FLOOR_W = 650.0, 350.0
"""An administrator's limit, below the default of 700 W; the floor is half of the highest."""
GPU = "pretend-n1-0"


LEASE_W, HIGHEST_W = 350.0, 700.0


def node(folder: Path, on_stop: str = "keep", **told: Any) -> Path:
    """Settings of a node with two devices that an administrator limited before Tonnage came, where that is new."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "limits.json").exists():
        (folder / "limits.json").write_bytes(msgspec.json.encode({GPU: FOUND_W, "pretend-n1-1": FOUND_W}))
    return settings_file(folder, backend="pretend", pretend={"devices": 2}, on_stop=on_stop, **told)


def all_at(folder: Path, limit_w: float) -> bool:
    return set(limits_w(folder).values()) == {limit_w}


def test_an_agent_that_is_stopped_for_an_update_leaves_the_limits(tmp_path: Path) -> None:
    with running(node(tmp_path)) as agent:
        until_agent(lambda: all_at(tmp_path, FLOOR_W), "devices at their floor", agent)

        assert stopped(agent) == 0

    assert all_at(tmp_path, FLOOR_W)


def test_an_agent_that_is_told_so_gives_back_what_was_found_when_it_is_stopped(tmp_path: Path) -> None:
    with running(node(tmp_path, on_stop="restore")) as agent:
        until_agent(lambda: all_at(tmp_path, FLOOR_W), "devices at their floor", agent)

        assert stopped(agent) == 0

    assert all_at(tmp_path, FOUND_W)


@pytest.mark.parametrize("signal_of_end", [signal.SIGTERM, signal.SIGKILL], ids=lambda each: each.name)
def test_an_agent_that_ends_leaves_no_device_at_the_limit_of_a_burst(
    tmp_path: Path, signal_of_end: signal.Signals
) -> None:
    devices = tmp_path
    with granting(Granted({GPU: LEASE_W, "pretend-n1-1": LEASE_W}, burst_to_w=HIGHEST_W)) as port:
        settings = node(tmp_path, port=port)
        (devices / "script.json").write_bytes(msgspec.json.encode({"*": {"wants_w": 100.0}}))
        with running(settings) as agent:
            until_agent(lambda: all_at(tmp_path, HIGHEST_W), "devices at the highest limit of a burst", agent)
            agent.send_signal(signal_of_end)
            agent.wait()

            until(lambda: all_at(tmp_path, LEASE_W), "devices at their lease", 20.0)


def test_uninstalling_gives_back_what_was_found_even_after_crashes_and_updates(tmp_path: Path) -> None:
    """As docs/power.md describes: an upgrade to onStop restore, which starts new agents, and the uninstall."""
    for _ in range(2):
        with running(node(tmp_path)) as agent:
            until_agent(lambda: all_at(tmp_path, FLOOR_W), "devices at their floor", agent)
            agent.kill()
    with running(node(tmp_path, on_stop="restore")) as agent:
        assert stopped(agent) == 0

    assert all_at(tmp_path, FOUND_W)


def test_restoring_by_hand_gives_back_what_was_found(tmp_path: Path) -> None:
    with running(node(tmp_path)) as agent:
        until_agent(lambda: all_at(tmp_path, FLOOR_W), "devices at their floor", agent)
        agent.kill()

    done = subprocess.run(command("restore", tmp_path / "agent.yaml"), check=False, stdout=subprocess.DEVNULL)  # noqa: S603

    assert done.returncode == 0
    assert all_at(tmp_path, FOUND_W)


def test_devices_are_listed_by_the_back_end_of_the_settings_and_left_alone(tmp_path: Path) -> None:
    listed = subprocess.run(command("devices", node(tmp_path)), check=False, capture_output=True, text=True)  # noqa: S603

    assert listed.returncode == 0
    assert listed.stdout.splitlines() == [
        f"pretend-n1-{n}  Pretend H100  200 to 700 W, default 700 W; draws 600 W, limit {FOUND_W:g} W" for n in (0, 1)
    ]
    assert all_at(tmp_path, FOUND_W)


@contextmanager
def bmc_on_loopback(folder: Path) -> Iterator[tuple[FakeBmc, dict[str, Any]]]:
    """A fake BMC behind HTTPS, and the agent's settings for it."""
    bmc, knocks = FakeBmc(limits_w=dict.fromkeys(GPUS, FOUND_W)), threading.Lock()

    class Service(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            body = msgspec.json.decode(self.rfile.read(length)) if length else None
            if self.headers["authorization"] != "Basic cm9vdDpjYWx2aW4=":  # root:calvin
                status, headers, found = 401, {}, {"error": {"message": "who are you?"}}
            else:
                with knocks:
                    status, headers, found = bmc(self.command, self.path, body, self.headers)  # type: ignore[arg-type,assignment]
            text = b"" if found is None else msgspec.json.encode(found)
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(text))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        do_PATCH = do_GET  # noqa: N815 - the library calls it so

        def log_message(self, *_: Any) -> None:
            return None

    write_pki(folder, datetime.now(UTC))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / f"{SERVER}.crt", folder / f"{SERVER}.key")
    (folder / "login").mkdir()
    (folder / "login" / "username").write_text("root\n", encoding="utf-8")
    (folder / "login" / "password").write_text("calvin\n", encoding="utf-8")
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        server.daemon_threads = True
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield (
            bmc,
            {
                "host": "127.0.0.1",
                "port": server.server_port,
                "login": str(folder / "login"),
                "ca_file": str(folder / f"{AUTHORITY}.crt"),
                "look_s": 0.2,
                "rest_s": 0.2,
                "settles_s": 0.5,
            },
        )
        server.shutdown()


def test_clocks_are_held_and_let_go_by_hand_and_what_cannot_be_is_told_device_by_device(tmp_path: Path) -> None:
    def clocks(*words: str) -> "subprocess.CompletedProcess[str]":
        line = [*command("clocks", node(tmp_path)), *words]
        return subprocess.run(line, check=False, capture_output=True, text=True)  # noqa: S603 - our own

    held, free, wrong, unsaid = (
        clocks(*words) for words in (("--at-most", "1410"), ("--free",), ("--at-most", "9"), ())
    )

    assert (held.returncode, free.returncode) == (0, 0)
    assert held.stdout.count("now at 1410 MHz") == 2
    assert free.stdout.count("now at 1980 MHz") == 2
    assert (wrong.returncode, unsaid.returncode) == (1, 2)
    assert f"error: {GPU}: its clocks are 210 to 1980 MHz" in wrong.stderr


def test_an_agent_limits_devices_through_their_bmc_and_gives_back_what_was_found(tmp_path: Path) -> None:
    with bmc_on_loopback(tmp_path / "bmc") as (bmc, about):
        settings = settings_file(tmp_path / "agent", backend="redfish", redfish=about, on_stop="restore")
        with running(settings) as agent:
            until_agent(lambda: set(bmc.limits_w.values()) == {FLOOR_W}, "devices at their floor", agent)

            assert stopped(agent) == 0

    assert set(bmc.limits_w.values()) == {FOUND_W}


def test_a_bmc_that_does_not_know_us_stops_the_agent_at_its_start(tmp_path: Path) -> None:
    with bmc_on_loopback(tmp_path / "bmc") as (_, about):
        (tmp_path / "bmc" / "login" / "password").write_text("guessed", encoding="utf-8")
        settings = settings_file(tmp_path / "agent", backend="redfish", redfish=about)

        done = subprocess.run(command("run", settings), check=False, capture_output=True, text=True)  # noqa: S603

    assert done.returncode == 1
    assert "NoPermission" in done.stderr


def test_metrics_and_health_are_answered() -> None:
    registry = CollectorRegistry()
    Gauge("watts", "Watts.", registry=registry).set(7)
    wrong: list[str | None] = [None]
    server = serve("127.0.0.1", 0, registry, {"/healthz": lambda: wrong[0]})
    at = f"http://127.0.0.1:{server.server_port}"
    with urllib.request.urlopen(f"{at}/metrics") as answer, urllib.request.urlopen(f"{at}/healthz") as health:  # noqa: S310
        metrics, healthy = answer.read(), health.status
    wrong[0] = "no reading"
    with pytest.raises(urllib.error.HTTPError) as ill:
        urllib.request.urlopen(f"{at}/healthz")  # noqa: S310
    words = ill.value.read()
    ill.value.close()
    server.shutdown()
    server.server_close()

    assert b"watts 7.0" in metrics
    assert (healthy, ill.value.code, words) == (200, 503, b"no reading\n")


def test_scripted_devices_follow_their_script(tmp_path: Path) -> None:
    devices = ScriptedDevices("n1", 3, lambda: 5.0, tmp_path)
    script = '{"*": {"wants_w": 300}, "pretend-n1-1": {"blind": true}, "pretend-n1-2": {"brake_w": 120}}'
    (tmp_path / "script.json").write_text(script)
    found = devices.read()
    reading, blind, braked = found[GPU], found["pretend-n1-1"], found["pretend-n1-2"]

    assert isinstance(reading, DeviceReading)
    assert reading.draw_w == 300.0
    assert isinstance(braked, DeviceReading)
    assert braked.draw_w == 120.0
    assert isinstance(blind, DeviceError)
    assert blind.code == SILENT
    assert devices.set_limit("pretend-n1-1", 250.0) == 250.0
    assert limits_w(tmp_path) == {GPU: 700.0, "pretend-n1-1": 250.0, "pretend-n1-2": 700.0}


def test_a_script_with_a_mistake_is_no_script(tmp_path: Path) -> None:
    devices = ScriptedDevices("n1", 1, lambda: 5.0, tmp_path)
    (tmp_path / "script.json").write_text('{"*": {"wnats_w": 300}}')

    with pytest.raises(DeviceError, match="wnats_w") as broken:
        devices.read()

    assert broken.value.code == BROKEN

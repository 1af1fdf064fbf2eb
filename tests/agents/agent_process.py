"""Real agent processes for tests: started with settings, awaited by what they do, stopped as Kubernetes stops them."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.agents.credentials import credentials
from tests.until import until

PATIENCE_S = 60.0


def until_agent(claim: Callable[[], bool], what: str, process: "subprocess.Popen[bytes]") -> None:
    """`until` for what an agent brings about: fails early when its process has ended."""

    def checked() -> bool:
        holds = claim()
        assert holds or process.poll() is None, f"the agent ended with {process.returncode}; before: {what}"
        return holds

    until(checked, what, PATIENCE_S)


def settings_file(folder: Path, *, node: str = "n1", port: int = 1, token: str = "", **told: Any) -> Path:
    """Settings of an agent whose controller is at a port of loopback; by default it is nowhere.

    token: what it shows; the node's name by default.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shown = credentials().shown_by(token or node)
    settings: Mapping[str, Any] = {
        "node": node,
        "controller": {"host": "127.0.0.1", "port": port, **shown},
        "record": str(folder / "power.record"),
        "period": 0.1,
        "metrics_host": "127.0.0.1",
        "metrics_port": 0,
        **told,
    }
    path = folder / "agent.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path


def command(verb: str, settings: Path) -> list[str]:
    return [sys.executable, "-m", "tests.agents.scripted_agent", verb, "--config", str(settings)]


@contextmanager
def running(settings: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """An agent process; killed at the end where it still runs."""
    said = settings.with_suffix(".log")
    with said.open("wb") as log:
        process = subprocess.Popen(command("run", settings), stderr=log)  # noqa: S603 - our own
    try:
        until_agent(lambda: b"agent is up" in said.read_bytes(), "the agent is up", process)
        yield process
    finally:
        process.kill()
        process.wait()


def stopped(process: "subprocess.Popen[bytes]") -> int:
    """Its exit status after SIGTERM."""
    process.send_signal(signal.SIGTERM)
    return process.wait(PATIENCE_S)


def limits_w(folder: Path) -> Mapping[str, float]:
    """Limits that fake devices enforce; empty before any was set."""
    path = folder / "limits.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

"""Real Prometheus for tests: it scrapes every second, and keeps its data when it is killed and started again."""

import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.until import until

SCRAPE_S = 1


@dataclass(frozen=True)
class Scraped:
    """Target of a scrape, with the labels that a PodMonitor would give it."""

    port: int
    labels: Mapping[str, str] = field(default_factory=dict)


class LivePrometheus:
    """One server, at a port of its own. Close it when done."""

    def __init__(self, program: Path, folder: Path, targets: Sequence[Scraped]) -> None:
        self._program, self._folder = program, folder
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        static = [{"targets": [f"127.0.0.1:{each.port}"], "labels": dict(each.labels)} for each in targets]
        scrape = {"job_name": "pods", "static_configs": static}
        content: dict[str, Any] = {
            "global": {"scrape_interval": f"{SCRAPE_S}s", "scrape_timeout": f"{SCRAPE_S}s"},
            "scrape_configs": [scrape],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Starts it, and returns when it answers queries."""
        command = [
            str(self._program),
            f"--config.file={self._folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
            "--log.level=warn",
        ]
        with (self._folder / "prometheus.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603
        until(self._is_ready, "Prometheus answers", within_s=60)

    def kill(self) -> None:
        """Ends it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "prometheus.log").read_text(encoding="utf-8")
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as answer:  # noqa: S310 - its own address
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

"""Real Prometheus for tests, and queries to it."""

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from cluster.errors import BuildError
from tests import until as waiting
from tests.rigs.prometheus import prometheus_program

until = partial(waiting.until, within_s=180.0, pause_s=0.1)
"""Patient enough for a Prometheus that starts, scrapes and evaluates."""


def tool(name: str) -> str:
    """The path of `prometheus` or `promtool`, or a skip that says how to get it."""
    try:
        return shutil.which(name) or str(prometheus_program().with_name(name))
    except BuildError as error:
        pytest.skip(str(error))


class Prometheus:
    """Asks a running server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **query: str) -> object:
        with urlopen(f"{self.url}{path}?{urlencode(query)}", timeout=10) as answer:  # noqa: S310 - our own loopback
            return json.load(answer)["data"]

    def query(self, expr: str) -> list[dict[str, Any]]:
        """An instant query's samples; HTTPError 400 when the expression is wrong."""
        data = self.get("/api/v1/query", query=expr)
        assert isinstance(data, dict)
        result: list[dict[str, Any]] = data["result"]
        return result


@contextmanager
def running_prometheus(folder: Path, target_port: int, rules: Path, *, every: str = "200ms") -> Iterator[Prometheus]:
    """A server that scrapes the target as job `tonnage`, with these rules, while the block runs.

    every: a scrape that takes longer than this is lost; another process on a busy machine needs a second.
    """
    config = folder / "prometheus.yaml"
    config.write_text(
        json.dumps(
            {
                "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": "1s"},
                "rule_files": [str(rules)],
                "scrape_configs": [
                    {"job_name": "tonnage", "static_configs": [{"targets": [f"127.0.0.1:{target_port}"]}]}
                ],
            }
        ),
        encoding="utf-8",
    )
    address = f"127.0.0.1:{_free_port()}"
    command = [
        tool("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=warn",
    ]
    log = folder / "prometheus.log"
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:  # noqa: S603
        try:
            server = Prometheus(f"http://{address}")
            until(lambda: process.poll() is not None or _is_ready(server), "Prometheus is ready")
            assert process.poll() is None, log.read_text(encoding="utf-8")
            yield server
        finally:
            process.terminate()


def _is_ready(server: Prometheus) -> bool:
    try:
        with urlopen(f"{server.url}/-/ready", timeout=5):  # noqa: S310 - our own loopback
            return True
    except HTTPError as not_yet:
        not_yet.close()  # it holds the connection
        return False
    except (URLError, ConnectionError):
        return False


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port

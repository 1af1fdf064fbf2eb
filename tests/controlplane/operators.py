"""Operators as separate processes, for tests that kill and freeze them."""

import asyncio
import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import yaml

from controller.kube.connection import connect
from controller.kube.credentials import ApiAccess
from tests import until as waiting

ROOT = Path(__file__).parents[2]
FENCE = ROOT / "helm" / "tonnage" / "files" / "fence"
"""Folder of the admission policies."""

until = partial(waiting.until, within_s=180.0, pause_s=0.1)
"""Patient enough for processes and servers: a busy machine is not a failure."""


@dataclass
class OperatorProcess:
    """`tonnage operator run`, with what it logs."""

    process: subprocess.Popen[str]
    lines: list[dict[str, Any]] = field(default_factory=list)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def said(self, event: str) -> dict[str, Any] | None:
        return next((line for line in list(self.lines) if line.get("event") == event), None)

    @property
    def metrics_port(self) -> int:
        started = self.said("started")
        assert started is not None
        return int(started["metrics_port"])

    def metrics(self) -> bytes:
        """All of them, as Prometheus reads them."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=10) as answer:
            found: bytes = answer.read()
        return found

    def counted(self, name: str) -> dict[str, float]:
        """The series of one metric, by their labels as they are written."""
        text = self.metrics().decode()
        series = (line.rpartition(" ") for line in text.splitlines() if line.startswith(f"{name}{{"))
        return {labels: float(value) for labels, _, value in series}

    def probe(self, path: str) -> int:
        started = self.said("started")
        assert started is not None
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{started['probe_port']}{path}", timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            try:
                self.lines.append(json.loads(line))
            except ValueError:
                self.lines.append({"event": line.rstrip()})


@contextmanager
def operator(
    kubeconfig: Path, folder: Path, *, program: str = "cli.main", **settings: Any
) -> Iterator[OperatorProcess]:
    """One that has started; it is ended by SIGTERM, or SIGKILL where it does not heed that.

    program: module that is run in place of Tonnage's.
    """
    told = {
        "kubeconfig": str(kubeconfig),
        "host": "127.0.0.1",
        "probe_port": 0,
        "metrics_port": 0,
        "log_format": "json",
        "interval_s": 0.2,
        **settings,
    }
    config = folder / "operator.yaml"
    config.write_text(yaml.safe_dump(told), encoding="utf-8")
    command = [sys.executable, "-m", program, "operator", "run", "--config", str(config)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)  # noqa: S603
    started = OperatorProcess(process)
    reader = Thread(target=started._read, daemon=True)
    reader.start()
    try:
        until(lambda: started.said("started") or process.poll() is not None, "the operator starts")
        assert process.poll() is None, started.lines
        yield started
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        reader.join(5)
        assert process.stderr is not None
        process.stderr.close()


def create_all(kubeconfig: Path, path: str, objects: Sequence[dict[str, Any]]) -> None:
    """Create many objects of one collection, 32 at a time: kubectl would take a minute for 500."""

    async def work() -> None:
        queue = iter(objects)
        async with await connect(ApiAccess(kubeconfig=str(kubeconfig)), time.monotonic) as connection:

            async def worker() -> None:
                for each in queue:
                    await connection.write("POST", path, each)

            await asyncio.gather(*(worker() for _ in range(32)))

    asyncio.run(work())

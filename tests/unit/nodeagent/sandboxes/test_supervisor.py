"""Supervisor of the isolation process: orders reach it, reports leave, and it is started again."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from isolation.orders import ORDERS, REPORT, IsolationReport, Orders, SandboxOrder
from nodeagent.sandboxes.process import ProcessSettings, SandboxSupervisor, recorded
from power.leases.messages import encoded_text, kind_in, text_in

ORDER = Orders("n1", 1, 1, {"uid": SandboxOrder("containerd://x", "tenant")})
ECHO = """
import json, sys
for line in sys.stdin:
    uids = list(json.loads(line)["sandboxes"])
    print(json.dumps({"node": "n1", "life": "l", "level": "full", "why": " ".join(uids)}), flush=True)
    if len(sys.argv) > 2: break
"""


HALF_FIRST = """
import os, sys
report = '{"node": "n1", "life": "l", "level": "full", "why": ""}'
if os.path.exists(sys.argv[1]):
    print(report, flush=True)
    sys.stdin.read()
else:
    open(sys.argv[1], "w").close()
    print(report[:20], end="", flush=True)
"""


def supervised(story: Callable[[SandboxSupervisor, list[bytes]], "asyncio.Future[None]"], *more: str) -> list[bytes]:
    said: list[bytes] = []
    settings = ProcessSettings("n1", "/c", "/s", "/r", 0.5)

    async def run() -> None:
        isolation = SandboxSupervisor(settings, said.append, (sys.executable, "-c", ECHO, *more))
        running = asyncio.create_task(isolation.keep_up())
        await story(isolation, said)
        await isolation.stop()
        running.cancel()

    asyncio.run(run())
    return said


async def until(claim: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not claim():
            await asyncio.sleep(0.01)


def test_orders_reach_the_process_and_its_reports_leave() -> None:
    async def story(isolation: SandboxSupervisor, said: list[bytes]) -> None:
        assert isolation.receive(encoded_text(ORDERS, msgspec.json.encode(ORDER)))
        await until(lambda: bool(said))

    report = supervised(story)[0]  # type: ignore[arg-type]

    assert kind_in(report) == REPORT
    assert msgspec.json.decode(text_in(report), type=IsolationReport).why == "uid"


def test_another_kind_of_message_is_left_to_the_agent() -> None:
    async def story(isolation: SandboxSupervisor, _: list[bytes]) -> None:
        text = msgspec.json.encode(ORDER)
        assert not isolation.receive(encoded_text("lease", text))

    supervised(story)  # type: ignore[arg-type]


def test_a_process_that_ends_is_started_again_with_the_orders() -> None:
    async def story(isolation: SandboxSupervisor, said: list[bytes]) -> None:
        isolation.receive(encoded_text(ORDERS, msgspec.json.encode(ORDER)))
        await until(lambda: len(said) >= 2)

    assert len(supervised(story, "once", "once")) >= 2  # type: ignore[arg-type]


def test_a_process_that_dies_within_a_report_is_started_again(tmp_path: Path) -> None:
    said: list[bytes] = []
    command = (sys.executable, "-c", HALF_FIRST, str(tmp_path / "began"))
    isolation = SandboxSupervisor(ProcessSettings("n1", "/c", "/s", "/r", 0.5), said.append, command)

    async def run() -> None:
        running = asyncio.create_task(isolation.keep_up())
        await until(lambda: bool(said) or running.done())
        await isolation.stop()
        running.cancel()

    asyncio.run(run())

    assert said


def test_a_process_that_falls_silent_is_killed_and_started_again(tmp_path: Path) -> None:
    said: list[bytes] = []
    hangs_first = HALF_FIRST.replace('print(report[:20], end="", flush=True)', "sys.stdin.read()")
    command = (sys.executable, "-c", hangs_first, str(tmp_path / "began"))
    isolation = SandboxSupervisor(ProcessSettings("n1", "/c", "/s", "/r", 0.5), said.append, command, 2.0)

    async def run() -> None:
        running = asyncio.create_task(isolation.keep_up())
        await until(lambda: bool(said))
        await isolation.stop()
        running.cancel()

    asyncio.run(run())

    assert said


def test_the_record_of_another_node_is_not_followed(tmp_path: Path) -> None:
    record = tmp_path / "sandboxes.json"
    record.write_bytes(msgspec.json.encode(ORDER))

    assert recorded(record, "n1") == ORDER
    assert recorded(record, "n2") == Orders("n2", -1, -1)
    record.write_text("{", encoding="utf-8")
    assert recorded(record, "n1") == Orders("n1", -1, -1)

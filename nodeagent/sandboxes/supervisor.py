"""Supervisor of the isolation process: starts it, hands it orders, passes on its reports, and restarts it."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
import structlog

from cluster.errors import UNREADABLE
from isolation.orders import ORDERS, REPORT, NodeReport, Orders
from nodeagent.sandboxes.process import ProcessSettings
from power.leases.messages import Keys, Refusal, opened_text, sealed_text

log = structlog.get_logger(__name__)
PAUSE_S = 0.3
"""Pause before a restart: what was left frozen has to go on within a second."""
LONGEST_LINE = 4 << 20
"""Bytes of one report: 1,024 sandboxes have 300 KiB."""
STOP_WITHIN_S = 5.0


class SandboxSupervisor:
    """The isolation process of one node, for as long as the agent runs."""

    def __init__(
        self,
        settings: ProcessSettings,
        keys: Callable[[], Keys],
        say: Callable[[bytes], None],
        command: Sequence[str] = (sys.executable, "-m", "nodeagent.sandboxes.process"),
    ) -> None:
        """say: sends to the controller, or drops."""
        self._settings, self._keys, self._say = settings, keys, say
        self._command = (*command, msgspec.json.encode(settings).decode())
        self._process: asyncio.subprocess.Process | None = None
        self._orders: bytes | None = None
        self.report: NodeReport | None = None
        """The newest report; None before the first."""

    def hear(self, travelled: bytes) -> bool:
        """Whether a message of the controller was one of orders, which then go to the process."""
        text = opened_text(ORDERS, travelled, self._keys(), self._settings.node)
        if isinstance(text, Refusal):
            return False
        try:
            made = msgspec.json.decode(text, type=Orders)
        except UNREADABLE as error:
            log.warning("orders for sandboxes cannot be read", why=str(error))
            return True
        if made.node == self._settings.node:
            self._orders = msgspec.json.encode(made) + b"\n"
            self._hand_over()
        return True

    async def keep_up(self) -> None:
        """Runs the process for ever; one that ends is started again."""
        while True:
            try:
                await self._run()
            except OSError as error:
                log.warning("the isolation process cannot be started", why=str(error))
            except UNREADABLE as error:  # it was killed in the middle of a report
                log.warning("the isolation process ended within a report and is started again", why=str(error)[:200])
            await asyncio.sleep(PAUSE_S)

    async def stop(self) -> None:
        """Ends the process in order: it lets frozen calls go on, since nobody would decide about them."""
        process = self._process
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_WITHIN_S):
                await process.wait()

    async def _run(self) -> None:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*self._command, stdin=pipe, stdout=pipe, limit=LONGEST_LINE)
        self._process = process
        try:
            self._hand_over()
            assert process.stdout is not None  # noqa: S101 - made with a pipe
            while line := await process.stdout.readline():
                self.report = msgspec.json.decode(line, type=NodeReport)
                self._say(sealed_text(REPORT, line.rstrip(), self._keys(), self._settings.node))
            log.warning("the isolation process ended and is started again", code=await process.wait())
        finally:
            self._process = None
            if process.returncode is None:
                process.kill()

    def _hand_over(self) -> None:
        if self._orders is not None and self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.write(self._orders)

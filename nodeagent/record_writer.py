"""Writing of the record in a thread of its own: a full or hanging disk must not stop limits from being lowered."""

import asyncio
import threading
from contextlib import suppress
from pathlib import Path

import structlog

from nodeagent.state_file import Record, write_record

log = structlog.get_logger(__name__)
PATIENCE_S = 0.5
"""Time for one write; a disk that needs longer counts as failed, and its write goes on in the background."""


class RecordWriter:
    """Writes one record after the other, and says whether each is on disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._running: asyncio.Future[str] | None = None
        self._on_disk: Record | None = None
        """What the files hold; None where that is unknown."""
        self._why = ""

    async def write(self, record: Record) -> bool:
        """Whether this record is on disk. False at once while an earlier write hangs."""
        if self._running is not None and not self._running.done():
            return False
        if record == self._on_disk:
            return True
        known, self._on_disk = self._on_disk, None
        self._running = running = asyncio.get_running_loop().create_future()
        # A daemon: a thread that hangs in the kernel must not keep the process from ending.
        threading.Thread(target=self._write, args=(record, known, running), daemon=True).start()
        await asyncio.wait({running}, timeout=PATIENCE_S)
        why = running.result() if running.done() else "no answer within the time limit"
        if not why:
            self._on_disk = record
        if why and not self._why:
            log.error("record not written: no limit is raised until it is", path=str(self._path), why=why)
        elif self._why and not why:
            log.info("record written again", path=str(self._path))
        self._why = why
        return not why

    def _write(self, record: Record, known: Record | None, running: "asyncio.Future[str]") -> None:
        why = ""
        try:
            write_record(self._path, record, known)
        except OSError as error:
            why = str(error)
        with suppress(RuntimeError):  # the loop was closed while the disk hung
            running.get_loop().call_soon_threadsafe(running.set_result, why)

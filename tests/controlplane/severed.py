"""TCP proxy to an API server that tests can cut or hold: bytes pass unchanged, encrypted or not."""

import asyncio
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import yaml


class Line:
    """Listens on loopback and passes everything on to the server of a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        self._config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        self._target = urlsplit(self._config["clusters"][0]["cluster"]["server"])
        self._open: set[asyncio.StreamWriter] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self._server: asyncio.Server | None = None

    async def start(self, folder: Path) -> Path:
        """The kubeconfig of this line."""
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self._config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
        file = folder / "kubeconfig-of-line"
        file.write_text(yaml.safe_dump(self._config), encoding="utf-8")
        return file

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self.cut()

    def cut(self) -> None:
        """Every connection breaks, as if the network had."""
        for writer in tuple(self._open):
            writer.transport.abort()
        self._open.clear()

    def hold(self) -> None:
        """Nothing passes any more, and neither end is notified."""
        self._passing.clear()

    def release(self) -> None:
        self._passing.set()

    async def _pass_on(self, near: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
        try:
            far, to_far = await asyncio.open_connection(self._target.hostname, self._target.port)
        except OSError:
            to_near.transport.abort()
            return
        self._open |= {to_near, to_far}
        # Python 3.11 prints a traceback for each connection that is still open when the loop ends.
        with suppress(asyncio.CancelledError):
            await asyncio.gather(self._copy(near, to_far), self._copy(far, to_near))

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await source.read(65536):
                await self._passing.wait()
                target.write(chunk)
                await target.drain()
        with suppress(OSError):
            target.close()

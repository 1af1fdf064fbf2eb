"""Fits of forecasts in ConfigMaps beside the Lease, so that a new leader has them: one for each batch of policies."""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace

import structlog

from cluster.errors import ActionError
from controller.api.labels import GROUP
from controller.background.load_fits import FORM, batches_of
from controller.kube.api_server import ApiServer
from controller.kube.crud import read_if_there
from controller.kube.request import APPLY_PATCH, KubeReadError
from controller.kube.sender import Applier, Write, WriteJob

log = structlog.get_logger(__name__)

KEY = f"v{FORM}"
MANAGER = "tonnage-background"
MOST_SAVED = 256
"""Batches that are saved, of some 200 kB: the API server keeps 50 MB of them, the fits of 2,000 policies."""
MOST_BYTES = 1_000_000
"""Largest batch that is saved; a ConfigMap holds 1 MiB."""


@dataclass(frozen=True, slots=True)
class SavedFits:
    """Fits by the number of their batch."""

    connection: ApiServer
    applier: Applier
    lease: tuple[str, str]
    """Namespace and name of the Lease."""

    async def read(self, policies: Mapping[str, object]) -> AsyncIterator[bytes]:
        """The fits that were saved, if it was for at most twice as many policies. One at a time: together they are
        large."""
        for number in range(min(MOST_SAVED, 2 * (1 + max(batches_of(policies.keys()), default=-1)))):
            try:
                found = await read_if_there(self.connection, self._path(number))
                if value := (found or {}).get("binaryData", {}).get(KEY):
                    yield b64decode(value, validate=True)
            except (KubeReadError, NotBase64) as error:
                log.warning("saved fits cannot be read; they are made again", why=str(error))
                return

    async def write(self, fits: Mapping[int, bytes]) -> None:
        jobs = [
            WriteJob(f"ConfigMap/{self._name(number)}", self._write(number, value))
            for number, value in fits.items()
            if number < MOST_SAVED and len(value) <= MOST_BYTES
        ]
        answers = await replace(self.applier, concurrency=1).send(jobs)
        if refused := [each for each in answers if isinstance(each, ActionError)]:
            log.warning("fits were not saved; a new leader makes them again", batches=len(refused), why=str(refused[0]))

    def _name(self, number: int) -> str:
        return f"{self.lease[1]}-load-fits-{number}"

    def _path(self, number: int) -> str:
        return f"/api/v1/namespaces/{self.lease[0]}/configmaps/{self._name(number)}"

    def _write(self, number: int, value: bytes) -> Write:
        labels = {f"{GROUP}/background": "load-fits"}
        metadata = {"name": self._name(number), "namespace": self.lease[0], "labels": labels}
        content = {KEY: b64encode(value).decode()}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": content}
        return Write("PATCH", self._path(number), body, APPLY_PATCH, {"fieldManager": MANAGER})

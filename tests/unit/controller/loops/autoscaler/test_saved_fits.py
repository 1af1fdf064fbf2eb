import asyncio
import json
from collections.abc import Mapping
from typing import Any, cast

from structlog.testing import capture_logs

from cluster.errors import ActionError
from controller.kube.api_server import ApiServer
from controller.kube.request import KubeReadError, KubeWriteError, Refusal
from controller.kube.sender import Applier
from controller.loops.autoscaler.forecasting import MOST_BYTES, MOST_SAVED, SavedFits

POLICIES = {f"d/s{n}": None for n in range(16)}  # two batches


class ConfigMaps:
    """Server of ConfigMaps, which may refuse."""

    def __init__(self, refuses: int = 0) -> None:
        self.kept: dict[str, Mapping[str, Any]] = {}
        self._refuses = refuses

    async def read(self, path: str, query: object = None, accept: str = "") -> bytes:
        status = self._refuses or (0 if path in self.kept else 404)
        if status:
            raise KubeReadError(path, Refusal(status, "No", "refused"))
        return json.dumps(self.kept[path]).encode()

    async def write(self, method: str, path: str, body: Any, query: object, content_type: str) -> bytes:
        if self._refuses:
            raise KubeWriteError(path, Refusal(self._refuses, "No", "refused"))
        self.kept[path] = body
        return b"{}"


class Leading:
    def __init__(self, *, leads: bool = True) -> None:
        self._leads = leads

    def may_write(self) -> bool:
        return self._leads

    def fenced(self) -> None:
        raise ActionError("fenced")

    def contradicted(self, path: str) -> None:
        raise ActionError(path)


def saved_fits(server: ConfigMaps, *, leads: bool = True) -> SavedFits:
    api = cast(ApiServer, server)
    return SavedFits(api, Applier(api, Leading(leads=leads)), ("ours", "tonnage"))


def read(saved: SavedFits) -> list[bytes]:
    async def all_of_them() -> list[bytes]:
        return [value async for value in saved.read(POLICIES)]

    return asyncio.run(all_of_them())


def test_what_one_leader_saves_the_next_one_reads() -> None:
    server = ConfigMaps()
    asyncio.run(saved_fits(server).write({0: b"zero", 3: b"three"}))
    asyncio.run(saved_fits(server).write({0: b"newer"}))

    assert sorted(server.kept) == [
        "/api/v1/namespaces/ours/configmaps/tonnage-load-fits-0",
        "/api/v1/namespaces/ours/configmaps/tonnage-load-fits-3",
    ]
    assert read(saved_fits(server)) == [b"newer", b"three"], "number 3 is from when there were twice as many policies"


def test_what_no_config_map_holds_and_what_is_too_much_is_not_saved() -> None:
    server = ConfigMaps()
    asyncio.run(saved_fits(server).write({0: bytes(MOST_BYTES + 1), MOST_SAVED: b"one too many"}))
    assert server.kept == {}


def test_without_the_permission_nothing_is_saved_or_read_and_the_log_says_so() -> None:
    server = ConfigMaps(refuses=403)
    with capture_logs() as logs:
        asyncio.run(saved_fits(server).write({0: b"zero", 1: b"one"}))
        assert read(saved_fits(server)) == []
    assert [each["event"] for each in logs] == [
        "fits were not saved; a new leader makes them again",
        "saved fits cannot be read; they are made again",
    ]


def test_a_replica_that_does_not_lead_saves_nothing() -> None:
    server = ConfigMaps()
    asyncio.run(saved_fits(server, leads=False).write({0: b"zero"}))
    assert server.kept == {}


def test_fits_of_another_form_are_as_none() -> None:
    server = ConfigMaps()
    asyncio.run(saved_fits(server).write({0: b"zero"}))
    (path,) = server.kept
    server.kept[path] = {**server.kept[path], "binaryData": {"v0": "emVybw=="}}
    assert read(saved_fits(server)) == []

"""Fake API server for writes: records what is sent and answers as a test defines."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.kube.request import JSON, KubeWriteError, Refusal
from controller.kube.sender import Write


def refused(status: int, retry_after_s: float | None = None) -> KubeWriteError:
    return KubeWriteError("writing", Refusal(status, "Refused", f"status {status}", retry_after_s))


@dataclass
class FakeWriter:
    """Answers each write with what `answer` returns for it: bytes, or an error to raise."""

    answer: Callable[[Write], bytes | Exception] = lambda _: b"{}"
    sent: list[Write] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0

    async def read(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        raise NotImplementedError

    async def write(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
    ) -> bytes:
        write = Write(method, path, body, content_type, query or {})
        self.sent.append(write)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(0)  # others get their turn, as over a network
        self.in_flight -= 1
        answer = self.answer(write)
        if isinstance(answer, Exception):
            raise answer
        return answer


class SilentWriter(FakeWriter):
    """Takes every write and never answers."""

    async def write(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
    ) -> bytes:
        self.sent.append(Write(method, path, body, content_type, query or {}))
        await asyncio.Event().wait()
        raise AssertionError("no event ends this wait")

"""Fake connection of a verb: objects by path, with every write that was sent."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cli.inputs.cluster import LiveCluster
from controller.kube.discovery import ApiResource, Discovered
from controller.kube.request import KubeReadError, KubeWriteError, Refusal

Object = dict[str, Any]
RESOURCES = Discovered(
    (
        ApiResource("", "v1", "ConfigMap", "configmaps", "configmap"),
        ApiResource("", "v1", "Pod", "pods", "pod"),
        ApiResource("", "v1", "Node", "nodes", "node", is_namespaced=False),
    )
)


@dataclass(frozen=True)
class Sent:
    """One write."""

    method: str
    path: str
    body: Mapping[str, Any] | None
    query: Mapping[str, str]


@dataclass
class FakeConnection:
    """Calls of controller.kube.connection.Connection. Collections of which nothing is known are empty."""

    objects: dict[str, Object] = field(default_factory=dict)
    lists: dict[str, list[Object]] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    answer: Callable[[Sent], Refusal | None] = lambda _: None
    """Why a write is refused; None: it is done."""
    after: Callable[[Sent], None] = lambda _: None

    @property
    def cluster(self) -> LiveCluster:
        return LiveCluster(self, RESOURCES, "ns")  # type: ignore[arg-type]

    async def read(self, path: str, query: Mapping[str, str] | None = None, accept: str = "") -> bytes:
        if path in self.objects:
            return json.dumps(self.objects[path]).encode()
        if path.rsplit("/", 1)[-1] in ("a", "p", "q", "c"):
            raise KubeReadError(f"reading {path}", Refusal(404, "NotFound", "not found"))
        return json.dumps({"items": self.lists.get(path, []), "metadata": {"resourceVersion": "1"}}).encode()

    async def write(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "",
    ) -> bytes:
        write = Sent(method, path, body, dict(query or {}))
        self.sent.append(write)
        if (refusal := self.answer(write)) is not None:
            raise KubeWriteError(f"{method} {path}", refusal)
        self.after(write)
        return json.dumps({"metadata": {"resourceVersion": "2"}, **(body or {})}).encode()

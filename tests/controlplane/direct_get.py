"""`kubectl get -o json` over a kept connection: tests ask many times a second, and each kubectl costs 0.1 s of CPU."""

import atexit
import http.client
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from tests.controlplane.plain_api import Answer, PlainApi

DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
SELECTORS = {"-l": "labelSelector", "--selector": "labelSelector", "--field-selector": "fieldSelector"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the arguments behind `get` ask for."""

    resource: str
    name: str = ""
    query: dict[str, str] = field(default_factory=dict)
    is_everywhere: bool = False


def asked(arguments: Sequence[str]) -> Asked | None:
    """None for what is left to kubectl: several kinds or names, and options that change the answer."""
    words, query, is_everywhere = [], {}, False
    rest = iter(arguments)
    for each in rest:
        option, _, value = each.partition("=")
        if option in SELECTORS:
            query[SELECTORS[option]] = value or next(rest, "")
        elif each in ("-A", "--all-namespaces"):
            is_everywhere = True
        elif each.startswith("-") or "," in each:
            return None
        else:
            words += each.split("/")
    return Asked(*words, query=query, is_everywhere=is_everywhere) if len(words) in (1, 2) else None


class DirectGet:
    """Reads from one server as one user; kinds are discovered as kubectl does it. Thread-safe."""

    def __init__(self, kubeconfig: Path, user: str) -> None:
        self._api = PlainApi(kubeconfig, user, group="")
        self._kinds: dict[str, tuple[str, str, bool]] = {}
        self._lock = Lock()

    def get(self, what: Asked, namespace: str) -> Any:
        """The object or list; None where kubectl has to tell what is wrong."""
        with self._lock:
            try:
                return self._get(what, namespace)
            except (OSError, http.client.HTTPException):
                self._api.close()
                return None

    def close(self) -> None:
        self._api.close()

    def _get(self, what: Asked, namespace: str) -> Any:
        if what.resource not in self._kinds:
            self._discover()
        if what.resource not in self._kinds:
            return None
        root, plural, is_namespaced = self._kinds[what.resource]
        within = f"/namespaces/{namespace}" if is_namespaced and not what.is_everywhere else ""
        name = f"/{what.name}" if what.name else ""
        answer = self._api.send("GET", f"{root}{within}/{plural}{name}", query=what.query)
        return _as_kubectl_prints(answer) if answer.is_ok else None

    def _discover(self) -> None:
        self._kinds = {}
        for path in ("/api", "/apis"):
            for group in self._api.send("GET", path, accept=DISCOVERY).body["items"]:
                name, version = group["metadata"].get("name", ""), group["versions"][0]
                root = f"/apis/{name}/{version['version']}" if name else f"/api/{version['version']}"
                for each in version.get("resources", ()):
                    found = (root, each["resource"], each["scope"] == "Namespaced")
                    plural, kind = each["resource"], each["responseKind"]["kind"].lower()
                    short = each.get("shortNames", ())
                    for word in (plural, each.get("singularResource") or kind, *short, f"{plural}.{name}"):
                        # Of kinds with one name, kubectl means that of the first group.
                        self._kinds.setdefault(word, found)


def _as_kubectl_prints(answer: Answer) -> Any:
    found = answer.body
    if "items" in found:
        for each in found["items"]:
            each |= {"apiVersion": found["apiVersion"], "kind": found["kind"].removesuffix("List")}
    for each in found.get("items", (found,)):
        each.get("metadata", {}).pop("managedFields", None)
    return found


_KEPT: dict[tuple[Path, int, str], DirectGet] = {}
_KEEPING = Lock()


def direct_get(kubeconfig: Path, user: str) -> DirectGet:
    """The kept connection to the server that the file names now: a server that is started anew writes it anew."""
    key = (kubeconfig, kubeconfig.stat().st_mtime_ns, user)
    with _KEEPING:
        if key not in _KEPT:
            _KEPT[key] = DirectGet(kubeconfig, user)
        return _KEPT[key]


@atexit.register
def _close() -> None:
    for each in _KEPT.values():
        each.close()

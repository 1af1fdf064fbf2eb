"""A fake API server on loopback that answers discovery and one list, and a kubeconfig of it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


def kubeconfig(server: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }


def _resource(plural: str, kind: str, scope: str = "Namespaced") -> dict[str, Any]:
    return {
        "resource": plural,
        "responseKind": {"group": "", "version": "", "kind": kind},
        "scope": scope,
        "singularResource": kind.lower(),
        "verbs": ["get", "list", "watch"],
    }


def _groups(name: str, version: str, *resources: dict[str, Any]) -> dict[str, Any]:
    group = {"metadata": {"name": name}, "versions": [{"version": version, "resources": resources}]}
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": [group]}


ANSWERS = {
    "/api": _groups("", "v1", _resource("pods", "Pod"), _resource("nodes", "Node", "Cluster")),
    "/apis": _groups("tonnage.dev", "v1alpha1", _resource("modelservices", "ModelService")),
}
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:  # the library's name
        path = self.path.partition("?")[0]
        known = ANSWERS.get(path)
        if known is None and "as=Table" in self.headers.get("Accept", ""):
            known = {
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": {},
                "columnDefinitions": [],
                "rows": [],
            }
        elif known is None:
            known = {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}
        body = json.dumps(known).encode()
        self.send_response(200)
        self.send_header("Content-Type", AGGREGATED if path in ANSWERS else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the library's name
        """Nothing: the requests are not of interest."""


@contextmanager
def api_server() -> Iterator[str]:
    """URL of a fake API server on loopback."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        serving = Thread(target=server.serve_forever, daemon=True)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            serving.join()

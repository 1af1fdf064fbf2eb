"""Plain HTTP client of an API server, for tests that check status, body and warnings of its answers."""

import base64
import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: Any
    warnings: tuple[str, ...] = ()

    @property
    def is_ok(self) -> bool:
        return self.status < 300

    @property
    def message(self) -> str:
        return str(self.body.get("message", "")) if isinstance(self.body, dict) else str(self.body)


class PlainApi:
    """Requests over one connection, as the current user of a kubeconfig that carries its certificate and token.

    user: whom to impersonate, in this group, by default with all rights for what the server decides by name; empty:
    nobody.
    """

    def __init__(self, kubeconfig: Path, user: str = "", group: str = "system:masters") -> None:
        config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        cluster, who = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        address = urlsplit(cluster["server"])
        trust = ssl.create_default_context(cadata=authority)
        self._line = http.client.HTTPSConnection(address.hostname or "", address.port, context=trust, timeout=30)
        self._headers = {"Authorization": f"Bearer {who['token']}", "Accept": JSON}
        if user:
            self._headers |= {"Impersonate-User": user} | ({"Impersonate-Group": group} if group else {})

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        headers = {**self._headers, "Content-Type": content_type, "Accept": accept}
        where = f"{path}?{urlencode(query)}" if query else path
        told = None if body is None else json.dumps(body)
        try:
            self._line.request(method, where, told, headers)
            response = self._line.getresponse()
        except (http.client.RemoteDisconnected, ssl.SSLEOFError, BrokenPipeError):
            # The server closes a line that was idle for long, as on a busy machine.
            self._line.close()
            self._line.request(method, where, told, headers)
            response = self._line.getresponse()
        text = response.read()
        warnings = tuple(response.headers.get_all("Warning") or ())
        return Answer(response.status, json.loads(text) if text else {}, warnings)

    @contextmanager
    def opened(self, path: str, query: Mapping[str, str]) -> Iterator[http.client.HTTPResponse]:
        """The answer to a GET while it is still coming, such as that of a watch."""
        self._line.request("GET", f"{path}?{urlencode(query)}", headers=self._headers)
        with self._line.getresponse() as response:
            yield response

    def close(self) -> None:
        self._line.close()

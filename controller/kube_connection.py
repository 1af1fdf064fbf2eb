"""A connection to a Kubernetes API server: raw bytes both ways, and errors that tell their catcher what to do."""

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException, load_kube_config
from kubernetes.aio.config.incluster_config import InClusterConfigLoader
from yaml import YAMLError

from cluster.errors import ActionError, ConfigError, Mistake, ObservationError
from cluster.version import VERSION

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
"""Server-side apply. Its body is sent as JSON, which is YAML."""

DEFAULT_NAMESPACE = "default"
POD_NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

Query = Mapping[str, str]
Body = Mapping[str, Any] | list[Any]


@dataclass(frozen=True, slots=True)
class Access:
    """Which cluster, as whom, and how long an answer may take."""

    kubeconfig: str = ""
    """A file, or several joined as in KUBECONFIG; empty: the service account of the pod that this runs in, or where
    there is none the file that kubectl would read."""
    context: str = ""
    """Of the kubeconfig; empty: its current one."""
    service_account: str = "/var/run/secrets/kubernetes.io/serviceaccount"
    """Folder of the pod's token and of the certificate of its API server, as the kubelet mounts it."""
    impersonate: str = ""
    """Act as this user (`kubectl --as`); empty: as oneself."""
    connect_timeout_s: float = 5.0
    """1 to 60. Chosen: a server that is there accepts within a round trip; a load balancer without one behind it waits
    for ever."""
    request_timeout_s: float = 30.0
    """1 to 300; 0: no limit, as kubectl's --request-timeout=0. For everything but watches. Chosen: half of the API
    server's own limit, and a list of 60,000 pods takes a tenth of it."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request that was made, for whoever counts them. Its labels have few values."""

    verb: str
    """As RBAC speaks of it: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`."""
    resource: str
    """`pods`, `pods/binding`, `leases`."""
    status: int
    """HTTP status, 0 when no answer came."""
    for_s: float
    """Until the head of the answer was there."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request did not do what it was sent for."""

    status: int
    """HTTP status; 0 when no answer came."""
    reason: str
    """The API server's word for it: `NotFound`, `Conflict`, `Expired`; `NoAnswer` when none came."""
    words: str
    retry_after_s: float | None = None
    """How long the server asks to be left alone."""
    causes: tuple["Cause", ...] = ()
    """What is wrong field by field, where the server says so."""


class Cause(msgspec.Struct, frozen=True):
    """One reason of a refusal, of meta/v1 StatusCause."""

    reason: str = ""
    message: str = ""
    field: str = ""


class KubeReadError(ObservationError):
    """Something could not be read."""

    def __init__(self, doing: str, refusal: Refusal) -> None:
        super().__init__(f"{doing}: {refusal.words}")
        self.refusal = refusal


class KubeWriteError(ActionError):
    """Something could not be written. `NoAnswer` leaves open whether it was: the watch tells."""

    def __init__(self, doing: str, refusal: Refusal) -> None:
        super().__init__(f"{doing}: {refusal.words}")
        self.refusal = refusal


class Transport(Protocol):
    """What reading a cluster needs of a connection."""

    async def read(self, path: str, query: Query) -> bytes:
        """The body of a GET. Raises KubeReadError."""
        ...

    def watch(self, path: str, query: Query, *, idle_s: float) -> AsyncGenerator[bytes, None]:
        """The lines of a watch, one JSON event each, until the server ends it.

        Raises KubeReadError when it breaks, or when nothing came for `idle_s`. Close it (`aclosing`) when done.
        """
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """A body with the head that came before it."""

    body: bytes
    headers: Mapping[str, str]
    """Names in lower case."""


class Connection:
    """Requests over one pool of connections, with the credentials as they are at that moment."""

    def __init__(
        self,
        configuration: Configuration,
        access: Access,
        clock: Callable[[], float],
        counted: Callable[[Request], None],
        namespace: str = DEFAULT_NAMESPACE,
        warned: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.namespace = namespace
        """Where the context of the kubeconfig, or the pod that this runs in, is at home."""
        self.host = str(configuration.host)
        """Address of the server."""
        self._warned = warned
        self._configuration = configuration
        self._session = _session(configuration)
        self._access = access
        self._whole_answer = aiohttp.ClientTimeout(
            total=access.request_timeout_s or None, sock_connect=access.connect_timeout_s
        )
        self._clock = clock
        self._counted = counted

    async def close(self) -> None:
        await self._session.close()

    async def __aenter__(self) -> "Connection":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def read(self, path: str, query: Query | None = None, accept: str = JSON) -> bytes:
        """The body of a GET. Raises KubeReadError."""
        return (await self.read_whole(path, query, accept)).body

    async def read_whole(self, path: str, query: Query | None = None, accept: str = JSON) -> Answer:
        """The answer to a GET with its head. Raises KubeReadError."""
        try:
            return await self._whole("GET", path, query or {}, None, JSON, accept)
        except _RefusedError as refused:
            raise KubeReadError(f"reading {path}", refused.refusal) from refused.__cause__

    async def write(
        self, method: str, path: str, body: Body | None = None, query: Query | None = None, content_type: str = JSON
    ) -> bytes:
        """The body of the answer to a POST, PUT, PATCH or DELETE. Raises KubeWriteError; nothing is tried twice."""
        doing = f"{_VERBS[method]} {path}"
        try:
            return (await self._whole(method, path, query or {}, body, content_type)).body
        except _RefusedError as refused:
            raise KubeWriteError(doing, refused.refusal) from refused.__cause__

    async def watch(self, path: str, query: Query, *, idle_s: float, accept: str = JSON) -> AsyncGenerator[bytes, None]:
        """The lines of a watch. Raises KubeReadError when it breaks, or when nothing came for `idle_s`."""
        doing = f"watching {path}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._access.connect_timeout_s, sock_read=idle_s)
        try:
            answer = await self._send("GET", path, {**query, "watch": "true"}, None, JSON, accept, timeout)
            try:
                await _check(answer)
                async with aclosing(lines(answer.content.iter_any())) as each_line:
                    async for line in each_line:
                        yield line
            finally:
                answer.close()
        except _RefusedError as refused:
            raise KubeReadError(doing, refused.refusal) from refused.__cause__
        except _BROKEN as error:
            raise KubeReadError(doing, _no_answer(error)) from error

    async def _whole(
        self, method: str, path: str, query: Query, body: Body | None, content_type: str, accept: str = JSON
    ) -> Answer:
        try:
            answer = await self._send(method, path, query, body, content_type, accept, self._whole_answer)
            for warning in answer.headers.getall("Warning", ()):
                self._warned(warning_text(warning))
            await _check(answer)
            headers = {name.lower(): value for name, value in answer.headers.items()}
            return Answer(await answer.read(), headers)
        except _BROKEN as error:
            raise _RefusedError(_no_answer(error)) from error

    async def _send(
        self,
        method: str,
        path: str,
        query: Query,
        body: Body | None,
        content_type: str,
        accept: str,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        start_s, status = self._clock(), 0
        url = f"{self._configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            headers = {**await self._headers(), "Accept": accept, "Content-Type": content_type}
            answer = await self._session.request(
                method,
                url,
                headers=headers,
                data=None if body is None else _TO_JSON.encode(body),
                timeout=timeout,
                server_hostname=self._configuration.tls_server_name or None,
                proxy=self._configuration.proxy or None,
                proxy_headers=self._configuration.proxy_headers or None,
            )
            status = answer.status
            return answer
        finally:
            verb, resource = _verb(method, path, query), resource_of(path)
            self._counted(Request(verb, resource, status, self._clock() - start_s))

    async def _headers(self) -> dict[str, str]:
        # Uncompressed: the server would spend more on packing a list than the network of a datacenter does on it.
        headers = {"Accept-Encoding": "identity", "User-Agent": f"tonnage/{VERSION}"}
        token = await self._configuration.get_api_key_with_prefix("BearerToken")
        if token:
            headers["Authorization"] = token
        if self._access.impersonate:
            headers["Impersonate-User"] = self._access.impersonate
        return headers


class _RefusedError(Exception):
    """Carries a refusal to where it is known whether something was read or written."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.words)
        self.refusal = refusal


_BROKEN = (aiohttp.ClientError, TimeoutError, OSError, ConfigException)
_VERBS = {"POST": "creating", "PUT": "replacing", "PATCH": "patching", "DELETE": "deleting"}


class _StatusDetails(msgspec.Struct, rename="camel"):
    retry_after_seconds: float | None = None
    causes: tuple[Cause, ...] = ()


class Status(msgspec.Struct):
    """meta/v1 Status: how the API server says what went wrong, as an answer and inside a watch."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _StatusDetails | None = None

    def refusal(self, status: int) -> Refusal:
        wait_s = self.details.retry_after_seconds if self.details else None
        causes = self.details.causes if self.details else ()
        words = self.message or f"status {status}"
        return Refusal(self.code or status, self.reason or "Unknown", words, wait_s, causes)


async def connect(
    access: Access,
    clock: Callable[[], float],
    counted: Callable[[Request], None] = lambda _: None,
    warned: Callable[[str], None] = lambda _: None,
) -> Connection:
    """A connection to the cluster that `access` names; nothing is sent yet. Raises ConfigError.

    clock: monotonic, seconds. counted: called after each request, in the event loop: be quick. warned: called with
    the words of each warning that the server sends beside an answer.
    """
    configuration = Configuration()
    try:
        if not access.kubeconfig and not access.context and "KUBERNETES_SERVICE_HOST" in os.environ:
            _load_service_account(configuration, access, clock)
            namespace = _namespace_of_pod()
        else:
            namespace = await _load_kubeconfig(configuration, access, clock)
        configuration.proxy = configuration.proxy or proxy_to(configuration.host)
        return Connection(configuration, access, clock, counted, namespace, warned)
    except (ConfigException, OSError, YAMLError, ValueError, TypeError, AttributeError) as error:
        # The loader lets whatever a malformed file leads to escape, so these names are all it takes.
        remedy = "check --kubeconfig and --context, or kubectl config view"
        words = " ".join(str(error).split())
        raise ConfigError(Mistake(access.kubeconfig or "kubeconfig", f"cannot be used: {words}", remedy)) from error


CONNECTIONS = 100
"""At most; each watch keeps one for itself, writes share the others."""
READ_BUFFER_BYTES = 2**21
_TO_JSON = msgspec.json.Encoder()


def _session(configuration: Configuration) -> aiohttp.ClientSession:
    """TLS as the library reads it from the configuration, and none of what its own session does at every request: it
    looks into the environment, and on the disk for a .netrc, in a thread; and it keeps cookies, which no API server
    sends. 2.6 ms of processor time for a bind and its Event that way, 1.3 ms this way (benchmarks/binding.py)."""
    tls = RESTClientObject(configuration).ssl_context
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=CONNECTIONS, ssl=tls),
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=READ_BUFFER_BYTES,
    )


def proxy_to(url: str) -> str | None:
    """The proxy that the environment names for a server (HTTPS_PROXY, NO_PROXY and their like), as kubectl reads it."""
    server = urlsplit(url)
    found = getproxies().get(server.scheme)
    return found if found and not proxy_bypass(server.netloc) else None


TOKEN_FOR_S = 60.0
"""How long a token is used before its file or plugin is asked again; plugins that tell an expiry are asked only then.
A minute: the kubelet replaces a pod's token when a fifth of its life is left, which is two minutes at the least."""


def _load_service_account(configuration: Configuration, access: Access, clock: Callable[[], float]) -> None:
    folder = access.service_account
    loader = InClusterConfigLoader(f"{folder}/token", f"{folder}/ca.crt", try_refresh_token=False)
    loader.load_and_set(configuration)
    read_at_s = clock()

    def refresh(_: Configuration) -> None:
        nonlocal read_at_s
        if clock() - read_at_s >= TOKEN_FOR_S:
            loader.load_and_set(configuration)
            read_at_s = clock()

    configuration.refresh_api_key_hook = refresh


async def _load_kubeconfig(configuration: Configuration, access: Access, clock: Callable[[], float]) -> str:
    """Fills in the configuration; the namespace of the context."""
    loader = await load_kube_config(
        config_file=access.kubeconfig or None,
        context=access.context or None,
        client_configuration=configuration,
        persist_config=False,
    )
    _check_plugin(loader, configuration)
    read_at_s = clock()

    async def refresh(_: Configuration) -> None:
        nonlocal read_at_s
        if clock() - read_at_s >= TOKEN_FOR_S:
            read_at_s = clock()
            await loader.load_and_set(configuration)

    configuration.refresh_api_key_hook = refresh
    context = loader.current_context["context"]
    return str(context["namespace"]) if "namespace" in context else DEFAULT_NAMESPACE


def _namespace_of_pod() -> str:
    try:
        return Path(POD_NAMESPACE_FILE).read_text(encoding="utf-8").strip() or DEFAULT_NAMESPACE
    except OSError:
        return DEFAULT_NAMESPACE


def warning_text(header: str) -> str:
    """The words of a Warning header, `299 - "use v2"`. Source: RFC 7234, section 5.5."""
    _, quote, rest = header.partition('"')
    text, end, _ = rest.rpartition('"')
    return text.replace('\\"', '"') if quote and end else header


def _check_plugin(loader: Any, configuration: Configuration) -> None:
    """The library logs that a credential plugin failed and goes on without a credential, as nobody.

    Raises ConfigException.
    """
    user = loader._user  # its only trace of what the kubeconfig says
    has_credential = configuration.api_key.get("BearerToken") or configuration.cert_file
    if user and "exec" in user and not has_credential:
        command = " ".join([user["exec"]["command"], *(user["exec"].safe_get("args") or ())])
        raise ConfigException(f"the credential plugin gave no credential; run it to see why: {command}")


async def _check(answer: aiohttp.ClientResponse) -> None:
    """Raises what the server refused."""
    if 200 <= answer.status < 300:
        return
    body = await answer.read()
    try:
        refusal = msgspec.json.decode(body, type=Status).refusal(answer.status)
    except msgspec.MsgspecError:  # a proxy's page, an authoriser's plain text
        refusal = Refusal(answer.status, "Unknown", f"status {answer.status}: {body[:200].decode(errors='replace')}")
    after = answer.headers.get("Retry-After", "")
    if refusal.retry_after_s is None and after.isdigit():
        refusal = replace(refusal, retry_after_s=float(after))
    raise _RefusedError(refusal)


def _no_answer(error: BaseException) -> Refusal:
    return Refusal(0, "NoAnswer", f"no answer: {type(error).__name__} {error}".rstrip())


async def lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The lines of a stream, however it was cut into chunks and however long they are. A rest without end is dropped:
    its connection broke in the middle of it."""
    rest: list[bytes] = []
    async for chunk in chunks:
        *whole, last = chunk.split(b"\n")
        for line in whole:
            rest.append(line)
            yield b"".join(rest)
            rest = []
        if last:
            rest.append(last)


def resource_of(path: str) -> str:
    """`pods/binding` of `/api/v1/namespaces/ns/pods/p/binding`; of other paths, their first part."""
    rest = _resource_parts(path)
    return "/".join((*rest[:1], *rest[2:3])) or path.strip("/").partition("/")[0]


def _resource_parts(path: str) -> list[str]:
    """Resource, name and subresource of a path, as far as it has them."""
    first, *rest = path.strip("/").split("/")
    rest = rest[{"api": 1, "apis": 2}.get(first, len(rest)) :]
    return rest[2:] if rest[:1] == ["namespaces"] and len(rest) > 2 else rest


def _verb(method: str, path: str, query: Query) -> str:
    if method != "GET":
        return {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[method]
    if query.get("watch") == "true":
        return "watch"
    return "list" if len(_resource_parts(path)) == 1 else "get"

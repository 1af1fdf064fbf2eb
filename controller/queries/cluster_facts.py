"""Looking at a cluster for `tonnage doctor`: facts, each read by itself, so that one that may not be hides no other."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from cluster.errors import ObservationError
from controller.api.kinds import OWN_KINDS
from controller.api.rbac import Permission, needed
from controller.kube import crud
from controller.kube.connection import Connection
from controller.kube.errors import KubeReadError, KubeWriteError
from controller.queries.doctor import Facts
from controller.queries.installation import Installation, find_installation
from controller.queries.list_once import Look, look

T = TypeVar("T")
Object = dict[str, Any]

NOT_FOUND = 404
REVIEWS = "/apis/authorization.k8s.io/v1"
METRICS_PORT = 8080


async def gather_facts(connection: Connection, clock: Callable[[], float] = time.time) -> Facts:
    """Everything that is judged. Raises KubeReadError when the server does not answer at all."""
    unread: dict[str, str] = {}

    async def tried(check: str, work: Awaitable[T], otherwise: T) -> T:
        try:
            return await work
        except (KubeReadError, KubeWriteError) as error:
            if error.refusal.status == 0:
                raise
            unread[check] = error.refusal.words
        except ObservationError as error:
            unread[check] = str(error)
        return otherwise

    answer = await connection.read_whole("/version")
    at_s = clock()
    installation = await tried("operator", find_installation(connection), Installation())
    crds, seen, lease, slices = await asyncio.gather(
        tried("crds", _crds(connection), {}),
        tried("nodes", look(connection, clock), None),
        tried("lease", _lease(connection, installation), None),
        tried("dra", _slices(connection), None),
    )
    snapshot = _snapshot(seen, unread)
    if "nodes" in unread:
        unread["waiting"] = unread["nodes"]
    who = installation.account or "you (no operator was found)"
    allowed = await tried("rbac", _allowed(connection, installation), {})
    metrics = await tried("metrics", _metrics(connection, installation), {})
    return Facts(
        server_version=str(crud.decoded("/version", answer.body).get("gitVersion", "")),
        skew_s=skew_s(answer.headers.get("date"), at_s),
        crds=crds,
        installation=installation,
        allowed=allowed,
        allowed_to=who,
        lease=lease,
        metrics=metrics,
        snapshot=snapshot,
        pods={} if seen is None else seen.caches.pods.all(),
        dra_slices=slices,
        unread=unread,
    )


def _snapshot(seen: Look | None, unread: dict[str, str]) -> Any:
    try:
        return None if seen is None else seen.seen().snapshot
    except ObservationError as error:
        unread["nodes"] = str(error)
        return None


def skew_s(date: str | None, at_s: float) -> float | None:
    """How far this machine's clock is ahead of a Date header, which is cut to whole seconds: within one, none."""
    try:
        said_s = parsedate_to_datetime(date or "").timestamp()
    except ValueError:
        return None
    return at_s - said_s if at_s < said_s else max(0.0, at_s - said_s - 1.0)


async def _crds(connection: Connection) -> dict[str, Object]:
    found: dict[str, Object] = {}
    for kind in OWN_KINDS:
        name = kind.definition
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
        if (stored := await crud.read_if_there(connection, path)) is not None:
            found[name] = stored
    return found


async def _lease(connection: Connection, installation: Installation) -> Object | None:
    namespace, name = installation.lease
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
    return await crud.read_if_there(connection, path)


async def _slices(connection: Connection) -> int | None:
    try:
        return len(await crud.list_all(connection, "/apis/resource.k8s.io/v1/resourceslices"))
    except KubeReadError as error:
        if error.refusal.status == NOT_FOUND:
            return None
        raise


async def _allowed(connection: Connection, installation: Installation) -> dict[tuple[str, Permission], bool]:
    """What the operator's account may do; where none was found, what whoever asks may: they would run it."""
    placers = frozenset(pool.placer for pool in installation.pools)
    wanted = list(needed(placers, installation.lease, leases_watts=installation.leases_watts))
    answers = await asyncio.gather(*(_may(connection, each, installation.account) for _, each in wanted))
    return dict(zip(wanted, answers, strict=True))


async def _may(connection: Connection, permission: Permission, account: str) -> bool:
    resource, _, subresource = permission.resource.partition("/")
    asked = {
        "verb": permission.verb,
        "group": permission.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": permission.namespace,
        "name": permission.name,
    }
    kind = "SubjectAccessReview" if account else "SelfSubjectAccessReview"
    spec: Object = {"resourceAttributes": {key: value for key, value in asked.items() if value}}
    if account:
        namespace = account.split(":")[2]
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
        spec |= {"user": account, "groups": groups}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    answer = await connection.write("POST", f"{REVIEWS}/{kind.lower()}s", body)
    return bool(crud.decoded(REVIEWS, answer).get("status", {}).get("allowed"))


async def _metrics(connection: Connection, installation: Installation) -> dict[str, str]:
    """Of each running pod of the operator, through the API server."""
    port = (installation.settings or {}).get("metrics_port") or METRICS_PORT
    found: dict[str, str] = {}
    for pod in installation.pods:
        if (pod.get("status") or {}).get("phase") != "Running":
            continue
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        path = f"/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/metrics"
        try:
            body = await connection.read(path)
            found[f"{namespace}/{name}"] = "" if b"tonnage_" in body else "what it serves are not Tonnage's metrics"
        except KubeReadError as error:
            found[f"{namespace}/{name}"] = f"its metrics cannot be read: {error.refusal.words}"
    return found

"""Facts of a cluster for `tonnage doctor`, each read on its own, so that a forbidden one does not hide the others."""

import asyncio
import time
from collections.abc import Awaitable
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from cluster.clock import Clock
from cluster.errors import ObservationError
from controller.api.kinds import OWN_KINDS
from controller.api.model_service import KIND as SERVICE
from controller.api.rbac import Permission, needed
from controller.api.scaling_policy import KIND as SCALING_POLICY
from controller.kube import api_server, crud, discovery, request
from controller.queries import doctor, doctor_scaling, list_once
from controller.queries.installation import Installation, find_installation

T = TypeVar("T")
Object = dict[str, Any]

NOT_FOUND = 404
YOU = "you (no operator was found)"
REVIEWS = "/apis/authorization.k8s.io/v1"
METRICS_PORT = 8080


async def gather_facts(connection: api_server.ApiServer, clock: Clock = time.time) -> doctor.InstallationFacts:
    """All facts that the checks need. Raises KubeReadError when the server does not respond at all."""
    unread: dict[str, str] = {}

    async def read_or(check: str, work: Awaitable[T], otherwise: T) -> T:
        try:
            return await work
        except (request.KubeReadError, request.KubeWriteError) as error:
            if error.refusal.status == 0:
                raise
            unread[check] = error.refusal.words
        except ObservationError as error:
            unread[check] = str(error)
        return otherwise

    answer = await connection.read_whole("/version")
    at_s = clock()
    installation = await read_or("operator", find_installation(connection), Installation())
    lease = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}".format(*installation.lease)
    crds, seen, held, scaling, slices = await asyncio.gather(
        read_or("crds", _crds(connection), {}),
        read_or("nodes", list_once.list_cluster(connection, clock), None),
        read_or("lease", crud.read_if_there(connection, lease), None),
        read_or("scaling", _scaling(connection, installation), doctor_scaling.ScalingFacts()),
        read_or("dra", _slices(connection), None),
    )
    snapshot = None
    try:
        snapshot = None if seen is None else seen.seen().snapshot
    except ObservationError as error:
        unread["nodes"] = str(error)
    if "nodes" in unread:
        unread["waiting"] = unread["nodes"]
    allowed = await read_or("rbac", _allowed(connection, installation), {})
    metrics = await read_or("metrics", _metrics(connection, installation), {})
    return doctor.InstallationFacts(
        server_version=str(crud.decoded("/version", answer.body).get("gitVersion", "")),
        skew_s=skew_s(answer.headers.get("date"), at_s),
        crds=crds,
        installation=installation,
        allowed=allowed,
        allowed_to=installation.account or YOU,
        lease=held,
        metrics=metrics,
        snapshot=snapshot,
        pods={} if seen is None else seen.caches.pods.all(),
        scaling=scaling,
        dra_slices=slices,
        unread=unread,
    )


def skew_s(date: str | None, at_s: float) -> float | None:
    """Seconds by which this machine's clock is ahead of a Date header; 0 within a second, because Date has whole
    seconds.

    None without a valid header.
    """
    try:
        server_s = parsedate_to_datetime(date or "").timestamp()
    except ValueError:
        return None
    return at_s - server_s if at_s < server_s else max(0.0, at_s - server_s - 1.0)


async def _crds(connection: api_server.ApiServer) -> dict[str, Object]:
    found: dict[str, Object] = {}
    for kind in OWN_KINDS:
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind.definition}"
        if (stored := await crud.read_if_there(connection, path)) is not None:
            found[kind.definition] = stored
    return found


async def _scaling(connection: api_server.ApiServer, installation: Installation) -> doctor_scaling.ScalingFacts:
    """ScalingPolicies, with the operator's permissions on their targets."""
    policies = tuple(await crud.list_all(connection, SCALING_POLICY.path))
    discovered = await discovery.discover(connection) if policies else None
    wanted: list[tuple[str, Permission]] = []
    unknown: dict[str, str] = {}
    for policy in policies:
        namespace, target = policy["metadata"]["namespace"], policy["spec"]["target"]
        name, mode = f"{namespace}/{policy['metadata']['name']}", policy["spec"].get("mode", "Recommend")
        if target["kind"] == SERVICE.name or mode == "Off" or discovered is None:
            continue
        resource = discovered.of_kind(target["apiVersion"], target["kind"])
        if resource is None:
            unknown[name] = f"{target['kind']} in {target['apiVersion']}"
            continue
        verbs = ("get",) if mode == "Recommend" else ("get", "patch")
        scale = f"{resource.plural}/scale"
        wanted += [(name, Permission(verb, resource.group, scale, namespace)) for verb in verbs]
    answers = await asyncio.gather(*(_may(connection, each, installation.account) for _, each in wanted))
    return doctor_scaling.ScalingFacts(
        policies=policies,
        is_enabled=installation.enables("autoscaler", otherwise=True),
        has_prometheus=installation.has_prometheus,
        account=installation.account or YOU,
        allowed=dict(zip(wanted, answers, strict=True)),
        unknown_targets=unknown,
    )


async def _slices(connection: api_server.ApiServer) -> int | None:
    try:
        return len(await crud.list_all(connection, "/apis/resource.k8s.io/v1/resourceslices"))
    except request.KubeReadError as error:
        if error.refusal.status == NOT_FOUND:
            return None
        raise


async def _allowed(connection: api_server.ApiServer, installation: Installation) -> dict[tuple[str, Permission], bool]:
    """Permissions of the operator's service account; without an operator, those of the caller, who would run it."""
    enabled = [part for part in ("power", "isolation", "health") if installation.enables(part)]
    enabled += ["autoscale"] if installation.enables("autoscaler", otherwise=True) else []
    placers = frozenset(pool.placer for pool in installation.pools)
    wanted = list(needed(placers, installation.lease, (*enabled, *installation.demand)))
    answers = await asyncio.gather(*(_may(connection, each, installation.account) for _, each in wanted))
    return dict(zip(wanted, answers, strict=True))


async def _may(connection: api_server.ApiServer, permission: Permission, account: str) -> bool:
    asked = request.asked_of(
        permission.verb, permission.group, permission.resource, permission.namespace, permission.name
    )
    kind = "SubjectAccessReview" if account else "SelfSubjectAccessReview"
    spec: Object = {"resourceAttributes": {key: value for key, value in asked.items() if value}}
    if account:
        namespace = account.split(":")[2]
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
        spec |= {"user": account, "groups": groups}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    answer = await connection.write("POST", f"{REVIEWS}/{kind.lower()}s", body)
    return bool(crud.decoded(REVIEWS, answer).get("status", {}).get("allowed"))


async def _metrics(connection: api_server.ApiServer, installation: Installation) -> dict[str, str]:
    """Error of reading the metrics of each running operator pod through the API server; "" when it succeeded."""
    port = (installation.settings or {}).get("metrics_port") or METRICS_PORT
    found: dict[str, str] = {}
    for pod in installation.pods:
        if (pod.get("status") or {}).get("phase") != "Running":
            continue
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        path = f"/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/metrics"
        try:
            body = await connection.read(path)
            found[f"{namespace}/{name}"] = "" if b"tonnage_" in body else "it does not serve Tonnage's metrics"
        except request.KubeReadError as error:
            found[f"{namespace}/{name}"] = f"its metrics cannot be read: {error.refusal.words}"
    return found

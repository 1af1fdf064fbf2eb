"""Where an operator is installed on a cluster, and with which settings: found by the labels of the chart."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from controller.kube import crud
from controller.kube.connection import Connection
from controller.kube.errors import KubeReadError
from controller.placers.pools import DEFAULT_POOLS, Pool
from controller.settings import LeaseSettings, OperatorSettings, settings_from

Object = dict[str, Any]

LABELS = "app.kubernetes.io/name=tonnage,app.kubernetes.io/component=controller"
SETTINGS_KEY = "settings.yaml"


@dataclass(frozen=True, slots=True)
class Installation:
    """What of an operator is on a cluster. Without one, what an operator with default settings would do."""

    deployment: Object | None = None
    pods: tuple[Object, ...] = ()
    settings: Mapping[str, Any] | None = None
    """As the chart wrote them; None: not found, or they may not be read."""
    settings_place: str = ""
    """Where they stand: `ConfigMap/NAMESPACE/NAME`."""
    unread: str = ""
    """Why it could not be looked for."""

    @property
    def operator_settings(self) -> OperatorSettings:
        """The operator's, or the defaults where none is found; its environment is not known. Raises ConfigError."""
        return settings_from(self.settings or {}, self.settings_place)

    @property
    def pools(self) -> tuple[Pool, ...]:
        written = (self.settings or {}).get("pools")
        return tuple(Pool(p["placer"], p.get("selector") or {}) for p in written) if written else DEFAULT_POOLS

    @property
    def lease(self) -> tuple[str, str]:
        """(namespace, name)."""
        default = LeaseSettings()
        lease = (self.settings or {}).get("lease") or {}
        return str(lease.get("namespace", default.namespace)), str(lease.get("name", default.name))

    @property
    def leases_watts(self) -> bool:
        return bool(((self.settings or {}).get("power") or {}).get("enabled"))

    @property
    def account(self) -> str:
        """The user that the operator is for the API server; empty when it is not installed."""
        if self.deployment is None:
            return ""
        name = self.deployment["spec"]["template"]["spec"].get("serviceAccountName") or "default"
        return f"system:serviceaccount:{self.deployment['metadata']['namespace']}:{name}"


async def find_installation(connection: Connection) -> Installation:
    """Look for it in all namespaces. Raises KubeReadError only when the server does not answer."""
    query = {"labelSelector": LABELS}
    try:
        deployments = await crud.list_all(connection, "/apis/apps/v1/deployments", query)
        pods = await crud.list_all(connection, "/api/v1/pods", query)
        maps = await crud.list_all(connection, "/api/v1/configmaps", query)
    except KubeReadError as error:
        if error.refusal.status != 403:  # forbidden
            raise
        return Installation(unread=error.refusal.words)
    found = next((each for each in maps if SETTINGS_KEY in (each.get("data") or {})), None)
    settings = yaml.safe_load(found["data"][SETTINGS_KEY]) if found else None
    is_read = found is not None and isinstance(settings, dict)
    return Installation(
        deployments[0] if deployments else None,
        tuple(pods),
        settings if is_read else None,
        f"ConfigMap/{found['metadata']['namespace']}/{found['metadata']['name']}" if found and is_read else "",
    )

"""Installed operator of a cluster with its settings, found by the labels of the chart."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from controller.kube import crud
from controller.kube.api_server import ApiServer
from controller.kube.request import KubeReadError
from controller.placers import DEFAULT_POOLS, NodePool
from controller.settings import LeaseSettings, OperatorSettings, settings_from

Object = dict[str, Any]

LABELS = "app.kubernetes.io/name=tonnage,app.kubernetes.io/component=controller"
SETTINGS_KEY = "settings.yaml"


@dataclass(frozen=True, slots=True)
class Installation:
    """Operator on a cluster; its properties are those of default settings when none is installed."""

    deployment: Object | None = None
    pods: tuple[Object, ...] = ()
    settings: Mapping[str, Any] | None = None
    """Settings as the chart wrote them; None: not found, or not readable."""
    settings_place: str = ""
    """ConfigMap of the settings: `ConfigMap/NAMESPACE/NAME`."""
    unread: str = ""
    """Error of the search; empty when it succeeded."""

    @property
    def operator_settings(self) -> OperatorSettings:
        """Settings of the operator, or the defaults when none is found, without its environment. Raises ConfigError."""
        return settings_from(self.settings or {}, self.settings_place)

    @property
    def pools(self) -> tuple[NodePool, ...]:
        written = (self.settings or {}).get("pools")
        return tuple(NodePool(p["placer"], p.get("selector") or {}) for p in written) if written else DEFAULT_POOLS

    @property
    def lease(self) -> tuple[str, str]:
        """(namespace, name) of the Lease."""
        default = LeaseSettings()
        lease = (self.settings or {}).get("lease") or {}
        return str(lease.get("namespace", default.namespace)), str(lease.get("name", default.name))

    def enables(self, part: str, *, otherwise: bool = False) -> bool:
        """Whether a part of the settings is enabled. otherwise: where they do not say it."""
        return bool(((self.settings or {}).get(part) or {}).get("enabled", otherwise))

    @property
    def has_prometheus(self) -> bool:
        """Whether the autoscaler has a Prometheus to ask."""
        autoscaler = (self.settings or {}).get("autoscaler") or {}
        return bool((autoscaler.get("prometheus") or {}).get("url"))

    @property
    def demand(self) -> tuple[str, ...]:
        """Enabled sources, endpoints and ConfigMaps of the autoscaler, and routes, as the permissions name them."""
        autoscaler = (self.settings or {}).get("autoscaler") or {}
        is_enabled = {
            "custom-metrics": autoscaler.get("custom_metrics"),
            "config-maps": autoscaler.get("config_maps"),
            "routes": (self.settings or {}).get("routes"),
            "push": (autoscaler.get("push") or {}).get("enabled"),
            "external-metrics": (autoscaler.get("external_metrics") or {}).get("enabled"),
        }
        return tuple(name for name, enabled in is_enabled.items() if enabled)

    @property
    def account(self) -> str:
        """User name of the operator's service account; empty when it is not installed."""
        if self.deployment is None:
            return ""
        name = self.deployment["spec"]["template"]["spec"].get("serviceAccountName") or "default"
        return f"system:serviceaccount:{self.deployment['metadata']['namespace']}:{name}"


async def find_installation(connection: ApiServer) -> Installation:
    """Search all namespaces for an operator. A missing permission is reported in `unread`; raises KubeReadError
    else."""
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

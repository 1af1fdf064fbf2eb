"""Settings of the operator, from one file and the environment; read once at the start and validated completely."""

import os
import socket
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict, SettingsError

from cluster import errors, field_errors, plans
from placement.policies import POLICIES

PREFIX = "TONNAGE_"
SHIPPED = plans.PlanLimits()


class Part(BaseModel):
    """Group of settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PoolSettings(Part):
    """Pool of nodes with the same placement mode."""

    placer: Literal["bind", "dra", "gate"]
    """Placement mode. bind: Tonnage binds pods with `schedulerName: tonnage`; only for nodes that no other scheduler
    uses. dra: Tonnage allocates exact devices to the ResourceClaims of pods, then places the pods by bind or gate,
    as their spec requests; only for nodes whose claims no other scheduler allocates. gate: kube-scheduler binds pods
    after Tonnage has removed the gate `tonnage.dev/placement`."""
    selector: dict[str, str] = {}
    """Labels of the nodes; empty: all nodes that are in no earlier pool."""
    shares: bool = False
    """For gate: whether pods with shares of a GPU (`tonnage.dev/gpu-milli`) are placed there. kube-scheduler does not
    see that they hold a device, and gives it to the next pod that asks for a whole one: only for nodes on which all
    pods with GPUs wait for Tonnage. In mode bind they always are."""
    owned: bool = False
    """For gate and dra: whether Tonnage owns these nodes, so that it may stop every pod there for one of higher
    priority, also those that another scheduler placed. Elsewhere it stops pods that it placed itself, and leaves the
    others to kube-scheduler's own preemption. In mode bind the nodes are always its own."""


class LeaseSettings(Part):
    """Lease for leader election."""

    namespace: str = Field(default="tonnage-system", min_length=1)
    name: str = Field(default="tonnage", min_length=1)


class RaySettings(Part):
    """Where background work runs, which takes longer than a cycle, as fits of forecasts do. Plans never wait for it."""

    mode: Literal["none", "embedded", "cluster"] = "embedded"
    """none: one child process at the lowest priority. embedded: tasks of a private Ray, in child processes on this
    machine; 0.4 GB more memory while there is work. cluster: tasks on a Ray cluster, through the server at `address`.
    While Ray is unavailable, or not installed, the child process of mode none takes the same tasks."""
    address: str = Field(default="", pattern=r"^$|^.+:[0-9]+$")
    """`host:port` of the server (`tonnage background serve`); only for mode cluster."""
    token_file: str = ""
    """File with the token shared with the server, at least 16 bytes; read again for each connection."""
    cpus: int = Field(default=1, ge=1, le=64)
    """Tasks at once in mode embedded, one processor each. On a cluster its workers decide."""


class ServingTlsSettings(Part):
    """PEM files of a server's certificate; read again when they change."""

    certificate: str = Field(min_length=1)
    key: str = Field(min_length=1)


class PowerSettings(Part):
    """Power control: power leases for the agents on the nodes, by PowerDomain objects."""

    enabled: bool = False
    """Whether power control is on. Without it no PowerDomain has a status, and no device is ever limited."""
    port: int = Field(default=9464, ge=0, le=65_535)
    """Port for agents, at `host`; 0: any free port."""
    tls: ServingTlsSettings = ServingTlsSettings(
        certificate="/etc/tonnage-power/tls.crt", key="/etc/tonnage-power/tls.key"
    )
    """Certificate that is shown to agents, who know its authority: whoever has its key could lease power to them."""
    agents: str = Field(default="system:serviceaccount:tonnage-system:tonnage-agent", min_length=1)
    """User of the agents' tokens. A token names its pod's node, and the agent speaks for that node alone."""
    control_delay_s: float = Field(default=2.0, gt=0, le=300)
    """Delay from a decision until its effect is read back: 2 s in band, 45 s through BMCs."""
    stale_s: float = Field(default=10.0, ge=1, le=600)
    """Age from which a device's readings are stale: it then counts at its worst case, and is capped at its floor."""
    lease_s: float = Field(default=10.0, ge=1, le=600)
    """Duration of a power lease; when it expires, the agent lowers its devices to their floors on its own."""
    burst_share: float = Field(default=1.0, ge=0, le=1)
    """Usable fraction of the overload that breakers tolerate; 0 makes every lease a hard limit."""


class IsolationSettings(Part):
    """Isolation of agents' tool calls, by SandboxPolicy objects; its orders travel on the link of power control."""

    enabled: bool = False
    """Whether SandboxPolicies are read. Needs `power.enabled`, and agents with `sandboxes`."""


Url = Annotated[str, Field(pattern=r"^https?://[^ ?#]+$", max_length=512)]


class PrometheusSettings(Part):
    """Prometheus, or any server with its query API, that the demand of ScalingPolicies is read from."""

    url: str = Field(default="", pattern=r"^$|^https?://[^ ?#]+$", max_length=512)
    """URL of the server (`http://prometheus.monitoring:9090`); empty: no demand is read from Prometheus."""
    other_urls: Annotated[tuple[Url, ...], Field(max_length=16)] = ()
    """Further servers that policies may name; none is shown the token. Policies cannot name any other address: the
    operator would otherwise connect to whatever a tenant names."""
    allow_queries: bool = False
    """Whether policies may have queries of their own. A query can read all series of the server, so this is for
    clusters with one tenant, or with `namespace_parameter`. Presets are limited to the policy's namespace."""
    namespace_parameter: str = Field(default="", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$|^$", max_length=64)
    """URL parameter with the policy's namespace, by which a proxy limits each query (`namespace` for prom-label-proxy
    and for OpenShift's tenancy port); empty: none."""
    ca_file: str = ""
    """PEM file of the CA certificates for the server's certificate; empty: the system's."""
    token_file: str = ""
    """File with a bearer token for the server; read again every minute. Empty: none."""
    timeout_s: float = Field(default=10.0, ge=1, le=60)
    """Timeout of a query."""
    concurrency: int = Field(default=8, ge=1, le=64)
    """Most queries at once; one namespace gets at most half of them."""
    most_bytes: int = Field(default=8 * 2**20, ge=2**16, le=2**28)
    """Largest answer that is read. A week in steps of a minute has 0.3 MB per series."""
    window_s: float = Field(default=60.0, ge=4, le=3600)
    """Window of the presets' rates; at least twice the interval at which Prometheus scrapes."""
    lengths_window_s: float = Field(default=3600.0, ge=10, le=86_400)
    """Window of request lengths. Chosen: an hour has thousands of requests, and lengths change over days."""
    step_s: float = Field(default=60.0, ge=1, le=3600)
    """Step of the history that is read at the start."""


class PushSettings(Part):
    """Push endpoint: programs send the demand of ScalingPolicies to the operator."""

    enabled: bool = False
    port: int = Field(default=9466, ge=0, le=65_535)
    """Port, at `host`; 0: any free port."""
    audience: str = Field(default="tonnage", max_length=256)
    """Audience that a sender's token must be for, so that it is of no use elsewhere; empty: the API server's own."""
    tls: ServingTlsSettings | None = None
    """TLS; without it the tokens are readable on the network."""


class ExternalMetricsSettings(Part):
    """External metrics API: desired replicas for HorizontalPodAutoscalers and KEDA."""

    enabled: bool = False
    port: int = Field(default=9467, ge=0, le=65_535)
    """Port, at `host`; 0: any free port."""
    tls: ServingTlsSettings = ServingTlsSettings(
        certificate="/etc/tonnage-external-metrics/tls.crt", key="/etc/tonnage-external-metrics/tls.key"
    )
    """TLS, which the API server demands."""


class HealthSettings(Part):
    """Health of jobs and nodes, by HealthPolicy objects; agents must read records (`agent.health.enabled`)."""

    enabled: bool = False
    """Whether reports of agents are analysed and HealthPolicies applied. Needs power.enabled, whose port agents use; no
    PowerDomain is needed."""


class AutoscalerSettings(Part):
    """Autoscaling of targets by ScalingPolicy objects."""

    enabled: bool = True
    """Whether ScalingPolicies are evaluated. Their mode Recommend, the default, changes nothing."""
    sync_s: float = Field(default=15.0, ge=1, le=300)
    """Seconds between two readings of demand and targets. Chosen: that of HorizontalPodAutoscalers."""
    prometheus: PrometheusSettings = PrometheusSettings()
    custom_metrics: bool = False
    """Whether policies may read metrics of their targets from the custom metrics API."""
    config_maps: bool = False
    """Whether concurrency limits in force are written to the ConfigMaps that policies name."""
    push: PushSettings = PushSettings()
    external_metrics: ExternalMetricsSettings = ExternalMetricsSettings()


class LimitSettings(Part):
    """Limits on what one plan may do, independent of the deciders."""

    max_evictions_share: float = Field(default=SHIPPED.max_evictions_share, ge=0, le=1)
    """Fraction of the running pods that one plan may stop. Chosen: a wrong plan disturbs 1 pod in 20."""
    max_evictions_floor: int = Field(default=SHIPPED.max_evictions_floor, ge=0)
    """Number of pods that one plan may always stop; otherwise small fleets could never preempt."""
    max_stops_per_seat: int = Field(default=SHIPPED.max_stops_per_seat, ge=1, le=100_000)
    """Number of pods that may be stopped in an hour for one pod that waits, and as many for each member of a gang. What
    was begun is ended. Chosen: the devices of two nodes, for two tries; a pod that others robbed of its room twice
    would be robbed again, and waits for an hour with that as its reason."""
    max_moves_share: float = Field(default=SHIPPED.max_moves_share, ge=0, le=1)
    """Fraction of the pods of a namespace, and of the instances of a service, that are moved for others within an hour,
    of those that may be; one always may. Chosen: a service keeps three quarters of its warm instances."""
    max_nodes_out_share: float = Field(default=SHIPPED.max_nodes_out_share, ge=0, le=1)
    """Fraction of the nodes that may carry a taint of Tonnage's; one node always may. HealthPolicies limit it more."""
    max_restarts: int = Field(default=SHIPPED.max_restarts, ge=0)
    """Number of gangs that one plan may restart because of their nodes' health."""
    max_stopped_share: float = Field(default=SHIPPED.max_stopped_share, gt=0, le=1)
    """Fraction of all running instances of services that one plan may stop; one service always may change, and as many
    instances as `max_evictions_floor`. The next plan goes on, so that a wrong one is seen before all are stopped. Not
    limited by default: a sound plan of a small fleet may exchange more than half of them at once (tests/replay)."""
    max_age_s: float = Field(default=SHIPPED.max_age_s, gt=0, le=3600)
    """Maximum age of observations to act on. A quiet watch gets a bookmark every minute; two may be missed."""


class RecordSettings(Part):
    """Recording of the last cycles, in memory, for support bundles (`tonnage bundle`)."""

    enabled: bool = True
    """Whether cycles are recorded and served at /debug/bundle of the probe port."""
    key: SecretStr = SecretStr("")
    """What a download names: the UID of the pod, by the chart. Empty: downloads from the own machine alone."""
    keep_s: float = Field(default=3600.0, ge=60, le=86_400)
    """Maximum age of recorded cycles. Chosen: the API server keeps Events for an hour, too."""
    most_cycles: int = Field(default=1000, ge=1, le=100_000)
    most_bytes: int = Field(default=32 * 2**20, ge=2**20, le=2**30)
    """Maximum memory of all recorded cycles together; the oldest are dropped first."""


class OperatorSettings(Part):
    """All settings of the operator. The environment (TONNAGE_POLICY, TONNAGE_LEASE__NAMESPACE) overrides the file."""

    model_config = ConfigDict(validate_default=True)

    kubeconfig: str = ""
    """Path of a kubeconfig; empty: the pod's service account, or else the file that kubectl would read."""
    context: str = ""
    """Context in the kubeconfig; empty: its current one."""
    identity: str = Field(default_factory=lambda: f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}", min_length=1)
    """Identity of this process in the Lease. Different at every start, so that a restart is a new leader: one that is
    given gets a suffix."""
    lease: LeaseSettings = LeaseSettings()
    fenced: bool = False
    """Whether the API server rejects writes of earlier leaders, by the chart's admission policy. A new leader then
    waits until the policy is active before it writes anything."""
    managed_namespaces: Literal["all", "labelled"] = "all"
    """labelled: pods are placed, services deployed and targets scaled only in namespaces with the label
    `tonnage.dev/managed: "true"`; what waits in others is told so."""
    pools: Annotated[tuple[PoolSettings, ...], Field(min_length=1, max_length=64)] = (PoolSettings(placer="gate"),)
    """Pools of nodes; the first pool whose selector matches a node sets its placement mode."""
    dra_drivers: Annotated[dict[str, str], Field(min_length=1, max_length=8)] = {
        "gpu.amd.com": "amd.com/gpu",
        "gpu.nvidia.com": "nvidia.com/gpu",
    }
    """DRA drivers whose devices Tonnage allocates in pools of mode dra, each with the resource name of its GPUTypes.
    Devices of other drivers are ignored, and a claim that requests one is not allocated."""
    policy: str = "tonnage"
    """Packing policy."""
    returns_idle_nodes: bool = False
    """Whether nodes that run nothing are given back, as in a fleet rented by the hour: a pod then starts an idle node
    only where no node in use takes it, and the one that costs least per pod. Where they are paid for anyway, what
    matters is that the remaining resources suit the next pods."""
    preempt: bool = True
    """Whether pods of lower priority are stopped for those of higher priority."""
    make_room: bool = True
    """Whether pods that may be moved (instances of services, and pods with `tonnage.dev/movable: "true"`) are stopped,
    and started elsewhere, where a pod or gang that fits nowhere then starts."""
    interval_s: float = Field(default=1.0, ge=0.05, le=60)
    """Minimum time between the starts of two cycles that take a tenth of it or more; shorter ones follow sooner. Chosen
    so that the pods of a gang arrive within it."""
    resync_s: float = Field(default=30.0, ge=1, le=600)
    """Maximum time between two cycles: one runs even if nothing changed."""
    plan_deadline_s: float = Field(default=2.0, gt=0, le=60)
    """Time for planning. It sets an amount of work that is the same on every machine; if that takes longer, planning
    ends at the deadline and the plan reports it."""
    routes: bool = False
    """Whether HTTPRoutes and InferencePools of ModelServices with `routes` are written (chart: `routes`)."""
    groups_of_others: bool = True
    """Whether pods that Kubernetes, JobSet, LeaderWorkerSet, KubeRay, Kubeflow, Kueue, KAI or Volcano group start
    together or not at all, as members of a Gang do."""
    gang_deadline_s: float = Field(default=300.0, ge=1, le=86_400)
    """Time after which a gang that runs with too few members, and cannot be completed, is stopped as a whole."""
    release_deadline_s: float = Field(default=60.0, ge=1, le=86_400)
    """Time after which a pod whose gate was removed, but that kube-scheduler has not bound, is evicted if its owner
    recreates it. Binding takes milliseconds; the remaining time is for volumes that must be provisioned first."""
    ray: RaySettings = RaySettings()
    power: PowerSettings = PowerSettings()
    health: HealthSettings = HealthSettings()
    isolation: IsolationSettings = IsolationSettings()
    autoscaler: AutoscalerSettings = AutoscalerSettings()
    limits: LimitSettings = LimitSettings()
    record: RecordSettings = RecordSettings()
    host: str = "0.0.0.0"  # noqa: S104 - a pod is reached from its node and from Prometheus
    """Listen address of all endpoints."""
    probe_port: int = Field(default=8081, ge=0, le=65_535)
    """Port of /healthz and /readyz; 0: any free port."""
    metrics_port: int = Field(default=8080, ge=0, le=65_535)
    """Port of /metrics; 0: any free port."""
    log_format: Literal["auto", "json", "text"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class _Variables(BaseSettings, OperatorSettings):
    """The settings as the environment has them; it is never made, the library reads names and types of it."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter="__")


def read_settings(path: Path | None = None, **given: Any) -> OperatorSettings:
    """Settings from a file, the environment and `given`; later sources override earlier ones.

    Raises ConfigError with all errors.
    """
    content = _content_of(path) if path else {}
    try:
        of_environment = EnvSettingsSource(_Variables)()
    except SettingsError as error:  # of a variable that is to hold a whole group
        field = str(error).partition('field "')[2].partition('"')[0]
        raise errors.ConfigError(
            errors.Mistake(f"{PREFIX}{field.upper()}", "is not JSON", "write the whole group as JSON")
        ) from error
    content = _over(_over(content, of_environment), given)
    return settings_from(content, str(path) if path else "settings", _variables())


def _over(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of which the second come before the first, group by group."""
    groups = {name for name, each in high.items() if isinstance(each, dict) and isinstance(low.get(name), dict)}
    return {**low, **{name: _over(low[name], each) if name in groups else each for name, each in high.items()}}


def _content_of(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise errors.ConfigError(errors.Mistake(str(path), "there is no such file"))
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        why = getattr(error, "strerror", None) or error
        raise errors.ConfigError(errors.Mistake(str(path), f"cannot be read: {why}")) from error
    if not isinstance(content, dict):
        raise errors.ConfigError(errors.Mistake(str(path), "is not a mapping", "write `name: value` lines"))
    return content


def settings_from(
    content: Mapping[str, Any], where: str = "settings", variables: Mapping[tuple[str | int, ...], str] | None = None
) -> OperatorSettings:
    """Settings from this content and the defaults; reads no environment.

    where: origin of the content, for error messages. variables: those that gave a setting. Raises ConfigError with all
    errors.
    """
    try:
        settings = OperatorSettings(**content)
    except TypeError as error:
        raise errors.ConfigError(errors.Mistake(where, f"cannot be read: {error}")) from error
    except ValidationError as error:
        raise errors.ConfigError(
            tuple(field_errors.setting_mistakes(error, where, OperatorSettings, variables))
        ) from error
    return with_changes(settings)


def with_changes(settings: OperatorSettings, **changes: Any) -> OperatorSettings:
    """The settings with all changes that are not None. Ranges are not checked.

    Raises ConfigError for conflicts between fields.
    """
    changed = settings.model_copy(update={name: value for name, value in changes.items() if value is not None})
    if mistakes := tuple(_mistakes(changed)):
        raise errors.ConfigError(mistakes)
    return changed


def _variables() -> dict[tuple[str | int, ...], str]:
    """Variables of the environment that override settings, by the path of the setting."""
    named = (name for name in os.environ if name.upper().startswith(PREFIX))
    return {tuple(name[len(PREFIX) :].lower().split("__")): name for name in named}


def _mistakes(settings: OperatorSettings) -> Iterator[errors.Mistake]:
    """Conflicts between fields, and values that the field types cannot check."""
    if settings.policy not in POLICIES:
        remedy = f"choose one of {', '.join(POLICIES)}"
        yield errors.Mistake("policy", f"unknown policy {settings.policy!r}", remedy)
    if settings.isolation.enabled and not settings.power.enabled:
        yield errors.Mistake(
            "isolation.enabled", "needs power.enabled", "its orders travel on the link of power control"
        )
    ray = settings.ray
    for name in ("address", "token_file"):
        if ray.mode == "cluster" and not getattr(ray, name):
            yield errors.Mistake(f"ray.{name}", "is missing", "mode cluster needs the server's address and token")
        if ray.mode != "cluster" and getattr(ray, name):
            yield errors.Mistake(
                f"ray.{name}", f"has no effect in mode {ray.mode}", "set ray.mode: cluster, or leave it out"
            )


def as_yaml(settings: OperatorSettings) -> str:
    """YAML of the settings, in the form that read_settings reads; without the identity, which each process draws."""
    return yaml.safe_dump(settings.model_dump(mode="json", exclude={"identity"}), sort_keys=False)

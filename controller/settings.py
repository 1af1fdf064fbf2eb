"""The settings of the operator: one file and the environment, read once at the start and checked wholly."""

import socket
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, YamlConfigSettingsSource

from cluster.errors import ConfigError, Mistake
from placement.policies import POLICIES

PREFIX = "TONNAGE_"


class Part(BaseModel):
    """A group of settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PoolSettings(Part):
    """Set of nodes that share a placement mode."""

    placer: Literal["bind", "dra", "gate"]
    """bind: Tonnage binds pods with `schedulerName: tonnage`; only for nodes that no other scheduler uses.
    dra: Tonnage allocates exact devices to the ResourceClaims of pods, then places these by bind or by gate, as they
    ask; only for nodes whose claims no other scheduler allocates.
    gate: kube-scheduler binds pods after Tonnage has removed the gate `tonnage.dev/placement`."""
    selector: dict[str, str] = {}
    """Labels of the nodes; empty: all that no pool before has."""


class LeaseSettings(Part):
    """Where leadership is held."""

    namespace: str = Field(default="tonnage-system", min_length=1)
    name: str = Field(default="tonnage", min_length=1)


class BrainSettings(Part):
    """Where is decided."""

    mode: Literal["inline", "embedded", "cluster"] = "inline"
    """inline: in this process. embedded: on a Ray of its own, in child processes on this machine; 0.5 GB more. cluster:
    on a Ray cluster, by way of the brain server at `address`. While there is no Ray, this process plans by a heuristic.
    """
    address: str = Field(default="", pattern=r"^$|^.+:[0-9]+$")
    """`host:port` of the brain server (`tonnage brain serve`); only of mode cluster."""
    token_file: str = ""
    """File with the token that the brain server knows as well, 16 bytes at least; read anew for each connection."""
    planners: int = Field(default=1, ge=1, le=64)
    """Actors that plan; more than one are of use when `shares` is. Of a cluster, the server says how many."""
    shares: int = Field(default=1, ge=1, le=256)
    """Into how many parts the fleet is divided at most, to be packed in parallel. Only nodes that share no pod are
    divided: pools that pods choose by node selectors or GPU types."""


class PowerTlsSettings(Part):
    """Files of mutual TLS with the agents, PEM; read anew when they change."""

    ca: str = Field(min_length=1)
    """Who signs the agents' certificates."""
    certificate: str = Field(min_length=1)
    key: str = Field(min_length=1)


class PowerSettings(Part):
    """Watts: leases to the agents on the nodes, by PowerDomain objects."""

    enabled: bool = False
    """Whether agents are served. Without it no PowerDomain has a status and no device is ever limited."""
    port: int = Field(default=9464, ge=0, le=65_535)
    """Where agents find the leader, at `host`; 0: any."""
    keys: str = "/etc/tonnage-keys"
    """Folder with the fleet's keys, one file each of 32 bytes at least; the newest is the one whose name comes last."""
    tls: PowerTlsSettings | None = None
    """Signatures keep others from speaking, TLS also from listening."""
    control_delay_s: float = Field(default=2.0, gt=0, le=300)
    """From a decision to its effect being read back: 2 in band, 45 through BMCs."""
    stale_s: float = Field(default=10.0, ge=1, le=600)
    """A device that was not heard for so long counts at its worst case and is sent to its floor."""
    lease_s: float = Field(default=10.0, ge=1, le=600)
    """Life of a lease; an agent whose lease has ended goes to its floor by itself."""
    burst_share: float = Field(default=1.0, ge=0, le=1)
    """How much of the bursts that breakers stand may be used; 0 makes every lease a hard limit."""
    learn_hours: bool = True
    """Whether pods of services go where their hours stack least on the peaks of power domains. Until a leader has read
    draws for a day, nothing is known."""


class LimitSettings(Part):
    """How much one plan may do, whatever the deciders think."""

    max_evictions_share: float = Field(default=0.05, ge=0, le=1)
    """Share of the running pods. A mistaken plan hurts 1 pod in 20."""
    max_evictions_floor: int = Field(default=10, ge=0)
    """So many may always be stopped, else small fleets could never preempt."""
    max_age_s: float = Field(default=180.0, gt=0, le=3600)
    """Evidence older than this is not acted on. A quiet watch is heard of every minute; two bookmarks may be missed."""


class RecordSettings(Part):
    """The last cycles, kept in memory for support bundles (`tonnage bundle`)."""

    enabled: bool = True
    """Whether cycles are recorded, and served at /debug/bundle of the probe port."""
    keep_s: float = Field(default=3600.0, ge=60, le=86_400)
    """Older cycles are dropped. Chosen: Events live for an hour too."""
    most_cycles: int = Field(default=1000, ge=1, le=100_000)
    most_bytes: int = Field(default=32 * 2**20, ge=2**20, le=2**30)
    """Memory of all recorded cycles together; the oldest go first."""


class OperatorSettings(BaseSettings):
    """Everything that an operator's run depends on. The environment (TONNAGE_POLICY, TONNAGE_LEASE__NAMESPACE) goes
    before the file."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True, validate_default=True
    )

    kubeconfig: str = ""
    """Empty: the service account of the pod, or else the file that kubectl would read."""
    context: str = ""
    """Of the kubeconfig; empty: its current one."""
    identity: str = Field(default_factory=lambda: f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}", min_length=1)
    """Of this process in the Lease. Never the same twice, so that a restart is a new leader."""
    lease: LeaseSettings = LeaseSettings()
    fenced: bool = False
    """Whether the API server refuses writes of earlier leaders, as the chart's policy makes it do. A new leader then
    waits until it does so before it writes anything itself."""
    pools: Annotated[tuple[PoolSettings, ...], Field(min_length=1, max_length=64)] = (PoolSettings(placer="gate"),)
    """The first that has a node's labels tells how pods get there."""
    dra_drivers: Annotated[dict[str, str], Field(min_length=1, max_length=8)] = {
        "gpu.amd.com": "amd.com/gpu",
        "gpu.nvidia.com": "nvidia.com/gpu",
    }
    """Drivers whose devices Tonnage allocates in pools of `dra`, each with the resource of the GPUTypes that it offers.
    Devices of other drivers are left alone, and a claim that asks for one is not allocated."""
    policy: str = "tonnage"
    """Packing policy."""
    planner: Literal["packing", "columns"] = "packing"
    """packing: pod by pod under the policy. columns: all that waits at once, onto nodes that together cost least an
    hour, with a proven bound; for large batches on fleets whose idle nodes are given back."""
    preempt: bool = True
    """Whether pods of lower priority are stopped for those of higher priority."""
    change_price_per_hour: float = Field(default=0.05, ge=0, le=1000)
    """Dollars per hour that each instance started or stopped must save. Chosen: a twentieth of a small GPU's price, so
    that rounding in measured demand moves nothing."""
    hold_s: float = Field(default=300.0, ge=0, le=86_400)
    """A service that can still serve its demand is not changed again so soon after a change. Chosen: starting an
    instance takes minutes, and demand is measured over as long."""
    interval_s: float = Field(default=1.0, ge=0.05, le=60)
    """Between the starts of two cycles at least. A gang's pods arrive within it."""
    resync_s: float = Field(default=30.0, ge=1, le=600)
    """A cycle runs after so long even when nothing changed."""
    plan_deadline_s: float = Field(default=2.0, gt=0, le=60)
    """How long deciding may take. It measures out the work, the same on every machine; time ends it where that takes
    longer, and the plan then says so."""
    gang_deadline_s: float = Field(default=300.0, ge=1, le=86_400)
    """A gang that runs with fewer members than it needs, and cannot be completed for so long, is stopped whole."""
    release_deadline_s: float = Field(default=60.0, ge=1, le=86_400)
    """A pod whose gate was removed and that kube-scheduler has not bound for so long is evicted, if its owner makes it
    anew. It binds within milliseconds; the rest is for volumes that must first be made."""
    brain: BrainSettings = BrainSettings()
    """Where is decided."""
    power: PowerSettings = PowerSettings()
    limits: LimitSettings = LimitSettings()
    record: RecordSettings = RecordSettings()
    host: str = "0.0.0.0"  # noqa: S104 - a pod is reached from its node and from Prometheus
    """Address of the endpoints."""
    probe_port: int = Field(default=8081, ge=0, le=65_535)
    """/healthz and /readyz; 0: any."""
    metrics_port: int = Field(default=8080, ge=0, le=65_535)
    """/metrics; 0: any."""
    log_format: Literal["auto", "json", "text"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"


def read_settings(path: Path | None = None, **given: Any) -> OperatorSettings:
    """Settings of a file, the environment and `given`, of which each goes before those before it.

    Raises ConfigError with every mistake.
    """

    class FromFile(OperatorSettings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the library's protocol
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, YamlConfigSettingsSource(settings_cls, yaml_file=path)

    if path is not None and not path.is_file():
        raise ConfigError(Mistake(str(path), "there is no such file"))
    try:
        settings = FromFile(**given) if path else OperatorSettings(**given)
    except ValidationError as error:
        raise ConfigError(tuple(_wrong(str(path) if path else "settings", error))) from error
    except (yaml.YAMLError, OSError, TypeError) as error:
        raise ConfigError(Mistake(str(path), f"cannot be read: {error}")) from error
    mistakes = tuple(_mistakes(settings))
    if mistakes:
        raise ConfigError(mistakes)
    return settings


class GivenSettings(OperatorSettings):
    """Settings of what is given and of the defaults alone, as another process has them: no environment is read."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the library's protocol
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def settings_from(content: Mapping[str, Any], where: str = "settings") -> OperatorSettings:
    """Settings of this content and the defaults.

    where: the content's place, for mistakes. Raises ConfigError with every mistake.
    """

    try:
        settings = GivenSettings(**content)
    except (ValidationError, TypeError) as error:
        raise ConfigError(tuple(_wrong(where, error))) from error
    mistakes = tuple(_mistakes(settings))
    if mistakes:
        raise ConfigError(mistakes)
    return settings


def with_changes(settings: OperatorSettings, **changes: Any) -> OperatorSettings:
    """The settings with those of these changes that are not None; the caller answers for their ranges.

    Raises ConfigError for what no single field shows.
    """
    changed = settings.model_copy(update={name: value for name, value in changes.items() if value is not None})
    if mistakes := tuple(_mistakes(changed)):
        raise ConfigError(mistakes)
    return changed


def _wrong(where: str, error: ValidationError | TypeError) -> Iterator[Mistake]:
    if isinstance(error, TypeError):
        yield Mistake(where, f"cannot be read: {error}")
        return
    for each in error.errors():
        yield Mistake(f"{where}, {'.'.join(map(str, each['loc']))}", each["msg"])


def _mistakes(settings: OperatorSettings) -> Iterator[Mistake]:
    """What no single field shows."""
    if settings.policy not in POLICIES:
        remedy = f"choose of {', '.join(POLICIES)}"
        yield Mistake("policy", f"there is no policy {settings.policy!r}", remedy)
    brain = settings.brain
    for name in ("address", "token_file"):
        if brain.mode == "cluster" and not getattr(brain, name):
            yield Mistake(f"brain.{name}", "is missing", "mode cluster needs the brain server's address and token")
        if brain.mode != "cluster" and getattr(brain, name):
            yield Mistake(
                f"brain.{name}", f"has no meaning in mode {brain.mode}", "set brain.mode: cluster, or leave it out"
            )


def as_yaml(settings: OperatorSettings) -> str:
    """As a file that would say the same."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False)

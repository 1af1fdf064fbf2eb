"""Settings of the agent: one file, validated before anything is changed."""

import ssl
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from cluster.errors import ConfigError, Mistake
from cluster.field_errors import setting_mistakes

Share = Annotated[float, Field(gt=0, le=1)]
Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[float, Field(gt=0, le=3600)]


class SettingsPart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ControllerAddress(SettingsPart):
    """Address at which the controller listens for agents, and how both ends know each other.

    The files are read again for every connection.
    """

    host: str = Field("tonnage-power", description="Name that resolves to every replica: a headless Service.")
    port: Port = 9464
    ca: Path = Field(Path("/etc/tonnage-power/ca.crt"), description="Authority of the controller's certificate.")
    token: Path = Field(
        Path("/etc/tonnage-power/token"), description="Token for the audience `tonnage-power` that names this node."
    )

    def context(self) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=str(self.ca))
        made.minimum_version = ssl.TLSVersion.TLSv1_3
        return made


class RedfishSettings(SettingsPart):
    """BMC of this node, for the back end `redfish` and for `meter`."""

    host: str = Field(min_length=1, description="Name or address of the BMC; `{node}` stands for the node's name.")
    port: Port = 443
    chassis: str = Field("", description="Id of the chassis whose meter is the node's; the outermost one if omitted.")
    login: Path = Field(Path("/etc/tonnage-bmc"), description="Folder with the files `username` and `password`.")
    ca_file: Path | None = Field(
        None, description="Authority that signed its certificate; the system's authorities if omitted."
    )
    # 8 GETs of 0.3 s take half of the interval.
    look_s: Seconds = Field(5.0, description="Interval between two readings, and so their largest age.")
    rest_s: Seconds = Field(10.0, description="Interval between two limits of one device: BMCs write them to flash.")
    settles_s: Annotated[float, Field(ge=0, le=600)] = Field(
        40.0, description="Longest time until a limit accepted by a BMC is in force (POLCA: up to 40 s out of band)."
    )


class PretendSettings(SettingsPart):
    """Fake devices, for the back end `pretend`."""

    devices: Annotated[int, Field(ge=1, le=16)] = 8


class ProbeSettings(SettingsPart):
    """Pair probes between agents, which confirm a suspected fault of the network."""

    enabled: bool = False
    port: Annotated[int, Field(ge=0, le=65535)] = Field(9468, description="Port for other agents; 0: any free port.")
    interface: str = Field(
        "",
        max_length=15,
        description="Network interface that training jobs use, such as net1 or ib0. Omitted: that of the connection to "
        "the controller, which is right where jobs use the network of pods.",
    )


class HealthFeedSettings(SettingsPart):
    """Records of pods and evidence of the host, for the controller's analysis."""

    enabled: bool = False
    folder: Path = Field(Path("/run/tonnage/pods"), description="Folder with one folder per pod, named by its UID.")
    proc: Path = Field(Path("/proc"), description="The host's processes: the agent needs the host's PIDs.")
    sys: Path = Field(Path("/sys/class"), description="The host's network devices.")
    cgroups: Path = Field(Path("/sys/fs/cgroup"), description="The host's cgroups.")
    kernel_log: Path | None = Field(
        None,
        description="The kernel's log, /dev/kmsg, for GPU errors; needs a privileged container. Omitted: not read.",
    )
    dcgm_url: Annotated[str, Field(pattern=r"^http://[^\s/@?#]+(/[^\s#]*)?$")] | None = Field(
        None,
        description="Metrics of this node's DCGM exporter, such as http://localhost:9400/metrics; `{node}` stands for "
        "the node's name, `{address}` for its IP address. Omitted: not read.",
    )
    ras: Annotated[str, Field(pattern=r"^[^\s/]+:[0-9]{1,5}$")] | None = Field(
        None,
        description="NCCL's RAS service of jobs in the host's network, such as localhost:28028; `{address}` stands for "
        "the node's IP address. Omitted: not asked.",
    )
    probes: ProbeSettings = ProbeSettings()


class SandboxSettings(SettingsPart):
    """Isolation of agents' tool calls in pods of this node (docs/isolation.md)."""

    cgroups: Path = Field(Path("/sys/fs/cgroup"), description="Folder of the host's cgroup tree, writable.")
    sockets: Path = Field(
        Path("/run/tonnage/sandboxes"), description="Folder on the host with one folder for each pod's socket."
    )
    record: Path = Field(Path("/var/lib/tonnage/sandboxes.json"), description="File on the host with the last orders.")
    memory_share: Share = Field(
        0.8,
        description="Part of the node's memory that all sandboxes may hold together. What other pods need has to stay "
        "outside of it.",
    )
    cgroup_root: str = Field(
        "", pattern=r"^[A-Za-z0-9._-]*(/[A-Za-z0-9._-]+)*$", description="The kubelet's --cgroup-root, if it has one."
    )


class AgentSettings(SettingsPart):
    """All settings of the agent."""

    node: str = Field(min_length=1, description="This node's name in the cluster: --node or NODE_NAME.")
    backend: Literal["nvml", "amdsmi", "redfish", "pretend", "none"] = "nvml"
    redfish: RedfishSettings | None = None
    meter: bool = Field(
        default=False, description="Whether to report the draw of the whole node, as metered by its BMC (`redfish`)."
    )
    pretend: PretendSettings = PretendSettings()
    health: HealthFeedSettings = HealthFeedSettings()
    sandboxes: SandboxSettings | None = Field(None, description="Isolation of tool calls; off if omitted.")
    controller: ControllerAddress = ControllerAddress()
    record: Path = Field(
        Path("/var/lib/tonnage/power.record"), description="File on the host with the original limits and the lease."
    )
    period: Annotated[float, Field(gt=0.05, le=1)] = Field(
        0.5,
        description="Seconds between two readings of the devices. A burst ends at a reading: between readings that are "
        "seconds apart, draws are not bounded by credit, and breakers open.",
    )
    floor_share: Share = Field(
        0.5, description="Floor of devices without a lease, as a fraction of their highest limit."
    )
    manages: list[str] | None = Field(
        None, description="UUIDs of devices that may be limited; all if omitted. Those of other nodes are ignored."
    )
    on_stop: Literal["keep", "restore"] = Field(
        "keep",
        description="Whether SIGTERM restores the original limits of devices. An over-subscribed fleet keeps the "
        "present ones: an update would otherwise lift every node in turn. Devices that leave their PowerDomain are "
        "restored.",
    )
    metrics_host: str = "0.0.0.0"  # noqa: S104 - scraped from outside the pod
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = Field(9465, description="0: any free port.")
    as_dcgm: bool = Field(
        default=False, description="Whether to export metrics under DCGM's names; for nodes without DCGM."
    )

    @property
    def bmc(self) -> RedfishSettings | None:
        """The BMC, by the name or address that it has for this node."""
        if self.redfish is None:
            return None
        return self.redfish.model_copy(update={"host": self.redfish.host.replace("{node}", self.node)})

    @model_validator(mode="after")
    def _has_a_bmc(self) -> "AgentSettings":
        if self.redfish is None and (self.backend == "redfish" or self.meter):
            what = "the back end redfish" if self.backend == "redfish" else "the node's meter"
            raise PydanticCustomError(
                "no_bmc", "redfish is missing: {what} needs it, with the `host` of the BMC at least", {"what": what}
            )
        return self


def read_settings(path: Path, node: str | None) -> AgentSettings:
    """The settings in a YAML file; `node` overrides the file's. Raises ConfigError with every invalid field."""
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(Mistake(f"settings {path}", f"cannot be read: {why}", "name a YAML file")) from error
    if not isinstance(loaded, dict):
        raise ConfigError(Mistake(f"settings {path}", "is not a mapping", "write `name: value` lines"))
    if node:
        loaded = {**loaded, "node": node}
    try:
        return AgentSettings.model_validate(loaded)
    except ValidationError as error:
        mistakes = setting_mistakes(error, f"settings {path}", AgentSettings)
        raise ConfigError(
            tuple(replace(each, remedy=each.remedy or "see docs/power.md") for each in mistakes)
        ) from error

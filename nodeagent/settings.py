"""Settings of the agent: one file, checked before anything is touched."""

from pathlib import Path
from typing import Annotated, Final, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from cluster.errors import ConfigError, Mistake

Share = Annotated[float, Field(gt=0, le=1)]
Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[float, Field(gt=0, le=3600)]
_NO_BMC: Final = "no_bmc"


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TlsFiles(Part):
    """Mutual TLS to the controller."""

    ca: Path
    certificate: Path
    key: Path


class ControllerAddress(Part):
    """Where the controller listens for agents."""

    host: str = Field("tonnage-power", description="A name that resolves to every replica: a headless Service.")
    port: Port = 9464
    tls: TlsFiles | None = None


class RedfishSettings(Part):
    """The BMC of this node, for the back end `redfish` and for `meter`."""

    host: str = Field(min_length=1, description="Name or address of the BMC; `{node}` stands for the node's name.")
    port: Port = 443
    chassis: str = Field("", description="Id of the chassis whose meter is the node's; the outermost, if left out.")
    login: Path = Field(Path("/etc/tonnage-bmc"), description="Folder with the files `username` and `password`.")
    ca_file: Path | None = Field(None, description="Who signed its certificate; the system's authorities, if left out.")
    look_s: Seconds = Field(5.0, description="Between two looks; what is read is that old at most.")
    rest_s: Seconds = Field(10.0, description="Between two limits of one device: BMCs write them to flash.")
    settles_s: Annotated[float, Field(ge=0, le=600)] = Field(
        40.0, description="Until a limit that a BMC took is at work, at the latest."
    )


class PretendSettings(Part):
    """Devices that are none, for the back end `pretend`."""

    devices: Annotated[int, Field(ge=1, le=16)] = 8
    folder: Path | None = Field(
        None, description="Where their script is read and their limits and orders are written; nowhere, if left out."
    )


class AgentSettings(Part):
    """Everything that the agent can be told."""

    node: str = Field(min_length=1, description="This node's name in the cluster.")
    backend: Literal["nvml", "amdsmi", "redfish", "pretend"] = "nvml"
    redfish: RedfishSettings | None = None
    meter: bool = Field(
        default=False, description="Whether to tell what the whole node draws, as its BMC (`redfish`) meters it."
    )
    pretend: PretendSettings = PretendSettings()
    controller: ControllerAddress = ControllerAddress()
    keys: Path = Field(Path("/etc/tonnage/keys"), description="Folder with the fleet's keys, one file each.")
    record: Path = Field(
        Path("/var/lib/tonnage/power.record"), description="On the host: limits that were found, and the lease."
    )
    period: Annotated[float, Field(gt=0.05, le=1)] = Field(
        0.5,
        description="Seconds between two looks at the devices. A burst ends at a look: between looks that are seconds "
        "apart devices draw what no credit bounds, and breakers open.",
    )
    floor_share: Share = Field(0.5, description="Where devices go without a lease, as a share of their highest limit.")
    manages: list[str] | None = Field(
        None, description="UUIDs of devices that may be limited; all, if left out. Those of other nodes mean nothing."
    )
    on_stop: Literal["keep", "restore"] = Field(
        "keep",
        description="Whether SIGTERM gives devices back the limits that were found. A fleet that is over-subscribed "
        "keeps them: an update would else lift every node in turn. Devices that leave their PowerDomain are restored.",
    )
    metrics_host: str = "0.0.0.0"  # noqa: S104 - scraped from outside the pod
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = Field(9465, description="0: any that is free.")
    as_dcgm: bool = Field(default=False, description="Whether to export DCGM's metrics; for nodes without DCGM.")

    @model_validator(mode="after")
    def _has_a_bmc(self) -> "AgentSettings":
        if self.redfish is None and (self.backend == "redfish" or self.meter):
            what = "the back end redfish" if self.backend == "redfish" else "the node's meter"
            raise PydanticCustomError(_NO_BMC, "{what} needs it, with the `host` of the BMC at least", {"what": what})
        return self


def read_settings(path: Path, node: str | None) -> AgentSettings:
    """The settings in a YAML file; `node` goes before the file's. Raises ConfigError with every mistake."""
    try:
        told = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(Mistake(f"settings {path}", f"cannot be read: {error}", "name a YAML file")) from error
    if not isinstance(told, dict):
        raise ConfigError(Mistake(f"settings {path}", "is no mapping", "write `name: value` lines"))
    if node:
        told = {**told, "node": node}
    try:
        return AgentSettings.model_validate(told)
    except ValidationError as error:
        raise ConfigError(
            tuple(
                Mistake(f"settings {path}, {_place(each)}", each["msg"], "see docs/power.md") for each in error.errors()
            )
        ) from error


def _place(error: ErrorDetails) -> str:
    """The field; what is wrong between fields has none of its own."""
    return "redfish" if error["type"] == _NO_BMC else ".".join(map(str, error["loc"]))

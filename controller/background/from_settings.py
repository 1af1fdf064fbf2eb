"""Background work as the settings configure it."""

from pathlib import Path

from controller.background.host import BackgroundHost
from controller.background.launcher import ChildDriver, DriverPeer, RemoteDriver
from controller.background.on_ray import DriverStart
from controller.metrics.registry import Meter
from controller.settings import OperatorSettings


def background_from(settings: OperatorSettings, meter: Meter) -> BackgroundHost:
    """The host of background work. It starts when its replica leads (`BackgroundHost.want`)."""
    ray, peers = settings.ray, list[DriverPeer]()
    if ray.mode == "embedded":
        peers.append(ChildDriver(DriverStart("embedded", cpus=ray.cpus)))
    elif ray.mode == "cluster":
        peers.append(RemoteDriver(ray.address, Path(ray.token_file)))
    return BackgroundHost([*peers, ChildDriver()], meter)

"""Support bundles as input: from a file, an operator's endpoint, or all replicas through the API server."""

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

from cli.inputs.cluster import Cluster
from cluster.errors import ConfigError, Mistake, ObservationError

if TYPE_CHECKING:
    from cluster.clock import Clock
    from controller.ports import Brain
    from controller.recording.bundle import Bundle
    from controller.settings import OperatorSettings

Object = dict[str, Any]

PATH = "/debug/bundle"
PROBE_PORT = 8081
EVENTS = "/apis/events.k8s.io/v1/events"


def bundle_in(file: str) -> "Bundle":
    """Bundle in a file. Raises ConfigError when the file is missing or cannot be read."""
    from controller.recording.bundle import read_bundle

    try:
        return read_bundle(Path(file).read_bytes(), file)
    except OSError as error:
        raise ConfigError(Mistake(file, f"cannot be read: {error.strerror}")) from error


def bundle_at(url: str, timeout_s: float) -> "Bundle":
    """Bundle that an operator serves at `http://host:port`. Raises ConfigError, ObservationError."""
    from controller.recording.bundle import read_bundle

    if urlsplit(url).scheme not in ("http", "https"):
        remedy = "kubectl port-forward provides such an address for a pod's probe port"
        raise ConfigError(Mistake(f"--from {url}", "should be an operator's http://HOST:PORT", remedy))
    whole = url.rstrip("/") + ("" if urlsplit(url).path.strip("/") else PATH)
    try:
        with urlopen(whole, timeout=timeout_s or None) as answer:  # noqa: S310 - the scheme was checked above
            return read_bundle(answer.read(), whole)
    except (URLError, OSError) as error:
        raise ObservationError(f"reading {whole}: {getattr(error, 'reason', None) or error}") from error


async def bundles_on(cluster: Cluster) -> "tuple[list[Bundle], list[str]]":
    """Bundle of each running replica, and messages about the replicas that could not be read.

    Raises ConfigError when no operator runs, KubeReadError when none of its pods could be read.
    """
    from controller.kube.request import KubeReadError
    from controller.queries.installation import find_installation
    from controller.recording.bundle import read_bundle

    installation = await find_installation(cluster.connection)
    port = (installation.settings or {}).get("probe_port") or PROBE_PORT
    pods = [pod["metadata"] for pod in installation.pods if (pod.get("status") or {}).get("phase") == "Running"]
    if not pods:
        why = installation.unread or "no running pod has the labels of the chart's operator"
        raise ConfigError(Mistake("the cluster's operator", why, "give its address with --from http://HOST:PORT"))
    found, unread = [], []
    for pod in pods:
        path = f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}:{port}/proxy{PATH}"
        try:
            found.append(read_bundle(await cluster.connection.read(path), f"pod {pod['namespace']}/{pod['name']}"))
        except KubeReadError as error:
            unread.append(f"pod {pod['namespace']}/{pod['name']}: {error.refusal.words}")
            if len(unread) == len(pods):
                raise
    return found, unread


def brain_with(settings: "OperatorSettings", clock: "Clock") -> "Brain":
    """Planner that decides in this process as an operator with these settings would, from the snapshot alone."""
    from controller.brain.from_settings import decisions_from, inline_brain

    return inline_brain(decisions_from(settings), clock)


async def events_on(cluster: Cluster, is_ours: Any) -> tuple[list[Object], list[str]]:
    """Events from Tonnage or about its objects; and a message when the Events may not be read."""
    from controller.kube import crud
    from controller.kube.request import KubeReadError

    try:
        found = await crud.list_all(cluster.connection, EVENTS)
    except KubeReadError as error:
        return [], [f"Events: {error.refusal.words}"]
    return [event for event in found if is_ours(event)], []

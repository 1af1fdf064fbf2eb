"""Cgroups of Kubernetes pods and containers: where the kubelet puts them, by UID and container id, on cgroup v2.

The kubelet names groups by one of two drivers, which the layout itself tells apart:

    systemd:   kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/cri-containerd-<id>.scope
    cgroupfs:  kubepods/burstable/pod<uid>/<id>

Guaranteed pods have no folder of a quality-of-service class. A kubelet with a `--cgroup-root` of its own, such as the
ones of kind, puts all of this below another group. Source: k8s.io/kubernetes pkg/kubelet/cm, containerd and CRI-O.
"""

import re
from collections.abc import Iterable, Iterator

_ID = re.compile(r"(?:[a-z0-9+.-]+://)?([a-z0-9]{12,128})")
_UID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
CLASSES = ("", "burstable", "besteffort")
RUNTIMES = ("cri-containerd", "crio", "docker")


def is_uid(text: str) -> bool:
    """Whether this can be a pod's UID; a static pod's is a hash without hyphens."""
    return _UID.fullmatch(text) is not None


def pod_groups(uid: str, below: str = "") -> Iterator[str]:
    """Groups where the pod may be, below the group of the kubelet's root; at most one of them exists."""
    root = f"{below}/" if below else ""
    escaped = uid.replace("-", "_")
    for name in CLASSES:
        part = f"-{name}" if name else ""
        slices = "kubepods.slice/" + (f"kubepods{part}.slice/" if name else "")
        yield f"{root}{slices}kubepods{part}-pod{escaped}.slice"
        yield f"{root}kubepods/" + (f"{name}/" if name else "") + f"pod{uid}"


def container_group(container_id: str, children: Iterable[str]) -> str | None:
    """Child of a pod's group that is the container, by the id in its status (`containerd://…`); None: not there."""
    found = _ID.fullmatch(container_id)
    if found is None:
        return None
    names = {found[1], *(f"{runtime}-{found[1]}.scope" for runtime in RUNTIMES)}
    return next((child for child in sorted(children) if child in names), None)


def is_below(group: str, home: str) -> bool:
    """Whether a group is this one or lies below it."""
    return group == home or group.startswith(f"{home}/")

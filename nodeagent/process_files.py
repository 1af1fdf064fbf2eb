"""What /proc tells of processes: their cgroups and pods."""

import re

_POD = re.compile(r"(?:^|-)pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?$")


def group_in(proc_cgroup: str) -> str:
    """Path in the unified hierarchy; that of the memory controller where a process is in none."""
    paths = _paths(proc_cgroup)
    unified = paths.get("", "/")
    if unified not in ("", "/"):
        return unified
    return next((path for controllers, path in paths.items() if "memory" in controllers.split(",")), unified)


def visible_group_in(proc_cgroup: str) -> str | None:
    """Group below the root of the unified hierarchy; None outside of what this process may see or change."""
    path = _paths(proc_cgroup).get("")
    # "/../" leads out of the reader's cgroup namespace; a removed group is marked as deleted.
    return None if path is None or "/.." in path or path.endswith(" (deleted)") else path.strip("/")


def pod_in(group: str) -> str:
    """UID of the pod whose cgroup this is in; the outermost, since a pod may name groups of its own as it likes."""
    for part in group.split("/"):
        if found := _POD.search(part):
            digits = re.sub("[-_]", "", found[1])
            return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return ""


def absolute(group: str) -> str:
    """Path of a cgroup from the root. An agent in a cgroup namespace sees others' from its own, `/../../a-b.slice/c`.

    A slice's name holds its parents': `a-b.slice` is in `a.slice`. Source: systemd.slice(5).
    """
    parts = [part for part in group.split("/") if part]
    steps = [part for part in parts if part != ".."]
    if len(steps) == len(parts) or not steps or not steps[0].endswith(".slice"):
        return "/".join(steps)
    names = steps[0].removesuffix(".slice").split("-")
    parents = [f"{'-'.join(names[:count])}.slice" for count in range(1, len(names))]
    return "/".join((*parents, *steps))


def _paths(proc_cgroup: str) -> dict[str, str]:
    """Path by controllers; that of the unified hierarchy by none."""
    paths = {}
    for line in proc_cgroup.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        paths["" if number == "0" else controllers] = path
    return paths

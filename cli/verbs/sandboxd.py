"""`tonnage sandboxd`: isolates tool calls on a host without Kubernetes, where each scope of a slice is a sandbox."""

import os
import signal
import tempfile
from pathlib import Path

import click

from isolation.cgroupfs import capability_of
from nodeagent.process_files import visible_group_in
from nodeagent.sandboxes.process import ProcessSettings, serve

ROOT = Path("/sys/fs/cgroup")


def own_slice() -> str:
    """Group of `agents.slice` of the manager that this process runs under: the user's own, or the system's."""
    group = visible_group_in(Path("/proc/self/cgroup").read_text(encoding="utf-8")) or ""
    manager, found, _ = group.partition(f"/user@{os.getuid()}.service")
    return f"{manager}{found}/agents.slice" if found else "agents.slice"


@click.command()
@click.option("--group", default=own_slice, help="Cgroup whose children are the sandboxes.  [default: agents.slice]")
@click.option(
    "--memory-share",
    type=click.FloatRange(0.0, 1.0, min_open=True),
    default=0.8,
    show_default=True,
    help="Part of the host's memory that they may hold together.",
)
@click.option("--reports", is_flag=True, help="Print the state of all sandboxes each second, one JSON object a line.")
def sandboxd(group: str, memory_share: float, *, reports: bool) -> None:
    """Give every tool call of the agents in a slice memory of its own.

    Start agents with `systemd-run --user --slice=agents.slice --scope -p Delegate=yes AGENT`. Those that ask find their
    sockets in $XDG_RUNTIME_DIR/tonnage/sandboxes. Ends in order on SIGTERM.
    """
    can = capability_of(ROOT / group)
    if can.level != "full":
        raise click.ClickException(f"{ROOT / group}: {can.reason}")
    sockets = Path(os.environ.get("XDG_RUNTIME_DIR", "/run"), "tonnage", "sandboxes")
    reader, writer = os.pipe()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os.close(writer))
    with tempfile.TemporaryDirectory() as folder:
        record = str(Path(folder) / "record")
        settings = ProcessSettings(os.uname().nodename, str(ROOT), str(sockets), record, memory_share, "", group)
        serve(settings, reader, 1 if reports else os.open(os.devnull, os.O_WRONLY))

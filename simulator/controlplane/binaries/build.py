"""Builds the programs of a control plane into a cache, one by one, so that an interrupted build resumes."""

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cluster.errors import BuildError
from simulator.controlplane.binaries import go_toolchain
from simulator.controlplane.binaries.upstream_tools import BUILD_FLAGS, Tool, cache_folder, linker_flags
from simulator.controlplane.file_lock import locked

TELL_EVERY_S = 1.0

LAST_LINES = 15
"""Number of the compiler's last lines in the message of a failure."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a build."""

    tool: str
    stage: Literal["waiting", "building", "built"]
    number: int
    """Position among the missing tools, from 1."""
    total: int
    elapsed_s: float = 0.0
    """Seconds since the build of this tool began."""
    compiled: int = 0
    """Packages compiled for it; those shared with an earlier tool are not counted again."""


OnProgress = Callable[[Progress], None]


def build(tools: Sequence[Tool], on_progress: OnProgress = lambda _: None) -> dict[str, Path]:
    """Program of every tool by its name, built where it is missing.

    Of two builds at once, the second waits for the first and uses its result. Raises BuildError.
    """
    try:
        return _build(tools, on_progress)
    except OSError as error:
        raise BuildError(f"building in the cache: {error}; TONNAGE_CACHE may name another folder") from error


def _build(tools: Sequence[Tool], on_progress: OnProgress) -> dict[str, Path]:
    programs = {tool.name: cache_folder(tool.module) / tool.name for tool in tools}
    missing = [tool for tool in tools if not programs[tool.name].exists()]
    for number, tool in enumerate(missing, 1):
        folder = cache_folder(tool.module)
        progress = Progress(tool.name, "waiting", number, len(missing))
        with locked(folder / ".lock", on_wait=lambda progress=progress: on_progress(progress)) as lock:  # type: ignore[misc]
            if not programs[tool.name].exists():
                _build_one(tool, programs[tool.name], lock, number, len(missing), on_progress)
    return programs


def _build_one(tool: Tool, program: Path, lock: int, number: int, total: int, on_progress: OnProgress) -> None:
    began = time.monotonic()

    def tell(stage: Literal["building", "built"], compiled: int) -> None:
        on_progress(Progress(tool.name, stage, number, total, time.monotonic() - began, compiled))

    tell("building", 0)
    # A temporary name marks an unfinished file, so that a file with the right name is always complete.
    unfinished = program.with_name(f".{program.name}.unfinished")
    compiled = _compile(tool, unfinished, lock, lambda compiled: tell("building", compiled))
    unfinished.rename(program)
    tell("built", compiled)


def _compile(tool: Tool, output: Path, lock: int, on_compiled: Callable[[int], None]) -> int:
    """Runs Go, which names each compiled package (-v) on standard error. Returns the number of packages."""
    go = go_toolchain.find_go()
    command: list[str | Path] = [
        go,
        "build",
        "-v",
        *BUILD_FLAGS,
        "-ldflags",
        linker_flags(tool.module),
        "-o",
        output,
        tool.package,
    ]
    log = output.with_suffix(".log")
    with log.open("w+", encoding="utf-8", errors="replace") as output_file:
        process = subprocess.Popen(  # noqa: S603
            command,
            cwd=tool.module.folder,
            env=go_toolchain.environment(),
            stdout=output_file,
            stderr=subprocess.STDOUT,
            # If this process is killed, Go may continue; the lock keeps others from writing the same file meanwhile.
            pass_fds=(lock,),
        )
        try:
            while _is_running(process):
                on_compiled(_packages_in(log))
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if process.returncode:
        lines = [line for line in log.read_text(errors="replace").splitlines() if not _names_package(line)]
        raise BuildError(
            f"building {tool.name} with {go} failed (full output in {log}):\n" + "\n".join(lines[-LAST_LINES:])
        )
    compiled = _packages_in(log)
    log.unlink()
    return compiled


def _is_running(process: subprocess.Popen[bytes]) -> bool:
    """Whether it still runs after a short wait for its end."""
    try:
        process.wait(timeout=TELL_EVERY_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def _packages_in(log: Path) -> int:
    return sum(map(_names_package, log.read_text(errors="replace").splitlines()))


def _names_package(line: str) -> bool:
    """Whether the line is a package name. A package is alone in its line; errors and downloads are sentences."""
    return bool(line) and " " not in line and not line.startswith(("#", "\t"))

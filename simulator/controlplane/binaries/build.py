"""Builds the programs of a control plane into a cache: one by one, so that a broken-off build goes on where it was."""

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
"""Of what the compiler said, when it fails."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a build stands."""

    tool: str
    stage: Literal["waiting", "building", "built"]
    number: int
    """Which of the tools that are missing it is, from 1."""
    total: int
    elapsed_s: float = 0.0
    """Since this tool was begun."""
    compiled: int = 0
    """Packages compiled for it; those that a tool before it needed too are not counted again."""


OnProgress = Callable[[Progress], None]


def build(tools: Sequence[Tool], on_progress: OnProgress = lambda _: None) -> dict[str, Path]:
    """Every tool's program by its name, built where it is not there yet.

    Two that start at once build once: the second waits for the first. Raises BuildError.
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
    # Under a name that says that it is not whole, so that what has the right name is.
    unfinished = program.with_name(f".{program.name}.unfinished")
    compiled = _compile(tool, unfinished, lock, lambda compiled: tell("building", compiled))
    unfinished.rename(program)
    tell("built", compiled)


def _compile(tool: Tool, output: Path, lock: int, on_compiled: Callable[[int], None]) -> int:
    """Runs Go, which names each package that it compiles (-v) on standard error. How many it were."""
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
    with log.open("w+", encoding="utf-8", errors="replace") as said:
        process = subprocess.Popen(  # noqa: S603
            command,
            cwd=tool.module.folder,
            env=go_toolchain.environment(),
            stdout=said,
            stderr=subprocess.STDOUT,
            # If we are killed, Go may go on; nobody else must write the same file meanwhile.
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
            f"building {tool.name} with {go} failed (all of it in {log}):\n" + "\n".join(lines[-LAST_LINES:])
        )
    compiled = _packages_in(log)
    log.unlink()
    return compiled


def _is_running(process: subprocess.Popen[bytes]) -> bool:
    """Waits a moment for its end."""
    try:
        process.wait(timeout=TELL_EVERY_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def _packages_in(log: Path) -> int:
    return sum(map(_names_package, log.read_text(errors="replace").splitlines()))


def _names_package(line: str) -> bool:
    """A package stands alone in its line; what goes wrong and what is downloaded is told in words."""
    return bool(line) and " " not in line and not line.startswith(("#", "\t"))

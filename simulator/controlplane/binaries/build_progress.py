"""Progress of a build for people: one line that changes on a terminal, a line at intervals elsewhere."""

from typing import TextIO

from simulator.controlplane.binaries.build import OnProgress, Progress

LINE_EVERY_S = 15.0
"""Interval of the lines where there is no terminal."""


def progress_on(stream: TextIO) -> OnProgress:
    """Callback that writes the progress of a build."""
    written = Progress("", "waiting", 0, 0)

    def tell(progress: Progress) -> None:
        nonlocal written
        if stream.isatty():
            stream.write(f"\r\033[K{in_words(progress)}" + ("\n" if progress.stage == "built" else ""))
        elif (progress.tool, progress.stage) != (
            written.tool,
            written.stage,
        ) or progress.elapsed_s >= written.elapsed_s + LINE_EVERY_S:
            stream.write(in_words(progress) + "\n")
            written = progress
        stream.flush()

    return tell


def in_words(progress: Progress) -> str:
    which = f"[{progress.number}/{progress.total}] {progress.tool}"
    match progress.stage:
        case "waiting":
            return f"{which}: another process is building; waiting for it"
        case "building":
            return f"{which}: {progress.compiled} packages compiled, {progress.elapsed_s:.0f} s"
        case "built":
            return f"{which}: built in {progress.elapsed_s:.0f} s ({progress.compiled} packages)"

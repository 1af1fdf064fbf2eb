"""`python -m simulator.controlplane [TOOL ...]`: builds the programs of a control plane, or those that are named."""

import argparse
import sys
from typing import TextIO

from cluster.errors import BuildError
from simulator.controlplane.build import OnProgress, Progress, build
from simulator.controlplane.tools import CONTROL_PLANE, TOOLS

LINE_EVERY_S = 15.0
"""Where nobody watches, one line in so many seconds says that it is alive."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulator.controlplane", description=__doc__)
    parser.add_argument("tools", nargs="*", metavar="TOOL", help=f"one of {', '.join(TOOLS)}; default: all but helm")
    names = parser.parse_args().tools or [tool.name for tool in CONTROL_PLANE]
    if unknown := [name for name in names if name not in TOOLS]:
        parser.error(f"no tool is called {unknown[0]}; choose of {', '.join(TOOLS)}")
    try:
        programs = build([TOOLS[name] for name in names], on_progress=progress_on(sys.stderr))
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    for program in programs.values():
        print(f"{program.stat().st_size / 1e6:6.1f} MB  {program}")  # noqa: T201
    return 0


def progress_on(stream: TextIO) -> OnProgress:
    """Tells people how a build goes: one line that changes on a terminal, a line now and then elsewhere."""
    told = Progress("", "waiting", 0, 0)

    def tell(progress: Progress) -> None:
        nonlocal told
        if stream.isatty():
            stream.write(f"\r\033[K{in_words(progress)}" + ("\n" if progress.stage == "built" else ""))
        elif (progress.tool, progress.stage) != (
            told.tool,
            told.stage,
        ) or progress.elapsed_s >= told.elapsed_s + LINE_EVERY_S:
            stream.write(in_words(progress) + "\n")
            told = progress
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


if __name__ == "__main__":
    sys.exit(main())

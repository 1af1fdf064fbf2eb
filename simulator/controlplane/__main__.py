"""`python -m simulator.controlplane [PROGRAM ...]`: builds the programs of a control plane, or only the named ones."""

import argparse
import sys

from cluster.errors import BuildError
from simulator.controlplane.binaries import PACKAGES, build, progress_on


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulator.controlplane", description=__doc__)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"one of {', '.join(PACKAGES)}; default: all")
    parser.add_argument(
        "--skippable", action="store_true", help="on failure: one line, which says that tests are skipped"
    )
    given = parser.parse_args()
    names = given.programs or PACKAGES
    if unknown := [name for name in names if name not in PACKAGES]:
        parser.error(f"no program is called {unknown[0]}; choose from {', '.join(PACKAGES)}")
    try:
        programs = build(names, progress_on(sys.stderr))
    except BuildError as error:
        said = f"error: {error}"
        if given.skippable:
            said = f"no control plane, so tests that need it are skipped: {' '.join(str(error).split())}"
        print(said, file=sys.stderr)  # noqa: T201
        return 1
    for program in programs.values():
        print(f"{program.stat().st_size / 1e6:6.1f} MB  {program}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())

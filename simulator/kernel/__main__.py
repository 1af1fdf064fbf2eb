"""`python -m simulator.kernel`: fetches the guest kernel where the cache has none and prints its release."""

import sys

from cluster.errors import GuestError
from simulator.kernel.guest import booted


def main() -> int:
    try:
        with booted(memory_mib=256) as guest:
            print(guest.run("import os; print(os.uname().release, end='')").stdout)  # noqa: T201
    except GuestError as error:
        print(f"no guest kernel: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

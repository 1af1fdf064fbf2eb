"""`python -m tests.rigs.kernel`: fetches the guest kernels where the cache has none, and says which are ready."""

import sys
from typing import get_args

from cluster.errors import GuestError
from tests.rigs.kernel.guest import Kernel, prepare


def main() -> int:
    missing = 0
    for kernel in get_args(Kernel):
        try:
            prepare(kernel)
        except GuestError as error:
            print(f"no guest kernel ({kernel}): {error}", file=sys.stderr)  # noqa: T201
            missing += 1
        else:
            print(f"{kernel}: ready")  # noqa: T201
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(main())

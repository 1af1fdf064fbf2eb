"""Fits of many policies on a real API server: what one leader saved, read by the next one, with the chart's rights.

    python -m tests.rigs.controlplane.saved_fits --policies 2000

The values are as large as real ones: each policy has the fit of one of a few real histories.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path

from autoscaler.forecast.fits import fit
from autoscaler.series import regular
from cluster.errors import ActionError
from cluster.frame import framed
from controller.background import load_fits
from controller.background.load_fits import _BatchFits, batches_of
from controller.kube.connection import connect
from controller.kube.credentials import ApiAccess
from controller.kube.sender import Applier
from controller.loops.autoscaler.forecasting import SavedFits
from simulator.scaling.traces import MINUTE_S, generated_trace
from tests.controlplane.installation import account_of, site_with
from tests.controlplane.testbed import ANSWER_WITHIN_S
from tests.rigs import chart
from tests.rigs.background_fits import NOW_S

HISTORIES = 5
EXAMPLES = Path(__file__).parents[3] / "examples"


class Leading:
    """Leader whom nobody doubts."""

    def may_write(self) -> bool:
        return True

    def fenced(self) -> None:
        raise ActionError("fenced")

    def contradicted(self, path: str) -> None:
        raise ActionError(path)


def batches(policies: int, days: int) -> dict[int, bytes]:
    """Results of all batches of so many policies."""
    loads = [generated_trace(seed, days).values / MINUTE_S for seed in range(HISTORIES)]
    made = [fit(regular(NOW_S - MINUTE_S * len(load), MINUTE_S, load)) for load in loads]
    known = [each for each in made if each is not None]
    names = [f"default/s{number}" for number in range(policies)]
    fit_of = {name: known[number % len(known)] for number, name in enumerate(names)}
    return {
        number: framed(_BatchFits(batch, tuple(fit_of[name] for name in batch), ()))
        for number, batch in batches_of(names).items()
    }


async def handed_over(kubeconfig: Path, fits: Mapping[int, bytes], policies: int) -> dict[str, object]:
    """Writes them as a leader does, and reads them as the next one."""
    access = ApiAccess(kubeconfig=str(kubeconfig), request_timeout_s=ANSWER_WITHIN_S)
    lease = chart.NAMESPACE, "tonnage"
    async with await connect(access, time.monotonic) as one:
        began_s = time.monotonic()
        await SavedFits(one, Applier(one, Leading()), lease).write(fits)
        wrote_s = time.monotonic() - began_s
    known = {f"default/s{number}": None for number in range(policies)}
    async with await connect(access, time.monotonic) as other:
        began_s, found = time.monotonic(), list[bytes]()
        async for value in SavedFits(other, Applier(other, Leading()), lease).read(known):
            found.append(value)
        read_s = time.monotonic() - began_s
    fitted = {name for value in found for name, each in load_fits.fits_in(value).items() if each is not None}
    return {
        "policies": policies,
        "batches": len(fits),
        "largest_mb": round(max(map(len, fits.values())) / 1e6, 3),
        "all_mb": round(sum(map(len, fits.values())) / 1e6, 1),
        "wrote_s": round(wrote_s, 1),
        "read_s": round(read_s, 1),
        "without_fit": len(known.keys() - fitted),
        "same": sorted(found) == sorted(fits.values()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", type=int, default=2000)
    parser.add_argument("--days", type=int, default=14)
    given = parser.parse_args()
    with site_with((EXAMPLES / "nodes.yaml").read_text(encoding="utf-8")) as site:
        fits = batches(given.policies, given.days)
        print(json.dumps(asyncio.run(handed_over(account_of(site), fits, given.policies))))  # noqa: T201


if __name__ == "__main__":
    main()

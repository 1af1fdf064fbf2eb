"""Timeline of a recorded job: the operations of each rank over time, and when something was found."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cli.inputs.recorded_job import Operations, Replayed
from cli.printing import pictures
from tonnage.records import Op

MOST_RANKS = 256
COLOURS = {"collective": "#4477aa", "send or receive": "#ee7733", "never ended": "#cc3311"}


def draw(made: Operations, found: Sequence[Replayed], last_s: float, out: Path) -> None:
    """Draws the last seconds. Gaps are computing; a bar to the right edge is an operation that did not end."""
    end_s = float(np.nanmax(np.where(np.isfinite(made.exit_s), made.exit_s, made.enter_s), initial=0.0))
    first_s = max(0.0, end_s - last_s)
    exit_s = np.where(np.isfinite(made.exit_s), made.exit_s, end_s)
    kept = (exit_s >= first_s) & (made.rank < MOST_RANKS)
    kind = np.where(~np.isfinite(made.exit_s), 2, np.where(made.op >= Op.SEND, 1, 0))
    ranks = int(made.rank[kept].max(initial=0)) + 1
    figure, axes = pictures.canvas(1.5 + 0.15 * min(ranks, 128))
    for number, (label, colour) in enumerate(COLOURS.items()):
        of = np.flatnonzero(kept & (kind == number))
        axes.barh(made.rank[of], exit_s[of] - made.enter_s[of], left=made.enter_s[of], color=colour, label=label)
    for each in found:
        if each.at_s >= first_s:
            axes.axvline(each.at_s, color="black" if each.verdict.blames else "grey", linestyle="--", linewidth=0.8)
    axes.set_xlim(first_s, max(end_s, *(each.at_s for each in found), first_s + 1e-3) if found else end_s)
    axes.set_xlabel("seconds since the first record; dashed: something was found")
    axes.set_ylabel("rank")
    axes.legend(loc="upper left", fontsize="small")
    header = ("AT", "SYNDROME", "PART", "RANKS", "CONF", "CAUSE OR PROBE", "EVIDENCE")
    pictures.save(figure, out, "Operations of each rank over time", header, [each.cells for each in found])

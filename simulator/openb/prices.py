"""Illustrative prices of the openb cluster's GPUs, so that a replay can report dollars."""

from collections.abc import Mapping

OPENB_PRICES: Mapping[str, float] = {
    "A10": 1.01,
    "G2": 1.01,
    "G3": 3.67,
    "P100": 1.46,
    "T4": 0.35,
    "V100M16": 2.48,
    "V100M32": 2.48,
}
"""Dollars per GPU and hour. The trace has no prices: these are public on-demand list prices of similar devices in
2023-2024, rounded. They are for one GPU without its share of a machine where a cloud lists that (T4, P100, V100),
else for the cheapest one-GPU instance (A10). The trace does not name G2 and G3; they have the price of an A10 and
of an A100 of 80 GB, which is an assumption. Use --prices for other prices."""

OPENB_PRICES_SOURCE = "illustrative list prices; G2 and G3 are hidden names, priced as A10 and A100"

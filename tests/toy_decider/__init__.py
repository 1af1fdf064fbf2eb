"""A toy decider, complete: a folder, and the three lines of `REGISTRIES`. docs/adding-a-decider.md walks through it."""

from controller.deciders.decider import Decider
from controller.process.cluster import PRODUCT
from tests.toy_decider import decider, facts, kind

REGISTRIES = PRODUCT.plus(
    kind=kind.KIND,  # controller/api/kinds.py: KINDS
    fact=facts.with_reserves,  # controller/snapshot/builder.py: FACTS
    decider=Decider("reserve", decider.decide),  # controller/deciders/pipeline.py: ORDER
)

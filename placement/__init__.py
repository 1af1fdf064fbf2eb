"""Placement deciders: GPU mix of a service, node and devices of each pod, and moves of running pods that pay.

Three planners solve three problems, and their figures cannot be compared:

- packing (`placement/packing/planner.py`, pod by pod in `placement/engine/packer.py`): where does *this* pod cost
  least, given what is expected to come? A node and devices, in a millisecond.
- the mix (`placement/mix/planner.py`): how many instances of which GPU type serve a service at least dollars an hour?
  Counts, routing and a proof; it makes the pods that packing places.
- the allocation bound (`placement/prices/allocation_bound.py`): how much GPU can a demand get at most from a fleet? A
  bound on every policy, and the prices that packing charges.

Which of several nodes costs least depends on who pays for an idle one. Where the fleet runs anyway, an idle node is
worth what can still come to it, which is what the policies rate. Where idle nodes are given back, starting one costs
its price, which comes before any policy (`placement/engine/idle_nodes.py`).
"""

"""Settings of isolation on one node."""

from dataclasses import dataclass

from isolation.ledger import MIB


@dataclass(frozen=True, slots=True)
class Settings:
    """Every value has its reason beside it; times are wall seconds of the node."""

    lease_step_bytes: int = 16 * MIB
    """Smallest growth of a lease beyond its call's claim: each costs a wake-up and a write, 1 ms."""
    agent_slack_bytes: int = 16 * MIB
    """Reserved above the use of an agent's own processes, which grow slowly and must not be braked."""
    learned_fraction: float = 0.95
    """Quantile of past peaks that stands for a need that is not declared."""
    calls_per_sandbox: int = 32
    """Tool calls of one sandbox, running and queued; an agent was seen to start 3,079 shells in 17 s."""
    light_leaf_bytes: int = 128 * MIB
    """Limit of the leaf that a sandbox's light calls share: a call that passes for light and is not meets it."""
    pids_per_call: int = 1024
    """Processes and threads of one call: a fork bomb meets it at once; a parallel build stays below."""
    tried_requests: int = 16
    """Requests that are tried in one step without success: bounds the work of a step on a crowded node."""
    longest_wait_s: float = 300.0
    """Bound of a call's time in the queue, where it sets none of its own."""
    starvation_s: float = 30.0
    """Time in the queue after which nothing of the same or a lower priority is admitted before it."""
    frozen_s: float = 60.0
    """Bound of a call's time frozen: agents give a tool about 120 s by themselves, and leases of streams break."""
    settle_s: float = 0.05
    """Time between two steps of the ladder, in which the last one shows its effect."""

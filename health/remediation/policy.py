"""Limits of remediation: how much harm it may do, and what a wrong decision costs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """Defaults are the proposals of docs/health.md; each is chosen unless a source is named."""

    job_quarantines: int = 2
    """Nodes taken from one job within `job_window_s`."""
    job_window_s: float = 1800.0
    cluster_share: float = 0.02
    """Share of all nodes taken out within `cluster_window_s`; one node is always allowed."""
    cluster_window_s: float = 600.0
    out_share: float = 0.10
    """Share of all nodes that may be out by our hand at any time; one node is always allowed."""
    domain_share: float = 0.25
    """Share of a failure domain's nodes that may be out by our hand; one node is always allowed."""
    domain_suspects: int = 2
    """Suspects in one failure domain within `domain_window_s` that make one domain incident."""
    domain_window_s: float = 120.0
    restarts: int = 3
    """Restarts of one job within `restart_window_s` without a checkpoint, from which on it is restarted in place before
    another node is taken from it; after twice as many, a person is asked."""
    restart_window_s: float = 3600.0
    heard_share: float = 0.9
    """Least share of heartbeats; below it nothing new is done."""
    confirm_s: float = 30.0
    """Time that a probe has to decide where a verdict leaves something open."""
    probation_s: float = 4 * 3600.0
    """Time of low-value work after a repair, before the node is trusted."""
    forget_s: float = 7 * 86_400.0
    """Time for which a closed incident counts against its node; 43 % of repeats come within 7 days (StepFun trace)."""
    avoid_s: float = 86_400.0
    """Time for which a job that has left nodes untainted, such as both ends of a link, is not placed on them again."""
    stale_s: float = 300.0
    """Age up to which evidence may open an incident."""
    innocent_out_s: float = 1800.0
    """Time that a healthy node spends in quarantine, test and release when it is taken out by mistake."""
    node_back_s: float = 20.4 * 3600.0
    """Time until a job that went on with fewer pods has its size again: the median repair of the StepFun trace."""
    remediate: bool = True
    """False: incidents are opened and costs shown, nothing is done."""

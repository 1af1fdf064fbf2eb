"""The modelled kernel: exact times, so that what isolation adds is seen and nothing else."""

from tests.rigs.sandboxes.model import modelled
from tests.rigs.sandboxes.runs import SandboxPolicyName, SandboxRun
from tests.rigs.sandboxes.traces import AgentPhase, AgentTrace, CallTrace


def agent(name: str, peak_mib: float) -> AgentTrace:
    """Thinks for a second, then runs a call that rises to its peak in one second and holds it for three: 5 s."""
    call = CallTrace("test", ((0.0, 1.0), (1.0, peak_mib), (4.0, peak_mib)))
    return AgentTrace(name, (AgentPhase(1.0, 40.0, call), AgentPhase(0.0, 40.0, None)))


def run(policy: SandboxPolicyName, budget_mib: float, *agents: AgentTrace, hint: float = 1.0) -> SandboxRun:
    priorities = tuple(int(index == 0) for index in range(len(agents)))
    delays = tuple(0.0 for _ in agents)
    return SandboxRun(policy, agents, priorities, delays, budget_mib, tuple((hint, 0.0) for _ in agents), 1.0, 1.0)


TWO = agent("high", 120.0), agent("low", 120.0)


def test_without_a_limit_an_agent_takes_its_traces_time() -> None:
    result = modelled(run("unlimited", 1.0, *TWO))

    assert [(each.survived, each.for_s) for each in result.agents] == [(True, 5.0)] * 2
    assert result.peak_mib == 320.0  # 2 x (40 + 120)


def test_where_memory_runs_out_the_container_of_the_largest_process_dies_whole() -> None:
    result = modelled(run("none", 300.0, agent("high", 130.0), agent("low", 120.0)))

    assert [(each.survived, each.killed_calls) for each in result.agents] == [(False, 1), (True, 0)]
    assert result.kernel_kills == 1


def test_two_calls_that_do_not_fit_at_once_run_one_after_the_other() -> None:
    result = modelled(run("whole-claims", 300.0, *TWO))

    high, low = result.agents
    assert (high.survived, high.for_s, low.survived) == (True, 5.0, True)
    # The low call asks at 1 s, and may hold its peak from 5 s on: at the latest it starts then.
    assert 8.0 <= low.for_s <= 9.1
    assert (result.kernel_kills, low.killed_calls, low.refused_calls) == (0, 0, 0)
    assert result.peak_mib <= 300.0


def test_the_same_run_has_the_same_result() -> None:
    hinted = run("whole-claims", 250.0, *TWO, hint=0.7)

    assert modelled(hinted) == modelled(hinted)

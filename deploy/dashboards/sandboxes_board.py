"""Dashboard of isolation: agents' pods, their tool calls, memory, and what had to be done."""

from deploy.dashboards.panels import COUNT, JOB, PER_SECOND, Board, Panel, Query, Row, Variable, fleet, rate

POLICY = Variable("policy", "SandboxPolicy", 'label_values(tonnage_sandboxes{job="$job"}, policy)', many=True)
CHOSEN = 'policy=~"$policy"'
BYTES = "bytes"


def of_policy(name: str, *by: str) -> str:
    return fleet(f"tonnage_{name}", "policy", *by, where=CHOSEN)


SANDBOXES = Board(
    "sandboxes",
    "Tonnage / sandboxes",
    "Agents' pods under control, their tool calls and memory, and what had to be done where memory was short.",
    (JOB, POLICY),
    (
        Row(
            "Tool calls",
            (
                Panel(
                    "Pods",
                    "Running pods that a policy covers. Uncontrolled: the policy's status names them, with the reason.",
                    COUNT,
                    (Query(of_policy("sandboxes", "state"), "{{policy}} {{state}}"),),
                ),
                Panel(
                    "Tool calls",
                    "Running, waiting for memory, and frozen. Many waiting: the nodes' memory is short, or agents "
                    "declare more than they need.",
                    COUNT,
                    (Query(of_policy("sandbox_calls", "state"), "{{policy}} {{state}}"),),
                ),
                Panel(
                    "Memory",
                    "Memory of agents' own processes, and leased to tool calls.",
                    BYTES,
                    (Query(of_policy("sandbox_memory_bytes", "kind"), "{{policy}} {{kind}}"),),
                ),
                Panel(
                    "What had to be done",
                    "Calls that were killed, frozen, slowed or refused, and agents killed, by reason.",
                    PER_SECOND,
                    (
                        Query(
                            rate("tonnage_sandbox_happenings_total", "policy", "what", "reason", where=CHOSEN),
                            "{{policy}} {{what}} {{reason}}",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "Nodes",
            (
                Panel(
                    "Memory for sandboxes",
                    "Budget of all nodes, and the part that is reserved for agents, calls and guarantees.",
                    BYTES,
                    (Query(fleet("tonnage_sandbox_node_bytes", "kind"), "{{kind}}"),),
                ),
                Panel(
                    "Levels of isolation",
                    "full: calls are limited. observe, none: the node's cgroups do not allow it (docs/isolation.md).",
                    COUNT,
                    (Query(fleet("tonnage_sandbox_nodes", "level"), "{{level}}"),),
                ),
            ),
        ),
    ),
)

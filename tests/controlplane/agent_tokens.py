"""Tokens of node agents from a real API server: bound to nodes, for the audience of the agents' connections."""

from power.leases.messages import AUDIENCE
from tests.controlplane.kubectl import Kubectl

NAMESPACE, ACCOUNT = "tonnage-system", "tonnage-agent"
"""As the operator's `power.agents` names them by default."""


def agent_token(admin: Kubectl, node: str, account: str = ACCOUNT, audience: str = AUDIENCE) -> str:
    """A token as the kubelet of this node would mount it; the account is made where it is missing."""
    own = admin.within(NAMESPACE)
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    own("apply", "-f", "-", stdin=space)
    own("apply", "-f", "-", stdin={"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}})
    bound = ("--bound-object-kind=Node", f"--bound-object-name={node}")
    return own("create", "token", account, f"--audience={audience}", *bound).strip()

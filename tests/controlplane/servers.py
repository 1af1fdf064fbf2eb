"""Servers that tests share or start: the number of their nodes, and how one more is started."""

from collections.abc import Callable

from simulator.controlplane.server import ControlPlane

NODES = 20
"""Simulated nodes of the shared server: what tests need that do not bring their own."""

StartServer = Callable[..., ControlPlane]
"""The fixture `start_server`: settings → a running server of the module's own."""

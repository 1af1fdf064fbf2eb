"""Time of the last change of a service's replicas, read from its status."""

from collections.abc import Mapping
from typing import Any

from controller.api.model_service import status_from


def scaled_at_s(status: Mapping[str, Any]) -> float | None:
    """When the replicas in this status last changed, seconds since the epoch."""
    return status_from(status).last_scale_time

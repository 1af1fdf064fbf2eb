"""Roles of process groups by the descriptions that torch gives them. Needs no torch."""

import re

from tonnage.records import Role

_ROLES = (
    (Role.TENSOR, ("tp", "tensor")),
    (Role.PIPELINE, ("pp", "pipe")),
    (Role.EXPERT, ("ep", "expert")),
    (Role.DATA, ("dp", "data", "replicate", "shard", "ddp", "fsdp", "hsdp")),
)
"""Role of a group by how a word of its description begins: a device mesh calls its groups `mesh_tp` and the like."""


def role_of(description: str) -> Role:
    """Role of a group by its description; that of all ranks is the world's."""
    if description == "default_pg":
        return Role.WORLD
    said = re.split(r"[^a-z0-9]+", description.lower())
    found = (role for role, words in _ROLES if any(each.startswith(words) for each in said))
    return next(found, Role.OTHER)

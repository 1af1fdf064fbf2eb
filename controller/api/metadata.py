"""Object metadata, as far as Tonnage reads it."""

from typing import Literal

from pydantic import Field

from controller.api.fields import Loose, ObjectName

ApiVersion = Literal["tonnage.dev/v1alpha1"]


class ObjectMeta(Loose):
    """metadata of a core/v1 object; base class for Tonnage's kinds, whose names follow stricter rules."""

    name: str = Field(min_length=1, max_length=253)
    namespace: str = "default"
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    deletion_timestamp: str | None = None


class OwnMeta(ObjectMeta):
    """metadata of one of Tonnage's kinds."""

    name: ObjectName = Field(description="Name of the object, lower case, unique within its kind (and namespace).")

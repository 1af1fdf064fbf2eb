"""Errors of device selectors."""


class UnsupportedSelectorError(ValueError):
    """The expression is not valid CEL, or uses an unsupported part of it."""


class SelectorError(ValueError):
    """The expression cannot be evaluated for a device, for example because the device lacks an attribute."""

"""Why a selector chooses nothing."""


class UnsupportedSelectorError(ValueError):
    """The expression uses what is not supported here, or is no CEL at all."""


class SelectorError(ValueError):
    """The expression cannot be decided for this device, such as for an attribute that it lacks."""

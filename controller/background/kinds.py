"""Kinds of background tasks. A new one is a file with its function, and a line here."""

from collections.abc import Mapping

from controller.background import load_fits
from controller.background.tasks import TaskFunction

KINDS: Mapping[str, TaskFunction] = {
    load_fits.KIND: load_fits.fitted,
}

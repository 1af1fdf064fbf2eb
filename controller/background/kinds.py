"""Kinds of background tasks, by name, each with its function from bytes to bytes."""

from collections.abc import Mapping

from controller.background import load_fits, mix_search
from controller.background.tasks import TaskFunction

KINDS: Mapping[str, TaskFunction] = {load_fits.KIND: load_fits.fitted, mix_search.KIND: mix_search.answered}

"""All dashboards of Tonnage."""

from deploy.dashboards.api_board import API
from deploy.dashboards.fleet_board import FLEET
from deploy.dashboards.loop_board import LOOP
from deploy.dashboards.placement_board import PLACEMENT

BOARDS = (FLEET, PLACEMENT, LOOP, API)

"""All dashboards of Tonnage."""

from deploy.dashboards.api_board import API
from deploy.dashboards.fleet_board import FLEET
from deploy.dashboards.health_board import HEALTH
from deploy.dashboards.loop_board import LOOP
from deploy.dashboards.placement_board import PLACEMENT
from deploy.dashboards.power_board import POWER
from deploy.dashboards.sandboxes_board import SANDBOXES
from deploy.dashboards.scaling_board import SCALING

BOARDS = (FLEET, PLACEMENT, LOOP, POWER, SCALING, HEALTH, SANDBOXES, API)

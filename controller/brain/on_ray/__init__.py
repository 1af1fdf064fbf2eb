"""Ray side of the brain: planner actors, background actors, the Ray session. Only here is ray imported."""

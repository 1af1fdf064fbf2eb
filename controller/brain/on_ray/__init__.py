"""The brain's side of Ray: planner actors, background actors, the session. Only here is ray imported."""

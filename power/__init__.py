"""How many watts each device may draw: more servers under the same breaker, and never over it."""

"""Power capping: how much power each device may draw, so that more servers share a breaker that is never overloaded."""

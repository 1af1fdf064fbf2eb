"""Power domains: the tree of budgets as arrays, its validation, and the breakers' trip curves."""

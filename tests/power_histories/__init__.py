"""Random histories of a small power tree: the rules that ship, and a hostile world around them.

`python -m tests.power_histories --histories 10000` counts instants at which devices may draw more than a budget.
"""

"""Linear programs of a batch: relaxation, column generation, and the bounds that they prove."""

"""Series: samples of a metric made into a regular series, in which missing is never zero."""

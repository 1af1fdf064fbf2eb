"""Services scaled on mixed fleets and by tuned concurrency, beside rival rules."""

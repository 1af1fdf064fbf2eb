"""The openb trace: its reader, its statistics and prices, and generated fleets like it."""

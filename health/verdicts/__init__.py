"""Verdicts: what is at fault, why, how sure, or why it is no hardware, or which probe would decide."""

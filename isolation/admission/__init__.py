"""Admission: declared or learned needs become reservations that cannot dead-lock."""

"""Measurements that decisions rest on; `python -m tests.measurements.NAME` repeats one."""

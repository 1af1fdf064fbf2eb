"""Moves of running pods: priced defragmentation, and relocation of one pod so that another fits."""

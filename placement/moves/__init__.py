"""Moves of running pods: priced defragmentation, and relocation that makes room for one pod."""

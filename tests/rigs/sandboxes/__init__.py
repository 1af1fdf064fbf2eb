"""Agents with tool calls, replayed on a real or modelled kernel under several policies."""

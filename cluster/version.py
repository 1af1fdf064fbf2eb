"""Which Tonnage this is."""

VERSION = "0.1.0"

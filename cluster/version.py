"""Version of Tonnage."""

VERSION = "0.1.0"

"""Model of a cluster: the data types that every other part of Tonnage shares."""

"""What a cluster is: the words that every other part of Tonnage shares."""

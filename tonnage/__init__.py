"""What other processes import: the training job's recorder with its record format.

Imports nothing else of Tonnage, and the standard library only; `__main__` starts the commands where they are installed.
"""

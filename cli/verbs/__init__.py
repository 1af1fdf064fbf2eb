"""Commands, one file per verb; a verb's file is imported only when that verb runs."""

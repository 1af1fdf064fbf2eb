"""Commands, one file per verb; a verb's file is imported when that verb is run."""

"""Made-up training jobs with disturbances, and how responses to faults compare over weeks."""

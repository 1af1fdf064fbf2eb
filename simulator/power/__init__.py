"""A pretend row of inference servers under one breaker: what it draws, how fast it answers, who is held back."""

"""State estimation: what each device draws, holds, needs and obeys, as far as readings prove it."""

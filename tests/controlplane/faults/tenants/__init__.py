"""What a tenant does by mistake or malice while canaries of another are placed: a scenario a file."""

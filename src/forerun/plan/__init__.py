"""What a run will cost, from counts and configs alone. Never imports JAX."""

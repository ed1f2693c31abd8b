"""Real, freely licensed text for the demo, gathered by a recipe: fetched by pinned hash, extracted, never executed, never committed."""

"""Documents to token store, with a reason for every document dropped. Never imports JAX."""

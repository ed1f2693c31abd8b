"""The few functions that may be fast: the reference first, then the fast form."""

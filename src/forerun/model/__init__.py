"""The transformer as if there were one device. `config.py` and `count.py` never import JAX."""

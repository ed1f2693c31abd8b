"""How arrays and tokens cross devices: mesh, sharding table, one file per expert transport. `config.py` never imports JAX."""

"""What was promised before the run: preregistration, freeze, ledger, amendment, verdict. Never imports JAX."""

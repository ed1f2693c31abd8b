"""Rehearse, forecast, train and watch mixture-of-experts pretraining runs in the open."""

__version__ = "0.1.0"

"""The commands: parse, load, call one function, print. No logic."""

"""What every other package may rely on: errors, config, units, glossary, file discipline. Imports nothing of forerun."""

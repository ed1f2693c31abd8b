"""Lets the tests here import `model_tiny`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

"""Made-up text for the tests of the text stages."""

from __future__ import annotations

import json
import random
from pathlib import Path

VOCABULARY = [f"{a}{b}" for a in "bcdfghklmnprstvz" for b in ("ano", "ike", "urm", "oled", "est", "agi", "yn", "orth")]


def sentence(rng: random.Random, num_words: int) -> str:
    return " ".join(rng.choice(VOCABULARY) for _ in range(num_words))


def write_lines(path: Path, texts: list[str], *, name: str = "id") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text, name: f"d{i}"}) + "\n" for i, text in enumerate(texts)))


def planted(seed: int = 0) -> list[str]:
    """200 texts, 5 copies, 10 near-copies, a blank and a short one."""
    rng = random.Random(seed)
    texts = [sentence(rng, 120) for _ in range(200)]
    return [*texts, *texts[:5], *(f"{text} {sentence(rng, 2)}" for text in texts[5:15]), "", "short"]

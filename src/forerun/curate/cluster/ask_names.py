"""Names for domains from any OpenAI-compatible chat endpoint, and a blind test of them by the same model.

The model sees what contrast found (telling words, main source) and excerpts: documents nearest to the domain's middle and some at
random. Then it is shown an excerpt alone and several names, in an order drawn by lot, and must say which one fits; it sees no vectors
and no word lists then. Answers are kept, so a build that is repeated in the same lab asks nothing twice and gets the same names.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from forerun.base.config import digest_of
from forerun.base.errors import ConfigError, SourceError
from forerun.curate.cluster.names import DomainName, unique
from forerun.curate.patience import headers_of, is_tired, pause_s, require_address
from forerun.curate.quality.answer import grade_in
from forerun.curate.spill import slug

NAMING = """Documents were grouped by meaning. Name one group.
Words that set it apart: {terms}. Most of it comes from: {source} ({share:.0%}).
Excerpts of its documents:
{excerpts}
Answer with a name of two to five words for what these documents are about, and nothing else."""
CHOOSING = """Which of these groups does the excerpt belong to?
{options}
Excerpt:
{excerpt}
Answer with one digit."""
NUM_NEAR, NUM_RANDOM, EXCERPT_CHARS = 4, 3, 400  # assumed: enough to see what a group has in common within 3,000 characters
MOST_OPTIONS = 5  # derived: one digit, and the grades that `grade_in` reads
TRIALS_PER_DOMAIN = 3  # assumed: 120 questions for 40 domains
LONGEST_NAME = 60  # assumed: characters of a heading
ANSWER_TOKENS = 2048  # assumed: room for a model that thinks first


@dataclass(frozen=True, kw_only=True)
class NamerConfig:
    """Who names the domains."""

    url: str
    """Base address of an OpenAI-compatible endpoint, such as `http://127.0.0.1:8000/v1`."""
    model: str
    """Name the server knows it by."""
    api_key_variable: str = "OPENAI_API_KEY"
    """Environment variable that holds the key; unset sends none."""
    timeout_s: float = 120.0
    """Longest wait for one answer."""
    max_retries: int = 5
    """Further tries after a busy or failing server."""

    def __post_init__(self) -> None:
        require_address("cluster.namer.url", self.url)
        if not self.timeout_s > 0 or self.max_retries < 0:
            raise ConfigError(
                f"cluster.namer.timeout_s must be above 0 and max_retries at least 0, got {self.timeout_s} and {self.max_retries}",
                hint="leave them out for the defaults",
            )


class Namer:
    """Asks one model; `answers` is a file of what it said before."""

    def __init__(self, config: NamerConfig, answers: Path) -> None:
        self._config, self._file = config, answers
        self._known: dict[str, str] = {}
        if answers.exists():
            for line in answers.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    entry = json.loads(line)
                    self._known[entry["asked"]] = entry["answer"]
                except (ValueError, KeyError, TypeError):
                    continue  # cut off by a kill: asked again

    def named(
        self, names: Sequence[DomainName], text_at: Callable[[int], str], labels: np.ndarray, nearness: np.ndarray, *, seed: int
    ) -> tuple[list[DomainName], dict[str, Any]]:
        """The domains with titles and folder names by the model, and how well it finds excerpts' names again.

        Args:
            text_at, labels, nearness: of the documents of a sample: text, domain, and cosine to the middle of its fine cluster.
        Raises: SourceError when the server stays away or gives no name: half a set of names is none.
        """
        rng = np.random.default_rng(seed)
        found: list[DomainName] = []
        for label, name in enumerate(names):
            members = np.flatnonzero(labels == label)
            near = members[np.argsort(-nearness[members], kind="stable")[:NUM_NEAR]]
            some = rng.permutation(members)[:NUM_RANDOM]
            excerpts = "\n".join(f"- {_excerpt(text_at(index))}" for index in dict.fromkeys([*near.tolist(), *some.tolist()]))
            prompt = NAMING.format(terms=", ".join(name.terms), source=name.top_source, share=name.top_source_fraction, excerpts=excerpts)
            title = self._ask(prompt, title_in)
            taken = {other.slug for other in found}
            found.append(replace(name, title=title, slug=unique(slug(title) if slug(title) != "unnamed" else f"domain-{label}", taken)))
        return found, self._tested(found, text_at, labels, rng)

    def _tested(
        self, names: list[DomainName], text_at: Callable[[int], str], labels: np.ndarray, rng: np.random.Generator
    ) -> dict[str, Any]:
        """How often the model finds the name of an excerpt's domain among others; domains are drawn by their number of documents."""
        options = min(MOST_OPTIONS, len(names))
        num_trials = TRIALS_PER_DOMAIN * len(names) if options > 1 else 0
        right = 0
        for _ in range(num_trials):
            index = int(rng.integers(len(labels)))
            others = rng.permutation([label for label in range(len(names)) if label != labels[index]])[: options - 1]
            shown = rng.permutation(np.append(others, labels[index])).tolist()
            listed = "\n".join(f"{place}. {names[label].title}" for place, label in enumerate(shown, 1))
            chosen = self._ask(CHOOSING.format(options=listed, excerpt=_excerpt(text_at(index))), lambda answer: grade_in(answer) or 0.0)
            right += int(0 < chosen <= options and labels[index] == shown[int(chosen) - 1])
        return {"accuracy": right / max(num_trials, 1), "chance": 1 / options, "num_trials": num_trials, "judge": self._config.model}

    def _ask(self, prompt: str, read: Any) -> Any:
        """What `read` finds in the answer; asked again while it finds nothing (none)."""
        asked = digest_of([self._config.url, self._config.model, prompt])
        if asked in self._known and read(self._known[asked]) is not None:
            return read(self._known[asked])
        import httpx

        address, reason = f"{self._config.url.rstrip('/')}/chat/completions", "no answer"
        body = {"model": self._config.model, "messages": [{"role": "user", "content": prompt}]}
        for attempt in range(self._config.max_retries + 1):
            sampling = {"temperature": 0} if not attempt else {}  # some models take no temperature; others repeat themselves at 0
            try:
                headers = headers_of(self._config.api_key_variable)
                limits = {"max_tokens": ANSWER_TOKENS} if attempt < 2 else {"max_completion_tokens": ANSWER_TOKENS}
                response = httpx.post(address, json=body | sampling | limits, headers=headers, timeout=self._config.timeout_s)
                if response.status_code == 200:
                    answer = response.json()["choices"][0]["message"]["content"] or ""
                    found = read(answer)
                    if found is not None:
                        self._keep(asked, answer)
                        return found
                    reason = f"an answer that holds no name: {answer[:80]!r}"
                    continue
                reason = f"status {response.status_code}: {response.text[:80]}"
                if not is_tired(response.status_code) and response.status_code not in (400, 422):
                    break
                time.sleep(pause_s(response, attempt))
            except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
                reason = f"{type(error).__name__}"
                time.sleep(pause_s(None, attempt))
        raise SourceError(
            f"the namer at {self._config.url} failed: {reason}", hint="mend the server and run again, or leave cluster.namer out"
        )

    def _keep(self, asked: str, answer: str) -> None:
        self._known[asked] = answer
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as log:
            log.write(json.dumps({"asked": asked, "answer": answer}) + "\n")


def title_in(answer: str) -> str | None:
    """The name an answer gives: its first line with a letter, after any thinking, without quotes, marks and announcements."""
    thought, _, rest = answer.rpartition("</think>")
    if "<think>" in rest and not thought:
        return None
    for line in rest.splitlines():
        text = re.sub(r"^\s*(?:[-*#>\d.]+\s+)*", "", line).strip(" *_`\"'“”„«».:")
        text = re.sub(r"^(?:name|title|group|answer)\s*\W?\s*:\W*", "", text, flags=re.IGNORECASE).strip(" *_`\"'“”„«».:")
        if any(char.isalpha() for char in text):
            return text if len(text) <= LONGEST_NAME else None
    return None


def _excerpt(text: str) -> str:
    return " ".join(text[: 4 * EXCERPT_CHARS].split())[:EXCERPT_CHARS]

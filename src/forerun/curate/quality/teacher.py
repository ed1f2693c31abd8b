"""Labels from any OpenAI-compatible chat endpoint: one document a request, resumable, whole or not at all.

The label is the expectation over the digits 1-5 under the answer's log-probabilities: small models say the same digit to everything
while their probabilities rank sensibly. A server without log-probabilities is read by its answer.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun.base.config import digest_of
from forerun.base.errors import ConfigError, SourceError
from forerun.base.progress import Progress

if TYPE_CHECKING:
    import httpx

RUBRIC_VERSION = 2
RUBRIC = """You grade documents for pretraining language models. Grade the document as an example of its own type ({kind}), never by its subject.
1 broken or worthless; 2 poor; 3 ordinary; 4 good; 5 among the best of its type. 5 is not perfection; every type's best work reaches it.
The excerpt is cut: marks like [...] are cuts, not damage. Answer with one digit."""
CHUNK = 50  # assumed: labels between checks of the success rate; a dead server is noticed after this many
LEAST_SUCCESS = 0.5  # source: Marin aborts when under half of a chunk succeeds
DIGITS = "12345"
MOST_PAUSE_S = 60.0  # assumed: a server that wants more patience is tried again anyway


@dataclass(frozen=True, kw_only=True)
class EndpointConfig:
    """Where the teacher is and how patiently it is asked."""

    url: str
    """Base address, such as `http://127.0.0.1:8000/v1`."""
    model: str
    """Name the server knows it by."""
    api_key_variable: str = "OPENAI_API_KEY"
    """Environment variable that holds the key; unset sends none. Keys are never written anywhere."""
    concurrency: int = 4
    """Requests in flight."""
    excerpt_chars: int = 10_500
    """Characters of a document shown; longer ones are shown as beginning, middle and end."""
    timeout_s: float = 120.0
    """Longest wait for one answer."""
    max_retries: int = 5
    """Further tries after a busy or failing server, with doubled pauses."""
    top_logprobs: int = 20
    """Alternatives to the answer's first token; a digit not among them has no say. OpenAI gives 20 at most, other servers more: small models want 60."""

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(
                f"quality.teacher.url must begin with http:// or https://, got {self.url!r}", hint="give the full base address"
            )
        if self.top_logprobs < 5:
            raise ConfigError(f"quality.teacher.top_logprobs must be at least 5, got {self.top_logprobs}", hint="there are five grades")


def teacher_key(config: EndpointConfig | None) -> str:
    """Names what decides a label beside the document: server, model, how much it is shown, and the rubric."""
    return digest_of([config.url, config.model, config.excerpt_chars, config.top_logprobs, RUBRIC] if config else [])[:16]


def endpoint_labels(
    ids: Sequence[str], texts: Sequence[str], kinds: Sequence[str], config: EndpointConfig, progress_file: Path
) -> np.ndarray:
    """A label in 1..5 for every document, float32.

    Labels already in `progress_file` are not asked again. Raises: SourceError when the server is away, when less than half of a
    chunk succeeds, or when any document is left without a label: a partial set would be biased to the easy ones (incident D17).
    """
    import httpx

    done = _read(progress_file)
    waiting = [index for index, document in enumerate(ids) if document not in done]
    progress_file.parent.mkdir(parents=True, exist_ok=True)
    with (
        progress_file.open("a", encoding="utf-8") as log,
        Progress("teacher", len(ids), "documents", done=len(ids) - len(waiting)) as progress,
        httpx.Client(timeout=config.timeout_s) as client,
        ThreadPoolExecutor(config.concurrency) as pool,
    ):
        for start in range(0, len(waiting), CHUNK):
            chunk = waiting[start : start + CHUNK]
            questions = [(texts[index], kinds[index]) for index in chunk]
            answers = list(pool.map(lambda question: _ask(client, question[0], question[1], config), questions))
            failures = [answer for answer in answers if isinstance(answer, str)]
            for index, answer in zip(chunk, answers):
                if not isinstance(answer, str):
                    done[ids[index]] = answer
                    log.write(json.dumps({"id": ids[index], "label": answer, "rubric": RUBRIC_VERSION}) + "\n")
            log.flush()
            progress.advance(len(chunk) - len(failures))
            if len(failures) > (1 - LEAST_SUCCESS) * len(chunk):
                raise SourceError(
                    f"the teacher at {config.url} failed on {len(failures)} of {len(chunk)} documents: {failures[0]}",
                    hint="mend the server and run again: labels given so far are kept",
                )
    missing = [document for document in ids if document not in done]
    if missing:
        raise SourceError(
            f"the teacher left {len(missing)} of {len(ids)} documents without a label, such as {missing[0]}",
            hint="run again to ask for them; a partial set is never used",
        )
    return np.array([done[document] for document in ids], np.float32)


def excerpt(text: str, limit: int) -> str:
    """The whole text, or its beginning, middle and end with the cuts marked."""
    if len(text) <= limit:
        return text
    part = limit // 3
    middle = (len(text) - part) // 2
    return f"{text[:part]}\n[... cut ...]\n{text[middle : middle + part]}\n[... cut ...]\n{text[-part:]}"


def label_of(choice: Any) -> float | None:
    """The label in an answer: expectation over digits, else the last digit after any thinking, else nothing.

    Raises: ValueError, TypeError, KeyError or AttributeError when it is no choice of a chat completion.
    """
    content = (choice.get("logprobs") or {}).get("content") or []
    for position in content:
        weights: dict[str, float] = {}
        for entry in position.get("top_logprobs", []):
            digit = entry["token"].strip()
            if digit and digit in DIGITS:
                weights[digit] = weights.get(digit, 0.0) + math.exp(min(0.0, entry["logprob"]))  # "3" and " 3" are one answer
        if sum(weights.values()) > 0:
            return sum(int(digit) * weight for digit, weight in weights.items()) / sum(weights.values())
    answer = (choice.get("message", {}).get("content") or "").rsplit("</think>", 1)[-1]
    digits = re.findall(r"\b[1-5]\b", answer)
    return float(digits[-1]) if digits else None


def _ask(client: httpx.Client, text: str, kind: str, config: EndpointConfig) -> float | str:
    """The label, or why there is none."""
    import httpx

    limit, reason = config.excerpt_chars, "no answer"
    key = os.environ.get(config.api_key_variable)
    for attempt in range(config.max_retries + 1):
        body = {
            "model": config.model,
            "messages": [
                {"role": "system", "content": RUBRIC.format(kind=kind)},
                {"role": "user", "content": f'Document:\n"""\n{excerpt(text, limit)}\n"""\n\nOne digit from 1 to 5:'},
            ],
            "max_tokens": 1 if attempt == 0 else 4096,  # a thinking model gets room on the second try
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": config.top_logprobs,
        }
        try:
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            response = client.post(f"{config.url.rstrip('/')}/chat/completions", json=body, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = type(error).__name__
            time.sleep(min(0.2 * 2**attempt, 10))
            continue
        if response.status_code in (400, 413):  # too long for this server's context: show less rather than lose the longest documents
            reason, limit = f"status {response.status_code}: {response.text[:80]}", limit // 2
            continue
        if response.status_code == 429 or response.status_code >= 500:
            reason = f"status {response.status_code}"
            time.sleep(_pause(response, attempt))
            continue
        if response.status_code != 200:
            return f"status {response.status_code}: {response.text[:80]}"
        try:
            label = label_of(response.json()["choices"][0])
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            reason = f"the answer is no chat completion: {response.text[:80]!r}"
            continue
        if label is not None:
            return label
        reason = "the answer holds no digit from 1 to 5"
    return reason


def _pause(response: httpx.Response, attempt: int) -> float:
    """Seconds until the next try: what the server asks for, up to a minute, else doubling."""
    asked = response.headers.get("Retry-After", "")
    return min(float(asked), MOST_PAUSE_S) if asked.isdecimal() else min(0.2 * 2**attempt, 10)


def _read(path: Path) -> dict[str, float]:
    """Labels of an earlier run; a line cut off by a kill, or of another rubric, is asked again."""
    if not path.exists():
        return {}
    labels = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        if entry.get("rubric") == RUBRIC_VERSION:
            labels[entry["id"]] = float(entry["label"])
    return labels

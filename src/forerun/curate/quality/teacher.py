"""Labels from any OpenAI-compatible chat endpoint: one document a request, resumable, whole or not at all.

The label is the expectation over the digits 1-5 under the answer's log-probabilities (`answer`): small models say the same digit to
everything while their probabilities rank sensibly. A server without log-probabilities is read by its answer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from forerun.base.config import digest_of
from forerun.base.errors import ConfigError, SourceError
from forerun.base.progress import Progress
from forerun.curate.patience import headers_of, is_tired, pause_s, require_address
from forerun.curate.quality.answer import label_of

if TYPE_CHECKING:
    import httpx

RUBRIC_VERSION = 2
RUBRIC = """You grade documents for pretraining language models. Grade the document as an example of its own type ({kind}), never by its subject.
1 broken or worthless; 2 poor; 3 ordinary; 4 good; 5 among the best of its type. 5 is not perfection; every type's best work reaches it.
The excerpt is cut: marks like [...] are cuts, not damage. Answer with one digit."""
CHUNK = 50  # assumed: labels between checks of the success rate; a dead server is noticed after this many
LEAST_SUCCESS = 0.5  # source: Marin aborts when under half of a chunk succeeds
THINKING_TOKENS = 4096  # source: Marin's limit, thinking included; a first try asks for the digit alone
LEAST_EXCERPT = 100  # assumed: characters below which nothing can be judged
UNKNOWN_OPTION = ("unsupported", "not support", "not allowed", "unknown", "unrecognized", "unexpected", "extra")


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
        require_address("quality.teacher.url", self.url)
        for name, least in (("concurrency", 1), ("excerpt_chars", LEAST_EXCERPT), ("max_retries", 0)):
            if getattr(self, name) < least:
                raise ConfigError(
                    f"quality.teacher.{name} must be at least {least}, got {getattr(self, name)}", hint="leave it out for the default"
                )
        if not self.timeout_s > 0:
            raise ConfigError(f"quality.teacher.timeout_s must be above 0, got {self.timeout_s}", hint="120 is usual")
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

    done, refused = _read(progress_file), set[str]()
    waiting = [index for index, document in enumerate(ids) if document not in done]
    progress_file.parent.mkdir(parents=True, exist_ok=True)
    with (
        _continued(progress_file) as log,
        Progress("teacher", len(ids), "documents", done=len(ids) - len(waiting)) as progress,
        httpx.Client(timeout=config.timeout_s) as client,
        ThreadPoolExecutor(config.concurrency) as pool,
    ):

        def asked(index: int) -> float | str:
            return _ask(client, texts[index], kinds[index], config, refused)

        for start in range(0, len(waiting), CHUNK):
            chunk = waiting[start : start + CHUNK]
            failures: list[str] = []
            for index, answer in zip(chunk, pool.map(asked, chunk)):
                if isinstance(answer, str):
                    failures.append(answer)
                    continue
                done[ids[index]] = answer
                log.write(json.dumps({"id": ids[index], "label": answer, "rubric": RUBRIC_VERSION}) + "\n")
                log.flush()  # a kill loses the answers in flight and no others
                progress.advance(1)
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


def _ask(client: httpx.Client, text: str, kind: str, config: EndpointConfig, refused: set[str]) -> float | str:
    """The label, or why there is none.

    Args:
        refused: options that the server does not know; found out once for all documents.
    """
    import httpx

    limit, room, reason = config.excerpt_chars, THINKING_TOKENS, "no answer"
    attempt = 0
    while attempt <= config.max_retries:
        body = _question(text, kind, config, limit, 1 if attempt == 0 else room, refused)
        try:
            response = client.post(f"{config.url.rstrip('/')}/chat/completions", json=body, headers=headers_of(config.api_key_variable))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = type(error).__name__
            time.sleep(pause_s(None, attempt))
            attempt += 1
            continue
        if response.status_code in (400, 422) and (unknown := _refused(response.text, body)):
            refused |= unknown  # the question is the same without them; it counts as no try
            continue
        attempt += 1
        if response.status_code in (400, 413, 422):  # too long for this server: show and ask less rather than lose the longest documents
            reason, limit, room = f"status {response.status_code}: {response.text[:80]}", limit // 2, room // 2
        elif is_tired(response.status_code):
            reason = f"status {response.status_code}"
            time.sleep(pause_s(response, attempt - 1))
        elif response.status_code != 200:
            return f"status {response.status_code}: {response.text[:80]}"
        else:
            try:
                label = label_of(response.json()["choices"][0])
            except (ValueError, KeyError, IndexError, TypeError, AttributeError):
                reason = f"the answer is no chat completion: {response.text[:80]!r}"
                continue
            if label is not None:
                return label
            reason = "the answer holds no digit from 1 to 5"
    return reason


def _question(text: str, kind: str, config: EndpointConfig, limit: int, room: int, refused: set[str]) -> dict[str, Any]:
    """The request for one document's grade, without the options the server refused."""
    options = {"max_tokens": room, "temperature": 0, "logprobs": True, "top_logprobs": config.top_logprobs}
    if "max_tokens" in refused:  # source: OpenAI's reasoning models take the newer name only
        options["max_completion_tokens"] = room
    messages = [
        {"role": "system", "content": RUBRIC.format(kind=kind)},
        {"role": "user", "content": f'Document:\n"""\n{excerpt(text, limit)}\n"""\n\nOne digit from 1 to 5:'},
    ]
    return {"model": config.model, "messages": messages} | {name: value for name, value in options.items() if name not in refused}


def _refused(complaint: str, body: dict[str, Any]) -> set[str]:
    """Options of a request that an answer says it does not take."""
    said = complaint.lower()
    if not any(word in said for word in UNKNOWN_OPTION):
        return set()
    named = {name for name in ("max_tokens", "temperature", "logprobs", "top_logprobs") if name in body and name in said}
    return named | ({"top_logprobs"} if "logprobs" in named else set())


def _read(path: Path) -> dict[str, float]:
    """Labels of an earlier run; a line cut off by a kill, or of another rubric, is asked again."""
    if not path.exists():
        return {}
    labels = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
            if entry["rubric"] == RUBRIC_VERSION:
                labels[entry["id"]] = float(entry["label"])
        except (ValueError, KeyError, TypeError):
            continue
    return labels


def _continued(path: Path) -> TextIO:
    """The file to add labels to; a line that a kill cut off is ended first, or it would spoil the next one."""
    torn = path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n")
    log = path.open("a", encoding="utf-8")
    if torn:
        log.write("\n")
    return log

"""A tokenizer.json as its makers wrote it: read with its faults named, and made ready to encode documents as they are.

Files of every family are taken: BPE with and without byte fallback, Unigram, WordPiece, WordLevel. What a file says about how a model
is fed (start and end markers, cutting, padding, dropped merges) does not hold for a store.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from forerun.base.errors import ConfigError

BYTE_PIECE = re.compile(r"<0x[0-9A-Fa-f]{2}>")  # source: SentencePiece writes the 256 bytes of its fallback so
UNSPELLABLE = "\ufffe\uffff"  # two code points that Unicode promises never to be characters


def read_tokenizer(path: Path) -> str:
    """The text of a tokenizer.json. Raises: ConfigError when it cannot be read or is none."""
    from tokenizers import Tokenizer

    way_out = "give a tokenizer.json; transformers' `save_pretrained` of a fast tokenizer writes one"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"tokenise.tokenizer {str(path)!r} cannot be read: {error.strerror}", hint=way_out) from None
    except UnicodeDecodeError:
        raise ConfigError(f"tokenise.tokenizer {str(path)!r} is no text", hint=way_out) from None
    try:
        Tokenizer.from_str(text)
    except Exception as error:  # noqa: BLE001  the package raises nothing narrower
        raise ConfigError(f"tokenise.tokenizer {str(path)!r} is no tokenizer: {error}", hint=way_out) from None
    return text


def end_of_document_id(tokenizer_json: str, name: str) -> int:
    """The id of the token that ends documents.

    Raises: ConfigError when the tokenizer has none of that name, or when it is one that text can spell.
    """
    spec = json.loads(tokenizer_json)
    special = _special(spec)
    if name in special:
        return special[name]
    known = name in _vocabulary(spec) or any(token["content"] == name for token in spec.get("added_tokens") or [])
    raise ConfigError(
        f"tokenise.end_of_document {name!r} is {'an ordinary token, which text can spell' if known else 'not in the tokenizer'}",
        hint=f"special tokens it has: {', '.join(sorted(special)[:8]) or 'none'}",
    )


def vocab_size_of(tokenizer_json: str) -> int:
    """One more than the largest id."""
    spec = json.loads(tokenizer_json)
    return 1 + max([*_vocabulary(spec).values(), *(token["id"] for token in spec.get("added_tokens") or [])])


def for_documents(tokenizer_json: str) -> str:
    """The same vocabulary and merges for whole documents: no special token can be smuggled in, nothing is cut, padded or drawn by lot."""
    spec = json.loads(tokenizer_json)
    model = spec["model"]
    used = {part for merge in model.get("merges") or [] for part in (merge.split(" ") if isinstance(merge, str) else merge)}
    hidden = {name for name in _special(spec) if name != _unknown(model) and name not in used and not BYTE_PIECE.fullmatch(name)}
    kept = [token for token in spec.get("added_tokens") or [] if not token.get("special")]
    vocab = model["vocab"]
    if isinstance(vocab, dict):
        model["vocab"] = {f"{UNSPELLABLE}{name}" if name in hidden else name: index for name, index in vocab.items()}
        for token in kept:
            model["vocab"].setdefault(token["content"], token["id"])
    else:  # pieces with scores, numbered by their place
        pieces = [[f"{UNSPELLABLE}{name}" if name in hidden else name, score] for name, score in vocab]
        worst = min((score for _, score in pieces), default=0.0)
        known = {name for name, _ in pieces}
        for token in sorted(kept, key=lambda token: token["id"]):
            if token["content"] not in known:
                pieces += [[f"{UNSPELLABLE}{index}", 0.0] for index in range(len(pieces), token["id"])]
                pieces.append([token["content"], worst])
        model["vocab"] = pieces
    spec |= {"added_tokens": kept, "post_processor": None, "truncation": None, "padding": None}
    if model.get("dropout"):
        model["dropout"] = None  # merges left out by lot would make every build another
    return json.dumps(spec, ensure_ascii=False)


def unknown_id(tokenizer_json: str) -> int | None:
    """The id of what stands for text that the vocabulary lacks; none where every text can be written."""
    spec = json.loads(tokenizer_json)
    name = _unknown(spec["model"])
    return (
        None
        if name is None
        else ({token["content"]: token["id"] for token in spec.get("added_tokens") or []} | _vocabulary(spec)).get(name)
    )


def start_share(first_ids: np.ndarray, token: int) -> float:
    """Share of documents that start with a token: the detector for a lost or doubled start marker in tokenised data.

    Healthy data has 0 or 1. Marin once trained caches in which 5% of documents had theirs (incident D13).
    """
    return float(np.mean(first_ids == token)) if len(first_ids) else 0.0


def lost_markers(first_ids: np.ndarray, tokenizer_json: str) -> dict[str, float]:
    """Special tokens with which some documents begin and others do not, and with what share of them.

    The unknown token is no marker: a document may well begin with a character that the vocabulary lacks.
    """
    spec = json.loads(tokenizer_json)
    shares = {name: start_share(first_ids, token) for name, token in _special(spec).items() if name != _unknown(spec["model"])}
    return {name: share for name, share in shares.items() if 0 < share < 1}


def _special(spec: dict[str, Any]) -> dict[str, int]:
    return {token["content"]: token["id"] for token in spec.get("added_tokens") or [] if token.get("special")}


def _vocabulary(spec: dict[str, Any]) -> dict[str, int]:
    vocab = spec["model"]["vocab"]
    return vocab if isinstance(vocab, dict) else {name: index for index, (name, _) in enumerate(vocab)}


def _unknown(model: dict[str, Any]) -> str | None:
    """What stands for text that the vocabulary lacks."""
    place = model.get("unk_id")
    return model.get("unk_token") if place is None else model["vocab"][place][0]

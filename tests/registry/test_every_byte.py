"""Edits of one byte: in the ledger, in a config, in a manifest. All of them in the slow test, a spread of them in the fast one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_promises import promised

from forerun.base.config import digest_of
from forerun.base.files import write_json
from forerun.base.lab import Lab
from forerun.registry import ledger, verifier

NUM_LINES = 1000
VALUES = (0x01, 0x20, 0x80)  # flips a digit, the case of a letter (and of an escape), and the byte out of ASCII
NEWLINE = 0x0A


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A lab of 1,000 ledger lines: promises with their frozen configs, amendments, verdicts and closings in turn."""
    lab = Lab(tmp_path_factory.mktemp("bytes"))
    promised(lab)
    lines, prev = [], ledger.read(lab)[0].digest
    bodies = (
        {"experiment": "y", "reason": 'ä "quoted" \\ text', "at_step": 3, "expected": "+0.02"},
        {"experiment": "y", "verdict": {"answer": "kept", "outcome": 3.0125e-05, "inside50": True, "signed_error": None}},
        {"experiment": "y", "outcome": "failed", "note": "", "fraction_done": 0.81},
    )
    for seq in range(1, NUM_LINES):
        kind, body = ("amendment", "verdict", "closing")[seq % 3], bodies[seq % 3]
        line = {"schema": 1, "seq": seq, "kind": kind, "time": "2026-01-01T00:00:00+00:00", "prev": prev, "body": {**body, "n": seq}}
        line["digest"] = prev = digest_of(line)
        lines.append(verifier.canonical(line) + b"\n")
    with lab.ledger.open("ab") as file:
        file.write(b"".join(lines))
    ledger.head_path(lab).write_bytes(verifier.canonical({"digest": prev, "lines": NUM_LINES}) + b"\n")
    manifest = {"schema": 1, "name": "demo", "sources": [{"name": "ä", "num_tokens": 7}], "cells": []}
    write_json(lab.manifests / f"{digest_of(manifest)}.json", manifest)
    return lab


def unnoticed(content: bytes, every: int) -> list[tuple[int, int]]:
    """(place, new byte) of edits that the chain does not miss.

    A line is checked from the digest before it, and an edit can reach its own line and, by removing its end, the next one: these two
    are read with the state that all earlier lines left.
    """
    lines = content.splitlines(keepends=True)
    found, start, prev = [], 0, verifier.FIRST
    for seq, line in enumerate(lines):
        pair = line + (lines[seq + 1] if seq + 1 < len(lines) else b"")
        assert not verifier.check_chain(pair, seq, prev)[1]
        for place in range((-start) % every, len(line), every):
            for byte in {line[place] ^ VALUES[place % len(VALUES)], NEWLINE} - {line[place]}:
                edited = pair[:place] + bytes([byte]) + pair[place + 1 :]
                if not verifier.check_chain(edited, seq, prev)[1]:
                    found.append((start + place, byte))
        start, prev = start + len(line), json.loads(line)["digest"]
    return found


def test_a_spread_of_edited_ledger_bytes_is_found(lab):
    content = lab.ledger.read_bytes()
    assert len(verifier.check_chain(content)[0]) == NUM_LINES
    assert unnoticed(content, every=131) == []


@pytest.mark.slow
def test_every_edited_byte_of_a_thousand_line_ledger_is_found(lab):
    assert unnoticed(lab.ledger.read_bytes(), every=1) == []


def test_every_edited_byte_of_a_config_an_experiment_a_manifest_and_the_head_is_found(lab):
    folder = lab.experiments / "001-x"
    assert verifier.verify(lab.root)[1] == []
    lines = verifier.check_chain(lab.ledger.read_bytes())[0]
    for path in (folder / "config.json", folder / "experiment.toml", next(lab.manifests.glob("*.json"))):
        for edited in edits(path):
            path.write_bytes(edited)
            assert verifier.check_files(lab.root, lines[:1]), (path.name, edited)
    head = ledger.head_path(lab)
    for edited in edits(head):
        head.write_bytes(edited)
        assert verifier.check_head(head, lines), edited
    assert verifier.verify(lab.root)[1] == []


def edits(path: Path):
    """The file with each byte changed, some bytes left out, the last one among them, and one added; afterwards the file as it was."""
    content = path.read_bytes()
    for place, byte in enumerate(content):
        yield content[:place] + bytes([byte ^ VALUES[place % len(VALUES)]]) + content[place + 1 :]
        if place % 7 == 0 or place == len(content) - 1:
            yield content[:place] + content[place + 1 :]
    yield content + b"\n"
    path.write_bytes(content)

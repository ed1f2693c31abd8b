"""Fixing the ledger's last digest outside the lab: a signed git tag, or a time stamp by a third party (RFC 3161).

An anchor proves that the ledger up to that line existed when it was made; the chain alone only proves that nothing changed since.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from forerun.base.errors import ConfigError, RegistryError, SourceError
from forerun.base.files import write_atomic
from forerun.base.lab import Lab
from forerun.registry import ledger


def head_of(lab: Lab) -> ledger.Entry:
    """The last line. Raises: RegistryError when the ledger is empty."""
    entries = ledger.read(lab)
    if not entries:
        raise RegistryError(f"{lab.ledger} has no line to anchor", hint="`forerun register` adds the first")
    return entries[-1]


def tag(lab: Lab, *, sign: bool = True) -> str:
    """Make a git tag `ledger-<lines>-<digest>` in the lab's repository, signed unless told otherwise. Returns its name."""
    head = head_of(lab)
    name = f"ledger-{head.seq + 1}-{head.digest[:12]}"
    command = [
        "git",
        "-C",
        str(lab.root),
        "tag",
        "-s" if sign else "-a",
        name,
        "-m",
        f"Ledger of {head.seq + 1} lines, last digest {head.digest}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["git failed"])[-1]
        raise RegistryError(f"git could not make tag {name}: {reason}", hint="set user.signingkey, or use --no-sign")
    return name


def stamp(lab: Lab, url: str) -> Path:
    """Ask a time-stamp authority about the last digest; the answer is kept as `ledger/anchors/<line>-<digest>.tsr`."""
    try:
        from rfc3161_client import TimestampRequestBuilder, decode_timestamp_response
    except ImportError:
        raise ConfigError("time stamps need rfc3161-client", hint="pip install 'forerun[anchors]'") from None
    import httpx

    head = head_of(lab)
    request = TimestampRequestBuilder().data(head.digest.encode()).build()
    try:
        answer = httpx.post(url, content=request.as_bytes(), headers={"Content-Type": "application/timestamp-query"}, timeout=30.0)
        answer.raise_for_status()
        decode_timestamp_response(answer.content)
    except (httpx.HTTPError, ValueError) as error:
        raise SourceError(f"{url} gave no time stamp: {error}", hint="try another authority") from None
    path = lab.ledger.parent / "anchors" / f"{head.seq}-{head.digest[:12]}.tsr"
    write_atomic(path, answer.content)
    return path

"""Fixing the ledger's last digest outside the lab: a signed git tag, or a time stamp by a third party (RFC 3161).

An anchor proves that the ledger up to that line existed when it was made; the chain alone only proves that nothing changed since.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha512
from pathlib import Path
from typing import Any

from forerun.base.errors import ConfigError, RegistryError, SourceError
from forerun.base.files import write_atomic
from forerun.base.lab import Lab
from forerun.registry import ledger

TAG = re.compile(r"ledger-(\d+)-([0-9a-f]{12})")
STAMP = re.compile(r"(\d+)-([0-9a-f]{12})\.tsr")


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """One anchor held against the ledger as it is now."""

    name: str
    seq: int
    """Ledger line it fixes."""
    time: str
    """When it says it was made; empty when it does not say."""
    holds: bool
    """Whether it is of this very line, and its signature is good where that could be checked."""
    why: str
    """What was checked, or what is wrong."""


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
    done = _git(lab, "tag", "-s" if sign else "-a", name, "-m", f"Ledger of {head.seq + 1} lines, last digest {head.digest}")
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["git failed"])[-1]
        raise RegistryError(f"git could not make tag {name}: {reason}", hint="set user.signingkey, or use --no-sign")
    return name


def stamp(lab: Lab, url: str) -> Path:
    """Ask a time-stamp authority about the last digest; the answer is kept as `ledger/anchors/<line>-<digest>.tsr`.

    Raises: SourceError when the authority is out of reach, refuses, or answers about another digest or request.
    """
    rfc3161 = _rfc3161()
    import httpx

    head = head_of(lab)
    request = rfc3161.TimestampRequestBuilder().data(head.digest.encode()).build()
    try:
        answer = httpx.post(url, content=request.as_bytes(), headers={"Content-Type": "application/timestamp-query"}, timeout=30.0)
        answer.raise_for_status()
        response = rfc3161.decode_timestamp_response(answer.content)
        wrong = _mismatch(response, head.digest, rfc3161) or ("" if response.tst_info.nonce == request.nonce else "its nonce is another")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise SourceError(f"{url} gave no time stamp: {error}", hint="try another authority") from None
    if wrong:
        raise SourceError(f"{url} gave no time stamp of this ledger: {wrong}", hint="try another authority")
    path = lab.ledger.parent / "anchors" / f"{head.seq}-{head.digest[:12]}.tsr"
    write_atomic(path, answer.content)
    return path


def check_anchors(lab: Lab, *, roots: Path | None = None) -> list[Anchor]:
    """Every anchor of the lab against its ledger, tags first.

    Args:
        roots: PEM file with the authorities' root certificates; None checks what a stamp is of, not who signed it.
    Raises: CheckFailed when the ledger itself was changed.
    """
    entries = ledger.read(lab)
    return [*_tags(lab, entries), *_stamps(lab, entries, roots)]


def _tags(lab: Lab, entries: Sequence[ledger.Entry]) -> list[Anchor]:
    listed = _git(lab, "for-each-ref", "--format=%(refname:short)%00%(creatordate:iso-strict)%00%(contents:subject)", "refs/tags/ledger-*")
    anchors = []
    for line in listed.stdout.splitlines() if listed.returncode == 0 else []:
        name, time, subject = line.split("\0")
        parts = TAG.fullmatch(name)
        if parts is None:
            continue
        seq = int(parts[1]) - 1
        wrong = _not_of(entries, seq, subject.rpartition(" ")[2])
        signed = _git(lab, "verify-tag", name)
        unsigned = "no signature" in signed.stderr
        if not wrong and signed.returncode and not unsigned:
            wrong = f"its signature cannot be verified: {(signed.stderr.strip().splitlines() or ['git failed'])[-1]}"
        why = wrong or ("of this line, without a signature" if unsigned else "of this line, signature good")
        anchors.append(Anchor(name=name, seq=seq, time=time, holds=not wrong, why=why))
    return anchors


def _stamps(lab: Lab, entries: Sequence[ledger.Entry], roots: Path | None) -> list[Anchor]:
    anchors = []
    for path in sorted((lab.ledger.parent / "anchors").glob("*.tsr")):
        parts = STAMP.fullmatch(path.name)
        if parts is None:
            continue
        seq, time, why = int(parts[1]), "", "of this line; give --roots to check who signed it"
        wrong = _not_of(entries, seq, parts[2])
        if not wrong:
            rfc3161 = _rfc3161()
            try:
                response = rfc3161.decode_timestamp_response(path.read_bytes())
                wrong = _mismatch(response, entries[seq].digest, rfc3161)
                time = "" if wrong else response.tst_info.gen_time.isoformat()
                if not wrong and roots is not None:
                    _verifier(roots, rfc3161).verify_message(response, entries[seq].digest.encode())
                    why = "of this line, signed by an authority under the given roots"
            except (ValueError, rfc3161.VerificationError) as error:
                wrong = f"it cannot be verified: {error}"
        anchors.append(Anchor(name=path.name, seq=seq, time=time, holds=not wrong, why=wrong or why))
    return anchors


def _not_of(entries: Sequence[ledger.Entry], seq: int, digest: str) -> str:
    if not 0 <= seq < len(entries):
        return f"the ledger has {len(entries)} lines, it is of line {seq}"
    return "" if digest and entries[seq].digest.startswith(digest) else f"line {seq} has another digest now"


def _mismatch(response: Any, digest: str, rfc3161: Any) -> str:
    """What is wrong with a time stamp of a digest; empty when nothing is."""
    if response.status != rfc3161.PKIStatus.GRANTED:
        return f"the authority answered with status {response.status}"
    if response.tst_info.message_imprint.message != sha512(digest.encode()).digest():
        return "it is about other data"
    return ""


def _verifier(roots: Path, rfc3161: Any) -> Any:
    from cryptography.x509 import load_pem_x509_certificates

    try:
        certificates = load_pem_x509_certificates(roots.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"--roots {roots} holds no certificates: {error}", hint="a PEM file of the authority's root") from None
    return rfc3161.VerifierBuilder(roots=certificates).build()


def _rfc3161() -> Any:
    try:
        import rfc3161_client
    except ImportError:
        raise ConfigError("time stamps need rfc3161-client", hint="pip install 'forerun[anchors]'") from None
    return rfc3161_client


def _git(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(lab.root), *arguments], capture_output=True, text=True, check=False)

"""Anchors fix a line of the ledger: a signed tag by git and SSH, a time stamp by an authority that OpenSSL plays."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from test_leaving_the_lab import promised
from time_stamp_server import TimeStampServer

from forerun.base.errors import RegistryError, SourceError
from forerun.base.lab import Lab
from forerun.cli.main import run
from forerun.publish.anchor import check_anchors, stamp, tag
from forerun.registry import ledger
from forerun.registry.changes import close


@pytest.fixture
def lab(tmp_path) -> Lab:
    """A lab of one promise in a git repository whose owner signs with an SSH key."""
    lab = Lab(tmp_path / "lab")
    promised(lab, "001-x", {"a": 1})
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    (tmp_path / "signers").write_text(f"someone@example.org {key.with_suffix('.pub').read_text()}")
    git(lab, "init", "-q")
    settings = {"user.name": "someone", "user.email": "someone@example.org", "gpg.format": "ssh", "user.signingkey": str(key)}
    for name, value in (settings | {"gpg.ssh.allowedSignersFile": str(tmp_path / "signers")}).items():
        git(lab, "config", name, value)
    git(lab, "add", "-A")
    git(lab, "commit", "-q", "-m", "first")
    return lab


def git(lab: Lab, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(lab.root), *arguments], check=True, capture_output=True)


def rewritten(lab: Lab) -> None:
    """The whole ledger anew with another promise: its own chain holds, only anchors can tell."""
    lab.ledger.unlink()
    ledger.head_path(lab).unlink()
    promised(lab, "002-y", {"a": 2})


def test_a_signed_tag_holds_while_the_ledger_grows_and_breaks_when_it_is_rewritten(lab):
    name = tag(lab)
    close(lab, "001", "abandoned")
    tag(lab, sign=False)
    signed, unsigned = check_anchors(lab)
    assert signed.name == name and signed.holds and "signature good" in signed.why
    assert unsigned.seq == 1 and unsigned.holds and "without a signature" in unsigned.why
    rewritten(lab)
    assert [anchor.holds for anchor in check_anchors(lab)] == [False, False]


def test_a_tag_signed_by_a_stranger_does_not_hold(lab, tmp_path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")], check=True)
    git(lab, "config", "user.signingkey", str(tmp_path / "other"))
    tag(lab)
    (anchor,) = check_anchors(lab)
    assert not anchor.holds and "signature cannot be verified" in anchor.why


def test_a_time_stamp_is_of_the_last_digest_and_verifies_up_to_the_authoritys_root(lab, tmp_path, capsys):
    with TimeStampServer(tmp_path / "tsa") as authority:
        assert run(["publish", "anchor", "--time-stamp", authority.address, "--lab", str(lab.root)]) == 0
        path = Path(capsys.readouterr().out.strip())
        assert path.parent == lab.root / "ledger" / "anchors"
    assert run(["publish", "anchors", "--roots", str(authority.roots), "--lab", str(lab.root), "--json"]) == 0
    (anchor,) = json.loads(capsys.readouterr().out)
    assert anchor["holds"] and anchor["seq"] == 0 and "signed by an authority" in anchor["why"]
    assert anchor["time"].startswith("20")
    with TimeStampServer(tmp_path / "other") as stranger:
        assert not check_anchors(lab, roots=stranger.roots)[0].holds
    answer = path.read_bytes()
    for place in range(len(answer) // 2, len(answer), len(answer) // 12):
        path.write_bytes(answer[:place] + bytes([answer[place] ^ 1]) + answer[place + 1 :])
        (edited,) = check_anchors(lab, roots=authority.roots)
        # bytes outside what is signed (a certificate's own signature is not checked again when its key is among the roots) change nothing said
        assert not edited.holds or (edited.seq, edited.time) == (anchor["seq"], anchor["time"]), f"byte {place} went unnoticed"
    path.write_bytes(answer)
    rewritten(lab)
    assert run(["publish", "anchors", "--lab", str(lab.root)]) == 1
    assert "BROKEN" in capsys.readouterr().out


def test_an_authority_that_refuses_or_answers_about_other_data_gives_no_anchor(lab, tmp_path):
    with TimeStampServer(tmp_path / "tsa") as authority:
        authority.refuse = True
        with pytest.raises(SourceError, match="gave no time stamp"):
            stamp(lab, authority.address)
        authority.refuse = False
        stamp(lab, authority.address)
        (lab.ledger.parent / "anchors").rename(tmp_path / "old")
        close(lab, "001", "abandoned")
        old = next((tmp_path / "old").iterdir()).read_bytes()
        authority.answer = lambda query: old  # type: ignore[method-assign]  a replayed answer
        with pytest.raises(SourceError, match=r"other data|nonce"):
            stamp(lab, authority.address)
    with pytest.raises(SourceError, match="gave no time stamp"):
        stamp(lab, authority.address)  # nobody listens there now
    assert check_anchors(lab) == []


def test_an_empty_ledger_cannot_be_anchored(tmp_path):
    with pytest.raises(RegistryError, match="no line to anchor"):
        tag(Lab(tmp_path))

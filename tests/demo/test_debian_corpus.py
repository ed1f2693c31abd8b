"""Debian packages are read as archives; every format gives readable documents; broken files are named."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib

import pytest
import zstandard

from forerun.base.errors import DataError, SourceError
from forerun.demo.corpus import gather as gathering
from forerun.demo.corpus.deb import Apt, members, version_of
from forerun.demo.corpus.debian import DEBIAN, DebianSource
from forerun.demo.corpus.formats import texts


def deb(path, files: dict[str, bytes], packing: str = "xz"):
    """A package as dpkg makes it: an ar archive of a version, a control and a data archive."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w:xz" if packing == "xz" else "w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"./{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    data = tar.getvalue() if packing == "xz" else zstandard.ZstdCompressor().compress(tar.getvalue())
    parts = [("debian-binary", b"2.0\n"), ("control.tar.xz", b"odd"), (f"data.tar.{packing}", data)]
    out = b"!<arch>\n"
    for name, body in parts:
        out += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(body):<10}`\n".encode() + body + b"\n" * (len(body) % 2)
    path.write_bytes(out)
    return path


@pytest.mark.parametrize("packing", ["xz", "zst"])
def test_members_of_a_package_are_read_without_unpacking_it_to_disk(tmp_path, packing):
    package = deb(tmp_path / "made-doc_1%3a2.0_all.deb", {"usr/share/doc/made/a.txt": b"one", "usr/bin/made": b"two"}, packing)
    assert list(members(package, r"usr/share/doc/.*\.txt")) == [("usr/share/doc/made/a.txt", b"one")]
    assert version_of(package) == "made-doc=1:2.0"


@pytest.mark.parametrize("damage", [b"", b"no package", b"!<arch>\nshort"], ids=["empty", "text", "cut"])
def test_a_file_that_is_no_package_is_named(tmp_path, damage):
    (tmp_path / "x_1_all.deb").write_bytes(damage)
    with pytest.raises(DataError, match=r"x_1_all.deb cannot be read"):
        list(members(tmp_path / "x_1_all.deb", ".*"))


def test_a_cut_off_data_archive_is_named(tmp_path):
    whole = deb(tmp_path / "x_1_all.deb", {"usr/a.txt": bytes(range(256)) * 400}).read_bytes()
    (tmp_path / "x_1_all.deb").write_bytes(whole[: len(whole) * 3 // 4])
    with pytest.raises(DataError, match="cannot be read"):
        list(members(tmp_path / "x_1_all.deb", ".*"))


@pytest.mark.parametrize(
    ("reading", "data", "wanted"),
    [
        ("text", b"caf\xc3\xa9 \xff", ["café \ufffd"]),
        ("markup", b"<p>To  <em>open</em></p>", [" To open "]),
        ("man", b'.\\" note\n.TH LS 1\n.SH NAME\nls \\- list \\fBfiles\\fR', ["\n\nLS 1\n\n\nNAME\n\nls - list files"]),
        ("dictd", b"brook\n  A stream.\ncat\n  An animal.", ["brook\n  A stream.\ncat\n  An animal."]),
        ("fortune", b"One.\n%\nTwo.", ["One.", "Two."]),
        (
            "quoted",
            b'name="x"\nstory="It was a dark night in the hills above the old town."',
            ["It was a dark night in the hills above the old town."],
        ),
        (
            "sword",
            zlib.compress(b"<v>In the  beginning</v>") + bytes(1024) + zlib.compress(b"And then"),
            [" In the beginning ", "And then"],
        ),
        (
            "rdb",
            b"\x00\x00\x00\x30"
            + zlib.compress(b"X\n\x00\x04\x00\x09\x00\x00\x00\x15It is a truth, widely" + b"\x00\x04\x00\x09\x00\x00\x00\x02no"),
            ["It is a truth, widely"],
        ),
    ],
)
def test_every_format_gives_its_text(reading, data, wanted):
    assert list(texts(data, reading)) == wanted
    if reading in ("text", "fortune", "dictd"):
        assert list(texts(gzip.compress(data), reading)) == wanted


def test_html_keeps_the_prose_and_loses_the_navigation():
    page = (
        b"<html><body><nav><a href=x>Home</a></nav><main><h1>Title</h1><p>"
        + b"Real prose of the page. " * 10
        + b"</p></main></body></html>"
    )
    [text] = texts(page, "html")
    assert "Real prose of the page." in text and "Home" not in text and "<" not in text


def test_the_cap_bounds_what_is_read_and_the_choice_does_not_depend_on_the_order_of_the_archive(tmp_path):
    item = DebianSource(
        source="made", package="made-doc", licence="MIT", member=r".*\.txt", reading="text", domain_hint="tests", cap_bytes=2_000
    )
    files = {f"usr/{number}.txt": f"text number {number} ".encode() * 10 for number in range(40)}
    forward = gathering._read(deb(tmp_path / "a_1_all.deb", files), item, item.cap_bytes)
    backward = gathering._read(deb(tmp_path / "b_1_all.deb", dict(reversed(files.items()))), item, item.cap_bytes)
    assert forward == backward and 1_000 < sum(len(text) for _, text in forward) <= 2_000
    with pytest.raises(SourceError, match="holds no text for made"):
        gathering._read(deb(tmp_path / "c_1_all.deb", {"usr/bin": b"x"}), item, item.cap_bytes)


def test_without_apt_the_way_out_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceError, match=r"needs apt-get.*packages"):
        Apt(tmp_path / "apt").update()


def test_the_recipe_names_about_45_sources_once_each_with_their_licence():
    assert 40 <= len(DEBIAN) <= 50 and len({item.source for item in DEBIAN}) == len(DEBIAN)
    assert all(item.licence and item.domain_hint for item in DEBIAN)

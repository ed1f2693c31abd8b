"""The large corpus: free documentation, dictionaries, essays, fiction and source code that Debian packages carry.

About 45 packages, 450 MB of downloads. Names with a star fit several releases; the highest version there is is taken. Licences are
those the packages' copyright files state for the text (read 2026-11-30, Debian 12).
"""

from __future__ import annotations

from dataclasses import dataclass

from forerun.demo.corpus.formats import Reading


@dataclass(frozen=True, kw_only=True)
class DebianSource:
    """One source: some files of one package, and how they are read."""

    source: str
    """Name of the source, and of its file in the corpus."""
    package: str
    """Name of the package; `*` stands for the version inside a name."""
    licence: str
    member: str
    """Regular expression over the whole path inside the package."""
    reading: Reading
    domain_hint: str
    """What a person would call it."""
    cap_bytes: int
    """Text taken at most; documents are taken in an order that mixes the package's folders."""


def _of(
    source: str, package: str, licence: str, member: str, reading: Reading, domain_hint: str, cap_bytes: int = 12_000_000
) -> DebianSource:
    return DebianSource(
        source=source, package=package, licence=licence, member=member, reading=reading, domain_hint=domain_hint, cap_bytes=cap_bytes
    )


_DOC = "usr/share/doc/"
_HTML = r".*\.html"

DEBIAN: tuple[DebianSource, ...] = (
    _of("linux-kernel-docs", "linux-doc-*", "GPL-2.0", _DOC + r"linux-doc-[^/]*/Documentation/.*\.rst(\.gz)?", "text", "kernel"),
    _of("linux-kernel-html", "linux-doc-*", "GPL-2.0", _DOC + r"linux-doc-[^/]*/html/.*\.html", "html", "kernel"),
    _of("python-manual", "python3.*-doc", "PSF-2.0", _DOC + r"python3[^/]*/html/_sources/.*\.txt", "text", "Python"),
    _of(
        "rust-books",
        "rust-doc",
        "MIT or Apache-2.0",
        _DOC
        + r"rust-doc/html/(book|reference|nomicon|rust-by-example|edition-guide|embedded-book|unstable-book|rustc|cargo|error_codes|style-guide|rustdoc)/.*\.html",
        "html",
        "Rust",
    ),
    _of("postgresql-manual", "postgresql-doc-*", "PostgreSQL", _DOC + _HTML, "html", "databases"),
    _of("sqlite-manual", "sqlite3-doc", "public domain", _DOC + _HTML, "html", "databases"),
    _of("erlang-manual", "erlang-doc", "Apache-2.0", _DOC + _HTML, "html", "Erlang"),
    _of(
        "debian-handbook",
        "debian-handbook",
        "GPL-2+ or CC-BY-SA-3.0",
        _DOC + r"debian-handbook/html/en-US/.*\.html",
        "html",
        "administration",
    ),
    _of("debian-policy", "debian-policy", "GPL-2+", _DOC + _HTML, "html", "administration"),
    _of(
        "debian-developers-reference",
        "developers-reference",
        "GPL-2+",
        r"usr/share/developers-reference/_sources/.*\.txt",
        "text",
        "administration",
    ),
    _of("debian-faq", "debian-faq", "GPL-2+", _DOC + r".*\.en\.html", "html", "administration"),
    _of("debian-history", "debian-history", "GPL-2+", _DOC + r".*\.en\.html", "html", "history"),
    _of("install-guide-amd64", "installation-guide-amd64", "GPL-2+", _DOC + r".*/en/.*\.html", "html", "administration"),
    _of("install-guide-arm64", "installation-guide-arm64", "GPL-2+", _DOC + r".*/en/.*\.html", "html", "administration"),
    _of("nova-manual", "nova-doc", "Apache-2.0", _DOC + r"nova-doc/html/(?!_sources).*\.html", "html", "operations"),
    _of("cinder-manual", "cinder-doc", "Apache-2.0", _DOC + r"cinder-doc/html/(?!_sources).*\.html", "html", "operations"),
    _of("apache-manual", "apache2-doc", "Apache-2.0", _DOC + r".*/en/.*\.html", "html", "operations"),
    _of("bash-guide", "abs-guide", "public domain", _DOC + _HTML, "html", "shell"),
    _of("manual-pages", "manpages", "various free", r"usr/share/man/man\d/.*\.gz", "man", "manual pages"),
    _of("manual-pages-dev", "manpages-dev", "various free", r"usr/share/man/man\d/.*\.gz", "man", "manual pages"),
    _of("perl-manual", "perl-doc", "Artistic or GPL-1+", r"usr/share/perl/.*\.pod", "text", "Perl"),
    _of("git-manual", "git-doc", "GPL-2.0", _DOC + _HTML, "html", "version control"),
    _of("django-manual", "python-django-doc", "BSD-3-Clause", _DOC + r".*/html/(?!_sources).*\.html", "html", "web"),
    _of("astropy-manual", "python-astropy-doc", "BSD-3-Clause", _DOC + r".*/html/(?!_sources|_modules).*\.html", "html", "astronomy"),
    _of("sympy-manual", "python-sympy-doc", "BSD-3-Clause", _DOC + r".*/html/(?!_sources|_modules).*\.html", "html", "mathematics"),
    _of("octave-manual", "octave-doc", "GPL-3+", _DOC + _HTML, "html", "mathematics"),
    _of("maxima-manual", "maxima-doc", "GPL-2+", _DOC + r"maxima-doc/html/.*\.html", "html", "mathematics"),
    _of("metamath-proofs", "metamath-databases", "CC0 or GPL", r"usr/share/.*\.mm(\.gz)?", "paragraphs", "formal proofs"),
    _of("gnumed-manual", "gnumed-doc", "GPL-2+", _DOC + _HTML, "html", "medicine"),
    _of("cpp-reference", "cppreference-doc-en-html", "CC-BY-SA-3.0 and GFDL", r"usr/share/.*/en/.*\.html", "html", "C++"),
    _of("gnome-help", "gnome-user-docs", "CC-BY-SA-3.0", r"usr/share/help/C/.*\.page", "markup", "desktop help"),
    _of("libreoffice-help", "libreoffice-help-en-us", "MPL-2.0", r"usr/share/libreoffice/help/en-US/.*\.html", "html", "desktop help"),
    _of("gcide-dictionary", "dict-gcide", "GPL-3+", r"usr/share/dictd/.*\.dict\.dz", "dictd", "dictionary", 40_000_000),
    _of("wordnet-dictionary", "dict-wn", "WordNet", r"usr/share/dictd/.*\.dict\.dz", "dictd", "dictionary", 40_000_000),
    _of("foldoc-dictionary", "dict-foldoc", "GFDL", r"usr/share/dictd/.*\.dict\.dz", "dictd", "dictionary of computing"),
    _of("jargon-file", "dict-jargon", "public domain", r"usr/share/dictd/.*\.dict\.dz", "dictd", "dictionary of computing"),
    _of("anarchist-faq", "anarchism", "GPL-2", _DOC + r"anarchism/html/.*\.html", "html", "political essays"),
    _of("world-english-bible", "sword-text-web", "public domain", r"usr/share/sword/modules/.*\.bzz", "sword", "scripture"),
    _of("austen-novels", "r-cran-janeaustenr", "public domain (text), MIT (package)", r"usr/lib/R/.*/data/.*\.rdb", "rdb", "fiction"),
    _of("quotations", "fortunes", "various free", r"usr/share/games/fortunes/[^.]+", "fortune", "quotations"),
    _of("wesnoth-stories", "wesnoth-1.*-data", "GPL-2+", r"usr/share/games/wesnoth/.*/data/.*\.cfg", "quoted", "fiction"),
    _of("endless-sky-stories", "endless-sky-data", "GPL-3+", r"usr/share/games/endless-sky/data/.*\.txt", "quoted", "fiction"),
    _of("code-go", "golang-1.*-src", "BSD-3-Clause", r"usr/share/go-[^/]*/src/.*\.go", "text", "Go"),
    _of("code-rust", "rust-src", "MIT or Apache-2.0", r"usr/src/.*\.rs", "text", "Rust"),
    _of("code-python", "libpython3.*-stdlib", "PSF-2.0", r"usr/lib/python3[^/]*/.*\.py", "text", "Python"),
)

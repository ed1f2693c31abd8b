"""Names for domains: the words that set a domain apart from all the others, and the source most of it comes from.

Contrast is the log-odds ratio with an informative Dirichlet prior over documents that hold a word, times the word's purity: how
much denser it is inside than outside. Source: Monroe, Colaresi and Quinn, Fightin' Words (Political Analysis 16:4, 2008).
"""

# G domains, V words

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from forerun.curate.spill import slug

WORDS_A_DOCUMENT = 400  # assumed: a document's first words tell its subject; bounds the count of a long one
PRIOR = 500.0  # assumed: documents' worth of belief that a word is as common here as everywhere
DOMINANT = 0.5  # derived: from half of a domain's documents on, no other source can name it better
COMMON_WORDS = """
the and for that with this from are was not you but his her its have has had will can all any one may who which when where
how why what  been were they them their there then than also into such these those some other more most only out over own
same too very just use used  using see new prev next home your our she him himself here does did doing each both about above
after again against because before below  between down during few further off once should through under until while would
could shall said must without within whether upon per via
"""  # assumed: English function words and page navigation; they set styles apart, not subjects
GENERIC_WORDS = """
abc abstract act args array arguments assert async attrs attrsof await auto begin bool boolean break bytes case cast catch char class code const copyright constructor
continue data declare def default define delete del dict double elif else end endif enum error except export extends extern false
field fields file files final finally float foreach format func function global goto ifdef implements import include info internal inline
input instance int integer interface isinstance items iter key keys kwargs lambda len length line lines list local long loop main
map match method methods module name names namespace native none nonlocal null number object objects operator option optional
options output overload override package param parameter parameters params path pass print private props property properties protected
public raise range read readonly register repr require result return returns self set short signed sizeof sourcemappingurl src static str string
strings struct super switch template test tests text throw todo true try tuple type typedef typename types undefined union unsigned
util utils value values var variable vector virtual void volatile word words write yield
adj adv alt cap certain cited compare defn description esp etc example examples explanation fig figure following form forms having information item large license like
kind man manner men note notes obs page person particular part pertaining places plural prep quality reference references relating resembling
section sections sense see small software something state synonym table term thing things title usage used usually version way webster whole
"""  # assumed: keywords of programming languages, furniture of manuals and dictionaries; they say what a text is written in
INFLECTED = ("ing", "ed", "ly")  # assumed: endings of verbs and adverbs; a subject is mostly a noun, so others go first
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u9fff"  # Thai, Lao, Burmese, Khmer, kana, Han
_WORD = re.compile(rf"[{_UNSPACED}]{{2,}}|[^\W\d_]{{3,24}}")


@dataclass(frozen=True)
class DomainName:
    """What a domain is called and why."""

    slug: str
    """Folder name, unique in the store."""
    title: str
    """For people."""
    terms: tuple[str, ...]
    """Most telling words, best first, nouns before verbs."""
    top_source: str
    """Source of most of its documents."""
    top_source_fraction: float
    """Share of its documents from that source."""


def name_domains(
    texts: Iterable[str], sources: Sequence[str], labels: np.ndarray, num_domains: int, *, num_terms: int = 8
) -> list[DomainName]:
    """A distinct name for each of `num_domains` from a sample of its documents."""
    common = set(COMMON_WORDS.split()) | set(GENERIC_WORDS.split())
    counts = [Counter() for _ in range(num_domains)]
    origins = [Counter() for _ in range(num_domains)]
    for text, source, label in zip(texts, sources, labels.tolist()):
        counts[label].update(set(itertools.islice(_words(text.lower()), WORDS_A_DOCUMENT)) - common)
        origins[label][source] += 1
    total = Counter()
    for count in counts:
        total.update(count)
    sizes = np.array([sum(origin.values()) for origin in origins], float)
    names: list[DomainName] = []
    for label in range(num_domains):
        terms = _contrast(counts[label], total, sizes[label], sizes.sum())[: 3 * num_terms]
        terms = _without_variants(sorted(terms, key=lambda word: word.endswith(INFLECTED)))[:num_terms]
        source, most = origins[label].most_common(1)[0] if origins[label] else ("", 0)
        fraction = most / max(sizes[label], 1)
        dominant = fraction >= DOMINANT and bool(source)
        words = ", ".join(terms[:3]) or f"domain {label}"
        taken = {name.slug for name in names}
        fresh = [term for term in terms if not any(term in name.split("-") for name in taken)] or list(terms)
        wanted = [source, f"{source}-{fresh[0]}" if fresh else source] if dominant else ["-".join(fresh[:2]), "-".join(terms[:3])]
        spelled = [slug(name) for name in wanted if re.search("[a-zA-Z0-9]", name)] or [f"domain-{label}"]  # folders are in Latin letters
        short = next((name for name in spelled if name not in taken), unique(spelled[-1], taken))
        names.append(DomainName(short, f"{source}: {words}" if dominant else words, tuple(terms), source, fraction))
    return names


def _words(text: str) -> Iterator[str]:
    """Words of three letters and more; of scripts written without spaces each two neighbouring characters, which are mostly a word."""
    for found in _WORD.finditer(text):
        word = found[0]
        if re.match(f"[{_UNSPACED}]", word):
            yield from (word[at : at + 2] for at in range(len(word) - 1))
        else:
            yield word


def _contrast(inside: Counter, total: Counter, size: float, all_size: float) -> list[str]:
    scored = []
    for word, count in inside.items():
        if count < max(2.0, 0.03 * size):  # a name must hold for more than a few documents
            continue
        prior = PRIOR * total[word] / all_size
        outside, rest = total[word] - count, all_size - size
        purity = (count / size) / (count / size + outside / max(rest, 1.0))
        ours = np.log((count + prior) / max(size + PRIOR - count - prior, 1e-9))
        theirs = np.log((outside + prior) / max(rest + PRIOR - outside - prior, 1e-9))
        scored.append((purity * (ours - theirs) / np.sqrt(1 / (count + prior) + 1 / (outside + prior)), word))
    return [word for _, word in sorted(scored, key=lambda pair: (-pair[0], pair[1]))]


def _without_variants(words: list[str]) -> list[str]:
    """Words that do not begin like a better one."""
    kept: list[str] = []
    for word in words:
        if not any(word[:5] == other[:5] for other in kept):
            kept.append(word)
    return kept


def unique(name: str, taken: set[str]) -> str:
    """The name, or with the least number behind it that makes it another than those taken."""
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}-{number}", number + 1
    return candidate

"""Further commands of `forerun data`: the numbers of the atlas in the terminal. `cli/data.py` lists them."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from forerun.cli.options import HERE, JsonOption, LabOption

DataSet = Annotated[str, typer.Argument(help="digest of the manifest or its beginning, or the name of an imported table")]


def search(
    data_set: DataSet,
    topic: Annotated[str, typer.Argument(help="words; a document has to hold every one")],
    lab: LabOption = HERE,
    semantic: Annotated[bool, typer.Option("--semantic", help="by meaning: the data set's own encoder and fine clusters")] = False,
    as_json: JsonOption = False,
) -> None:
    """How much of the data is about a topic, where it is, and its share of the best bucket against the average.

    Example: forerun data search 3f9c "genus species"
    """
    from forerun.base import units
    from forerun.base.lab import Lab
    from forerun.dashboard.atlas.book import book_of
    from forerun.dashboard.atlas.search import index
    from forerun.dashboard.atlas.search import search as ask

    home = Lab(lab)
    book = book_of(home, data_set)
    if semantic:
        from forerun.curate.meaning import search_by_meaning

        _out(
            search_by_meaning(home, book, topic),
            as_json,
            lambda found: [f"{hit['score']:6.3f}  {hit['share']:6.1%}  {hit['title']}" for hit in found["domains"]],
        )
        return
    answer = ask(index(home, book), topic)
    lines = [
        f"about {units.percent(answer.share, 2)} of the tokens; {answer.num_matched} of {answer.num_sampled:,} sampled documents",
        *(
            f"  Q{quality}  {part:6.1%} of the topic, {usual:6.1%} of all"
            for quality, (part, usual) in enumerate(zip(answer.qualities, answer.usual))
        ),
        *(f"  {units.count(hit.num_tokens):>7} tokens  {hit.share:6.1%} of  {book.title(hit.domain)}" for hit in answer.domains[:12]),
    ]
    _out(asdict(answer), as_json, lambda _: lines)


def sources(data_set: DataSet, lab: LabOption = HERE, as_json: JsonOption = False) -> None:
    """Every source: licence, documents read and kept, tokens, domains, quality, and what looks wrong with it.

    Example: forerun data sources 3f9c --json
    """
    from forerun.base import units
    from forerun.base.lab import Lab
    from forerun.dashboard.atlas.attributes import sources_of
    from forerun.dashboard.atlas.book import book_of

    home = Lab(lab)
    book = book_of(home, data_set)
    rows = [
        {
            **source.facts,
            "num_documents": source.num_documents,
            "num_tokens": source.num_tokens,
            "score_mean": source.score_mean,
            "score_sd": source.score_sd,
            "quality_tokens": source.by_quality(book),
            "domain_tokens": source.by_domain(book),
            "flags": list(source.flags),
        }
        for source in sources_of(home, book).values()
    ]
    _out(
        rows,
        as_json,
        lambda rows: [
            f"{units.count(row['num_tokens']):>7} tokens  {row['num_documents']:>8} of {row.get('num_documents_in', 0):>8} documents  {row['name']:<28} {'; '.join(row['flags'])}"
            for row in rows
        ],
    )


def token_counts(
    data_set: DataSet,
    lab: LabOption = HERE,
    out: Annotated[Path | None, typer.Option(help="write a .csv or .parquet file")] = None,
    as_json: JsonOption = False,
) -> None:
    """One row a source: name, tokens, category, synthetic, machine-translated, licence, upstream, what was done to it.

    Example: forerun data token-counts 3f9c --out token-counts.parquet
    """
    from forerun.base.errors import ConfigError
    from forerun.base.lab import Lab
    from forerun.dashboard.atlas import downloads
    from forerun.dashboard.atlas.book import book_of

    home = Lab(lab)
    made = downloads.token_counts(home, book_of(home, data_set))
    if out is not None:
        if out.suffix not in (".csv", ".parquet"):
            raise ConfigError(f"--out must end in .csv or .parquet, got {out}", hint="for example --out token-counts.csv")
        downloads.save(made, out)
        print(out)
        return
    _out(
        made.to_pylist(),
        as_json,
        lambda rows: [f"{row['tokens']:>14,}  {row['name']:<28} {row['category'] or '-':<12} {row['licence'] or '-'}" for row in rows],
    )


def import_table(
    source: Annotated[str, typer.Argument(help="`harrier`, or a CSV, Markdown or JSON file")],
    as_: Annotated[str, typer.Option("--as", help="name of the data set; the source's own by default")] = "",
    total: Annotated[int | None, typer.Option(help="tokens of all cells; needed for rounded tables")] = None,
    lab: LabOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Bring in published cell totals as an atlas of their own; `harrier` is the 40 x 5 table of a public 535B run.

    Example: forerun data import-table harrier
    """
    from forerun.base.lab import Lab
    from forerun.dashboard.atlas.table import import_table as bring

    book = bring(Lab(lab), source, as_ or Path(source).stem.lower(), total)
    found = {
        "name": book.key,
        "num_tokens": book.num_tokens,
        "num_cells": len(book.cells),
        "num_domains": len(book.domains),
        "quality_tokens": book.qualities,
    }
    _out(found, as_json, lambda _: [f"{book.key}: {book.num_tokens:,} tokens in {len(book.cells)} cells"])


def mixture(
    data_set: DataSet,
    train_tokens: Annotated[int, typer.Option(help="tokens of the run")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="factor of a cell, domain or bucket, such as law/q3=2, law=1.5, q4=2; repeat it")
    ] = None,
    epoch_cap: Annotated[float, typer.Option(help="most times a cell may be read")] = 8.0,
    out: Annotated[Path | None, typer.Option(help="write the phase for `data.mixture`")] = None,
    lab: LabOption = HERE,
    as_json: JsonOption = False,
) -> int:
    """What if: change the weights and see epochs, shares and tokens of every source; exit 1 when a cell is over the cap.

    Example: forerun data mixture 3f9c --train-tokens 20000000 --set q4=2 --out mixture.json
    """
    from forerun.base import units
    from forerun.base.errors import ConfigError
    from forerun.base.files import write_json
    from forerun.base.lab import Lab
    from forerun.dashboard.atlas import mixture as weigh
    from forerun.dashboard.atlas.attributes import sources_of
    from forerun.dashboard.atlas.book import book_of

    if train_tokens < 1 or not epoch_cap > 0:
        raise ConfigError(
            f"--train-tokens and --epoch-cap must be above 0, got {train_tokens} and {epoch_cap:g}", hint="give the tokens of the run"
        )
    home = Lab(lab)
    book = book_of(home, data_set)
    weights = weigh.scaled(book, dict(_factor(entry) for entry in set_ or []))
    sources = sources_of(home, book) if book.digest else {}
    found = weigh.outcome(book, [weigh.Phase(1.0, weights)], train_tokens, sources, epoch_cap=epoch_cap)
    if out is not None:
        write_json(out, {"start_fraction": 0.0, "weights": weights})
    most = sorted(found.exposure.items(), key=lambda entry: -entry[1])
    lines = [
        *(f"{name} would be read {found.exposure[name]:.2f} times, over the cap of {epoch_cap:g}" for name in found.over_cap),
        *(f"Q{quality}  {share:6.2%}" for quality, share in enumerate(found.qualities)),
        *(f"{share:7.2%}  {book.title(domain)}" for domain, share in found.domains.items()),
        *(f"{epochs:8.3f} epochs  {name}" for name, epochs in most[:8]),
        *(f"{units.count(tokens):>8} tokens of  {name}" for name, tokens in found.sources.items()),
    ]
    _out({"weights": weights, **asdict(found)}, as_json, lambda _: lines)
    return 1 if found.over_cap else 0


def pairs(
    data_set: DataSet,
    lab: LabOption = HERE,
    source: Annotated[str, typer.Option(help="only pairs with a document of this source")] = "",
    low: Annotated[float, typer.Option("--from", help="least containment")] = 0.0,
    high: Annotated[float, typer.Option("--to", help="most containment")] = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Sampled near-duplicate decisions, and the shares that reviewers found wrong.

    Example: forerun data pairs 3f9c --to 0.8
    """
    from forerun.base.lab import Lab
    from forerun.dashboard.atlas import decisions
    from forerun.dashboard.atlas.book import book_of

    home = Lab(lab)
    book = book_of(home, data_set)
    chosen = [
        pair.row
        for pair in decisions.pairs(home, book)
        if low <= pair.row["containment"] <= high and source in ("", pair.row["source"], pair.row["kept_source"])
    ]
    rates = {kind: asdict(rate) for kind, rate in decisions.rates(home, book).items()}
    lines = [
        f"{row['containment']:.3f}  {row['kind']:<8} {row['source']:<22} {row['id'][:12]}  held by {row['kept_id'][:12]} of {row['kept_source']}"
        for row in chosen
    ]
    words = {"removed": "of reviewed removals lose content", "kept": "of reviewed near misses could have gone"}
    lines += [
        f"{rate['share']:.1%} {words[kind]} ({rate['low']:.1%} to {rate['high']:.1%}, {rate['num_reviewed']} reviewed)"
        for kind, rate in rates.items()
    ]
    _out({"pairs": chosen, "rates": rates}, as_json, lambda _: lines or ["no pairs"])


def review_pairs(
    data_set: DataSet,
    lab: LabOption = HERE,
    kind: Annotated[str, typer.Option(help="removed, kept or both")] = "both",
    most: Annotated[int, typer.Option(help="pairs to go through")] = 50,
    reviewer: Annotated[str, typer.Option(help="your name; judgements are kept by reviewer")] = "",
) -> None:
    """Judge sampled pairs one by one; answers are kept and become false-removal and missed-removal rates on the site.

    Example: forerun data review-pairs 3f9c --kind removed
    """
    import getpass

    from forerun.base.errors import ConfigError
    from forerun.base.lab import Lab
    from forerun.dashboard.atlas.book import book_of
    from forerun.dashboard.atlas.review import go_through

    if kind not in ("removed", "kept", "both"):
        raise ConfigError(f"--kind must be removed, kept or both, got {kind!r}", hint="leave it out for both")
    home = Lab(lab)
    done = go_through(
        home, book_of(home, data_set), kind=kind, most=most, reviewer=reviewer or getpass.getuser(), read=sys.stdin.readline, show=print
    )
    print(f"{done} judged", file=sys.stderr)


def atlas(data_set: DataSet, lab: LabOption = HERE, as_json: JsonOption = False) -> None:
    """Make what the data pages are drawn from (counts by source, samples, search index), so that the first reader need not wait.

    Example: forerun data atlas 3f9c
    """
    from forerun.base.lab import Lab
    from forerun.dashboard.atlas.attributes import made_folder, source_cells
    from forerun.dashboard.atlas.book import book_of
    from forerun.dashboard.atlas.samples import samples
    from forerun.dashboard.atlas.search import index

    home = Lab(lab)
    book = book_of(home, data_set)
    found = {"folder": str(made_folder(home, book)), "num_tokens": book.num_tokens}
    if book.digest:
        found |= {
            "source_cells": source_cells(home, book).num_rows,
            "samples": samples(home, book).num_rows,
            "index": str(index(home, book)),
        }
    _out(found, as_json, lambda found: [found["folder"]])


def _factor(entry: str) -> tuple[str, float]:
    from forerun.base.errors import ConfigError

    name, _, value = entry.rpartition("=")
    try:
        return name, float(value)
    except ValueError:
        raise ConfigError(f"--set {entry!r} must read NAME=FACTOR", hint="for example --set q4=2") from None


def _out(value: Any, as_json: bool, lines: Any) -> None:
    if as_json:
        import orjson

        sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY, default=str).decode() + "\n")
    else:
        print("\n".join(_plain(line) for line in lines(value)))


def _plain(line: str) -> str:
    """Text of documents must not steer the terminal."""
    from forerun.dashboard.atlas.review import harmless

    return harmless(line)

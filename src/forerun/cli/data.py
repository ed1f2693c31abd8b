"""`forerun data`: look inside a store, check it to the last byte, explain or remove one document, see what a step read."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

from forerun.cli import data_atlas
from forerun.cli.options import HERE, JsonOption, LabOption

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Look inside a token store. Example: forerun data verify 3f9c --lab my-lab",
)
Manifest = Annotated[str, typer.Argument(help="digest of the manifest, or its beginning")]


@app.command()
def show(
    manifest: Manifest,
    lab: LabOption = HERE,
    cell: Annotated[str, typer.Option(help="list this cell's documents")] = "",
    as_json: JsonOption = False,
) -> None:
    """Cells, sources and steps of a store, the sources of one cell, or an imported table.

    Example: forerun data show 3f9c --cell astronomy/q3
    """
    from forerun.base.errors import DataError
    from forerun.base.lab import Lab
    from forerun.curate.summary import cell_summary, store_summary
    from forerun.dashboard.atlas.book import imported
    from forerun.loader.store import open_store

    table = None if cell else imported(Lab(lab), manifest)
    if table is not None:
        _print(table.summary() if as_json else _domains(table.summary()), as_json)
        return
    store = open_store(Lab(lab), manifest)
    if cell:
        known = {entry.name: entry for entry in (*store.manifest.cells, *store.manifest.held_out)}
        if cell not in known:
            raise DataError(f"there is no cell {cell!r}", hint=f"cells: {', '.join(sorted(known)[:8])}")
        rows = cell_summary(store, known[cell])
        _print(
            rows if as_json else [f"{row['share']:6.1%}  {row['num_documents']:>8}  {row['source']}" for row in rows["sources"]], as_json
        )
        return
    summary = store_summary(store.manifest)
    if as_json:
        _print(summary, True)
        return
    _print(_domains(summary), False)


@app.command()
def verify(manifest: Manifest, lab: LabOption = HERE, as_json: JsonOption = False) -> int:
    """Re-check every file of a store against its manifest; exit 1 when anything differs.

    Example: forerun data verify 3f9c
    """
    from forerun.base.lab import Lab
    from forerun.curate.verify import verify_store

    found = verify_store(Lab(lab), manifest, quiet=as_json)
    if as_json:
        _print(asdict(found) | {"ok": not found.problems}, True)
    else:
        for problem in found.problems:
            print(f"{problem.path}: {problem.what}", file=sys.stderr)
        verdict = f"{len(found.problems)} problems" if found.problems else "every byte is as the manifest says"
        print(f"{found.digest[:12]}  {found.num_files} files, {found.num_documents} documents, {found.num_tokens} tokens: {verdict}")
    return 1 if found.problems else 0


@app.command()
def explain(
    manifest: Manifest,
    document: Annotated[str, typer.Argument(help="document id, or its beginning")],
    lab: LabOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """A document's whole history: origin, every score and decision, cell, place, the training steps that read it, text.

    Documents that were dropped are explained too, by the step that dropped them. Example: forerun data explain 3f9c 5fd0c2
    """
    from forerun.base.lab import Lab
    from forerun.curate.history import explain as history_of
    from forerun.dashboard.atlas.review import harmless

    history = history_of(Lab(lab), manifest, document)
    lines = [f"{key:<16} {harmless(str(value))}" for key, value in history.items() if key != "text"]
    _print(history if as_json else [*lines, "", harmless(str(history.get("text", "")))], as_json)


@app.command()
def remove(
    manifest: Manifest,
    document: Annotated[str, typer.Argument(help="document id, or its beginning")],
    reason: Annotated[str, typer.Option(help="why; kept in the manifest")],
    lab: LabOption = HERE,
) -> None:
    """Take one document out without a rebuild: prints the digest of the amended manifest.

    Example: forerun data remove 3f9c 5fd0c2 --reason "request of the author"
    """
    from forerun.base.lab import Lab
    from forerun.curate.remove import remove_document

    amended = remove_document(Lab(lab), manifest, document, reason)
    print(amended.digest)
    print("runs read it once data.manifest names this digest; register that as an amendment", file=sys.stderr)


@app.command("at-step")
def at_step(
    run: Annotated[str, typer.Argument(help="run id")],
    step: Annotated[int, typer.Argument(help="optimizer step whose batch is asked for, from 0")],
    lab: LabOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """The documents a run read at a step, from its frozen config alone.

    Example: forerun data at-step demo-d128 1200
    """
    from forerun.base.config import load_json
    from forerun.base.lab import Lab
    from forerun.loader.audit import documents_at
    from forerun.loader.batches import Batches
    from forerun.loader.store import open_store
    from forerun.train.config import RunConfig

    home = Lab(lab)
    config = load_json(home.run(run) / "config.json", RunConfig)
    train = config.train
    store = open_store(home, config.data.manifest)
    batches = Batches(store, config.data, num_steps=train.num_steps, batch_size=train.batch_size, seq_len=train.seq_len)
    readings = [asdict(reading) for reading in documents_at(batches, step)]
    _print(
        readings
        if as_json
        else [
            f"row {r['row']:>4}  {r['cell']:<28} {r['source']:<20} {r['id']}  tokens {r['first_token']}+{r['num_tokens']}" for r in readings
        ],
        as_json,
    )


app.command()(data_atlas.search)
app.command()(data_atlas.sources)
app.command("token-counts")(data_atlas.token_counts)
app.command("import-table")(data_atlas.import_table)
app.command()(data_atlas.mixture)
app.command()(data_atlas.pairs)
app.command("review-pairs")(data_atlas.review_pairs)
app.command()(data_atlas.atlas)


def _domains(summary: dict[str, Any]) -> list[str]:
    from forerun.base import units

    head = (
        f"{summary['name']}  {units.count(summary['num_tokens'])} tokens in {len(summary['cells'])} cells, {summary['num_removed']} removed"
    )
    return [head] + [
        f"  {row['domain']:<28} {units.count(row['num_tokens']):>7} tokens  "
        + "  ".join(f"q{q} {share:4.0%}" for q, share in enumerate(row["quality"]))
        for row in summary["domains"]
    ]


def _print(value: Any, as_json: bool) -> None:
    if as_json:
        import orjson

        sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY, default=str).decode() + "\n")
    else:
        print("\n".join(value))

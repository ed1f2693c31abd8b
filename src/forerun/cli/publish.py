"""`forerun publish`: what leaves the lab."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forerun.cli.options import HERE, JsonOption, LabOption, lab_at, print_json

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Issues, pull requests, anchors, calibration, and the release of a run.\n\nExample: forerun publish issue 001 --repo lab/runs --dry-run",
)

ExperimentArgument = Annotated[str, typer.Argument(help="name, number or slug of a registered experiment")]
RepoOption = Annotated[str, typer.Option("--repo", help="owner/name on GitHub; the token comes from GITHUB_TOKEN")]
ApiOption = Annotated[str, typer.Option(help="address of the API, for GitHub Enterprise")]
DryOption = Annotated[bool, typer.Option("--dry-run", help="print the text, send nothing")]
API = "https://api.github.com"


@app.command(epilog="Example: forerun publish issue 001 --repo lab/runs --dry-run")
def issue(
    experiment: ExperimentArgument, repo: RepoOption = "", api: ApiOption = API, dry: DryOption = False, lab: LabOption = HERE
) -> None:
    """Write the promise as an issue, or bring its text up to date."""
    from forerun.publish.github import GitHub
    from forerun.publish.issue_text import issue_text, marker, title_of
    from forerun.registry.changes import registration_of

    registration = registration_of(lab_at(lab), experiment)
    body = issue_text(lab_at(lab), registration)
    if dry:
        print(f"{title_of(registration)}\n\n{body}")
        return
    with GitHub(repo, api=api) as github:
        print(github.put_issue(title=title_of(registration), body=body, marker=marker(registration)))


@app.command(epilog="Example: forerun publish comment 001 --repo lab/runs")
def comment(
    experiment: ExperimentArgument,
    text: Annotated[str, typer.Option(help="a milestone; without it, the verdict")] = "",
    repo: RepoOption = "",
    api: ApiOption = API,
    dry: DryOption = False,
    lab: LabOption = HERE,
) -> None:
    """Post the verdict, or a milestone, on the experiment's issue."""
    from hashlib import sha256

    from forerun.publish.github import GitHub
    from forerun.publish.issue_text import marker, verdict_text
    from forerun.registry.changes import registration_of

    registration = registration_of(lab_at(lab), experiment)
    own = marker(registration, f"milestone-{sha256(text.encode()).hexdigest()[:8]}" if text else "verdict")
    body = f"{own}\n{text}\n" if text else verdict_text(lab_at(lab), registration)
    if dry:
        print(body)
        return
    with GitHub(repo, api=api) as github:
        print(github.put_comment(issue_marker=marker(registration), body=body, marker=own))


@app.command(epilog="Example: forerun publish pr 001 --repo lab/runs")
def pr(
    experiment: ExperimentArgument,
    repo: RepoOption = "",
    base: Annotated[str, typer.Option(help="branch it goes to")] = "main",
    api: ApiOption = API,
    dry: DryOption = False,
    lab: LabOption = HERE,
) -> None:
    """Open the experiment's folder and the ledger as a pull request."""
    from forerun.publish.github import GitHub
    from forerun.publish.issue_text import issue_text, title_of
    from forerun.registry.changes import registration_of

    place = lab_at(lab)
    registration = registration_of(place, experiment)
    folder = place.experiments / registration.experiment
    paths = [*sorted(path for path in folder.iterdir() if path.is_file()), place.ledger, place.ledger.with_name("head.json")]
    files = {path.relative_to(place.root).as_posix(): path.read_bytes() for path in paths if path.exists()}
    if dry:
        print("\n".join([f"branch experiment/{registration.experiment}", *files]))
        return
    with GitHub(repo, api=api) as github:
        branch, title = f"experiment/{registration.experiment}", title_of(registration)
        print(github.put_pull_request(branch=branch, title=title, body=issue_text(place, registration), files=files, base=base))


@app.command(epilog="Example: forerun publish release big-run --out release --device h200 --price-per-device-hour 3.2")
def release(
    run: Annotated[str, typer.Argument(help="run id")],
    out: Annotated[Path, typer.Option(help="folder of the bundle")] = Path("release"),
    optimizer: Annotated[bool, typer.Option(help="also the optimizer's state")] = False,
    device: Annotated[str, typer.Option(help="what it ran on, as in `forerun plan`: gives energy and, with a price, cost")] = "",
    price_per_device_hour: Annotated[float, typer.Option(min=0.0, help="any currency")] = 0.0,
    lab: LabOption = HERE,
) -> None:
    """Write weights, model card, data order, metrics, ledger and metadata of a run."""
    from forerun.publish.release import release as write

    done = write(lab_at(lab), run, out, with_optimizer=optimizer, device=device, price_per_device_hour=price_per_device_hour)
    print(f"wrote {done}")


@app.command(epilog="Example: forerun publish anchor --no-sign")
def anchor(
    sign: Annotated[bool, typer.Option(help="sign the git tag")] = True,
    time_stamp: Annotated[str, typer.Option(help="address of an RFC 3161 authority; without it, a git tag is made")] = "",
    lab: LabOption = HERE,
) -> None:
    """Fix the ledger's last digest outside the lab."""
    from forerun.publish.anchor import stamp, tag

    print(stamp(lab_at(lab), time_stamp) if time_stamp else tag(lab_at(lab), sign=sign))


@app.command(epilog="Example: forerun publish anchors --roots authority.pem")
def anchors(
    roots: Annotated[Path | None, typer.Option(help="PEM file of the time-stamp authorities' root certificates")] = None,
    lab: LabOption = HERE,
    as_json: JsonOption = False,
) -> int:
    """Hold every anchor against the ledger as it is now. Exit code 1 when one does not fit."""
    from forerun.publish.anchor import check_anchors

    found = check_anchors(lab_at(lab), roots=roots)
    if as_json:
        print_json(found)
    else:
        print(
            "\n".join(f"{'holds' if one.holds else 'BROKEN'}  {one.name}  {one.time or 'no time'}  {one.why}" for one in found)
            or "no anchors"
        )
    return 0 if all(one.holds for one in found) else 1


@app.command(epilog="Example: forerun publish calibration --json")
def calibration(lab: LabOption = HERE, as_json: JsonOption = False) -> None:
    """How often the lab's 50% and 90% intervals held, with Wilson intervals."""
    from forerun.registry.calibration import calibration as coverage

    rows = coverage(lab_at(lab))
    if as_json:
        print_json(rows)
        return
    for row in rows:
        (low50, high50), (low90, high90) = row.wilson50, row.wilson90
        held50 = f"50%: {row.held50}/{row.num_scored} ({low50:.2f} to {high50:.2f})"
        print(f"{row.group}  {held50}  90%: {row.held90}/{row.num_scored} ({low90:.2f} to {high90:.2f})")

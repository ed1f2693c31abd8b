"""`forerun sample RUN --prompt TEXT`."""

from __future__ import annotations

from typing import Annotated

import typer

from forerun.cli.options import HERE, LabOption, lab_at

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog='Example: forerun sample big-run --prompt "The sun is" --num-tokens 40 --temperature 0.8')
def sample(
    run: Annotated[str, typer.Argument(help="run id")],
    prompt: Annotated[str, typer.Option(help="text to continue")],
    num_tokens: Annotated[int, typer.Option(min=1, help="tokens to add")] = 64,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 takes the likeliest token")] = 0.0,
    seed: Annotated[int, typer.Option(help="of the draws")] = 0,
    lab: LabOption = HERE,
) -> None:
    """Continue a text with the newest checkpoint of a run."""
    import jax.numpy as jnp
    from tokenizers import Tokenizer

    from forerun.base.config import load_json
    from forerun.base.errors import DataError
    from forerun.publish.generate import generate
    from forerun.publish.weights import load_weights
    from forerun.train.config import RunConfig

    place = lab_at(lab)
    config = load_json(place.run(run) / "config.json", RunConfig)
    path = place.store / config.data.manifest / "tokenizer.json"
    if not path.exists():
        raise DataError(f"{path} does not exist", hint="the run's store is needed for its tokenizer")
    tokenizer = Tokenizer.from_file(str(path))
    ids = tokenizer.encode(prompt).ids
    if not ids:
        raise DataError("--prompt must hold at least one token, got an empty text", hint="give a word")
    weights = load_weights(place, run, config)
    new = generate(
        weights.params, jnp.asarray(weights.router_bias), config.model, ids, num_tokens=num_tokens, temperature=temperature, seed=seed
    )
    print(tokenizer.decode(ids + list(new)))

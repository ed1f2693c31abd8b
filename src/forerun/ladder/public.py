"""The public ladders the benchmark runs on, read from package data; `data/README.md` states source and licence of each."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from forerun.ladder.rungs import Rung, Target
from forerun.ladder.surface import Runs

GADRE_CORPORA = ("c4_original", "rpj", "rw_original")
GADRE_EVALS = (
    "loss_c4_val",
    "loss_paloma_c4_en",
    "loss_paloma_falconrefinedweb",
    "loss_paloma_redpajama",
    "loss_paloma_dolma_100_program",
    "loss_paloma_ptb",
    "loss_deen",
    "loss_openlm",
)
OLMO_SIZES = ("190M", "370M", "760M", "1B", "3B")
OLMO_LENGTHS = ("0.5", "1", "2", "5", "10")
OLMO_EVALS = (
    "c4_en",
    "dolma_books",
    "dolma_common-crawl",
    "dolma_pes2o",
    "dolma_reddit",
    "dolma_stack",
    "dolma_wiki",
    "m2d2_s2orc",
    "pile",
    "wikitext_103",
    "ice",
)
UNKNOWN_STEPS = 10_000  # assumed: updates of a run whose table does not give them; plays no part in a final loss
SMALL_GADRE, SMALL_OLMO = 5e8, 2e9  # largest parameters of the fitted runs of each grid


@dataclass(frozen=True)
class OlmoRun:
    """One run of the OLMo ladder with its evaluations."""

    size: str
    length: str
    num_params: float
    train_tokens: float
    batch_tokens: float
    steps: np.ndarray
    losses: dict[str, np.ndarray]

    def rung(self, eval_name: str) -> Rung:
        """As a rung of a ladder; compute is 6 N D."""
        loss = self.losses[eval_name]
        kept = np.isfinite(loss) & (self.steps > 0)
        return Rung(
            name=f"{self.size}-{self.length}xC",
            train_steps=int(self.steps[-1]),
            compute_per_step=6 * self.num_params * self.batch_tokens,
            steps=tuple(int(step) for step in self.steps[kept]),
            losses=tuple(float(value) for value in loss[kept]),
        )


def marin_ladder() -> tuple[list[Rung], Target]:
    """Four rungs of the 535B-A23B run's ladder and the run itself; compute without the output head."""
    sizes = {row["rung"]: row for row in table("ladder_rungs.csv")}
    evals = list(table("ladder_eval_dropless_paloma_macro.csv"))
    rungs = [
        Rung(
            name=name,
            train_steps=int(sizes[name]["steps"]),
            compute_per_step=float(sizes[name]["C_per_step_no_lm_head"]),
            steps=tuple(int(row["step"]) for row in evals if row["rung"] == name),
            losses=tuple(float(row["dropless_paloma_macro_loss"]) for row in evals if row["rung"] == name),
        )
        for name in ("d768", "d1024", "d1536", "d2048")
    ]
    hero = sizes["d6144"]
    return rungs, Target(train_steps=int(hero["steps"]), compute_per_step=float(hero["C_per_step_no_lm_head"]))


def marin_hero() -> tuple[np.ndarray, np.ndarray]:
    """Steps and losses of the 535B-A23B run over its first 30%."""
    rows = [row for row in table("hero_eval_dropless_paloma_macro.csv") if int(row["step"]) > 0]
    return np.array([float(row["step"]) for row in rows]), np.array([float(row["dropless_paloma_macro_loss"]) for row in rows])


def marin_published() -> np.ndarray:
    """The published forecast at every 5%, rebuilt by others from the same rule."""
    rows = [row for row in table("hero_forecast_per5pct.csv") if row["fraction"]]
    return np.array([float(row["pred_dropless_paloma_macro"]) for row in rows])


def gadre_runs(corpus: str, eval_name: str) -> Runs:
    """Final losses of one training corpus of the Gadre grid on one evaluation; parameters without embeddings."""
    rows = [row for row in table("gadre_grid.csv") if row["train"] == corpus]
    return Runs(*(np.array([float(row[name]) for row in rows]) for name in ("N_noembed", "D", eval_name)))


def gadre_ladder(corpus: str, eval_name: str, multiplier: str, *, largest: float = math.inf) -> list[Rung]:
    """Final losses of the Gadre grid at one ratio of tokens to parameters, smallest first; compute is 6 N D.

    Args:
        multiplier: of the compute-optimal tokens per parameter, as the grid writes it.
        largest: parameters beyond which runs are left out.
    """
    rows = [
        row for row in table("gadre_grid.csv") if (row["train"], row["multiplier"]) == (corpus, multiplier) and float(row["N"]) < largest
    ]
    return [
        _final_rung(row["model"], 6 * float(row["N_noembed"]) * float(row["D"]), float(row[eval_name]))
        for row in sorted(rows, key=lambda row: float(row["N"]))
    ]


def speedrun_ladders() -> list[list[Rung]]:
    """Families of the Marin speedrun (one folder, sizes of one recipe) with at least four sizes, smallest first; bits per byte on Paloma C4."""
    families: dict[str, dict[float, Rung]] = {}
    for row in table("speedrun_runs.csv"):
        folder, _, name = row["run_name"].rpartition("/")
        compute = float(row["model_flops"])
        families.setdefault(folder, {})[compute] = _final_rung(name, compute, float(row["eval_paloma_c4_en_bpb"]))
    return [[sizes[compute] for compute in sorted(sizes)] for folder, sizes in families.items() if folder and len(sizes) >= 4]


def _final_rung(name: str, compute: float, loss: float) -> Rung:
    """A rung of which only compute and final loss are known; its number of steps is made up."""
    return Rung(name=name, train_steps=UNKNOWN_STEPS, compute_per_step=compute / UNKNOWN_STEPS, steps=(UNKNOWN_STEPS,), losses=(loss,))


def olmo_runs() -> list[OlmoRun]:
    """Every run of the OLMo ladder, reruns and the two big runs included; the annealed checkpoint is left out."""
    groups: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in table("olmo_ladder_evals.csv.gz"):
        groups.setdefault((row["size"], row["length"]), []).append(row)
    return [
        OlmoRun(
            size=size,
            length=length,
            num_params=float(rows[0]["N"]),
            train_tokens=float(rows[-1]["tokens"]),
            batch_tokens=float(rows[0]["batch_tokens"] or 0),
            steps=np.array([float(row["step"]) for row in rows]),
            losses={name: np.array([float(row[name] or "nan") for row in rows]) for name in OLMO_EVALS},
        )
        for (size, length), rows in groups.items()
        if "anneal" not in length
    ]


def olmo_finals(runs: list[OlmoRun], eval_name: str) -> Runs:
    """Final losses of OLMo runs on one evaluation."""
    finals = [(run.num_params, run.train_tokens, run.losses[eval_name][-1]) for run in runs]
    return Runs(*(np.array(column) for column in zip(*finals)))


def schedule_curves() -> dict[tuple[int, str], tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(size in M, schedule) to steps, learning rates and losses of the MultiPowerLaw runs."""
    groups: dict[tuple[int, str], list[tuple[float, float, float]]] = {}
    for row in table("multipowerlaw_curves.csv.gz"):
        groups.setdefault((int(row["size_M"]), row["schedule"]), []).append((float(row["step"]), float(row["lr"]), float(row["loss"])))
    return {key: tuple(np.array(column) for column in zip(*values)) for key, values in groups.items()}  # type: ignore[misc]


def table(name: str) -> Iterator[dict[str, str]]:
    """Rows of one shipped CSV, comment lines left out."""
    raw = files("forerun.ladder").joinpath("data", name).read_bytes()
    text = (gzip.decompress(raw) if name.endswith(".gz") else raw).decode()
    return csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))

"""Counts and FLOPs against published numbers and against the tree JAX would build."""

from __future__ import annotations

import functools
from dataclasses import replace

import jax
import pytest
from model_tiny import TINY, params_of

from forerun.model import count, transformer
from forerun.model.params import init_params
from forerun.model.presets import SIBLINGS, marin

HERO = marin(6144, 48)


def test_the_hero_counts_to_the_last_published_digit():
    assert count.num_params(HERO) == 535_477_106_688
    assert count.num_params_headline(HERO) == 535_305_388_032
    assert count.num_active_params(HERO) == 22_762_487_808
    assert count.params_by_part(HERO)["gated_norm"] == 154_140_672
    assert count.params_by_part(HERO)["head_gate"] == 14_155_776
    assert count.params_by_part(HERO)["norm"] == 749_568
    assert count.params_by_part(HERO)["conv"] == 2_654_208
    assert count.params_by_part(HERO)["router_bias"] == 18_432


@pytest.mark.parametrize(
    ("d_model", "num_layers", "all_leaves", "active"),
    [
        (768, 8, 1_591_848_448, 60_555_264),
        (1024, 12, 3_980_116_480, 162_004_992),
        (1536, 16, 11_534_398_464, 481_296_384),
        (2048, 22, 27_742_902_528, 1_170_735_104),
    ],
)
def test_rungs_count_as_published(d_model, num_layers, all_leaves, active):
    model = marin(d_model, num_layers)
    assert count.num_params(model) == all_leaves
    assert count.num_active_params(model) == active


def test_hero_flops_close_term_by_term():
    terms = count.forward_flops(HERO, 4096)
    published = {
        "routed": 2.1743e10,
        "shared": 1.0872e10,
        "qkv": 5.2093e9,
        "attention_output": 3.6239e9,
        "latent": 3.6239e9,
        "attention_local": 1.8226e9,
        "attention_global": 1.2150e9,
        "head": 1.5760e9,
        "router": 2.2649e8,
    }
    for name, value in published.items():
        assert f"{terms[name]:.4e}" == f"{value:.4e}", name
    assert terms["dense"] == 0
    assert f"{count.forward_flops_per_token(HERO, 4096):.4e}" == "4.9912e+10"
    assert round(count.routed_flops_fraction(HERO, 4096), 4) == 0.4356
    assert f"{count.train_flops(HERO, 4096, 18.0e12):.2e}" == "2.70e+24"
    assert count.fit_compute(HERO, 4096, 1.0) == pytest.approx(3 * (4.9912086528e10 - 2 * 6144 * 128_256), rel=1e-12)


def test_generic_counting_without_the_latent_term_would_read_36_percent_high():
    naive = replace(HERO, d_latent=HERO.d_model)
    assert count.forward_flops_per_token(naive, 4096) / count.forward_flops_per_token(HERO, 4096) == pytest.approx(1.363, abs=5e-4)


@pytest.mark.parametrize("name", SIBLINGS)
def test_siblings_count_as_published_once_the_stated_difference_is_added(name):
    sibling = SIBLINGS[name]
    assert count.num_params(sibling.model) + sibling.difference == sibling.published_num_params
    assert (sibling.difference == 0) == (sibling.reason == "none")


def test_active_parameters_of_siblings_are_what_their_names_say():
    active = {
        name: count.num_active_params(sibling.model) + 2 * sibling.model.vocab_size * sibling.model.d_model
        for name, sibling in SIBLINGS.items()
    }
    assert 1.2e9 < active["olmoe-1b-7b"] < 1.4e9
    assert 12.8e9 < active["mixtral-8x7b"] < 13.0e9
    assert 3.2e9 < active["qwen3-30b-a3b"] < 3.4e9
    assert active["dense-8b"] == pytest.approx(8.03e9, rel=1e-3)


VARIANTS = {
    "hero": HERO,
    **{f"d{width}": marin(width, layers) for width, layers in ((512, 6), (768, 8), (1024, 12), (1536, 16), (2048, 22))},
    **{name: sibling.model for name, sibling in SIBLINGS.items()},
    "tiny": TINY,
    "tied": replace(TINY, tied_embeddings=True),
    "no convolutions or gates": replace(TINY, short_conv_taps=0, gated_norm_rank=0, head_gate=False, latent_norm=False),
    "dense first": replace(TINY, num_dense_layers=1, d_dense=40),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_leaf_of_the_real_tree_has_the_counted_shape(name):
    config = VARIANTS[name]
    tree = jax.eval_shape(functools.partial(init_params, config), jax.random.key(0))
    state = jax.eval_shape(lambda: transformer.init_router_state(config))
    real: dict[str, list[tuple[int, ...]]] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        keys = [str(getattr(key, "key", getattr(key, "idx", None))) for key in path]
        if keys[0] in ("layers", "dense_layers"):
            keys[1] = "*"
        real.setdefault("/".join(keys), []).append(leaf.shape)
    if config.num_experts and config.balancing != "auxiliary_loss":
        real["router_state/bias"] = [state.bias.shape]
    counted = {leaf.path: [leaf.shape] * leaf.copies for leaf in count.leaves(config)}
    assert counted == real


def test_stacked_and_unrolled_trees_hold_the_same_numbers():
    unrolled = params_of(TINY)
    stacked = params_of(TINY, "scan")
    for layer, tree in enumerate(unrolled["layers"]):
        jax.tree.map(lambda one, all_layers: (one == all_layers[layer]).all() or pytest.fail("differs"), tree, stacked["layers"])  # noqa: B023


def test_parameters_start_as_the_recipe_says():
    config = replace(TINY, d_model=256, d_latent=128, gated_norm_rank=64)
    params = params_of(config)
    sigma = 0.5 / 256**0.5
    experts = params["layers"][0]["feed_forward"]["experts"]["w_gate"]
    for matrix in (params["embedding"], params["head"], experts, params["layers"][1]["attention"]["w_q"]):
        # a normal cut at 3 sigma keeps 0.9866 of its standard deviation; the mean of n draws is within 5 sigma / sqrt(n)
        assert float(matrix.std()) == pytest.approx(0.9866 * sigma, rel=0.02)
        assert abs(float(matrix.mean())) < 5 * sigma / matrix.size**0.5
        assert float(abs(matrix).max()) <= 3 * sigma
    assert (params["layers"][0]["attention"]["head_gate"] == 0).all()
    assert (params["final_norm"]["gain"] == 1).all()
    taps = params["layers"][0]["attention"]["conv_key"]
    assert (taps[0] == 1).all()
    assert (taps[1:] == 0).all()
    assert not (params["layers"][0]["attention"]["w_q"] == params["layers"][1]["attention"]["w_q"]).any()

"""`forerun plan`: the published numbers, the ladder from one dial, designs side by side, and bad input."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from forerun.base.errors import ConfigError
from forerun.cli.main import run as forerun
from forerun.ladder.marin_family import marin_ladder
from forerun.parallel.config import MeshConfig
from forerun.plan.ask import Question, run_of
from forerun.plan.cost import plan
from forerun.plan.devices import DEVICES, device_named
from forerun.plan.presets import ladder_share, preset
from forerun.plan.sweep import parse_sweep, sweep
from forerun.plan.text import plan_text

GB200 = device_named("gb200")


def printed(capsys, *arguments):
    assert forerun(["plan", *arguments]) == 0
    return capsys.readouterr().out


def test_json_of_the_hero_has_the_published_values(capsys):
    numbers = json.loads(printed(capsys, "--preset", "marin-hero", "--json"))
    assert numbers["num_params"] == 535_477_106_688
    assert numbers["num_params_headline"] == 535_305_388_032
    assert numbers["num_active_params"] == 22_762_487_808
    assert f"{numbers['forward_flops_per_token']:.4e}" == "4.9912e+10"
    assert round(numbers["routed_flops_fraction"], 4) == 0.4356
    assert f"{numbers['train_flops']:.2e}" == "2.70e+24"
    assert numbers["train_tokens"] == 390_251 * 46_137_344
    assert numbers["num_devices"] == 704


def test_days_follow_from_flops_devices_and_mfu():
    outcome = plan(preset("marin-hero"), GB200, 0.2115)
    # reference model-and-training 1.6: 21.15% of 704 x 2.5 PFLOP/s is 18.6 s a step and 84 days
    assert outcome.step_time_s == pytest.approx(18.6, abs=0.05)
    assert outcome.days == pytest.approx(84, abs=0.5)
    assert plan(preset("marin-hero"), GB200, 0.2675).step_time_s == pytest.approx(14.7, abs=0.05)
    assert outcome.energy_mwh == pytest.approx(outcome.days * 24 * 704 * 1.2e-3 * 1.5)


def test_the_ladder_costs_under_a_hundredth_of_the_hero():
    assert ladder_share(preset("marin-hero")) == pytest.approx((5.48e19 + 2.74e20 + 1.83e21 + 9.24e21) / 2.70e24, rel=5e-3)
    assert ladder_share(preset("mixtral-8x7b")) is None


PUBLISHED_RUNGS = {  # reference model-and-training 2.1
    "marin-d768": (11_420, 1024, "0.01582", "0.003651", "0.9685"),
    "marin-d1024": (15_276, 2048, "0.01441", "0.003326", "0.9500"),
    "marin-d1536": (15_128, 6144, "0.01489", "0.003436", "0.9500"),
    "marin-d2048": (20_072, 11_264, "0.01342", "0.003097", "0.9500"),
    "marin-hero": (390_251, 11_264, "0.003291", "0.0007594", "0.9500"),
}


def test_rungs_have_the_published_steps_batches_and_peak_rates_to_four_digits():
    rungs = {rung["name"]: rung for rung in marin_ladder()}
    assert list(rungs) == ["marin-d512", *PUBLISHED_RUNGS]
    for name, (steps, batch, muonh, adam, beta2) in PUBLISHED_RUNGS.items():
        rung = rungs[name]
        assert (rung["num_steps"], rung["batch_size"]) == (steps, batch)
        assert (f"{rung['muonh_learning_rate']:#.4g}", f"{rung['adam_learning_rate']:#.4g}") == (muonh, adam)
        assert f"{rung['beta2']:.4f}" == beta2
    assert rungs["marin-d512"]["num_steps"] == 3930
    assert rungs["marin-d512"]["num_active_params"] == 20_840_448
    assert f"{rungs['marin-d768']['eps']:.2e}" == "1.03e-15"
    assert f"{rungs['marin-hero']['eps']:.2e}" == "6.04e-15"


def test_another_ratio_of_tokens_scales_the_steps(capsys):
    rungs = json.loads(printed(capsys, "--preset", "marin-ladder", "--tokens-per-active-param", "79.1", "--json"))
    assert [rung["num_steps"] for rung in rungs[:3]] == [393, 1142, 1528]
    alone = json.loads(printed(capsys, "--preset", "marin-d768", "--tokens-per-active-param", "79.1", "--json"))
    assert alone["num_steps"] == 1142
    assert "0.003291" in printed(capsys, "--preset", "marin-ladder")


def test_network_of_the_hero_by_hand():
    outcome = plan(preset("marin-hero"), GB200).as_json()["network_bytes_per_step"]
    rows = 65_536 * 8 * 63 / 64  # assignments of a device that leave it
    passes = 3 * 2  # there and back: forward, recomputed, backward
    wanted = 48 * rows * (passes * 3072 * 2 + 3 * 8)
    assert outcome["experts"]["ragged"]["inner"] == pytest.approx(wanted)
    assert outcome["experts"]["ragged"]["outer"] == 0
    assert outcome["experts"]["pooled_wave"]["inner"] == pytest.approx(1.15 * wanted, rel=1e-3)
    assert outcome["experts"]["local"] == {"inner": 0, "outer": 0}
    assert outcome["experts"]["all_gather"]["inner"] > 6 * wanted
    shard = (535_477_106_688 - 521_838_526_464) / 64 + 521_838_526_464 / 64
    # gradients of a device's shard, all-reduced over 11 racks in float32
    assert outcome["weights"]["outer"] == pytest.approx(2 * shard * 4 * 10 / 11, rel=0.02)


def test_experts_spread_over_more_than_a_domain_cross_the_outer_network():
    run = run_of(Question(preset="marin-hero", mesh="data=11,expert=64"))
    inside = plan(run, GB200).expert_traffic
    across = plan(run, device_named("h100")).expert_traffic
    assert inside.outer == 0
    assert across.outer / (across.inner + across.outer) == pytest.approx(1 - 7 / 63)


def test_more_expert_shards_hold_fewer_expert_weights_each():
    one = plan(run_of(Question(preset="marin-d768", mesh="expert=1,data=64")), GB200).memory
    many = plan(run_of(Question(preset="marin-d768", mesh="expert=64")), GB200).memory
    experts = 384 * 3 * 384 * 384 * 8
    assert one.weights - many.weights == pytest.approx(experts * 4 * 63 / 64)
    assert one.activations["none"] > one.activations["moe"] > one.activations["block"]


def test_optimizer_state_is_one_moment_for_matrices_and_two_for_the_rest():
    outcome = plan(run_of(Question(preset="marin-d768", mesh="expert=1")), GB200)
    parts = outcome.as_json()["params_by_part"]
    twice = sum(parts[name] for name in ("embedding", "head", "router", "head_gate", "norm", "conv"))
    once = sum(parts[name] for name in ("attention", "routed", "shared", "latent", "gated_norm"))
    assert outcome.memory.optimizer == 4 * (2 * twice + once)
    assert outcome.checkpoint_bytes == 4 * (1_591_848_448 + 2 * twice + once)


def test_sweep_keeps_the_ratio_and_shows_impossible_designs(capsys):
    rows = sweep(preset("marin-hero"), parse_sweep(["num_experts=64,4", "top_k=4,8"]), GB200, 0.25)
    assert [row.get("problem", "")[:11] for row in rows] == ["", "", "mesh.expert", "model.top_k"]
    assert rows[1]["num_active_params"] == 22_762_487_808 - 48 * 6144 * (384 - 64)
    text = printed(capsys, "--preset", "marin-hero", "--sweep", "num_experts=64,128,256,384", "top_k=4,8")
    assert len(text.splitlines()) == 9
    assert json.loads(printed(capsys, "--preset", "marin-hero", "--sweep", "top_k=4,8", "--json"))[0]["top_k"] == 4


def test_text_names_what_binds_and_whether_it_fits():
    text = plan_text(plan(preset("marin-hero"), GB200))
    for fragment in ("535,477,106,688", "43.56%", "2.70e24 FLOPs", "binding", "DOES NOT FIT", "ladder's share"):
        assert fragment in text


@pytest.mark.parametrize("device", [device.name for device in DEVICES])
def test_every_device_has_a_source_a_date_and_a_plan(device):
    row = device_named(device)
    assert row.source
    assert row.date
    assert plan(preset("marin-d512"), row).bounds.longest > 0


BAD = {
    "--preset marin-hero --set model.top_k=500": "model.top_k must be between 1 and model.num_experts=384, got 500",
    "--preset marin-hero --set model.num_kv_heads=13": "model.num_kv_heads must divide model.num_heads=48, got 13",
    "--preset marin-hero --set model.d_latent=3071": "model.d_latent must be an even number",
    "--preset marin-hero --set model.window=8192": "model.window must be at most train.seq_len=4096, got 8192",
    "--preset marin-hero --mesh data=11,expert=64 --devices 700": "must multiply to --devices=700, got 704",
    "--preset marin-hero --mesh data=11,expert=63": "mesh.expert must divide model.num_experts=384, got 63",
    "--preset marin-hero --mesh tensor=8": "--mesh axis must be replica, data or expert, got 'tensor'",
    "--preset marin-hero --mesh data=0": "--mesh data must be a whole number of at least 1, got '0'",
    "--preset marin-hero --mesh data=2,data=3": "--mesh names axis data twice",
    "--preset marin-hero --devices 7": "train.batch_size must be a multiple",
    "--preset marin-hero --devices -1": "--devices must be at least 1, got -1",
    "--preset marin-hero --device abacus": "--device must be one of the table's names, got 'abacus'",
    "--preset marin-hero --mfu 1.5": "--mfu must lie in 0..1",
    "--preset marin-hero --transport pigeon": "--transport must be one of",
    "--preset marin-hero --tokens-per-active-param 0": "tokens_per_active_param must be positive, got 0",
    "--preset marin-ladder --tokens-per-active-param -3": "tokens_per_active_param must be positive, got -3",
    "--preset marin-hero --sweep num_expert=3": "model has no field 'num_expert'",
    "--preset marin-hero --sweep top_k=": "--sweep needs field=value,value, got 'top_k='",
    "--preset marin-hero --sweep top_k=500,600": "model.top_k must be between 1",
    "--preset marin-heroo": "there is no preset 'marin-heroo'",
    "": "plan needs one experiment or one --preset",
    "no-such-experiment": "no config.json for experiment 'no-such-experiment'",
}


@pytest.mark.parametrize("arguments", BAD)
def test_bad_input_is_one_line_with_the_rule_and_a_way_out(arguments):
    with pytest.raises(ConfigError) as caught:
        forerun(["plan", *arguments.split()])
    assert BAD[arguments] in caught.value.message
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_the_command_exits_with_2_and_no_traceback_and_starts_without_jax():
    code = "import sys; from forerun.cli.main import main; sys.argv = ['forerun', 'plan', '--preset', 'marin-hero', '--set', 'model.top_k=500']; main()"
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert outcome.returncode == 2
    assert len(outcome.stderr.splitlines()) == 1
    code = "import sys; from forerun.cli.main import run; run(['plan', '--preset', 'marin-hero', '--json']); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_devices_alone_become_expert_shards_as_far_as_the_experts_divide():
    assert run_of(Question(preset="marin-hero", num_devices=704)).mesh == MeshConfig(data=11, expert=64)
    assert run_of(Question(preset="dense-8b", num_devices=8)).mesh == MeshConfig(data=8)


def test_a_hugging_face_config_is_planned_as_the_preset_of_the_same_model(tmp_path, capsys):
    settings = {
        "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_experts_per_tok": 2,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6,
        "vocab_size": 32000, "architectures": ["MixtralForCausalLM"],
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(settings))
    ours = json.loads(printed(capsys, "--preset", "mixtral-8x7b", "--json"))
    theirs = json.loads(printed(capsys, str(tmp_path), "--json"))
    for name in ("num_params", "num_active_params"):
        assert theirs[name] == ours[name]
    assert theirs["train_tokens"] / theirs["num_active_params"] == pytest.approx(791, rel=1e-3)


def test_a_utilisation_that_the_network_forbids_is_said_to_be_out_of_reach():
    narrow = run_of(Question(preset="qwen3-30b-a3b", num_devices=128))
    assert "out of reach: network alone takes" in plan_text(plan(narrow, device_named("h100"), 0.5))
    assert "out of reach" not in plan_text(plan(preset("marin-hero"), GB200, 0.25))

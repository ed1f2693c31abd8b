// A whole plan, with the keys and numbers of `forerun plan --json`. A test compares both over many configs.
import { forwardFlops, numActiveParams, paramsByPart, sum } from "./count";
import type { Device, Inputs, Parts, PlannedRun } from "./inputs";
import { memory, numDevices, optimizerNumbers } from "./memory";
import { expertTraffic, plus, weightTraffic } from "./network";
import type { Traffic } from "./network";

export interface Plan {
  name: string;
  num_params: number;
  num_params_headline: number;
  num_active_params: number;
  params_by_part: Parts;
  forward_flops_per_token: number;
  forward_flops_by_term: Parts;
  routed_flops_fraction: number;
  train_flops: number;
  fit_compute: number;
  train_tokens: number;
  tokens_per_active_param: number;
  num_steps: number;
  batch_tokens: number;
  seq_len: number;
  mesh: { replica: number; data: number; expert: number };
  device: string;
  num_devices: number;
  memory_bytes: {
    weights: number;
    compute_copy: number;
    optimizer: number;
    gradients: number;
    activations: Parts;
    expert_buffers: number;
    remat: string;
    total: number;
    device: number;
    fits: boolean;
  };
  network_bytes_per_step: { weights: Traffic; experts: Record<string, Traffic>; transport: string };
  step_bounds_s: { compute: number; memory: number; network: number; binding: string };
  mfu: number;
  step_time_s: number;
  days: number;
  energy_mwh: number;
  checkpoint_bytes: number;
  ladder_flops_fraction: number | null;
}

/** Optimizer steps that bring a model to a ratio of tokens to active parameters: rounded, halves to even, at least 1. */
export function stepsFor(run: PlannedRun, tokensPerActiveParam: number): number {
  const steps = (tokensPerActiveParam * numActiveParams(run.model)) / (run.batch_size * run.seq_len);
  const low = Math.floor(steps);
  const rounded = steps - low === 0.5 ? low + (low % 2) : Math.round(steps);
  return Math.max(1, rounded);
}

export function plan(run: PlannedRun, device: Device, mfu: number, inputs: Inputs): Plan {
  const { constants } = inputs;
  const { model } = run;
  const needed = memory(run, constants);
  const parts = paramsByPart(model);
  const terms = forwardFlops(model, run.seq_len, constants);
  const forward = sum(terms);
  const batchTokens = run.batch_size * run.seq_len;
  const tokens = batchTokens * run.num_steps;
  const trainFlops = constants.TRAIN_OVER_FORWARD * forward * tokens;
  const active = numActiveParams(model);
  const activations = needed.activations[run.remat] ?? 0;
  const total = needed.weights + needed.computeCopy + needed.optimizer + needed.gradients + needed.expertBuffers + activations;
  const weights = weightTraffic(run, device, constants);
  const experts = Object.fromEntries(constants.TRANSPORTS.map((kind) => [kind, expertTraffic(run, device, kind, constants)]));
  const sent = plus(weights, experts[run.transport.kind] ?? { inner: 0, outer: 0 });
  const routedShare = (terms.routed ?? 0) / forward;

  const executedRows = run.transport.kind !== "ragged" ? Math.max(1, run.transport.capacity_factor) : 1;
  const padding = 1 + routedShare * (executedRows - 1);
  const recomputed = run.remat === "block" ? 1 + 1 / constants.TRAIN_OVER_FORWARD : 1;
  const executed = (trainFlops / run.num_steps / numDevices(run)) * padding * recomputed;
  const readPerPass = needed.computeCopy || needed.weights;
  const touched =
    run.num_microbatches * (2 * readPerPass + constants.ACTIVATION_PASSES * activations + 2 * needed.gradients) +
    2 * (needed.weights + needed.optimizer);
  const bounds = {
    compute: executed / device.peak_flops,
    memory: touched / device.memory_bandwidth,
    network: sent.inner / device.inner_bandwidth + sent.outer / device.outer_bandwidth,
  };
  const binding = (["compute", "memory", "network"] as const).reduce((best, name) => (bounds[name] > bounds[best] ? name : best), "compute" as "compute" | "memory" | "network");
  const stepTime = trainFlops / run.num_steps / (numDevices(run) * device.peak_flops * mfu);
  const days = (stepTime * run.num_steps) / 86_400;
  return {
    name: run.name,
    num_params: sum(parts),
    num_params_headline: Object.entries(parts).reduce((all, [part, size]) => all + (constants.MATRICES.includes(part) ? size : 0), 0),
    num_active_params: active,
    params_by_part: parts,
    forward_flops_per_token: forward,
    forward_flops_by_term: terms,
    routed_flops_fraction: routedShare,
    train_flops: trainFlops,
    fit_compute: constants.TRAIN_OVER_FORWARD * (forward - (terms.head ?? 0)) * tokens,
    train_tokens: tokens,
    tokens_per_active_param: tokens / active,
    num_steps: run.num_steps,
    batch_tokens: batchTokens,
    seq_len: run.seq_len,
    mesh: { ...run.mesh },
    device: device.name,
    num_devices: numDevices(run),
    memory_bytes: {
      weights: needed.weights,
      compute_copy: needed.computeCopy,
      optimizer: needed.optimizer,
      gradients: needed.gradients,
      activations: needed.activations,
      expert_buffers: needed.expertBuffers,
      remat: run.remat,
      total,
      device: device.memory_bytes,
      fits: total <= device.memory_bytes,
    },
    network_bytes_per_step: { weights, experts, transport: run.transport.kind },
    step_bounds_s: { ...bounds, binding },
    mfu,
    step_time_s: stepTime,
    days,
    energy_mwh: (days * 24 * numDevices(run) * device.power_w * constants.POWER_OVERHEAD) / 1e6,
    checkpoint_bytes: (sum(parts) + sum(optimizerNumbers(run, constants))) * constants.FLOAT,
    ladder_flops_fraction: ladderShare(run, trainFlops, inputs),
  };
}

/** FLOPs of the published rungs over the run's, at its own ratio; only the published hero has them. */
function ladderShare(run: PlannedRun, trainFlops: number, inputs: Inputs): number | null {
  if (run.name !== inputs.hero) return null;
  const ratio = (run.batch_size * run.seq_len * run.num_steps) / numActiveParams(run.model);
  const { constants } = inputs;
  return (
    inputs.ladder.reduce((all, name) => {
      const rung = inputs.presets[name];
      if (!rung) return all;
      const tokens = rung.batch_size * rung.seq_len * stepsFor(rung, ratio);
      return all + constants.TRAIN_OVER_FORWARD * sum(forwardFlops(rung.model, rung.seq_len, constants)) * tokens;
    }, 0) / trainFlops
  );
}

/** What would make `forerun plan` refuse the run, in its words; empty when nothing does. */
export function problem(run: PlannedRun): string {
  const { model, mesh, transport } = run;
  const whole: [string, number][] = [
    ["model.num_layers", model.num_layers],
    ["model.d_model", model.d_model],
    ["train.seq_len", run.seq_len],
    ["train.batch_size", run.batch_size],
    ["train.num_steps", run.num_steps],
    ["train.num_microbatches", run.num_microbatches],
    ["mesh.replica", mesh.replica],
    ["mesh.data", mesh.data],
    ["mesh.expert", mesh.expert],
  ];
  for (const [name, value] of whole) if (!Number.isInteger(value) || value < 1) return `${name} must be at least 1, got ${value}`;
  if (model.num_heads % model.num_kv_heads) return `model.num_kv_heads must divide model.num_heads=${model.num_heads}`;
  if (model.num_kv_heads % model.num_global_kv_heads) return `model.num_global_kv_heads must divide model.num_kv_heads=${model.num_kv_heads}`;
  if (model.num_experts) {
    if (!Number.isInteger(model.top_k) || model.top_k < 1 || model.top_k > model.num_experts) return `model.top_k must be between 1 and model.num_experts=${model.num_experts}, got ${model.top_k}`;
    if (model.num_dense_layers >= model.num_layers) return `model.num_dense_layers must be below model.num_layers=${model.num_layers}`;
    if (model.d_expert < 1) return `model.d_expert must be at least 1, got ${model.d_expert}`;
    if (model.d_latent < 1 || model.d_latent > model.d_model || model.d_latent % 2) return `model.d_latent must be an even number between 2 and model.d_model=${model.d_model}, got ${model.d_latent}`;
    if (model.num_experts % mesh.expert) return `mesh.expert must divide model.num_experts=${model.num_experts}, got ${mesh.expert}`;
  } else if (model.top_k !== 0) return `model.top_k must be 0 in a dense model, got ${model.top_k}`;
  if (model.window > run.seq_len) return `model.window must be at most train.seq_len=${run.seq_len}, got ${model.window}`;
  const pieces = numDevices(run) * run.num_microbatches;
  if (run.batch_size % pieces) return `train.batch_size must be a multiple of devices x microbatches = ${pieces}, got ${run.batch_size}`;
  if (transport.kind === "local" && mesh.expert > 1) return `mesh.expert must be 1 with transport.kind 'local', got ${mesh.expert}`;
  if (transport.capacity_factor < 0) return `transport.capacity_factor must not be negative, got ${transport.capacity_factor}`;
  return "";
}

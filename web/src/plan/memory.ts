// Bytes per device, as `forerun/plan/memory.py` works them out.
import { globalLayers, paramsByPart, sum } from "./count";
import type { Constants, Parts, PlannedRun } from "./inputs";

export interface Sizes {
  spread: number;
  experts: number;
  replicated: number;
}

export interface Memory {
  weights: number;
  computeCopy: number;
  optimizer: number;
  gradients: number;
  activations: Parts;
  expertBuffers: number;
}

const REMATS = ["none", "block", "moe"];

export const numDevices = (run: PlannedRun): number => run.mesh.replica * run.mesh.data * run.mesh.expert;
export const tokensPerDevice = (run: PlannedRun): number => Math.floor((run.batch_size * run.seq_len) / (numDevices(run) * run.num_microbatches));
export const computeBytes = (run: PlannedRun): number => (run.compute_dtype === "bfloat16" ? 2 : 4);

/** Split a table over the mesh: experts over `expert`, small parts everywhere, the rest over (`data`, `expert`). */
function split(parts: Parts, run: PlannedRun, constants: Constants): Sizes {
  const replicated = constants.REPLICATED.reduce((total, part) => total + (parts[part] ?? 0), 0);
  const routed = parts.routed ?? 0;
  return {
    spread: (sum(parts) - replicated - routed) / (run.mesh.data * run.mesh.expert),
    experts: routed / run.mesh.expert,
    replicated,
  };
}

export function shardedSizes(run: PlannedRun, constants: Constants): Sizes {
  return split(paramsByPart(run.model), run, constants);
}

/** Float32 numbers of optimizer state for each part, over all devices. */
export function optimizerNumbers(run: PlannedRun, constants: Constants): Parts {
  const special = constants.MOMENTS[run.recipe] ?? {};
  const usual = constants.DEFAULT_MOMENTS[run.recipe] ?? 0;
  return Object.fromEntries(Object.entries(paramsByPart(run.model)).map(([part, size]) => [part, size * (special[part] ?? usual)]));
}

const total = (sizes: Sizes): number => sizes.spread + sizes.experts + sizes.replicated;

export function memory(run: PlannedRun, constants: Constants): Memory {
  const sizes = shardedSizes(run, constants);
  return {
    weights: total(sizes) * constants.FLOAT,
    computeCopy: computeCopy(run, sizes),
    optimizer: total(split(optimizerNumbers(run, constants), run, constants)) * constants.FLOAT,
    gradients: total(sizes) * constants.FLOAT,
    activations: Object.fromEntries(REMATS.map((remat) => [remat, activationBytes(run, remat, constants)])),
    expertBuffers: expertBuffers(run),
  };
}

function computeCopy(run: PlannedRun, sizes: Sizes): number {
  const rack = run.mesh.data * run.mesh.expert;
  const gathered = rack > 1 ? (sizes.spread * rack) / run.model.num_layers : 0;
  const own = run.compute_dtype === "bfloat16" ? sizes.spread + sizes.experts : 0;
  return (own + gathered) * computeBytes(run);
}

function activationBytes(run: PlannedRun, remat: string, constants: Constants): number {
  const { model } = run;
  const tokens = tokensPerDevice(run);
  const kinds = new Map([...new Set(globalLayers(model))].map((isGlobal) => [isGlobal, scoreBlocks(run, isGlobal, constants)]));
  const tile = Math.max(...[...kinds.values()].map((blocks) => largestTile(run, blocks)));
  const layers = keptFloats(run, kinds, constants);
  const both = layers.map(([attention, branch]) => attention + branch);
  const add = (values: number[]): number => values.reduce((all, value) => all + value, 0);
  let kept: number;
  if (remat === "block") kept = model.num_layers * model.d_model + Math.max(...both);
  else if (remat === "moe") kept = add(layers.map(([attention]) => attention)) + Math.max(...layers.map(([, branch]) => branch));
  else kept = add(both);
  const around = kept + constants.PER_D_MODEL_AROUND * model.d_model;
  const row = model.vocab_size * constants.FLOAT;
  const logits = constants.LOGIT_COPIES * Math.min(tokens * row, Math.max(constants.LOGIT_BLOCK_BYTES, row));
  return around * tokens * computeBytes(run) + constants.SCORE_COPIES * tile * constants.FLOAT + logits + model.d_model * row;
}

/** Per layer the values kept per token: attention with both norms, and the feed-forward branch. */
function keptFloats(run: PlannedRun, kinds: Map<boolean, Blocks>, constants: Constants): [number, number][] {
  const { model } = run;
  return globalLayers(model).map((isGlobal, layer) => {
    const numKv = isGlobal ? model.num_global_kv_heads : model.num_kv_heads;
    const scores = (kinds.get(isGlobal) as Blocks).reduce((all, [scores, tiles]) => (tiles === 1 ? all + scores : all), 0);
    const conv = model.short_conv_taps ? 2 * model.d_model + numKv * model.d_head : 0;
    let branch = constants.PER_D_MODEL_IN_FEED_FORWARD * model.d_model;
    if (layer < model.num_dense_layers) branch += constants.PER_SHARED * model.d_dense;
    else {
      const rows = model.top_k * Math.max(1, run.transport.capacity_factor);
      branch += constants.PER_SHARED * model.num_shared_experts * model.d_shared + constants.PER_ROUTER_SCORE * model.num_experts;
      branch += rows * (constants.PER_ROUTED_ROW_D_EXPERT * model.d_expert + constants.PER_ROUTED_ROW_D_LATENT * model.d_latent);
    }
    const attention =
      (constants.PER_D_MODEL - constants.PER_D_MODEL_IN_FEED_FORWARD) * model.d_model +
      (model.gated_norm_rank ? constants.PER_GATED_D_MODEL * model.d_model : 0) +
      constants.PER_CONV_CHANNEL * conv +
      constants.PER_QUERY * model.num_heads * model.d_head +
      constants.PER_KEY_VALUE * numKv * model.d_head +
      (constants.PER_SCORE * scores) / run.seq_len +
      constants.PER_GATE_RANK * model.gated_norm_rank;
    return [attention, branch];
  });
}

/** For each block of queries: scores of one sequence, and tiles. */
type Blocks = [number, number][];

/** Scores of a layer's largest tile, of a block that takes several. */
function largestTile(run: PlannedRun, blocks: Blocks): number {
  const sequences = Math.floor(tokensPerDevice(run) / run.seq_len);
  return Math.max(0, ...blocks.filter(([, tiles]) => tiles > 1).map(([scores, tiles]) => (scores * sequences) / tiles));
}

/** Scores of one sequence for each block of queries, and the tiles they are worked through in: `forerun/kernels/blocks.py`. */
function scoreBlocks(run: PlannedRun, isGlobal: boolean, constants: Constants): Blocks {
  const { model } = run;
  const span = isGlobal || !model.window ? run.seq_len : Math.min(model.window, run.seq_len);
  const sequences = Math.floor(tokensPerDevice(run) / run.seq_len);
  const blocks: Blocks = [];
  for (let start = 0; start < run.seq_len; start += constants.QUERY_BLOCK) {
    const end = Math.min(start + constants.QUERY_BLOCK, run.seq_len);
    const first = Math.floor(Math.max(0, start - span + 1) / constants.KEY_ALIGNMENT) * constants.KEY_ALIGNMENT;
    const scores = model.num_heads * (end - start) * (end - first);
    blocks.push([scores, numTiles(sequences, scores, constants)]);
  }
  return blocks;
}

/** Fewest equal parts of a batch whose scores fit the cache; at worst one sequence each. */
function numTiles(sequences: number, scores: number, constants: Constants): number {
  const fewest = Math.ceil((sequences * scores * 4) / constants.SCORE_TILE_BYTES);
  for (let tiles = Math.max(1, fewest); tiles < sequences; tiles += 1) if (sequences % tiles === 0) return tiles;
  return sequences;
}

function expertBuffers(run: PlannedRun): number {
  const { transport, model } = run;
  if (transport.kind === "local" || run.mesh.expert === 1 || !model.num_experts) return 0;
  const row = model.d_latent * computeBytes(run);
  if (transport.kind === "all_gather") return 2 * run.mesh.expert * tokensPerDevice(run) * row;
  const rows = tokensPerDevice(run) * model.top_k;
  const capacity = Math.max(1, transport.capacity_factor);
  if (transport.kind === "pooled_wave") return (rows / transport.num_waves) * row * (2 * transport.sender_factor + capacity);
  return 3 * rows * capacity * row;
}

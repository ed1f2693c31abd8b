// The plan page's inputs as `forerun.plan.page_inputs` writes them.

export interface Model {
  vocab_size: number;
  d_model: number;
  num_layers: number;
  num_heads: number;
  d_head: number;
  num_kv_heads: number;
  num_global_kv_heads: number;
  window: number;
  global_every: number;
  qk_gain: "none" | "per_head" | "all_heads";
  head_gate: boolean;
  short_conv_taps: number;
  gated_norm_rank: number;
  embedding_norm: boolean;
  tied_embeddings: boolean;
  num_experts: number;
  top_k: number;
  d_expert: number;
  d_latent: number;
  latent_norm: boolean;
  num_shared_experts: number;
  d_shared: number;
  num_dense_layers: number;
  d_dense: number;
  balancing: string;
}

export interface PlannedRun {
  name: string;
  model: Model;
  seq_len: number;
  batch_size: number;
  num_steps: number;
  num_microbatches: number;
  compute_dtype: "float32" | "bfloat16";
  recipe: string;
  remat: string;
  mesh: { replica: number; data: number; expert: number };
  transport: { kind: string; capacity_factor: number; sender_factor: number; num_waves: number };
}

export interface Device {
  name: string;
  peak_flops: number;
  memory_bytes: number;
  memory_bandwidth: number;
  inner_bandwidth: number;
  inner_devices: number;
  outer_bandwidth: number;
  power_w: number;
}

export type Parts = Record<string, number>;

/** Named as in `forerun.plan` and `forerun.model.count`. */
export interface Constants {
  POWER_OVERHEAD: number;
  ACTIVATION_PASSES: number;
  MASK_OPS_PER_SCORE: number;
  TRAIN_OVER_FORWARD: number;
  FLOAT: number;
  PER_D_MODEL: number;
  PER_CONV_CHANNEL: number;
  PER_QUERY: number;
  PER_KEY_VALUE: number;
  PER_GATED_D_MODEL: number;
  PER_SCORE: number;
  PER_SHARED: number;
  PER_GATE_RANK: number;
  PER_ROUTED_ROW_D_EXPERT: number;
  PER_ROUTED_ROW_D_LATENT: number;
  PER_ROUTER_SCORE: number;
  PER_D_MODEL_IN_FEED_FORWARD: number;
  PER_D_MODEL_AROUND: number;
  LOGIT_COPIES: number;
  SCORE_COPIES: number;
  MOMENTS: Record<string, Parts>;
  DEFAULT_MOMENTS: Record<string, number>;
  GRADIENT_BYTES: number;
  FORWARD_AND_BACKWARD: number;
  INDEX_BYTES: number;
  TRANSPORTS: string[];
  QUERY_BLOCK: number;
  KEY_ALIGNMENT: number;
  LOGIT_BLOCK_BYTES: number;
  SCORE_TILE_BYTES: number;
  REPLICATED: string[];
  MATRICES: string[];
}

export interface Inputs {
  devices: Record<string, Device>;
  presets: Record<string, PlannedRun>;
  hero: string;
  ladder: string[];
  mfu: number;
  constants: Constants;
  runs?: Record<string, { run: PlannedRun; plan: Record<string, unknown> }>;
}

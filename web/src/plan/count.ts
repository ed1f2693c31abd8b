// Parameters and FLOPs from a model's shape: the same table as `forerun/model/count.py`. A test holds both equal.
import type { Constants, Model, Parts } from "./inputs";

/** Parameters of each part of the model, in the order of the leaf table. */
export function paramsByPart(model: Model): Parts {
  const parts: Parts = {};
  const add = (part: string, size: number): void => {
    parts[part] = (parts[part] ?? 0) + size;
  };
  const norm = (copies: number): void => {
    add("norm", model.d_model * copies);
    if (model.gated_norm_rank) add("gated_norm", 2 * model.d_model * model.gated_norm_rank * copies);
  };
  const layer = (copies: number): void => {
    const [query, keyValue] = [model.num_heads * model.d_head, model.num_kv_heads * model.d_head];
    norm(copies);
    norm(copies);
    add("attention", (2 * model.d_model * query + 2 * model.d_model * keyValue) * copies);
    if (model.qk_gain !== "none") add("norm", (model.qk_gain === "all_heads" ? query + keyValue : 2 * model.d_head) * copies);
    if (model.head_gate) add("head_gate", model.d_model * model.num_heads * copies);
    if (model.short_conv_taps) add("conv", model.short_conv_taps * (keyValue + 2 * model.d_model) * copies);
  };
  const stacked = model.num_layers - model.num_dense_layers;
  add("embedding", model.vocab_size * model.d_model);
  if (!model.tied_embeddings) add("head", model.d_model * model.vocab_size);
  if (model.embedding_norm) norm(1);
  norm(1);
  layer(stacked);
  if (model.num_shared_experts) add("shared", model.num_shared_experts * 3 * model.d_model * model.d_shared * stacked);
  if (model.num_experts) {
    add("router", model.d_model * model.num_experts * stacked);
    add("routed", 3 * model.num_experts * model.d_latent * model.d_expert * stacked);
    if (model.balancing !== "auxiliary_loss") add("router_bias", stacked * model.num_experts);
    if (hasLatent(model)) {
      add("latent", 2 * model.d_model * model.d_latent * stacked);
      if (model.latent_norm) add("norm", model.d_latent * stacked);
    }
  }
  if (model.num_dense_layers) {
    layer(model.num_dense_layers);
    add("dense", 3 * model.d_model * model.d_dense * model.num_dense_layers);
  }
  return parts;
}

export function hasLatent(model: Model): boolean {
  return model.num_experts > 0 && model.d_latent !== model.d_model;
}

export function numRoutedLayers(model: Model): number {
  return model.num_experts ? model.num_layers - model.num_dense_layers : 0;
}

/** For each layer, whether it attends to the whole context. */
export function globalLayers(model: Model): boolean[] {
  return Array.from(
    { length: model.num_layers },
    (_, layer) => model.window === 0 || (layer + 1) % model.global_every === 0 || layer === model.num_layers - 1,
  );
}

export const sum = (parts: Parts): number => Object.values(parts).reduce((total, size) => total + size, 0);

export function numActiveParams(model: Model): number {
  const parts = paramsByPart(model);
  const always = ["attention", "router", "latent", "shared", "dense"].reduce((total, part) => total + (parts[part] ?? 0), 0);
  return always + (model.num_experts ? Math.floor((parts.routed ?? 0) / model.num_experts) * model.top_k : 0);
}

/** Forward FLOPs per token by term, 2 per multiply-add. */
export function forwardFlops(model: Model, seqLen: number, constants: Constants): Parts {
  const numGlobal = globalLayers(model).filter(Boolean).length;
  const numLocal = model.num_layers - numGlobal;
  const query = model.num_heads * model.d_head;
  const perKey = model.num_heads * (4 * model.d_head + constants.MASK_OPS_PER_SCORE);
  const routed = numRoutedLayers(model);
  const stacked = model.num_layers - model.num_dense_layers;
  const qkv = (layers: number, numKv: number): number => layers * 2 * model.d_model * (query + 2 * numKv * model.d_head);
  return {
    routed: routed * 6 * model.d_latent * model.d_expert * model.top_k,
    shared: stacked * 6 * model.num_shared_experts * model.d_model * model.d_shared,
    dense: model.num_dense_layers * 6 * model.d_model * model.d_dense,
    qkv: qkv(numLocal, model.num_kv_heads) + qkv(numGlobal, model.num_global_kv_heads),
    attention_output: model.num_layers * 2 * query * model.d_model,
    latent: hasLatent(model) ? routed * 4 * model.d_model * model.d_latent : 0,
    attention_local: numLocal * Math.min(seqLen, model.window) * perKey,
    attention_global: numGlobal * seqLen * perKey,
    head: 2 * model.d_model * model.vocab_size,
    router: routed * 2 * model.d_model * model.num_experts,
  };
}

// Bytes that cross each network level per step, as `forerun/plan/network.py` works them out.
import { numRoutedLayers } from "./count";
import type { Constants, Device, PlannedRun } from "./inputs";
import { computeBytes, numDevices, shardedSizes, tokensPerDevice } from "./memory";

export interface Traffic {
  inner: number;
  outer: number;
}

const none: Traffic = { inner: 0, outer: 0 };

export const plus = (one: Traffic, other: Traffic): Traffic => ({ inner: one.inner + other.inner, outer: one.outer + other.outer });

export function expertTraffic(run: PlannedRun, device: Device, transport: string, constants: Constants): Traffic {
  const { model, transport: settings } = run;
  const shards = run.mesh.expert;
  if (shards === 1 || transport === "local" || !model.num_experts) return none;
  const assignments = tokensPerDevice(run) * model.top_k;
  const elsewhere = (shards - 1) / shards;
  const row = model.d_latent * computeBytes(run);
  let rows: number;
  let side: number;
  if (transport === "all_gather") {
    rows = (shards - 1) * tokensPerDevice(run);
    side = rows * constants.INDEX_BYTES * model.top_k;
  } else {
    const padding =
      transport === "fixed_cells" ? Math.max(1, settings.capacity_factor) : transport === "pooled_wave" ? Math.max(1, settings.sender_factor) : 1;
    rows = assignments * elsewhere * padding;
    side = assignments * elsewhere * constants.INDEX_BYTES;
  }
  const passes = constants.FORWARD_AND_BACKWARD + (run.remat === "block" || run.remat === "moe" ? 1 : 0);
  const total = numRoutedLayers(model) * run.num_microbatches * (passes * 2 * rows * row + passes * side);
  return split(total, shards, device);
}

export function weightTraffic(run: PlannedRun, device: Device, constants: Constants): Traffic {
  const { mesh } = run;
  const sizes = shardedSizes(run, constants);
  const rack = mesh.data * mesh.expert;
  const gathers = constants.FORWARD_AND_BACKWARD * run.num_microbatches;
  const shared = sizes.spread * rack * ((rack - 1) / rack) * (gathers * computeBytes(run) + constants.GRADIENT_BYTES);
  let traffic = split(shared, rack, device);
  if (mesh.data > 1) {
    traffic = plus(traffic, split((2 * sizes.experts * constants.GRADIENT_BYTES * (mesh.data - 1)) / mesh.data, rack, device, mesh.expert));
  }
  if (mesh.replica > 1) {
    const reduced = (2 * (sizes.spread + sizes.experts) * constants.GRADIENT_BYTES * (mesh.replica - 1)) / mesh.replica;
    traffic = plus(traffic, split(reduced, numDevices(run), device, rack));
  }
  return traffic;
}

/** Share of an exchange among `group` neighbours that leaves the domain; `stride` is the distance between partners. */
function split(total: number, group: number, device: Device, stride = 1): Traffic {
  if (stride >= device.inner_devices) return { inner: 0, outer: total };
  const inside = group > stride ? Math.min(1, Math.max(0, (device.inner_devices / stride - 1) / (group / stride - 1))) : 1;
  return { inner: total * inside, outer: total * (1 - inside) };
}

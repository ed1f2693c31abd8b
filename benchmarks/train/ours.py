"""Our side of the comparison: the trainer's own compiled step, answering `ROUND n` lines with CPU seconds."""

from __future__ import annotations

import json
import sys
import time

import jax
from shapes import Size, batch_of, peer_run

from forerun.kernels.host_memory import keep_heap_between_steps
from forerun.train.state import init_state
from forerun.train.step import compile_step


def main(capacity_factor: float, size: Size) -> None:
    keep_heap_between_steps()
    run = peer_run(capacity_factor=capacity_factor, size=size)
    state, (step_fn, ratio) = init_state(run), compile_step(run)
    batches = [batch_of(run, seed) for seed in range(4)]
    for index in range(2):
        state, report = step_fn(state, batches[index])
    jax.block_until_ready(report)
    print(json.dumps({"ready": True, "flops_over_expected": ratio}), flush=True)
    for line in sys.stdin:
        started = time.process_time()
        for index in range(int(line.split()[1])):
            state, report = step_fn(state, batches[index % 4])
        jax.block_until_ready((state, report))
        print(json.dumps({"cpu_s": time.process_time() - started, "loss": float(report.nats_sum / report.num_tokens)}), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]), json.loads(sys.argv[2]))

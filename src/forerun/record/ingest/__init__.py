"""A loopback endpoint that speaks enough of the W&B protocol for any W&B-instrumented trainer to write into our record.

`WANDB_BASE_URL=http://127.0.0.1:PORT` and any 40-character key; nothing leaves the machine.
"""

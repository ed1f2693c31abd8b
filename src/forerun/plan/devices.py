"""Peaks and bandwidths of devices, in one table. Peaks are dense matrix products, without sparsity; bandwidths are one direction."""

from __future__ import annotations

from dataclasses import dataclass

from forerun.base.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Device:
    """One accelerator and what connects it."""

    name: str
    peak_flops: float
    """FLOPs per second in bfloat16 with float32 accumulation (float32 for `cpu`)."""
    memory_bytes: float
    memory_bandwidth: float
    """Bytes per second between chip and its memory."""
    inner_bandwidth: float
    """Bytes per second each device can send inside its scale-up domain."""
    inner_devices: int
    """Devices in one scale-up domain."""
    outer_bandwidth: float
    """Bytes per second each device can send beyond its domain."""
    power_w: float
    """Of one device under load, its share of the host not included."""
    source: str
    date: str
    """When the source was read or the number measured."""


DEVICES: tuple[Device, ...] = (
    Device(
        name="gb200",
        peak_flops=2.5e15,
        memory_bytes=186e9,
        memory_bandwidth=8.0e12,
        inner_bandwidth=900e9,
        inner_devices=72,
        outer_bandwidth=50e9,
        power_w=1200,
        source="NVIDIA GB200 NVL72 data sheet (360 PFLOPs FP16 with sparsity and 13.4 TB for 72); 400 Gb/s InfiniBand per device",
        date="2026-11",
    ),
    Device(
        name="b200",
        peak_flops=2.25e15,
        memory_bytes=180e9,
        memory_bandwidth=7.7e12,
        inner_bandwidth=900e9,
        inner_devices=8,
        outer_bandwidth=50e9,
        power_w=1000,
        source="NVIDIA HGX B200 data sheet, halved for sparsity; 400 Gb/s network per device",
        date="2026-11",
    ),
    Device(
        name="h200",
        peak_flops=989e12,
        memory_bytes=141e9,
        memory_bandwidth=4.8e12,
        inner_bandwidth=450e9,
        inner_devices=8,
        outer_bandwidth=50e9,
        power_w=700,
        source="NVIDIA H200 SXM data sheet, halved for sparsity; 400 Gb/s network per device",
        date="2026-11",
    ),
    Device(
        name="h100",
        peak_flops=989e12,
        memory_bytes=80e9,
        memory_bandwidth=3.35e12,
        inner_bandwidth=450e9,
        inner_devices=8,
        outer_bandwidth=50e9,
        power_w=700,
        source="NVIDIA H100 SXM data sheet, halved for sparsity; 400 Gb/s network per device",
        date="2026-11",
    ),
    Device(
        name="tpu-v5p",
        peak_flops=459e12,
        memory_bytes=95e9,
        memory_bandwidth=2.765e12,
        inner_bandwidth=600e9,
        inner_devices=8960,
        outer_bandwidth=6.25e9,
        power_w=450,
        source="Google Cloud TPU v5p page (4,800 Gb/s between chips); assumed: 200 Gb/s per 4-chip host outside, 450 W",
        date="2026-11",
    ),
    Device(
        name="cpu",
        peak_flops=2.0e11,
        memory_bytes=24 * 2**30,
        memory_bandwidth=2.0e10,
        inner_bandwidth=2.0e10,
        inner_devices=8,
        outer_bandwidth=1.25e9,
        power_w=30,
        source="measured: float32 products on 2 cores with AVX-512 (95 to 105 GFLOPs per core and second); assumed: 20 GB/s, 10 Gb/s network, 30 W",
        date="2026-11",
    ),
)


def device_named(name: str) -> Device:
    """The table's row. Raises: ConfigError, with the names there are."""
    for device in DEVICES:
        if device.name == name:
            return device
    raise ConfigError(f"--device must be one of the table's names, got {name!r}", hint=", ".join(device.name for device in DEVICES))

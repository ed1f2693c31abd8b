"""What a run took in energy and money: as the plan says, and as its record's time says, by the plan's own power and overhead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forerun.plan.cost import DEFAULT_MFU, POWER_OVERHEAD, plan
from forerun.plan.devices import DEVICES, device_named
from forerun.plan.run import planned
from forerun.record.series import RunRecord
from forerun.train.config import RunConfig


@dataclass(frozen=True, kw_only=True)
class Bill:
    """Energy and cost of one run."""

    device: str
    num_devices: int
    mfu: float
    """Utilisation the plan assumes."""
    planned_hours: float
    """Pure stepping of the whole run."""
    planned_kwh: float
    hours: float
    """In steps, on record."""
    kwh: float
    """Of those hours."""
    price_per_device_hour: float
    """Any currency; 0 when not stated."""

    @property
    def planned_cost(self) -> float:
        """Device-hours of the plan at the price."""
        return self.planned_hours * self.num_devices * self.price_per_device_hour

    @property
    def cost(self) -> float:
        """Device-hours on record at the price."""
        return self.hours * self.num_devices * self.price_per_device_hour

    def rows(self) -> list[tuple[str, str]]:
        """Lines of a model card."""
        money = f"{self.planned_cost:.3g} planned, {self.cost:.3g} spent, at {self.price_per_device_hour:g} a device-hour"
        return [
            ("hardware", f"{self.num_devices} x {self.device}"),
            ("time in steps", f"{self.planned_hours:.3g} h planned at mfu {self.mfu:g}, {self.hours:.3g} h on record"),
            ("energy", f"{self.planned_kwh:.3g} kWh planned, {self.kwh:.3g} kWh by the time on record (overhead x {POWER_OVERHEAD:g})"),
            ("cost", money if self.price_per_device_hour else "no price stated"),
        ]


def bill(config: RunConfig, record: RunRecord, *, device: str = "", mfu: float = DEFAULT_MFU, price_per_device_hour: float = 0.0) -> Bill:
    """Work the bill out.

    Args:
        device: name in the plan's table; empty takes `cpu` for one device, else the table's first, as the plan page does.
    Raises: ConfigError for an unknown device.
    """
    num_devices = config.mesh.num_devices
    row = device_named(device or ("cpu" if num_devices == 1 else DEVICES[0].name))
    outcome = plan(planned(config), row, mfu)
    hours = float(np.nansum(record.series("step_time_s").value)) / 3600
    return Bill(
        device=row.name,
        num_devices=num_devices,
        mfu=mfu,
        planned_hours=outcome.days * 24,
        planned_kwh=outcome.energy_mwh * 1000,
        hours=hours,
        kwh=hours * num_devices * row.power_w * POWER_OVERHEAD / 1000,
        price_per_device_hour=price_per_device_hour,
    )

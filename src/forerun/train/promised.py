"""The rules a run promised to obey, ready to be fed its rows: also after a restart, with what the record already holds."""

from __future__ import annotations

from forerun.base.errors import CheckFailed
from forerun.model.count import train_flops
from forerun.record.series import RunRecord
from forerun.registry.live import LiveRules
from forerun.registry.register import Registration
from forerun.registry.verdict import RecordHistory
from forerun.train.config import RunConfig


def live_rules(config: RunConfig, registration: Registration | None, record: RunRecord) -> LiveRules:
    """Stop rules, alarms and abort budget of the promise; none for an unregistered run.

    Raises: CheckFailed when one of them ended this run before and no amendment declares how it goes on.
    """
    ended = [event for event in record.events("rule") if event["promised"] != "alarm"]
    if ended and not (registration and registration.change):
        raise CheckFailed(
            f"run {record.info.run_id} was ended at step {ended[-1]['step']} by its promised rule {ended[-1]['rule']}",
            hint="`forerun close` says so in the ledger; to go on, change config.py and declare it with `forerun amend`",
        )
    promise = registration.promise if registration else None
    per_step = train_flops(config.model, config.train.seq_len, config.train.batch_tokens)
    rules = LiveRules(
        promise.stop_rules() if promise else (),
        promise.alarm_rules() if promise else (),
        num_steps=config.train.num_steps,
        flops_per_step=per_step,
        abort_budget_flops=promise.abort_budget_flops if promise else 0.0,
    )
    rules.resume(RecordHistory(record), fired={event["rule"] for event in record.events("rule")})
    return rules

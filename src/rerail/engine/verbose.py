"""`log.verbose` for programs that embed the engine: the retry chain, and each skip with its failed needs, logged."""

from __future__ import annotations

import logging

from rerail.core import events as ev
from rerail.i18n import tell

LOG = logging.getLogger("rerail")


def log_event(record: ev.Record) -> None:
    """Log an event that `log.verbose` is about; everything else is left to `watch`."""
    run, event = record.run, record.event
    if isinstance(event, ev.RetryBegin):
        reasons = "; ".join(f"{step}: {event.reasons.get(step, '-')}" for step in event.roots)
        LOG.info(tell("log.chain", run=run, round=event.round, chain=" → ".join(event.chain), reasons=reasons))
    elif isinstance(event, ev.StepSkipped):
        LOG.info(tell("log.skip", run=run, step=event.step, message=event.message, needs=", ".join(event.needs) or "-"))

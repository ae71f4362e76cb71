"""The content of ``attempts/<n>.json``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

AttemptState = Literal[
    "running", "succeeded", "failed", "cancelled", "preempted", "timeout", "out_of_memory", "node_failure", "lost",
    "interrupted",
]  # fmt: skip

Count = Annotated[int, Field(ge=0, lt=2**31)]
Time = Annotated[str, Field(max_length=32, pattern=r"^\d{4}-[01]\d-[0-3]\dT[0-2]\d(:[0-5]\d){2}[\d.]*[+-]\d\d:\d\d$")]


class AttemptRecord(BaseModel):
    """An attempt file; other keys are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    number: Count
    state: AttemptState
    cause: str | None = None
    executor: str | None = None
    job_id: str | None = None
    host: str | None = None
    pid: Count | None = None
    started_at: Time | None = None
    ended_at: Time | None = None
    device: str | None = None
    cpu_seconds: float | None = None
    gpu_seconds: float | None = None
    peak_memory_bytes: int | None = Field(None, ge=0, lt=2**63)
    steps_done: Count | None = None
    message: str | None = None
    submission_id: str | None = Field(default=None, alias="submission", max_length=32)
    waited_seconds: float | None = None
    cpus: Count | None = None
    gpus: Count | None = None
    micro_batch_splits: Count | None = None
    steps: Count | None = None
    steps_per_second: float | None = Field(None, gt=0, allow_inf_nan=False)

"""The processes of one job that train one trial together: the first one leads, the others do as they are told."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.settings import Settings

PATIENCE = 600.0
"""Seconds for the first process to appear: the nodes of a job do not start at once."""

_PAUSE = 0.1


@dataclass(frozen=True)
class Team:
    """This process among those of its job; all of them make the same calls, in the same order.

    Attributes:
        rank: its number, from 0.
        size: how many there are.
        cpu: whether they train on the CPU.
    """

    rank: int = 0
    size: int = 1
    cpu: bool = False

    @classmethod
    def join(cls, folder: Path, job: str, settings: Settings) -> Team:
        """Find the other processes of this job, if there are any.

        The first one tells in a file where it can be reached; names of nodes and ports need not be agreed on before.

        Args:
            folder: that all of them see.
            job: its id, which nothing else that runs has.
            settings: which device the trials are for.

        Raises:
            TimeoutError: the first process did not appear.
        """
        from submitit import JobEnvironment

        found = JobEnvironment()
        if found.num_tasks == 1:
            return cls()
        start = os.environ.get("SLURM_RESTART_COUNT", "0")
        place = folder / f"{job}.{start}.address"
        if found.global_rank == 0:
            with socket.socket() as free:
                free.bind(("", 0))
                draft = place.with_suffix(".draft")
                draft.write_text(f"{socket.gethostname()} {free.getsockname()[1]}", encoding="utf-8")
            draft.rename(place)
        end = time.monotonic() + PATIENCE
        while not place.exists():
            if time.monotonic() > end:
                raise TimeoutError(f"{place}: the first process of job {job} did not appear in {PATIENCE:.0f} s")
            time.sleep(_PAUSE)
        host, port = place.read_text(encoding="utf-8").split()
        # As accelerate wants it.
        os.environ |= {
            "MASTER_ADDR": host,
            "MASTER_PORT": port,
            "RANK": str(found.global_rank),
            "LOCAL_RANK": str(found.local_rank),
            "WORLD_SIZE": str(found.num_tasks),
            "LOCAL_WORLD_SIZE": str(found.num_tasks // found.num_nodes),
        }
        return cls(found.global_rank, found.num_tasks, cpu=not settings.uses_cuda())

    def tell(self, directory: str, pieces: int) -> None:
        """Tell the others what to train next, and in how many pieces."""
        self._share((directory, pieces))

    def dismiss(self) -> None:
        """Tell them that there is nothing more."""
        self._share(None)

    def hear(self) -> Iterator[tuple[str, int]]:
        """What the first one tells, until there is nothing more."""
        while (told := self._share(None)) is not None:
            yield told

    def _share(self, told: tuple[str, int] | None) -> tuple[str, int] | None:
        if self.size == 1:
            return told
        from accelerate.state import PartialState
        from accelerate.utils import broadcast_object_list

        state = PartialState(cpu=self.cpu)
        assert state.num_processes == self.size, "accelerate sees other processes than the job has"
        told_to_all = [told]
        broadcast_object_list(told_to_all)
        return told_to_all[0]

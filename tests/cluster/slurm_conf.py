"""The configuration of the throw-away SLURM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cluster.cluster import Cluster


def slurm_conf(cluster: Cluster, host: str) -> Iterator[str]:
    """Yield the lines of a cluster's slurm.conf."""
    folder, port = cluster.folder, cluster.port
    yield from (
        "ClusterName=lab",
        f"SlurmctldHost={host}(127.0.0.1)",
        "SlurmUser=root",
        "SlurmdUser=root",
        f"SlurmctldPort={port}",
        f"SlurmctldPidFile={folder}/run/slurmctld.pid",
        f"SlurmctldLogFile={folder}/log/slurmctld.log",
        f"StateSaveLocation={folder}/state",
        f"SlurmdPidFile={folder}/run/slurmd.%n.pid",
        f"SlurmdSpoolDir={folder}/spool/%n",
        f"SlurmdLogFile={folder}/log/slurmd.%n.log",
        # A job that is requeued waits until its credential has expired: two minutes by default.
        f"AuthInfo=socket={folder}/munge/socket,cred_expire=5",
        "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/linux",
        "JobAcctGatherFrequency=2",
        "JobAcctGatherParams=OverMemoryKill",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU_Memory",
        "DefMemPerCPU=100",
        "SlurmdParameters=config_overrides",
        "SlurmctldParameters=preempt_send_user_signal",
        "ReturnToService=2",
        "JobRequeue=0",
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        "PriorityType=priority/basic",
        "SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=100000,bf_interval=2",
        "MinJobAge=300",
        "KillWait=3",
        "SlurmdTimeout=20",
        "CompleteWait=0",
        "MpiDefault=none",
        "SwitchType=switch/none",
        "MailProg=/bin/true",
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={port + 1}",
        # Clients of slurmdbd look for munge's socket here, not in AuthInfo.
        f"AccountingStoragePass={folder}/munge/socket",
        "AccountingStorageEnforce=limits",
    )
    for number, name in enumerate(cluster.names):
        yield (
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port + 10 + number} "
            "CPUs=4 RealMemory=4000 State=UNKNOWN"
        )
    common = "Nodes=ALL MaxTime=INFINITE DefaultTime=10 State=UP"
    yield f"PartitionName=main {common} Default=YES PriorityTier=1 PreemptMode=REQUEUE"
    yield f"PartitionName=low {common} PriorityTier=1 PreemptMode=REQUEUE GraceTime=20"
    yield f"PartitionName=abrupt {common} PriorityTier=1 PreemptMode=REQUEUE GraceTime=0"
    yield f"PartitionName=high {common} PriorityTier=10 PreemptMode=OFF"
    yield f"PartitionName=single {common.replace('ALL', cluster.names[0])} PriorityTier=1"
    yield f"PartitionName=few {common} PriorityTier=1 PreemptMode=REQUEUE QOS=few"

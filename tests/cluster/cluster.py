"""A private SLURM on 127.0.0.1: munge, MariaDB, slurmdbd, slurmctld and some virtual nodes, in one folder.

It requires root and Debian's slurmctld, slurmd, slurm-client, slurmdbd, munge and mariadb-server-core, but no systemd.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

from tests.cluster.ports import free_ports
from tests.cluster.slurm_conf import slurm_conf
from tests.patience import PATIENCE, wait

PROGRAMS = (
    "munged", "slurmctld", "slurmd", "slurmdbd", "mariadbd", "mariadb-install-db", "sbatch", "squeue", "sacct",
    "scancel", "scontrol", "sinfo", "srun", "sacctmgr",
)  # fmt: skip
CLIENTS = ("sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo", "srun", "sacctmgr")
SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"
MAX_PATH_LENGTH = 60
"""Characters of the folder's path: it contains the sockets of job steps, and a socket's path has at most 107."""
NODE_VARIABLE = "CLUSTER_NODE"
"""An environment variable of a slurmd and the processes of its steps: their node."""


def unusable() -> str | None:
    """Return why this machine cannot run a cluster, None if it can."""
    if os.geteuid() != 0:
        return "only root can start a private SLURM"
    missing = [program for program in PROGRAMS if shutil.which(program, path=SYSTEM) is None]
    if missing:
        return f"no {missing[0]}: install slurmctld, slurmd, slurm-client, slurmdbd, munge and mariadb-server-core"
    try:
        own = socket.gethostbyname(socket.gethostname())
    except OSError:
        own = "no address"
    return None if own.startswith("127.") else f"{socket.gethostname()} resolves to {own}, expected 127.x"


class Cluster:
    """A cluster of four nodes in `folder`. The fixture calls `start` and `stop`; the other methods cause faults.

    Attributes:
        folder: the folder of all its files.
        names: the names of the nodes.
    """

    names = ("node1", "node2", "node3", "node4")

    def __init__(self, folder: Path) -> None:
        assert len(str(folder)) <= MAX_PATH_LENGTH, folder
        self.folder = folder
        self.conf = self.folder / "slurm.conf"
        self.port = free_ports(20 + len(self.names))
        self.environment = {
            **os.environ,
            "SLURM_CONF": str(self.conf),
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}:/usr/sbin:/sbin",
        }
        self.database: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start all daemons until the nodes wait for jobs, in about ten seconds."""
        for name in ("bin", "log", "munge", "run", "spool", "state"):
            (self.folder / name).mkdir(parents=True)
        self._configure()
        (self.folder / "munge/key").write_bytes(os.urandom(128))
        (self.folder / "munge/key").chmod(0o600)
        self._daemon(
            *("munged", "--force", "--num-threads", "2", "--key-file", "munge/key", "--socket", "munge/socket"),
            *("--pid-file", "run/munged.pid", "--log-file", "log/munged.log", "--seed-file", "munge/seed"),
        )
        self._start_database()
        self.start_accounting()
        wait(lambda: self._answers("sacctmgr", "-n", "list", "cluster"), "slurmdbd")
        for words in (
            "cluster lab", "qos few MaxSubmitJobsPerUser=3", "account lab", "user root account=lab qos=+few",
        ):  # fmt: skip
            self.run("sacctmgr", "--immediate", "add", *words.split())
        self.start_controller()
        for node in self.names:
            self.start_node(node)
        self.wait_for_nodes()

    def stop(self) -> None:
        """End every process."""
        with contextlib.suppress(subprocess.SubprocessError):
            self.run("scancel", "--user=root", "--signal=KILL", "--full", check=False)
            self.run("scancel", "--user=root", check=False)
        for node in self.names:
            self.lose_node(node)
        self.stop_controller()
        self.stop_accounting()
        if self.database is not None:
            self.database.terminate()
            self.database.wait(PATIENCE)
        self._end("munged")  # which writes its seed before it ends

    def run(self, *command: str, check: bool = True) -> str:
        """Run one of SLURM's programs and return its standard output."""
        options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": PATIENCE, "cwd": self.folder}
        done = subprocess.run(command, env=self.environment, check=False, **options)
        assert done.returncode == 0 or not check, f"{shlex.join(command)}: {done.stdout}{done.stderr}"
        return str(done.stdout)

    def start_controller(self) -> None:
        """Start slurmctld with the state that it saved."""
        self._daemon("slurmctld", "-f", str(self.conf))
        wait(lambda: self._answers("sinfo"), "slurmctld")

    def stop_controller(self) -> None:
        """Stop slurmctld by SIGTERM: it saves its state."""
        self._end("slurmctld")

    def start_accounting(self) -> None:
        """Start slurmdbd."""
        self._daemon("slurmdbd")

    def stop_accounting(self) -> None:
        """End slurmdbd; sacct fails from now on."""
        self._end("slurmdbd")

    def start_node(self, name: str) -> None:
        """Start the slurmd of a node."""
        (self.folder / "spool" / name).mkdir(exist_ok=True)
        self._daemon("slurmd", "-f", str(self.conf), "-N", name, **{NODE_VARIABLE: self._node_label(name)})

    def kill_slurmd(self, name: str) -> None:
        """Kill only the slurmd of a node by SIGKILL: its jobs continue, unknown to SLURM."""
        self._kill(self._pid(f"slurmd.{name}"))

    def lose_node(self, name: str) -> None:
        """Kill everything on a node by SIGKILL, as a power failure does."""
        self.kill_slurmd(name)
        while steps := self.steps(name):  # another step may just have started
            # The steps first: a step reports the death of its task to slurmctld.
            for pid in steps + [child for step in steps for child in descendants(step)]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def steps(self, node: str) -> list[int]:
        """Return the slurmstepd processes of a node."""
        pids = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and (entry / "comm").read_text().strip() == "slurmstepd":
                    variables = (entry / "environ").read_bytes().split(b"\0")
                    if f"{NODE_VARIABLE}={self._node_label(node)}".encode() in variables and not _zombie(entry):
                        pids.append(int(entry.name))
        return pids

    def wait_for_nodes(self) -> None:
        """Wait until every node accepts jobs; return nodes that were down to service."""

        def ready() -> bool:
            states = dict(line.split("=") for line in self.run("sinfo", "-hN", "-o", "%N=%T").split())
            for node, state in states.items():
                if "down" in state or "drain" in state:
                    self.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)
            return all(state in ("idle", "mixed", "allocated") for state in states.values())

        wait(ready, "the nodes")

    def _configure(self) -> None:
        self.conf.write_text("\n".join(slurm_conf(self, _host())) + "\n")
        lines = ["CgroupPlugin=cgroup/v1", "CgroupAutomount=no", "ConstrainCores=no", "ConstrainRAMSpace=no"]
        (self.folder / "cgroup.conf").write_text("\n".join(lines) + "\n")
        file = self.folder / "slurmdbd.conf"
        file.write_text(
            f"AuthType=auth/munge\nAuthInfo=socket={self.folder}/munge/socket\nDbdHost={_host()}\nDbdAddr=127.0.0.1\n"
            f"DbdPort={self.port + 1}\nCommunicationParameters=NoInAddrAny\nSlurmUser=root\n"
            f"LogFile={self.folder}/log/slurmdbd.log\nPidFile={self.folder}/run/slurmdbd.pid\n"
            "StorageType=accounting_storage/mysql\nStorageHost=localhost\nStorageUser=root\nStorageLoc=accounts\n"
        )
        file.chmod(0o600)
        for client in CLIENTS:  # Submitit clears the environment of SLURM's variables
            wrapper = self.folder / "bin" / client
            wrapper.write_text(f'#!/bin/sh\nexport SLURM_CONF={self.conf}\nexec /usr/bin/{client} "$@"\n')
            wrapper.chmod(0o755)

    def _start_database(self) -> None:
        data, shell = self.folder / "mysql", self.folder / "run/mysql.socket"
        common = ("--no-defaults", "--user=root", f"--datadir={data}", "--innodb-log-file-size=8M")
        self._daemon(
            *("mariadb-install-db", *common, "--skip-test-db", "--auth-root-authentication-method=socket"),
            "--auth-root-socket-user=root",
        )
        # slurmdbd's client library finds the socket by this variable; there is no port and no password.
        self.environment["MYSQL_UNIX_PORT"] = str(shell)
        with open(self.folder / "log/mariadbd.log", "ab") as log:
            self.database = subprocess.Popen(
                [
                    *("mariadbd", *common, f"--socket={shell}", "--skip-networking", "--skip-log-bin"),
                    *("--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0"),
                    *("--innodb-lock-wait-timeout=900", "--key-buffer-size=1M", "--aria-pagecache-buffer-size=8M"),
                ],
                env=self._daemons(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait(shell.exists, "MariaDB")

    def _node_label(self, node: str) -> str:
        return f"{self.folder}/{node}"

    def _daemon(self, *command: str, **variables: str) -> None:
        """Run a program that goes into the background by itself, or ends."""
        with open(self.folder / "log/daemons.log", "ab") as log:
            subprocess.run(
                command,
                cwd=self.folder,
                env={**self._daemons(), **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=PATIENCE,
                check=True,
            )

    def _daemons(self) -> dict[str, str]:
        # A MariaDB that starts would remove the temporary tables of another from a shared TMPDIR.
        return {**self.environment, "PATH": SYSTEM, "TMPDIR": str(self.folder)}

    def _answers(self, *command: str) -> bool:
        done = subprocess.run(command, env=self.environment, capture_output=True, timeout=PATIENCE, check=False)
        return done.returncode == 0

    def _pid(self, name: str) -> int | None:
        try:
            return int((self.folder / f"run/{name}.pid").read_text())
        except (FileNotFoundError, ValueError):
            return None

    def _kill(self, pid: int | None, number: int = signal.SIGKILL) -> None:
        with contextlib.suppress(ProcessLookupError):
            if pid is not None and self._owns(pid):
                os.kill(pid, number)

    def _end(self, name: str) -> None:
        self._kill(pid := self._pid(name), signal.SIGTERM)
        wait(lambda: pid is None or not self._owns(pid), f"the end of {name}")
        (self.folder / f"run/{name}.pid").unlink(missing_ok=True)

    def _owns(self, pid: int) -> bool:
        """Return whether a process is alive and belongs to this cluster: its number may have been reused."""
        with contextlib.suppress(OSError):
            entry = Path(f"/proc/{pid}")
            words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            return str(self.folder).encode() in words and not _zombie(entry)
        return False


def descendants(pid: int) -> list[int]:
    """Return all descendants of a process."""
    below = []
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            below += [int(child), *descendants(int(child))]
    return below


def _zombie(entry: Path) -> bool:
    return (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"


def _host() -> str:
    return socket.gethostname().partition(".")[0]

"""A real Slurm of one node, in a folder of its own, which ends with its context."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "scontrol")
PATHS = f"{os.environ['PATH']}:/usr/sbin:/sbin"
PACKAGES = "slurmctld slurmd slurm-client munge"

CONFIGURATION = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MinJobAge=86400
KillWait=20
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=sched_interval=2,bf_interval=2
ReturnToService=2
MailProg=/bin/true
MpiDefault=none
NodeName=localhost NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cores} RealMemory=1000
PartitionName=low Nodes=localhost Default=YES MaxTime=60 State=UP PriorityTier=1 GraceTime=60
PartitionName=high Nodes=localhost MaxTime=60 State=UP PriorityTier=10 PreemptMode=off
"""  # noqa: E501
"""A requeued job may start again after `cred_expire` seconds, by default 120."""

ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED")


def missing() -> list[str]:
    """The programs of Slurm that are not installed here."""
    return [name for name in PROGRAMS if not shutil.which(name, path=PATHS)]


class Cluster:
    """Starts the daemons of Slurm on entry, and ends them on exit."""

    def __init__(self, folder: Path, variables: Mapping[str, str]):
        self.folder = folder
        self.cores = len(os.sched_getaffinity(0))
        self.environment = {
            **os.environ,
            **variables,
            "PATH": PATHS,
            "SLURM_CONF": str(folder / "slurm.conf"),
        }

    def __enter__(self) -> Cluster:
        for name in ("munge", "state", "spool"):
            (self.folder / name).mkdir(mode=0o755, parents=True)
        self.folder.chmod(0o755)
        key = self.folder / "munge/key"
        key.write_bytes(os.urandom(64))
        key.chmod(0o400)
        (self.folder / "slurm.conf").write_text(
            CONFIGURATION.format(
                user=getpass.getuser(),
                folder=self.folder,
                host=socket.gethostname().partition(".")[0],
                cores=self.cores,
                ports=free_ports(2),
            )
        )
        munge = [f"--key-file={key}", f"--socket={self.folder}/munge/socket"]
        for name in ("pid", "log", "seed"):
            munge.append(f"--{name}-file={self.folder}/munge/{name}")
        self.call("munged", "--force", *munge)
        self.call("slurmctld")
        self.call("slurmd", "-N", "localhost")
        self.until(lambda: "idle" in self.call("sinfo", "-h", "-o", "%T"), 60)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(subprocess.CalledProcessError):
            self.call("scancel", "--user", getpass.getuser())
        for name in ("slurmd.pid", "slurmctld.pid", "munge/pid"):
            with suppress(OSError, ValueError):
                os.kill(int((self.folder / name).read_text()), signal.SIGTERM)

    def call(self, *words: str, folder: Path | None = None) -> str:
        done = subprocess.run(
            words, env=self.environment, cwd=folder, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"{words}: {done.stderr}{done.stdout}")
        return done.stdout

    def submit(self, folder: Path, *words: str) -> str:
        """Submits a job from a folder. Returns its id."""
        return self.call("sbatch", "--parsable", *words, folder=folder).strip()

    def tasks(self, job: str) -> list[dict[str, str]]:
        """What `scontrol` says of each task of a job."""
        told = self.call("scontrol", "show", "job", "--oneliner", job).splitlines()
        return [dict(re.findall(r"(\w+)=(\S*)", line)) for line in told]

    def wait(self, job: str, seconds: float) -> list[dict[str, str]]:
        """Waits until every task of a job has ended for good."""
        self.until(lambda: all(ended(task) for task in self.tasks(job)), seconds)
        return self.tasks(job)

    def until(self, is_so, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > end:
                raise TimeoutError(f"not within {seconds} s; {self.call('squeue')}")
            time.sleep(1)


def ended(task: Mapping[str, str]) -> bool:
    return task["JobState"] in ENDED


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports

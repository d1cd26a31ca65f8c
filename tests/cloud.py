"""A cloud on this machine: stands in for `gcloud` and `aws`, and for what hosts have.

`Cloud` makes a folder with these programs for the person who calls a launch file.
A TPU slice is four folders; `ssh --worker=all` runs a command in each of them at once,
as a process of its own session, which goes on when the connection is lost. The exit
code is the first that is not 0, after all have ended, as with the real program. A
bucket is a folder. The hosts find stand-ins for the metadata server and for uv, which
installs nothing but a `python` with this package.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]  # not from `helpers`, which loads JAX
HOSTS = 4
TPU_ENV = """\
ACCELERATOR_TYPE: 'v4-32'
CHIPS_PER_HOST_BOUNDS: '2,2,1'
HOST_BOUNDS: '1,1,4'
"""
METADATA = {
    "worker-network-endpoints": ",".join(["unknown:unknown:10.0.0.1"] * HOSTS),
    "tpu-env": TPU_ENV,
}


class Cloud:
    """The folders of a cloud, and a way to call a launch file there."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.bucket = folder / "bucket"
        self.home = folder / "here"
        self.state = folder / "state"
        self.refusal = folder / "refusal"
        self.trouble = folder / "trouble"
        self.log = folder / "log"

    def build(self, python: str = sys.executable) -> None:
        """Makes the bucket and the home of the person. `python` runs the sweeps."""
        self.bucket.mkdir()
        self._program("python", f'exec {python} "$@"')
        self._program("here/bin/gcloud", _PROGRAM.format(name="gcloud"))
        self._program("here/bin/python", _PYTHON)
        # as SkyPilot's set-up leaves them
        self._program("here/env/bin/aws", _PROGRAM.format(name="aws"))
        self._program("here/env/bin/python", _PYTHON)

    def host(self, index: int) -> Path:
        """The home of a host."""
        return self.folder / f"host-{index}"

    def start(
        self, *command: str, folder: str = ".", **variables: str
    ) -> subprocess.Popen[str]:
        """Starts a command of the person, in a folder below the home."""
        return subprocess.Popen(
            command,
            cwd=self.home / folder,
            env=self.environment(self.home) | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def environment(self, home: Path) -> dict[str, str]:
        return {
            **os.environ,
            "CLOUD": str(self.folder),
            "HOME": str(home),
            "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
        }

    def stop(self) -> None:
        """Ends what still runs on the hosts."""
        for path in self.folder.glob("host-*/session"):
            with suppress(ProcessLookupError):
                os.killpg(int(path.read_text()), signal.SIGKILL)

    def called(self) -> list[str]:
        """The commands that machines got: create, delete and installations."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    def _program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)

    def run(self, program: str, words: list[str]) -> int:
        """Does what a program of the cloud does. Returns its exit code."""
        options = [word for word in words if word.startswith("--")]
        words = [word for word in words if not word.startswith("--")]
        match [program, *words]:
            case ["aws", "s3", action, *rest]:
                return getattr(self, f"_storage_{action}")(*rest)
            case ["gcloud", "compute", "tpus", "tpu-vm", action, *rest]:
                return getattr(self, f"_{action}")(options, rest)
            case ["gcloud", "storage", action, *rest]:
                return getattr(self, f"_storage_{action}")(*rest)
        raise ValueError(f"unknown command: {words}")

    def _note(self, text: str) -> None:
        with self.log.open("a") as file:
            file.write(f"{text}\n")

    def _describe(self, options: list[str], names: list[str]) -> int:
        if not self.state.exists():
            return refused(f"NOT_FOUND: Resource 'nodes/{names[0]}' was not found.")
        print(self.state.read_text())
        return 0

    def _create(self, options: list[str], names: list[str]) -> int:
        self._note("create")
        if self.state.exists():
            return refused("ALREADY_EXISTS: the resource exists")
        if self.refusal.exists():
            return refused(self.refusal.read_text())
        for index in range(HOSTS):
            self._boot(index)
        self.state.write_text("READY")
        return 0

    def _boot(self, index: int) -> None:
        home = f"host-{index}/bin"
        metadata = METADATA | {"agent-worker-number": str(index)}
        for name, text in metadata.items():
            path = self.folder / f"host-{index}/metadata/{name}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self._program(f"{home}/gcloud", _PROGRAM.format(name="gcloud"))
        self._program(f"{home}/curl", 'cat "$HOME/metadata/${!###*/}"')
        self._program(f"{home}/python3", _UV)

    def _delete(self, options: list[str], names: list[str]) -> int:
        self._note("delete")
        self.state.unlink()
        for index in range(HOSTS):
            shutil.rmtree(self.host(index))
        return 0

    def _scp(self, options: list[str], words: list[str]) -> int:
        source, _ = words
        for index in range(HOSTS):
            shutil.copy(source, self.host(index))
        return 0

    def _ssh(self, options: list[str], names: list[str]) -> int:
        [command] = re.findall(r"--command=(.*)", "\n".join(options), re.S)
        codes = [0] * HOSTS

        def run(index: int) -> None:
            home = self.host(index)
            process = subprocess.Popen(
                ["bash", "-c", command],
                cwd=home,
                env=self.environment(home) | {"HOST": str(index)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            (home / "session").write_text(str(process.pid))
            assert process.stdout
            for line in process.stdout:
                print(f"[{index}] {line}", end="", flush=True)
            codes[index] = process.wait()

        threads = [threading.Thread(target=run, args=(i,)) for i in range(HOSTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return next(filter(None, codes), 0)

    def _local(self, name: str) -> Path:
        return self.bucket / name[5:] if "://" in name else Path(name)

    def _storage_ls(self, name: str) -> int:
        found = sorted(self._local(name).glob("*"))
        print(*found, sep="\n")
        return 0 if found else refused("One or more URLs matched no objects.")

    def _storage_cp(self, source: str, target: str) -> int:
        data = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
        path = self._local(target)
        if target.endswith("/"):
            path /= Path(source).name
        put(path, data)
        return 0

    def _storage_rsync(self, source: str, target: str) -> int:
        if not self._local(source).exists():
            return refused(f"Did not find existing container at: {source}")
        return self._storage_sync(source, target)

    def _storage_sync(self, source: str, target: str) -> int:
        for path in self._local(source).rglob("*"):
            name = path.relative_to(self._local(source))
            if path.is_file() and not (self._local(target) / name).exists():
                put(self._local(target) / name, path.read_bytes())
        return 0


def put(path: Path, data: bytes) -> None:
    """Writes a file that appears whole, as objects do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.rename(path)


def refused(message: str) -> int:
    print(f"ERROR: (gcloud) {message}", file=sys.stderr)
    return 1


_PROGRAM = f'exec {sys.executable} -S {__file__} {{name}} "$@"'

_PYTHON = """
if [ "$1 $2 $3" = "-m pip wheel" ]; then
    while [ "$1" != --wheel-dir ]; do shift; done
    echo wheel > "$2/jaxrecall-0.2.0-py3-none-any.whl"
else
    exec "$CLOUD/python" "$@"
fi
"""
"""The Python of the person: a wheel is made without a network."""

_UV = """
case "$2 $3" in
    "pip install") ;;
    "uv venv")
        mkdir -p .venv/bin
        printf '#!/bin/bash\\nexec "$CLOUD/python" "$@"\\n' > .venv/bin/python
        chmod +x .venv/bin/python ;;
    "uv pip") echo "install $HOST" >> "$CLOUD/log" ;;
    *) exit 1 ;;
esac
"""
"""The Python of a host: it knows pip and uv alone."""

if __name__ == "__main__":
    _, program, *words = sys.argv
    sys.exit(Cloud(Path(os.environ["CLOUD"])).run(program, words))

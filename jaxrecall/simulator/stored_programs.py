"""Keeps compiled programs in a folder, where later processes find them untraced.

JAX has to trace and lower a program before it finds it in its own persistent cache,
which takes longer than loading it. Here a program is found by everything that its code
depends on: its shape, the source of this package, versions, devices and settings.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import platform
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any
from uuid import uuid4

import jax
import jax.numpy as jnp
from jax.experimental.compilation_cache.compilation_cache import reset_cache
from jax.stages import Compiled

from ..cli.program_cache import name_of
from ..model.laws.law import PACKAGE
from .program_shape import Shape

MAX_BYTES = 2**29
"""The total size of the programs that are kept in a folder, unless
`jax_compilation_cache_max_size` is set. Those that were not used for the longest time
are removed.
"""

SUFFIX = ".program"

LIBRARIES = ("jax", "jaxlib", "numpy", "optax")
FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "NPROC")

WITHOUT_EFFECT = (
    "jax_compilation_cache_dir",
    "jax_debug_log_modules",
    "jax_explain_cache_misses",
    "jax_log_compiles",
    "jax_logging_level",
)
"""The settings of JAX that do not change the code of a program. The first is the folder
of JAX's own cache, which another thread may have turned off. The others determine what
is logged.
"""

CPUINFO = "/proc/cpuinfo"
FEATURES = (
    "vendor_id",
    "cpu family",
    "model",
    "stepping",
    "flags",
    "CPU ",
    "Features",
    "isa",
)
"""The starts of the lines of CPUINFO that name instructions which the compiler
may use: first those of x86, then those of ARM and RISC-V.
"""

changing_cache = threading.RLock()
"""Held while the folder of JAX's persistent cache is changed."""

_turned_off: list[str | None] = []
"""The folder of JAX's persistent cache, once for each thread that has turned it off."""


def load_or_compile(
    program: tuple[Shape, int, bool, Any],
    arguments: Any,
    devices: Sequence[Any],
    compile: Callable[[], Compiled],
) -> Compiled:
    """Returns a program from the folder of JAX's persistent cache. If it is not there,
    it is compiled, and kept if possible.

    A program that contains laws or columns of a user is only compiled. So is every
    program if JAX's persistent cache is turned off or is not a local folder.

    Args:
        program: the shape, the number of runs per device, whether runs are vmapped, and
            the options of the compiler.
        arguments: some arguments of the program.
        devices: the devices on which the program runs.
        compile: a function that compiles the program.
    """
    folder = _folder()
    if folder is None or _has_code_of_user(program[0]):
        return compile()
    name = f"{name_of(program[0])}-{_key(program, devices)}{SUFFIX}"
    path = folder / name
    run = _load(path, arguments, devices)
    if run is None:
        with _cache_of_jax_off():
            run = compile()
        _save(path, run)
    return run


def _folder() -> Path | None:
    """Returns the folder for programs. None if programs are not kept."""
    folder = cache_of_jax()
    enabled = jax.config.jax_enable_compilation_cache  # type: ignore[attr-defined]
    if not folder or "://" in folder or not enabled or not _max_bytes():
        return None
    return Path(folder)


def _max_bytes() -> int:
    of_jax = jax.config.jax_compilation_cache_max_size  # type: ignore[attr-defined]
    return MAX_BYTES if of_jax < 0 else of_jax


def _has_code_of_user(shape: Shape) -> bool:
    packages = {type(law).__module__.partition(".")[0] for law in shape.laws.values()}
    return bool(shape.columns) or not packages <= {PACKAGE}


def _key(program: object, devices: Sequence[Any]) -> str:
    """Returns a hash of everything that the code of a program depends on, apart from
    the source of this package. The name of the file contains a hash of the source.
    """
    client = devices[0].client
    settings = dict(jax.config.values)
    for name in WITHOUT_EFFECT:
        settings.pop(name, None)
    n_cores = os.cpu_count()
    if hasattr(os, "sched_getaffinity"):
        n_cores = len(os.sched_getaffinity(0))
    circumstances = {
        "versions": (sys.version, _versions(client.platform == "cpu")),
        "backend": (client.platform, client.platform_version),
        "devices": [(device.id, device.device_kind) for device in devices],
        "processor": (processor(), n_cores),
        "flags": [os.environ.get(name) for name in FLAGS],
        "settings": sorted(settings.items()),
    }
    text = repr((program, circumstances))
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _versions(on_cpu: bool) -> list[tuple[str, str]]:
    """Returns the versions of libraries.

    On an accelerator these are all installed ones, as they contain the compiler.
    """
    if on_cpu:
        return [(name, metadata.version(name)) for name in LIBRARIES]
    return sorted((each.name, each.version) for each in metadata.distributions())


@cache
def processor() -> str:
    """Returns a text that is equal on two machines only if their processors have the
    same instructions. It names this machine if the processor is not known.
    """
    lines = []
    with suppress(OSError), open(CPUINFO) as file:
        for line in file:
            if not line.strip():
                break  # the other cores are alike
            if line.startswith(FEATURES):
                lines.append(line)
    return "".join(lines) or str(platform.uname())


@contextmanager
def _cache_of_jax_off() -> Iterator[None]:
    """Turns JAX's persistent cache off.

    A program would be stored twice, and one that JAX has loaded from its cache cannot
    be serialised again: kernels are missing from it.
    """
    with changing_cache:
        _turned_off.append(cache_of_jax())
        set_cache_of_jax(None)
    try:
        yield
    finally:
        with changing_cache:
            folder = _turned_off.pop()
            if not _turned_off:
                set_cache_of_jax(folder)


def cache_of_jax() -> str | None:
    """The folder of JAX's persistent cache, even while threads have turned it off."""
    with changing_cache:
        if _turned_off:
            return _turned_off[0]
        return jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]


def set_cache_of_jax(folder: str | None) -> None:
    """Sets the folder of JAX's persistent cache, or turns the cache off."""
    jax.config.update("jax_compilation_cache_dir", folder)
    reset_cache()  # JAX may use another folder already


def _load(path: Path, arguments: Any, devices: Sequence[Any]) -> Compiled | None:
    """Returns the program in a file. None if there is no file, or if it is damaged."""
    try:
        from jax.experimental.serialize_executable import deserialize_and_load

        data = zlib.decompress(path.read_bytes())
        if b"lapack_" in data:
            # JAX loads LAPACK only when it lowers a function that needs it
            jnp.linalg.inv.lower(jnp.ones((1, 1)))
        executable, of_results = pickle.loads(data)
        of_arguments = jax.tree.structure((arguments, {}))
        run = deserialize_and_load(
            executable, of_arguments, of_results, execution_devices=devices
        )
    except Exception:  # a missing file, or a damaged one, which may raise any class
        return None
    with suppress(OSError):
        os.utime(path)  # the folder may be read-only
    return run


def _save(path: Path, run: Compiled) -> None:
    """Writes the program to a file in one step. Nothing is written if the backend
    cannot serialise programs, or if the folder cannot be written.
    """
    temporary = path.with_name(uuid4().hex + SUFFIX)
    try:
        from jax.experimental.serialize_executable import serialize

        executable, _, of_results = serialize(run)
        data = pickle.dumps((executable, of_results))
        temporary.write_bytes(zlib.compress(data, level=1))
        os.replace(temporary, path)
        _remove_oldest(path.parent)
    except Exception:  # backends raise several classes
        with suppress(OSError):
            temporary.unlink()


def _remove_oldest(folder: Path) -> None:
    """Removes the programs that were not used for the longest time, until the others
    fit the limit.
    """
    total = 0
    for path in sorted(folder.glob("*" + SUFFIX), key=os.path.getmtime, reverse=True):
        total += path.stat().st_size
        if total > _max_bytes():
            path.unlink()

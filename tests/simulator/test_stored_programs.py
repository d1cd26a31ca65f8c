"""Programs that are kept in a folder: how they are found, and what may go wrong."""

import functools
import inspect
import os
import pickle
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from attack.program_cache import DAMAGE
from jax.experimental import serialize_executable
from jax.experimental.compilation_cache.compilation_cache import reset_cache
from own_laws import Softplus
from tolerances import assert_close

from jaxrecall import Point
from jaxrecall.cli import program_cache
from jaxrecall.model.columns import OwnColumn
from jaxrecall.model.point import Run
from jaxrecall.simulator import device, program, stored_programs
from jaxrecall.simulator.program_shape import Shape

SHAPE = Shape(16, 16, 0, "none")
X = jax.ShapeDtypeStruct((3,), np.float32)
LIMIT = stored_programs.MAX_BYTES
FOLDER = "jax_compilation_cache_dir"


@pytest.fixture
def configure():
    """Changes a setting of JAX, for the test alone."""
    before = {}

    def change(name, value):
        before.setdefault(name, jax.config.values[name])
        jax.config.update(name, value)
        reset_cache()

    yield change
    for name, value in before.items():
        change(name, value)


@pytest.fixture
def folder(tmp_path, monkeypatch, configure):
    """The folder of compiled programs, as users have it, with a limit of a gigabyte."""
    monkeypatch.setattr(stored_programs, "MAX_BYTES", 2**30)
    configure(FOLDER, str(tmp_path))
    configure("jax_persistent_cache_min_compile_time_secs", 0.0)
    return tmp_path


def compile_anew(order: Callable = jnp.sort) -> jax.stages.Compiled:
    return jax.jit(lambda x: {"y": order(jnp.sin(x))}).lower(X).compile()


@functools.cache
def compiled() -> jax.stages.Compiled:
    """Without a sort, whose kernel can be serialised only once."""
    return compile_anew(jnp.flip)


def is_compiled(
    shape: Shape = SHAPE, per_device: int = 1, compile: Callable = compiled
) -> bool:
    """Whether a small program with this key is compiled. Otherwise it is loaded."""
    made = []

    def new():
        made.append(compile())
        return made[0]

    run = stored_programs.load_or_compile(
        (shape, per_device, False), (X,), jax.local_devices(), new
    )
    x = np.array([0.1, -2, 0.3], np.float32)
    assert_close(np.sort(run(x)["y"]), np.sort(np.sin(x)), "float32")
    assert program.reserved_bytes(run) == 24
    return bool(made)


def stored(folder: Path) -> list[Path]:
    return [*folder.glob("*" + stored_programs.SUFFIX)]


def test_a_program_is_compiled_once_and_stored_once(folder):
    assert is_compiled(compile=compile_anew)
    assert not is_compiled()
    assert getattr(jax.config, FOLDER) == str(folder)
    assert [*folder.iterdir()] == stored(folder)  # and none of JAX
    assert len(stored(folder)) == 1


def test_a_loaded_program_computes_the_same_rows(folder, monkeypatch):
    point = Point(V=8, N=40, d=4, L=3, n_test=16)
    # each call compiles or loads
    monkeypatch.setattr(program, "_compiled", inspect.unwrap(program._compiled))
    rows = []
    for _ in range(2):
        runs = [Run(point, seed) for seed in range(3)]
        rows.append(program.execute(program.compiled(Shape.rounded(point)), runs)[0])
        monkeypatch.setattr(program, "compile", None)
    assert rows[0] == rows[1]
    # names of operations would be a fifth of the file
    assert "op_name" not in program.compiled(Shape.rounded(point)).run.as_text()


def test_a_program_that_jax_keeps_is_kept_whole(folder):
    """JAX cannot serialise what it has loaded: kernels are missing from it."""
    compile_anew()
    assert [*folder.glob("*-cache")]
    assert is_compiled(compile=compile_anew)
    assert not is_compiled()


SOLVE = """
import sys, jax
from pathlib import Path
from jaxrecall.simulator import stored_programs
square = jax.ShapeDtypeStruct((2, 2), "float32")
run = stored_programs._load(Path(sys.argv[1]), (square,), jax.local_devices())
print(run(2 * jax.numpy.eye(2)).sum())
"""


def test_a_process_that_traces_nothing_has_the_functions_of_lapack(folder):
    square = jax.ShapeDtypeStruct((2, 2), np.float32)
    run = jax.jit(jnp.linalg.inv).lower(square).compile()
    path = folder / "inverse.program"
    stored_programs._save(path, run)
    command = [sys.executable, "-c", SOLVE, path]
    assert float(subprocess.check_output(command)) == 1


def forget() -> None:
    for name in "_versions", "processor":
        getattr(stored_programs, name).cache_clear()


def key(
    which: tuple = (SHAPE, 1, False),
    devices: int = 1,
    platform: str = "cpu",
    platform_version: str = "cpu",
    **about: object,
) -> str:
    """The key of a program on such devices, of which nothing is remembered."""
    client = SimpleNamespace(platform=platform, platform_version=platform_version)
    about = {"id": 0, "device_kind": "cpu", "client": client} | about
    forget()
    try:
        return stored_programs._key(which, [SimpleNamespace(**about)] * devices)
    finally:
        forget()


@pytest.mark.parametrize(
    "changes",
    [
        {"which": (replace(SHAPE, V=32), 1, False)},
        {"which": (replace(SHAPE, light=True), 1, False)},
        {"which": (SHAPE, 2, False)},
        {"which": (SHAPE, 1, True)},
        {"devices": 2},
        {"id": 1},
        {"device_kind": "H100"},
        {"platform": "gpu"},
        {"platform_version": "cuda 13"},
    ],
    ids=str,
)
def test_another_program_has_another_key(changes):
    assert key() == key()
    assert key(**changes) != key()


SETTINGS = yaml.safe_load("""
jax_enable_x64: true
jax_default_matmul_precision: bfloat16
jax_threefry_partitionable: false
jax_debug_nans: true
jax_numpy_dtype_promotion: standard
jax_disable_most_optimizations: true
jax_default_prng_impl: rbg
jax_optimization_level: O1
""")


@pytest.mark.parametrize("name", SETTINGS)
def test_another_setting_of_jax_gives_another_key(name, configure):
    usual = key()
    configure(name, SETTINGS[name])
    assert key() != usual


def test_what_jax_logs_gives_no_other_key(configure):
    usual = key()
    configure("jax_log_compiles", True)
    configure("jax_explain_cache_misses", True)
    assert key() == usual


def test_a_setting_of_this_thread_gives_another_key():
    usual = key()
    with jax.default_matmul_precision("bfloat16"):
        assert key() != usual


@pytest.mark.parametrize("name", ["XLA_FLAGS", "LIBTPU_INIT_ARGS"])
def test_other_flags_give_another_key(name, monkeypatch):
    usual = key()
    monkeypatch.setenv(name, "--xla_cpu_max_isa=AVX2")
    assert key() != usual


def test_another_number_of_cores_gives_another_key(monkeypatch):
    """Loops are divided among the threads that the compiler sees."""
    usual = key()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(99), raising=False)
    assert key() != usual


def test_the_source_of_every_module_of_the_simulator_counts(monkeypatch):
    """The folders that the simulator imports from."""
    usual, parts, read = program_cache.source(), set(), Path.read_bytes

    def other(path):
        parts.add(path.parent.name)
        return read(path) + b"#" * (path.name == "stream.py")

    monkeypatch.setattr(Path, "read_bytes", other)
    assert inspect.unwrap(program_cache.source)() != usual
    assert parts >= {"model", "laws", "simulator", "sources", "theory"}


@pytest.mark.parametrize("library", stored_programs.LIBRARIES)
def test_another_version_gives_another_key(library, monkeypatch):
    usual, version = key(), stored_programs.metadata.version
    other = lambda name: version(name) + "x" * (name == library)  # noqa: E731
    monkeypatch.setattr(stored_programs.metadata, "version", other)
    assert key() != usual


CPUINFO = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Xeon
cpu MHz\t\t: {}
flags\t\t: fpu avx2{}

processor\t: 1
"""


def test_a_processor_is_known_by_what_it_can_do(tmp_path, monkeypatch):
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(stored_programs, "CPUINFO", str(path))

    def key_with(text):
        path.write_text(text)
        return key()

    usual = key_with(CPUINFO.format("2500.1", ""))
    assert key_with(CPUINFO.format("1800.0", "")) == usual
    more = key_with(CPUINFO.format("2500.1", " avx512f"))
    assert len({usual, more, key_with("")}) == 3


DAMAGED = DAMAGE | {
    "no pickle": lambda data: zlib.compress(b"a"),
    "another program": lambda data: zlib.compress(
        pickle.dumps((pickle.dumps(("a", [], True)), jax.tree.structure(1)))
    ),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_written_again(folder, damage):
    assert is_compiled()
    [path] = stored(folder)
    path.write_bytes(DAMAGED[damage](path.read_bytes()))
    assert is_compiled()
    assert not is_compiled()


def half_written(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data[:99])
    raise OSError(28, "No space left on device")


def refused(run: jax.stages.Compiled) -> None:
    raise ValueError("Compilation does not support serialization")


@pytest.mark.parametrize(
    "replaced",
    [(Path, "write_bytes", half_written), (serialize_executable, "serialize", refused)],
    ids=["full disk", "no serialisation"],
)
def test_what_cannot_be_kept_leaves_nothing(folder, monkeypatch, replaced):
    monkeypatch.setattr(*replaced)
    assert is_compiled()
    assert not stored(folder)


OWN = OwnColumn("own", "module:own", "digest")


@pytest.mark.parametrize(
    "shape",
    [replace(SHAPE, m=16, activation=Softplus()), replace(SHAPE, columns=(OWN,))],
    ids=["law", "column"],
)
def test_code_of_a_user_is_not_kept(folder, shape):
    assert is_compiled(shape)
    assert not stored(folder)


@pytest.mark.parametrize(
    ("name", "value"),
    [("jax_enable_compilation_cache", False), (FOLDER, None), (FOLDER, "gs://bucket")],
)
def test_nothing_is_kept_where_jax_keeps_nothing_here(folder, configure, name, value):
    configure(name, value)
    at_compilation = []

    def compile():
        at_compilation.append(jax.config.values[name])
        return compiled()

    assert is_compiled(compile=compile)
    assert at_compilation == [value]
    assert not stored(folder)


def test_nothing_is_kept_in_or_loaded_from_an_unsafe_folder(folder):
    assert is_compiled()
    folder.chmod(0o777)
    before = stored(folder)
    assert "neither kept there nor run from there" in device.start()
    assert is_compiled()
    assert stored(folder) == before


def test_programs_that_were_not_used_lately_are_removed(folder, monkeypatch):
    paths = []
    for age, per_device in enumerate((1, 2, 3)):
        assert is_compiled(per_device=per_device)
        [path] = {*stored(folder)} - {*paths}
        os.utime(path, (age, age))
        paths.append(path)
    assert not is_compiled(per_device=1)  # which makes it the latest
    left = folder / ("killed" + stored_programs.SUFFIX)
    left.write_bytes(b"a part")
    os.utime(left, (0, 0))
    size = max(path.stat().st_size for path in paths)
    monkeypatch.setattr(stored_programs, "MAX_BYTES", int(2.5 * size))
    assert is_compiled(per_device=4)
    assert not paths[1].exists()
    assert not left.exists()
    assert not is_compiled(per_device=1)
    assert LIMIT in (0, 2**29)


def test_a_folder_in_place_of_a_file_is_left_alone(folder):
    assert is_compiled()
    [path] = stored(folder)
    path.unlink()
    path.mkdir()
    assert is_compiled()
    assert stored(folder) == [path]
    assert path.is_dir()


def test_threads_compile_side_by_side(folder):
    together = threading.Barrier(4, timeout=60)

    def compile() -> jax.stages.Compiled:
        together.wait()
        return compile_anew()

    def by_thread(number: int) -> bool:
        return is_compiled(per_device=number, compile=compile)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(by_thread, range(4)))
    assert getattr(jax.config, FOLDER) == str(folder)
    assert len(stored(folder)) == 4
    assert not any(map(by_thread, range(4)))

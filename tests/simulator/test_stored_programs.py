"""Programs that are kept in a folder: how they are found, and what may go wrong."""

import os
import pickle
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attack.program_cache import DAMAGE
from jax.experimental.compilation_cache.compilation_cache import reset_cache
from own_laws import Softplus

from jaxrecall import Point
from jaxrecall.model.columns import OwnColumn
from jaxrecall.model.point import Run
from jaxrecall.simulator import program, stored_programs
from jaxrecall.simulator.program_shape import Shape

SHAPE = Shape(16, 16, 0, "none")
X = jax.ShapeDtypeStruct((3,), np.float32)
LIMIT = stored_programs.MAX_BYTES


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of compiled programs, as users have it, with a limit of a gigabyte."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    monkeypatch.setattr(stored_programs, "MAX_BYTES", 2**30)
    jax.config.update(names[0], str(tmp_path))
    jax.config.update(names[1], 0.0)
    reset_cache()
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)
    reset_cache()


def compiled() -> jax.stages.Compiled:
    return jax.jit(lambda x: {"y": jnp.sort(jnp.sin(x))}).lower(X).compile()


def is_compiled(shape: Shape = SHAPE, per_device: int = 1, vmapped: bool = False):
    """Whether a small program with this key is compiled. Otherwise it is loaded."""
    made = []

    def new():
        made.append(compiled())
        return made[0]

    devices = jax.local_devices()
    which = (shape, per_device, vmapped)
    run = stored_programs.load_or_compile(which, (X,), devices, new)
    x = np.array([0.1, -2, 0.3], np.float32)
    np.testing.assert_allclose(run(x)["y"], np.sort(np.sin(x)), rtol=1e-6)
    assert program.reserved_bytes(run) == 24
    return bool(made)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_program_is_compiled_once_and_stored_once(folder):
    assert is_compiled()
    assert not is_compiled()
    assert jax.config.jax_compilation_cache_dir == str(folder)
    (name,) = names(folder)  # and none of JAX
    assert name.endswith(".program")


def test_a_loaded_program_computes_the_same_rows(folder, monkeypatch):
    point = Point(V=8, N=40, d=4, L=3, n_test=16)
    runs = [Run(point, seed) for seed in range(3)]
    found = []
    for _ in range(2):
        program.forget()
        executable = program.compiled(Shape.rounded(point))
        found.append(program.execute(executable, runs)[0])
        monkeypatch.setattr(program, "compile", None)
    program.forget()
    assert found[0] == found[1]


def test_a_program_that_jax_keeps_is_kept_whole(folder):
    """JAX cannot serialise what it has loaded: kernels are missing from it."""
    compiled()
    jax.clear_caches()
    assert any(name.endswith("-cache") for name in names(folder))
    assert is_compiled()
    assert not is_compiled()


SETTINGS = {
    "jax_enable_x64": True,
    "jax_default_matmul_precision": "bfloat16",
    "jax_threefry_partitionable": False,
    "jax_debug_nans": True,
    "jax_numpy_dtype_promotion": "standard",
    "jax_disable_most_optimizations": True,
    "jax_default_prng_impl": "rbg",
    "jax_optimization_level": "O1",
}
CHANGES = {
    "shape": {"which": (replace(SHAPE, V=32), 1, False)},
    "light": {"which": (replace(SHAPE, light=True), 1, False)},
    "batch": {"which": (SHAPE, 2, False)},
    "vmapped": {"which": (SHAPE, 1, True)},
    "id of a device": {"devices": {"id": 1}},
    "kind of device": {"devices": {"device_kind": "H100"}},
    "number of devices": {"n_devices": 2},
    "platform": {"client": {"platform": "gpu"}},
    "version of the backend": {"client": {"platform_version": "cuda 13"}},
}


def key(which=(SHAPE, 1, False), devices=None, client=None, n_devices=1) -> str:
    of_client = {"platform": "cpu", "platform_version": "cpu"} | (client or {})
    about = {"id": 0, "device_kind": "cpu"} | (devices or {})
    device = SimpleNamespace(client=SimpleNamespace(**of_client), **about)
    return stored_programs._key(which, [device] * n_devices)


@pytest.mark.parametrize("change", CHANGES)
def test_another_program_has_another_key(change):
    assert key() == key()
    assert key(**CHANGES[change]) != key()


@pytest.mark.parametrize("name", SETTINGS)
def test_another_setting_of_jax_gives_another_key(name):
    before, usual = jax.config.values[name], key()
    jax.config.update(name, SETTINGS[name])
    try:
        assert key() != usual
    finally:
        jax.config.update(name, before)
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


@pytest.fixture
def forgetful():
    """What is read once per process is read again."""
    cached = [
        getattr(stored_programs, n) for n in ("_source", "_versions", "_processor")
    ]

    def forget():
        for function in cached:
            function.cache_clear()

    yield forget
    forget()


def test_other_source_gives_another_key(tmp_path, monkeypatch, forgetful):
    usual, found = key(), []
    for text in ("a", "b"):
        (tmp_path / "x.py").write_text(text)
        monkeypatch.setattr(stored_programs, "SOURCE", (str(tmp_path),))
        forgetful()
        found.append(key())
    assert len({usual, *found}) == 3


def test_the_source_of_every_module_of_the_simulator_counts(monkeypatch, forgetful):
    """The folders that the simulator imports from."""
    usual, read = key(), []
    read_bytes = Path.read_bytes
    monkeypatch.setattr(
        Path, "read_bytes", lambda path: read.append(path) or read_bytes(path)
    )
    forgetful()
    assert key() == usual
    parts = {path.parent.name for path in read}
    assert parts >= {"model", "laws", "simulator", "sources", "theory"}
    assert len(read) > 50


@pytest.mark.parametrize("library", stored_programs.LIBRARIES)
def test_another_version_gives_another_key(library, monkeypatch, forgetful):
    usual, version = key(), stored_programs.metadata.version
    forgetful()
    monkeypatch.setattr(
        stored_programs.metadata,
        "version",
        lambda name: version(name) + "x" * (name == library),
    )
    assert key() != usual


CPUINFO = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Xeon
cpu MHz\t\t: {}
flags\t\t: fpu avx2{}

processor\t: 1
"""


def test_a_processor_is_known_by_what_it_can_do(tmp_path, monkeypatch, forgetful):
    texts = [
        CPUINFO.format("2500.1", ""),
        CPUINFO.format("1800.0", ""),
        CPUINFO.format("2500.1", " avx512f"),
        "",
    ]
    found = []
    for text in texts:
        (tmp_path / "cpuinfo").write_text(text)
        monkeypatch.setattr(stored_programs, "CPUINFO", str(tmp_path / "cpuinfo"))
        forgetful()
        found.append(key())
    assert found[0] == found[1]
    assert len(set(found)) == 3


def test_another_number_of_cores_gives_another_key(monkeypatch):
    """Loops are divided among the threads that the compiler sees."""
    usual = key()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(99), raising=False)
    assert key() != usual


DAMAGED = DAMAGE | {
    "another pickle": lambda data: zlib.compress(pickle.dumps((b"a", 1))),
    "no pickle": lambda data: zlib.compress(b"a"),
    "another program": lambda data: zlib.compress(
        pickle.dumps((pickle.dumps(("a", [], True)), jax.tree.structure(1)))
    ),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_written_again(folder, damage):
    assert is_compiled()
    (path,) = folder.glob("*.program")
    path.write_bytes(DAMAGED[damage](path.read_bytes()))
    assert is_compiled()
    assert not is_compiled()


def test_a_folder_in_place_of_a_file_is_left_alone(folder):
    assert is_compiled()
    (path,) = folder.glob("*.program")
    path.unlink()
    path.mkdir()
    assert is_compiled()
    assert names(folder) == [path.name]
    assert path.is_dir()


def test_what_cannot_be_written_leaves_nothing(folder, monkeypatch):
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> None:
        write(path, data[:99])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert is_compiled()
    assert not list(folder.glob("*.program"))


def test_what_a_backend_cannot_serialise_is_not_kept(folder, monkeypatch):
    def refuse(_):
        raise ValueError("Compilation does not support serialization")

    monkeypatch.setattr(jax.experimental.serialize_executable, "serialize", refuse)
    assert is_compiled()
    assert not list(folder.glob("*.program"))


OWN = OwnColumn("own", "module:own", "digest")


@pytest.mark.parametrize(
    "shape",
    [replace(SHAPE, m=16, activation=Softplus()), replace(SHAPE, columns=(OWN,))],
    ids=["law", "column"],
)
def test_code_of_a_user_is_not_kept(folder, shape):
    for _ in range(2):
        assert is_compiled(shape)
    assert not list(folder.glob("*.program"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jax_enable_compilation_cache", False),
        ("jax_compilation_cache_dir", None),
        ("jax_compilation_cache_dir", "gs://bucket"),
    ],
)
def test_nothing_is_kept_where_jax_keeps_nothing(folder, name, value):
    before = jax.config.values[name]
    jax.config.update(name, value)
    try:
        assert stored_programs._folder() is None
    finally:
        jax.config.update(name, before)
    assert stored_programs._folder() == folder


def test_nothing_is_kept_in_or_loaded_from_an_unsafe_folder(folder):
    assert is_compiled()
    folder.chmod(0o777)
    before = names(folder)
    assert "neither kept there nor run from there" in program.start()
    assert is_compiled()
    assert names(folder) == before


def test_programs_that_were_not_used_lately_are_removed(folder, monkeypatch):
    for per_device in (1, 2, 3):
        assert is_compiled(per_device=per_device)
    files = sorted(folder.glob("*.program"), key=lambda path: path.stat().st_mtime_ns)
    sizes = [path.stat().st_size for path in files]
    for age, path in enumerate(reversed(files)):
        os.utime(path, (1e9 - age, 1e9 - age))
    assert not is_compiled(per_device=1)  # which makes it the latest
    left = folder / ("killed" + stored_programs.SUFFIX)
    left.write_bytes(b"a part")
    os.utime(left, (0, 0))
    monkeypatch.setattr(stored_programs, "MAX_BYTES", int(2.5 * max(sizes)))
    assert is_compiled(per_device=4)
    assert not files[1].exists()
    assert not left.exists()
    assert not is_compiled(per_device=1)
    assert LIMIT in (0, 2**29)


def test_threads_that_compile_at_once_leave_the_folder_of_jax(folder):
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda i: is_compiled(per_device=i), range(4)))
    assert jax.config.jax_compilation_cache_dir == str(folder)
    assert len(list(folder.glob("*.program"))) == 4

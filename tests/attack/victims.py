"""What programs do with `run` while tests/attack/stress.py attacks them: each function
is the whole work of a process of its own.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

GRID = {
    "name": "victim",
    "base": {"V": 20, "L": 3, "n_test": 200},
    "seeds": 24,
    "blocks": [{"axes": {"d": [8, 12], "N": [100, 600, 2000]}}],
    "run": {"part_seconds": 0},
}
INTERRUPTED, SIGNALLED, REFUSED = 7, 8, 9
"""Exit codes for jaxrecall.Interrupted, for the KeyboardInterrupt that Python raises
outside of `run`, and for a refused call.
"""


def rows(_: object = None) -> pd.DataFrame:
    import jaxrecall

    return jaxrecall.run(GRID, progress=False)


def threads(out: Path) -> list[pd.DataFrame]:
    with ThreadPoolExecutor(3) as pool:
        return [*pool.map(rows, range(3))]


def loop(out: Path) -> list[pd.DataFrame]:
    async def both() -> list[pd.DataFrame]:
        return [
            rows(),
            *await asyncio.gather(asyncio.to_thread(rows), asyncio.to_thread(rows)),
        ]

    return asyncio.run(both())


def processes(method: str) -> list[pd.DataFrame]:
    with multiprocessing.get_context(method).Pool(2) as pool:
        return pool.map(rows, range(2))


def spawn(out: Path) -> list[pd.DataFrame]:
    return [rows(), *processes("spawn")]


def fork(out: Path) -> list[pd.DataFrame]:
    """JAX starts in the children alone: it has threads, which a fork would lose."""
    import jaxrecall  # noqa: F401

    return processes("fork")


def folders(out: Path) -> list[pd.DataFrame]:
    """Two threads that fill one results folder."""
    import jaxrecall

    with ThreadPoolExecutor(2) as pool:
        return [
            *pool.map(
                lambda _: jaxrecall.run(GRID, out=out / "results", progress=False),
                range(2),
            )
        ]


def closed(out: Path) -> list[pd.DataFrame]:
    """JAX is started before: it cannot be imported with a closed standard output."""
    import jaxrecall

    first = rows()
    sys.stdout.close()
    sys.stderr.close()
    return [
        first,
        jaxrecall.run(GRID),
        jaxrecall.run(GRID, out=out / "results", workers=2),
    ]


def no_files(out: Path) -> list[pd.DataFrame]:
    import jaxrecall

    sys.stdout = sys.stderr = None
    os.close(1)
    os.close(2)
    return [jaxrecall.run(GRID, out=out / "results"), jaxrecall.run(GRID, workers=2)]


TEST = """
import pytest
from attack.victims import rows

@pytest.mark.parametrize("i", range(2))
def test_rows(i):
    rows().to_parquet(f"{i}.parquet")
"""


def xdist(out: Path) -> list[pd.DataFrame]:
    """Two workers of pytest, with warnings as errors."""
    (out / "test_rows.py").write_text(TEST)
    words = "pytest -q -n 2 -W error -p no:cacheprovider test_rows.py"
    return written_by(out, *words.split())


def written_by(out: Path, *words: str) -> list[pd.DataFrame]:
    """The two tables that a module of Python writes."""
    subprocess.run(
        [sys.executable, "-m", *words], cwd=out, check=True, stdout=sys.stderr
    )
    return [pd.read_parquet(out / f"{i}.parquet") for i in range(2)]


def ipython(out: Path) -> list[pd.DataFrame]:
    (out / "script.py").write_text(
        "from attack.victims import rows\nfor i in range(2):"
        " rows().to_parquet(f'{i}.parquet')\n"
    )
    return written_by(out, "IPython", "-c", "%run script.py")


def joblib(backend: str, out: Path) -> list[pd.DataFrame]:
    from joblib import Parallel, delayed  # pyright: ignore[reportMissingImports]

    return Parallel(2, backend=backend)(delayed(rows)(i) for i in range(2))


def interrupted(out: Path) -> None:
    """Says when it starts, and ends with an exit code for what the signal became."""
    import jaxrecall

    try:
        (out / "ready").touch()
        jaxrecall.run(GRID, out=out / "results", progress=False)
        code = 0
    except jaxrecall.Interrupted as error:
        error.rows.to_parquet(out / "interrupted.parquet")
        code = INTERRUPTED
    except KeyboardInterrupt:
        code = SIGNALLED
    os._exit(code)


PLACES = {
    f.__name__: f
    for f in (threads, loop, spawn, fork, folders, closed, no_files, xdist, ipython)
}
if find_spec("joblib"):
    PLACES |= {
        f"joblib {backend}": partial(joblib, backend)
        for backend in ("loky", "threading", "multiprocessing")
    }

UPDATES = {
    "jax_enable_x64": True,
    "jax_debug_nans": True,
    "jax_debug_infs": True,
    "jax_check_tracer_leaks": True,
    "jax_numpy_rank_promotion": "raise",
    "jax_numpy_dtype_promotion": "strict",
    "jax_transfer_guard": "disallow",
    "jax_default_prng_impl": "rbg",
    "jax_default_matmul_precision": "bfloat16",
    "jax_enable_custom_prng": True,
    "jax_enable_compilation_cache": False,
    "jax_num_cpu_devices": 4,
    "jax_disable_jit": True,
    "jax_threefry_partitionable": False,
}
SETTINGS = {
    f"{name} = {value}": f"jax.config.update({name!r}, {value!r})"
    for name, value in UPDATES.items()
} | {
    "jax_enable_x64 between": "rows(); jax.config.update('jax_enable_x64', True)",
    "caches cleared": "rows(); jax.clear_caches()",
    "arrays of one's own": "jax.kept = jax.numpy.ones((256, 256))",
    "jax.distributed": (
        "jax.distributed.initialize('localhost:%d' % (20000 + os.getpid() % 20000),"
        " 1, 0)"
    ),
    "a device": "jax.config.update('jax_default_device', jax.devices()[0])",
    "a mesh of one axis": "jax.set_mesh(jax.make_mesh((1,), ('x',)))",
    "a mesh of the axis run": "jax.set_mesh(jax.make_mesh((1,), ('run',)))",
    "with a mesh": "jax.sharding.Mesh(jax.devices(), ('x',)).__enter__()",
    "inside jit": "jax.jit(lambda x: rows()['accuracy'].sum() * x)(1.0)",
    "NumPy raises": "np.seterr(all='raise')",
    "little recursion": "rows(); sys.setrecursionlimit(200)",
    "no garbage collection": "gc.disable()",
    "text as objects": "pd.set_option('future.infer_string', False)",
    "warnings raise": "warnings.simplefilter('error')",
    "the folder is gone": (
        "folder = tempfile.mkdtemp(); os.chdir(folder); os.rmdir(folder)"
    ),
    "no home": "os.environ['HOME'] = ''",
    "signals ignored": "signal.signal(signal.SIGINT, signal.SIG_IGN)",
    "spawn by default": "multiprocessing.set_start_method('spawn')",
}
"""What a program does before it calls `run`, twice."""

REFUSING = (
    "jax_disable_jit = True",
    "jax_threefry_partitionable = False",
    "inside jit",
)
IMPORTED = (
    "import gc, jax, jaxrecall, multiprocessing, os, signal, sys, tempfile, warnings,"
    " numpy as np, pandas as pd"
)


def after(setting: str, out: Path) -> list[pd.DataFrame]:
    exec(f"{IMPORTED}\n{SETTINGS[setting]}", {"rows": rows, "GRID": GRID})
    return [rows(), rows()]


def main(name: str, out: str) -> None:
    """Carries one of them out, and leaves its tables in the folder `out`."""
    try:
        frames = PLACES[name](Path(out)) if name in PLACES else after(name, Path(out))
    except ValueError as error:
        if name not in REFUSING or "\n" in str(error):
            raise
        sys.exit(REFUSED)
    for i, frame in enumerate(frames):
        frame.to_parquet(Path(out) / f"{i}.parquet")

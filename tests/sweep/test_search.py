"""Threshold search: how a cell spends its runs, and whole searches that are killed,
resumed and given odd folders.
"""

import contextlib
import io
import json
import math
import os
import re
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from helpers import NO_FIGURE
from scipy.special import expit, logit
from tolerances import assert_close

from jaxrecall import Simulator, load, run, thresholds
from jaxrecall.cli.process import Interrupts
from jaxrecall.errors import GridError
from jaxrecall.fit import fit
from jaxrecall.simulator import program
from jaxrecall.status import survey
from jaxrecall.sweep.__main__ import main
from jaxrecall.sweep.crossing import of_measure
from jaxrecall.sweep.grid import read_grid
from jaxrecall.sweep.grid.axes import Names
from jaxrecall.sweep.grid.file import PER_OCTAVE, Search
from jaxrecall.sweep.running.job import carry_out, prepare
from jaxrecall.sweep.running.mistakes import Mistake
from jaxrecall.sweep.running.runner import run_here
from jaxrecall.sweep.search import CellSearch, farthest
from jaxrecall.sweep.searches import Searches
from jaxrecall.sweep.simulators.shipped import RECALL
from jaxrecall.sweep.summary import parsed


def level(k):
    return round(2 ** (k / PER_OCTAVE))


def lattice(low, high, real=False):
    return Search(
        "eta" if real else "embedding.rank", (0.5,), low, high, 0.3, 400
    ).lattice(Names())


def searched_cell(
    measure, theta, levels, width=0.5, max_runs=2000, seeds=range(300), **options
):
    """The search of a cell whose runs have the value measure(level, seed)."""
    search = CellSearch(theta, levels, width, max_runs, seeds, **options)
    while search.pending:
        search.update([measure(*run) for run in search.pending])
    return search


# one cell


@dataclass
class Cell:
    """A synthetic cell: accuracy of (N, seed), with a shift and a plateau of each seed
    and a shift of each run.
    """

    key: int = 0
    middle: float = 7.5
    slope: float = 1.2
    spread: float = 0.35
    noise: float = 0.3
    top: float = 1.0
    chance: float = 0.02

    def mean(self, x):
        rises = expit(self.slope * (x - self.middle))
        return self.chance + (self.top - self.chance) * rises

    def accuracy(self, N, seed):
        shift = self.spread * np.random.default_rng([self.key, seed]).normal()
        run = np.random.default_rng([self.key, seed, N])
        mean = self.mean(math.log(N) - shift - self.noise * run.normal())
        return float(run.binomial(2048, mean) / 2048)

    def truth(self, theta):
        z = np.random.default_rng(0).normal(size=100_000)
        z *= math.hypot(self.spread, self.noise)
        x = np.linspace(self.middle - 3, self.middle + 4, 400)
        return float(np.interp(theta, [self.mean(y - z).mean() for y in x], x))

    def search(self, theta=0.5, low=64, high=2**17, **options):
        return searched_cell(self.accuracy, theta, lattice(low, high), **options)


@pytest.mark.parametrize(
    ("theta", "width"),
    [
        (0.9, 0.5),
        *(pytest.param(0.5, width, marks=pytest.mark.slow) for width in (0.6, 0.3)),
    ],
)
def test_the_search_finds_the_crossing_and_its_intervals_hold(theta, width):
    truth = Cell().truth(theta)
    found = [Cell(key).search(theta, width=width).result for key in range(100)]
    assert {result.outcome for result in found} == {"found"}
    intervals = [result.threshold for result in found]
    assert all(t.width <= width for t in intervals)
    assert 0.87 <= np.mean([t.lo <= truth <= t.hi for t in intervals]) <= 0.99
    assert abs(np.mean([t.log_x for t in intervals]) - truth) < 0.05


def test_narrow_intervals_along_a_size_come_from_levels_nearer_to_the_crossing():
    """So that the bend of the curve shows less: here logit accuracy is a parabola in
    the logarithm of the level.
    """
    z = 0.02 * np.random.default_rng(0).normal(size=(500, 200))

    def bent(d, seed):
        x = math.log(d / 30)
        return float(expit(2.5 * x + 0.8 * x**2 + z[seed, round(20 * x)]))

    off, away = {}, {}
    for axis, width in (("N", 0.1), ("d", 0.1), ("d", 0.25)):
        options = {"seeds": range(500), "farthest": farthest(axis, width)}
        search = searched_cell(bent, 0.5, lattice(2, 512), width, **options)
        assert search.result.outcome == "found"
        off[axis, width] = abs(search.result.threshold.log_x - math.log(30))
        tried = [abs(math.log(d / 30)) for d, seed in search.completed if seed == 11]
        away[axis, width] = max(tried)
    assert off["d", 0.1] < 0.011
    assert away["d", 0.1] < 0.2 < away["N", 0.1] == away["d", 0.25]


@pytest.mark.parametrize(
    ("outcome", "of"),
    [
        ("plateau", {"top": 0.35}),
        ("plateau", {"middle": 30}),  # flat at chance
        ("right", {"middle": 13}),
        ("left", {"middle": 0}),
        # seeds that level off below theta are among those that do not
        ("found", {"top": 0.6}),
        ("found", {"slope": 20, "spread": 0.02, "noise": 0.01}),
        ("found", {"middle": math.log(2**17) - 1.5}),
    ],
)
def test_outcomes(outcome, of):
    for key in range(5):
        search = Cell(key, **of).search()
        assert search.result.outcome == outcome
        assert (search.result.threshold is None) == (outcome != "found")
        assert len({*search.completed}) == len(search.completed) == len(search.accuracy)
        assert all(64 <= N <= 2**17 for N, _ in search.completed)


def test_a_curve_that_never_crosses_costs_a_few_runs_at_the_end():
    assert sum(N for N, _ in Cell(top=0.3).search().completed) < 8 * 2**17


@pytest.mark.parametrize("top", [0.47, 0.5])
def test_a_curve_that_stays_just_below_theta_is_told_before_the_seeds_are_used_up(top):
    searches = [Cell(key, top=top, spread=0.6, noise=0.5).search() for key in range(15)]
    assert {search.result.outcome for search in searches} <= {
        "right",
        "plateau",
        "found",
    }
    # of 300 seeds
    assert (
        np.median([sum(N for N, _ in search.completed) for search in searches])
        < 50 * 2**17
    )


def test_it_stops_at_the_budget_and_when_seeds_are_used_up():
    """If accuracy levels off near theta, eight seeds cannot tell on which side."""
    flat = [Cell(key, top=0.52, spread=0.6, noise=0.5) for key in range(40)]
    results = [cell.search(seeds=range(8)).result for cell in flat]
    assert {result.outcome for result in results} == {"seeds", "undecided"}
    for result in results:
        assert (result.threshold is None) == (result.outcome == "undecided")
    spent = Cell().search(width=0.05, max_runs=60)
    assert spent.result.outcome == "budget"
    assert 50 <= len(spent.completed) <= 60
    assert 0.05 < spent.result.threshold.width < math.inf
    # the budget ends while levels around the estimate are examined
    narrow = Cell(9).search(width=0.5, max_runs=80, seeds=range(24)).result
    assert (narrow.outcome, narrow.threshold.n_seeds) == ("found", 24)
    assert narrow.threshold.width < 0.5
    seeds = [5, 3, *range(10, 30)]
    used = Cell().search(width=0.05, seeds=seeds)
    assert used.result.outcome == "seeds"
    assert {seed for _, seed in used.completed} == {*seeds}
    assert 0.05 < used.result.threshold.width < math.inf
    assert Cell().search(seeds=range(50, 350)).result.outcome == "found"


@pytest.mark.parametrize("theta", [2e-5, 1 - 2e-5])
def test_theta_may_be_nearer_to_the_ends_than_means_usually_count(theta):
    def accuracy(N, seed):
        x = math.log(N) - 9 + 0.3 * math.sin(seed)
        return float(expit(1.5 * x + logit(theta)))

    search = searched_cell(accuracy, theta, lattice(64, 2**20), 0.3)
    assert search.result.outcome == "found"
    assert_close(search.result.threshold.log_x, 9, 0.2)


def test_a_search_repeats_and_a_narrower_one_goes_on_where_the_wider_stopped():
    wide, again, narrow = (Cell(3).search(width=width) for width in (0.6, 0.6, 0.25))
    assert wide.completed == again.completed
    assert wide.result.threshold[:5] == again.result.threshold[:5]
    # all but the last runs of the wider search, which test its result
    assert len({*wide.completed} - {*narrow.completed}) <= 5
    pairs = zip(wide.completed, narrow.completed, strict=False)
    closing = next(i for i, (run, other) in enumerate(pairs) if run != other)
    assert narrow.completed[:closing] == wide.completed[:closing]
    assert len(narrow.completed) > len(wide.completed)


class Bent(Cell):
    """A cell whose curve has a kink or a jump at theta. Seeds differ by a shift."""

    def __init__(self, key, curve):
        super().__init__(key, middle=math.log(700 + 37 * key), spread=0.3)
        self.curve = curve

    def accuracy(self, N, seed):
        beyond = math.log(N) - self.middle
        shift = self.spread * np.random.default_rng([self.key, seed]).normal()
        return float(expit(self.curve(beyond) + shift))


BENT = {
    "steep, then slow": lambda x: min(3 * x, 0.3 * x),
    "slow, then steep": lambda x: max(3 * x, 0.3 * x),
    "jump": lambda x: np.interp(x, [-0.025, 0.025], [-1.4, 1.4]),
}


@pytest.mark.parametrize("curve", BENT.values(), ids=BENT)
def test_intervals_hold_where_the_curve_has_a_kink_or_a_jump_at_theta(curve):
    """A line through levels half an octave on either side would miss it."""
    cells = [Bent(key, curve) for key in range(12)]
    found = [cell.search(width=0.3, max_runs=120, seeds=range(24)) for cell in cells]
    held = [
        search.result.threshold.lo <= cell.middle <= search.result.threshold.hi
        for cell, search in zip(cells, found, strict=True)
        if search.result.threshold
    ]
    assert len(held) >= 10
    assert np.mean(held) > 0.8


def test_after_the_first_seeds_every_second_one_runs_at_the_estimate_alone():
    for key in range(5):
        search = Cell(key).search(width=0.3)
        own = {}
        for N, seed in search.completed:
            own.setdefault(seed, []).append(math.log(N))
        alone = [x for seed, (x, *more) in own.items() if not more]
        assert len(alone) >= 5
        estimate = search.result.threshold.log_x
        assert max(abs(x - estimate) for x in alone) < math.log(2) / 2


@pytest.mark.parametrize(
    ("rises", "way"),
    [
        (True, "rises above theta and falls again"),
        (False, "falls below theta and rises again"),
    ],
)
def test_a_curve_that_rises_and_falls_again_is_told(rises, way):
    """As by a fit, although the search finds the first crossing."""

    def hump(point, key):
        accuracy = 0.02 + 0.7 * math.exp(-(math.log(point.x / 50) ** 2))
        return {"accuracy": accuracy if rises else 1 - accuracy}

    fields = {"x": (float, 1.0, 1, 4096, "traced")}
    columns = {"accuracy": (float, "0")}
    simulator = Simulator(hump, fields, columns, accuracy="accuracy", jit=False)
    search = {"axis": "x", "from": 1, "to": 4096, "theta": 0.5, "rises": rises}
    rows = run({"search": search}, seeds=12, simulator=simulator, progress=False)
    (found,) = thresholds(rows).itertuples()
    assert found.outcome == "found"
    # log x is normal: 0.48 of 0.7
    assert_close(math.log(found.critical / 50), -math.sqrt(math.log(0.7 / 0.48)), 0.1)
    assert re.fullmatch(rf"accuracy {way}, at [\d.]+", found.warning)


# other measures than an accuracy that rises


class Falling(Cell):
    """The mirror of a cell: accuracy falls."""

    def accuracy(self, N, seed):
        return 1 - super().accuracy(N, seed)


@pytest.mark.parametrize(
    ("theta", "of"),
    [
        (0.5, {}),
        (0.75, {}),
        (0.5, {"middle": 0}),
        (0.5, {"middle": 13}),
        (0.5, {"top": 0.35}),
    ],
)
def test_a_falling_axis_is_the_mirror_of_a_rising_one(theta, of):
    """Not one run more, and the same numbers: left is below the range and right beyond
    it in both.
    """
    rising = Cell(3, **of).search(1 - theta)
    falling = Falling(3, **of).search(theta, rises=False)
    assert falling.completed == rising.completed
    assert falling.result.outcome == rising.result.outcome
    assert (falling.result.threshold is None) == (rising.result.threshold is None)
    if rising.result.threshold:
        assert_close(falling.result.threshold[:5], rising.result.threshold[:5])


@pytest.mark.parametrize("middle", [7, 5.5])
def test_accuracy_that_runs_against_the_axis_is_noticed(middle):
    """Above theta at first and below it later: that is no crossing below the range."""
    search = Falling(1, middle=middle).search(checks=True)
    assert (search.result.outcome, search.against) == ("left", True)
    assert not Cell(1, middle=0).search().against
    below = Falling(1, middle=1, spread=0.1, slope=0.4).search(checks=True)
    assert (below.result.outcome, below.against) == ("plateau", True)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_search_finds_where_any_measure_crosses(sign):
    def error(level, seed):
        """It falls from 40 to less than 1, and its negative rises."""
        noise = np.random.default_rng([seed, int(100 * level)]).normal()
        return sign * 40 * level**-0.5 * np.exp(0.1 * noise)

    levels = lattice(1, 4096, real=True)
    search = searched_cell(error, sign * 3.0, levels, 0.3, rises=sign < 0)
    assert search.result.outcome == "found"
    crossing = search.result.threshold
    assert crossing.lo < 2 * np.log(40 / 3) < crossing.hi
    assert crossing.width <= 0.3


@pytest.mark.parametrize(
    ("summary", "theta"), [("median", 0.2), ("above 0.9", 0.5), ("mean", 0.5)]
)
def test_a_search_follows_the_summary(summary, theta):
    def jumps(level, seed):
        u = np.random.default_rng([seed, int(100 * level)]).random()
        return 0.95 if u < 1 / (1 + (level / 100) ** -3) else 0.05

    levels = lattice(1, 4096, real=True)
    search = searched_cell(jumps, theta, levels, 0.3, summary=parsed(summary))
    assert search.result.outcome == "found"
    assert_close(search.result.threshold.log_x, np.log(100), 0.3)


@pytest.mark.parametrize(("low", "high"), [(1, 64), (2, 1024), (3, 50), (1, 4096)])
def test_levels_are_distinct_whole_numbers_near_those_of_every_other_range(low, high):
    found, real = lattice(low, high), lattice(low, high, real=True)
    steps = range(math.ceil(8 * math.log2(low)), int(8 * math.log2(high)) + 1)
    assert real == {k: 2 ** (k / 8) for k in steps}
    levels = [*found.values()]
    assert levels == sorted({*levels})
    assert {*levels} <= {*lattice(1, 8192).values()}
    assert low <= levels[0] <= levels[-1] <= high
    assert all(abs(value - real[k]) <= 0.5 for k, value in found.items())
    assert [*lattice(1, 16).values()] == [*range(1, 14), 15, 16]


def test_neighbouring_whole_numbers_around_the_crossing_are_enough():
    cell = Cell(2, middle=math.log(2.5), slope=2.5)
    search = cell.search(low=1, high=64, width=0.01, seeds=range(1000))
    found = search.result.threshold
    assert search.result.outcome == "found"
    assert 2 <= math.exp(found.lo) < math.exp(found.hi) <= 3
    assert found.width > 0.01
    assert len(search.completed) < 300


# whole searches

GRID = """
name: tiny
base: {V: 8, n_test: 400}
seeds: {count: 60}
search: {axis: N, theta: 0.5, from: 16, to: 1024, width: 2.0, max_runs: 150}
blocks:
  - axes: {d: [2, 12], L: [2, 3]}
"""


@pytest.fixture
def grid(cwd):
    Path("tiny.yaml").write_text(GRID)
    return ("--grid", "tiny.yaml")


def setting(sets):
    """The words that set these values, which a space divides."""
    return [word for each in sets.split() for word in ("--set", each)]


def search(*sets, out):
    """The search of the grid with these settings, as the command runs it, without its
    table and figure.
    """
    job = prepare(read_grid("tiny.yaml", sets), out)
    assert carry_out(job, run_here, None, Interrupts()).exit_code == 0


@pytest.fixture(scope="module")
def searched(tmp_path_factory) -> Path:
    """The folder of a search of the whole grid by the command, and what it printed."""
    there, printed = tmp_path_factory.mktemp("searched"), io.StringIO()
    (there / "tiny.yaml").write_text(GRID)
    before = program._compiled.cache_info().misses
    with contextlib.chdir(there), contextlib.redirect_stdout(printed):
        assert main(["--grid", "tiny.yaml"]) == 0
    # guarded and full
    assert program._compiled.cache_info().misses <= before + 2
    (there / "results/tiny/printed.txt").write_text(printed.getvalue())
    return there / "results/tiny"


def facts(capsys, *argv):
    capsys.readouterr()
    assert main([*argv, "--dry-run", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def report(folder):
    return json.loads((Path(folder) / "search.json").read_text())["cells"]


def ran(folder, where="seed >= 0"):
    frame = load(folder).query(where)
    return {*zip(frame.point_id, frame.seed, frame.N, frame.n_correct, strict=True)}


ENDS = ["critical", "lo", "hi"]


def told_by(folder):
    """The critical values of a report and their ends, by d and L."""
    cells = report(folder)
    return {(cell["d"], cell["L"]): [cell[end] for end in ENDS] for cell in cells}


def test_a_dry_run_of_a_search_tells_cells_runs_and_times(grid, capsys):
    before = facts(capsys, *grid)
    assert before | {"points": 4, "searches": 4, "finished": 0, "programs": 1} == before
    assert before | {"runs": 600, "done": 0, "todo": 600} == before
    assert main([*grid, "--dry-run"]) == 0
    told = capsys.readouterr().out
    times = re.search(r"about (\S+) s if crossings .* range, (\S+) s if", told)
    assert 0 < float(times[1]) < float(times[2])
    axes = "blocks.0.axes={d: [2, 12], L: 3}"
    assert main([*grid, "--dry-run", "--set", axes]) == 0
    assert "in 2 configurations, 0 of" in capsys.readouterr().out


def test_a_dry_run_makes_few_of_the_points_of_a_range(grid, monkeypatch):
    made, make_point = [], RECALL.point

    def counted(values):
        made.append(values)
        return make_point(values)

    monkeypatch.setattr(RECALL, "point", counted)
    assert main([*grid, "--dry-run", "--set", "search.to=1048576"]) == 0
    assert len(made) < 40  # a cell has 129 levels


def test_a_whole_search_is_printed_reported_and_drawn(searched):
    printed = (searched / "printed.txt").read_text()
    assert "N at which the mean accuracy over seeds crosses theta" in printed
    assert "\nplateau: the measure levels off before theta\n" in printed
    assert (searched / "accuracy.png").exists()
    cells = report(searched)
    assert [*told_by(searched)] == [(d, L) for d in (2, 12) for L in (2, 3)]
    assert [cell["outcome"] for cell in cells] == ["plateau"] * 2 + ["found"] * 2
    assert all(cell["N_star"] is None for cell in cells[:2])
    assert all(cell["lo"] < cell["N_star"] < cell["hi"] <= 1024 for cell in cells[2:])
    assert all(math.log(cell["hi"] / cell["lo"]) <= 2 for cell in cells[2:])
    rows = load(searched)
    assert len(rows) == sum(cell["runs"] for cell in cells)
    assert rows["N"].sum() == sum(cell["samples"] for cell in cells)
    rows = rows[(rows.d == 12) & (rows.L == 3)]
    again = of_measure(np.log(rows.N), rows.seed, rows.accuracy, 0.5).crossing(0.5)
    assert_close(np.exp(again[:3]), np.array(told_by(searched)[12, 3]))


def test_a_search_that_is_done_has_nothing_to_do(grid, searched, capsys):
    shutil.copytree(searched, "results/tiny")
    n_rows, cells = len(load("results/tiny")), report("results/tiny")
    done = {"runs": n_rows, "done": n_rows, "todo": 0}
    after = facts(capsys, *grid)
    assert after | done | {"finished": 4, "est_seconds": 0} == after
    told = survey("results/tiny")
    assert (told["done"], told["todo"], told["command"]) == (n_rows, 0, None)
    assert "4 of 4 finished" in told["remark"]
    parts = {*Path("results/tiny/parts").iterdir()}
    assert main([*grid]) == 0
    assert f"nothing to do: all {n_rows} runs are in results" in capsys.readouterr().out
    assert {*Path("results/tiny/parts").iterdir()} == parts
    assert report("results/tiny") == cells


TWO_CELLS = "blocks.0.axes={d: [2, 12], L: [3]}"


def same_cells(cells, folder):
    """The cells are those at L = 3 in the whole search."""
    whole = [cell for cell in report(folder) if cell["L"] == 3]
    assert [cell | {"L": 3} for cell in cells] == whole


def test_rows_that_are_there_save_runs_and_change_nothing(grid, searched):
    axes = "{d: [2, 12], L: [3], N: [16, 23, 64, 100, 128, 181, 1024]}"
    dense = GRID.split("search:")[0].replace("60", "3")
    Path("dense.yaml").write_text(f"{dense}blocks: [{{axes: {axes}}}]")
    words = ("--grid", "dense.yaml", "--out", "other", *NO_FIGURE)
    assert main(words) == 0
    there = ran("other")
    search(TWO_CELLS, out="other")
    same_cells(report("other"), searched)
    alone = ran(searched, "L == 3")
    assert ran("other") - there == alone - there
    assert alone & there


def test_several_thetas_share_their_rows(grid, searched):
    search("search.theta=[0.45, 0.5]", TWO_CELLS, out="both")
    cells = report("both")
    assert [cell["theta"] for cell in cells] == [0.45, 0.5] * 2
    assert cells[2]["N_star"] < cells[3]["N_star"]
    same_cells(cells[1::2], searched)
    assert len(load("both")) < sum(cell["runs"] for cell in cells)


def test_a_signal_between_two_rounds_leaves_the_count_of_runs_right(
    grid, capsys, monkeypatch
):
    update = Searches.update

    def then_signal(self, accuracy):
        update(self, accuracy)
        if accuracy:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Searches, "update", then_signal)
    assert main([*grid, "--json-log"]) == 130
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    saved = sum(event["rows"] for event in events if event["event"] == "part")
    assert events[-1]["runs_executed"] == saved == len(load("results/tiny")) > 0


def test_a_nonfinite_cell_is_reported(grid):
    sets = "base.eta=1e300 base.gamma=1.0 blocks.0.axes.d=12"
    assert main([*grid, *setting(sets)]) == 0
    cells = report("results/tiny")
    assert [(cell["outcome"], cell["runs"]) for cell in cells] == [("nonfinite", 1)] * 2
    assert all(cell["N_star"] is None for cell in cells)


def test_events_for_machines(grid, capsys):
    sets = "blocks.0.axes.d=12 search.max_runs=40"
    assert main([*grid, "--json-log", *setting(sets)]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = [event["event"] for event in events]
    assert (kinds[0], kinds[-3:]) == ("start", ["search", "picture", "done"])
    assert events[0] | {"runs": 80, "done": 0, "todo": 80} == events[0]
    assert events[-3]["finished"] == 2
    assert events[-1]["runs_executed"] == len(load("results/tiny"))


MANY = """
name: many
base: {n_test: 400}
seeds: 60
search: {axis: N, theta: 0.5, from: 16, to: 1048576, width: 2.0, max_runs: 150}
blocks:
  - axes: {V: [20, 200, 300], d: [32], L: [2]}
  - axes: {V: [2000], d: [256], m: [512], L: [4]}
"""


def test_a_cell_stays_in_its_program_whatever_the_round(tmp_path):
    path = tmp_path / "many.yaml"
    path.write_text(MANY)
    job, plans = prepare(read_grid(path), tmp_path / "out"), []

    def execute(plan, call):
        plans.append(plan)
        for each in [each for chunk in plan.chunks for each in chunk.runs]:
            if each.point.V == 300:
                call.failures["V = 300"] = Mistake("a", "V = 300", {})
                continue
            accuracy = Cell(each.point.V).accuracy(each.point.N, each.seed)
            call.accuracy[each.id] = accuracy
            call.runs += 1

    call, rounds = carry_out(job, execute, None, Interrupts()), job.search
    assert rounds
    assert (call.runs, len(call.failures)) == (len(rounds.used), 1)
    assert call.accuracy.keys() == rounds.used
    assert report(tmp_path / "out") == rounds.report()["cells"]
    results = [cell.result for cell in rounds.cells]
    outcomes = [result and result.outcome for result in results]
    assert outcomes == ["found", "found", None, "found"]
    assert rounds.finished == 3
    assert len(rounds.guess.peaks) > 1
    homes = {}
    for chunk in [chunk for plan in plans for chunk in plan.chunks]:
        for point, _ in chunk.runs:
            homes.setdefault((point.V, point.m), set()).add(str(chunk.program))
    assert {len(shapes) for shapes in homes.values()} == {1}
    assert {plan.batch for plan in plans} == {plans[0].batch}


ALONG = """
name: along
base: {L: 4, n_test: 256, pool: 32, embedding: sphere, trigger_in_value: false}
seeds: {count: 100}
search: {axis: d, from: 2, to: 128, width: 0.6}
blocks:
  - axes: {V: [8, 16]}
    derive: {N: "16 * V"}
"""


def along(tmp_path, *sets):
    path = tmp_path / "along.yaml"
    path.write_text(ALONG)
    return read_grid(path, sets)


def test_rows_of_cells_follow_the_axis(tmp_path):
    grid = along(
        tmp_path,
        "blocks=[{axes: {d: [4, 8], ratio: [8, 16]}, derive: {N: ratio * V}}]",
        "search={axis: V, to: 64}",
    )
    rounds = Searches(grid, {})
    cells = [(row["d"], row["ratio"], row["axis"]) for row in rounds.table()]
    assert cells == [(4, 8, "V"), (4, 16, "V"), (8, 8, "V"), (8, 16, "V")]
    assert grid.axes == ("d", "V")
    assert all(
        point.N == ratio * V
        for cell, ratio in zip(rounds.cells, (8, 16) * 2, strict=True)
        for V, point in cell.points.items()
    )
    assert [*rounds.cells[0].points] == [*lattice(8, 64).values()]
    assert all(not {"V", "N"} & row["point"].keys() for row in rounds.report()["cells"])


def test_a_helper_axis_leaves_out_an_m_of_0_and_points_that_repeat(tmp_path):
    grid = along(
        tmp_path,
        "blocks=[{axes: {d: [4, 48]}, derive: {N: 512, m: md // d}}]",
        "search={axis: md, from: 2, to: 256}",
        "base.V=16",
    )
    cells = Searches(grid, {}).cells
    assert [[*cell.points][:3] for cell in cells] == [[4, 8, 12], [49, 99, 152]]
    assert all(
        [point.m for point in cell.points.values()]
        == sorted({point.m for point in cell.points.values()})
        for cell in cells
    )
    assert [cell.warning for cell in cells] == [
        "bounded by m: only 4 to 256 are valid",
        "bounded by m: only 49 to 256 are valid",
    ]
    assert grid.axes == ("d", "m")


@pytest.mark.parametrize(
    ("sets", "levels", "bounded"),
    [
        (
            ["base.embedding=orthogonal"],
            (10, 128),
            "bounded by d: only 10 to 128 are valid",
        ),
        (
            ["blocks.0.where=[d >= V]"],
            (8, 128),
            "bounded by where: only 8 to 128 are valid",
        ),
        ([], (2, 128), ""),
    ],
)
def test_the_valid_part_of_a_range_is_searched(tmp_path, sets, levels, bounded):
    cell = Searches(along(tmp_path, "blocks.0.axes.V=8", *sets), {}).cells[0]
    assert (min(cell.points), max(cell.points)) == levels
    assert cell.warning == bounded


def test_the_likely_time_of_a_search_is_not_above_its_longest(tmp_path):
    search = "search={axis: eta, from: 0.1, to: 1, max_runs: 40}"
    blocks = "blocks=[{axes: {V: 8, d: 8, N: 64}}]"
    rounds = Searches(along(tmp_path, blocks, search), {})
    likely, longest = rounds.cost(in_the_middle=True), rounds.cost()
    assert likely[-1] <= longest[-1]


def test_programs_of_a_range_of_64_are_two(tmp_path):
    """Not one for each size: with what runs fall back on four."""
    many = {"V": (16, 1024), "d": (2, 128), "m": (16, 1024)}
    for axis, (low, high) in many.items():
        sets = [
            "blocks=[{axes: {eta: [0.001, 0.002]}, derive: {N: 4096}}]",
            f"search={{axis: {axis}, from: {low}, to: {high}}}",
        ]
        grid = along(
            tmp_path, *sets, *(f"base.{name}=32" for name in {"V", "d"} - {axis})
        )
        rounds = Searches(grid, {})
        assert (
            1 <= len({(shape.V, shape.d, shape.m) for shape in rounds.guess.peaks}) <= 2
        )
        assert len(rounds.guess.peaks) <= 4
        cell = rounds.cells[0]
        assert cell.tiers[max(cell.points)] == cell.points[max(cell.points)]
        assert len({*cell.tiers.values()}) <= 7


def test_fit_and_search_read_the_same_crossing_from_the_same_rows(searched):
    """But for ends for which no level vouches: a fit gives none."""
    rows = load(searched)
    fitted = fit(rows[rows["d"] > 2], [0.5]).thresholds.set_index(["d", "L"])
    ends = fitted[ENDS].replace([0, math.inf], math.nan)
    assert ends[["lo", "hi"]].notna().sum().sum() > 2
    for cell, again in ends.iterrows():
        given = again.notna().to_numpy()
        assert_close(np.array(told_by(searched)[cell])[given], again[given])


# another column than accuracy


def logistic(point, key):
    share = 1 / (1 + (point.x / 20) ** -2)
    return {"accuracy": 0.0, "share": share, "gap": math.nan}


MEASURED = Simulator(
    logistic,
    {"x": (float, 1.0, 1, 1000, "traced")},
    dict.fromkeys(("accuracy", "share", "gap"), (float, "measured")),
    accuracy="accuracy",
    jit=False,
)


def by_column(of, out):
    search = {"axis": "x", "from": 1, "to": 512, "theta": 0.5, "of": of}
    grid = {"search": search, "seeds": 12}
    return run(grid, simulator=MEASURED, progress=False, out=out)


@pytest.mark.filterwarnings("ignore:gap")
def test_a_search_looks_at_the_column_that_it_is_given(tmp_path):
    """The rows of one search serve the other, and the search by accuracy, which is 0,
    finds nothing.
    """
    for _ in range(2):
        rows = by_column("share", tmp_path / "out")
        (found,) = thresholds(tmp_path / "out").itertuples()
        assert (found.outcome, round(found.critical)) == ("found", 20)
    assert len(rows) < 100
    by_column("accuracy", tmp_path / "out")
    assert list(thresholds(tmp_path / "out")["outcome"]) == ["plateau"]


@pytest.mark.filterwarnings("ignore:gap")
def test_a_row_without_a_number_ends_the_search(tmp_path):
    for _ in range(2):  # also where the rows are in the folder
        with pytest.raises(GridError, match=r"^search\.of: got gap, which is null"):
            by_column("gap", tmp_path / "out")

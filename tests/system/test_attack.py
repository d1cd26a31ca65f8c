"""The frame of `make attack` counts every fault, and so do its attacks: a planted one
is found.
"""

import os
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from attack import browser, calls, commands, damage, hostile, points
from attack.every import ATTACKS
from attack.page import page
from attack.tries import COUNTED, TESTS, Attack, Result, Tries, carried_out
from helpers import ROOT, process

PLANTED = Attack("area", "planted", "planted faults", "attack.planted:faults", 1, 8)
EACH = {
    "refused": 1,
    "right": 1,
    "wrong": 1,
    "lost": 2,
    "doubled": 3,
    "tracebacks": 2,
    "hangs": 1,
}


@pytest.mark.system  # waits for a process that hangs
def test_every_counter_rises():
    result = carried_out(PLANTED, "0", seconds=1000, hang_seconds=5)
    assert {name: result.counts[name] for name in COUNTED} == {"tried": 8, **EACH}
    assert result.n_faults == 9
    assert [fault.partition("\n")[0] for fault in result.faults] == [
        "wrong: wrong",
        "right: lost",
        "right: doubled",
        "tracebacks: traceback",
        "tracebacks: dies",
        "hangs: hangs",
    ]


def test_the_page_has_a_line_for_each_attack():
    text = page(
        {
            PLANTED: Result(),
            **{attack: Result(skipped="no room") for attack in ATTACKS},
        },
        3,
        0.5,
    )
    assert "| area | planted faults (`planted`) | 0 | 0 |" in text
    assert text.count(": not run, no room |") == len(ATTACKS)
    assert "Seed 3, 0.5 hours" in text


def tried(attack, most: int, home: Path) -> Result:
    """An attack in this process."""
    result = Result()
    attack(Tries("0", 1000, most, result.take, home))
    return result


def test_a_wrong_row_of_a_point_is_found(monkeypatch):
    right = points.simulate
    given = {"V": 8, "N": 40, "d": 4, "L": 3, "n_test": 50}
    points.check(right(points.Point(**given), 0), points.Point(**given), 0)
    for changes in ({"accuracy": 0.99}, {"snr": float("inf")}, {"trigger_score": 3.0}):
        monkeypatch.setattr(
            points,
            "simulate",
            lambda point, seed, changes=changes: right(point, seed) | changes,
        )
        with pytest.raises(AssertionError):
            points.check(
                points.simulate(points.Point(**given), 0), points.Point(**given), 0
            )


def test_what_a_command_or_a_call_does_wrong_is_found(monkeypatch, cwd):
    monkeypatch.setattr(commands, "furnish", lambda home: None)
    # another exit code, and no message
    for answer in (
        lambda words: 1,
        lambda words: 2,
    ):
        monkeypatch.setattr(
            commands,
            "COMMANDS",
            dict.fromkeys(commands.COMMANDS, type("command", (), {"main": answer})),
        )
        assert tried(commands.lines, 3, cwd).counts["wrong"] == 3
    monkeypatch.setattr(calls, "FUNCTIONS", {"load": lambda value: [][0]})
    assert tried(calls.values, 3, cwd).counts["tracebacks"] == 3


def test_a_row_that_is_gone_or_there_twice_is_found():
    whole = pd.DataFrame(
        {"point_id": ["a", "a", "b"], "seed": [0, 1, 0], "step": 3, "accuracy": 0.5}
    )
    for rows, lost, doubled in (
        (whole, 0, 0),
        (whole[1:], 1, 0),
        (whole.iloc[[0, 1, 2, 2]], 0, 1),
    ):
        one = damage.Try()
        damage.compare(one, rows, whole)
        assert (one.lost, one.doubled) == (lost, doubled)
    with pytest.raises(AssertionError):
        damage.compare(damage.Try(), whole.assign(accuracy=0.6), whole)


@pytest.mark.slow
def test_markup_in_a_page_is_found(tmp_path):
    program = next(filter(None, map(shutil.which, browser.CHROMIUM)), None)
    if not program:
        pytest.skip("no Chromium here")
    path = tmp_path / "page.html"
    page = "<html><head><title>x: how critical y</title></head><body>{}</body></html>"
    with browser.served() as server:
        path.write_text(page.format("fine"))
        browser.check(program, path, server)
        for text, said in (
            (hostile.TEXTS[0], "a script ran"),
            (f'<p id="{hostile.TEXTS[3]}">', "a script ran"),
            (f'<p id="{hostile.TEXTS[4]}">', "attribute onmouseover"),
            (f"<img src={hostile.ADDRESS}>", "asked for"),
            (hostile.TEXTS[18], "asked for"),
            ("<a href=javascript:x>", "address javascript:x"),
            ('<p id="a b">', "ids"),
            ("<p id=a></p><p id=a></p>", "twice"),
            ("<script>throw 1</script>", "element script"),
            ("<style>p { background: url(x) }</style>", "url"),
        ):
            path.write_text(page.format(text))
            with pytest.raises(AssertionError, match=said):
                browser.check(program, path, server)


def test_a_file_that_a_report_should_not_write_is_found(tmp_path):
    folder, page = hostile.write(tmp_path, hostile.texts(0), "links")
    before = hostile.content(tmp_path)
    page.write_text("new")
    hostile.check_files(before, tmp_path, page.__eq__)
    for path in (tmp_path / "mine.png", folder / "other.png"):
        path.write_text("new")
        with pytest.raises(AssertionError, match=path.name):
            hostile.check_files(before, tmp_path, page.__eq__)


def test_each_text_comes_to_each_place():
    n = len(hostile.TEXTS)
    places = [hostile.texts(i) for i in range(n)]
    for place in hostile.PLACES:
        assert {text[place] for text in places} == {*hostile.TEXTS}


@pytest.mark.slow
def test_a_short_run_of_all_attacks(tmp_path):
    path, out = f"{ROOT}{os.pathsep}{TESTS}", tmp_path / "attack.md"
    words = "-m", "attack", "--hours", 0.1, "--seed", 0, "--out", out
    process(*words, timeout=3000, PYTHONPATH=path)
    assert set(re.findall(r"\(`([\w-]+)`\)", out.read_text())) == {
        attack.name for attack in ATTACKS
    }

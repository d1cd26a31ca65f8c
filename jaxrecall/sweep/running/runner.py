"""Runs the chunks of a plan in this process."""

from __future__ import annotations

from ...process import Interrupts
from ..plan import Chunk, Plan
from ..simulators import Runner, runner_for
from ..store.store import Store
from .progress import Progress
from .recorder import Failure, Outcome, Recorder


def execute(plan: Plan, store: Store, progress: Progress, interrupts: Interrupts, resume_command: str) -> Outcome:
    """Runs every chunk of the plan; finished rows are saved every `part_seconds` and at the end of each chunk.

    A chunk that fails is reported with `resume_command`, and the others run.
    """
    runner = runner_for(plan.terms, progress)
    recorder = Recorder(plan, store, progress, interrupts, resume_command)
    with interrupts.patient():
        for chunk in plan.chunks:
            if recorder.stopping:
                break
            _run(chunk, runner, recorder)
            recorder.saver.end_part()
        recorder.close()
    recorder.learn(runner.measured, runner.compiled)
    return recorder.outcome


def _run(chunk: Chunk, runner: Runner, recorder: Recorder) -> None:
    """Runs a chunk until it is finished, fails or is to stop."""
    batches, left = runner.rows(chunk), {run.id: run for run in chunk.runs}
    while left and not recorder.stopping:
        try:
            with recorder.interrupts.droppable():
                runs, traces = next(batches)
        except KeyboardInterrupt:
            return
        except Exception as error:
            recorder.failed(chunk.part(list(left.values())), Failure.of(error))
            return
        ids = [run.id for run in runs]
        for run in ids:
            del left[run]
        if isinstance(traces, Failure):
            recorder.failed(chunk.part(runs), traces)
        else:
            recorder.finished(ids, traces, chunk)

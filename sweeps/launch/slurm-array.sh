#!/bin/bash
# A Slurm job array: every task runs one share of the grid into one folder that all nodes see. A search is divided by its cells.
#
#     sbatch sweeps/launch/slurm-array.sh sweeps/capacity.yaml results/capacity
#
# Other options of the sweep may follow. A task reads its share from the variables of the array, so --shard is not given. Submit the
# same line again to run what is missing; any number of tasks may share the folder.

#SBATCH --job-name=jaxrecall
#SBATCH --array=0-15               # 16 shares; from 0 or elsewhere, but without gaps
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@60           # a minute before the end: the batch in flight is finished and saved
#SBATCH --requeue                  # after the time limit or a preemption the task waits for its next turn; else --no-requeue
#SBATCH --open-mode=append         # then one log has all turns
#SBATCH --ntasks=1                 # one process a task; srun with more divides the task's share among them
#SBATCH --cpus-per-task=8          # on CPUs a run goes on each
##SBATCH --gpus-per-task=1         # on GPUs; one process uses all that it sees
##SBATCH --partition=YOURS
##SBATCH --account=YOURS

turns=100                          # most turns of a task, so that one without progress ends
task=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID

cd "$SLURM_SUBMIT_DIR" || exit
if [ ! -x .venv/bin/python ]; then
    echo "$PWD/.venv: is missing; submit from a folder that has it, or install: python3 -m venv .venv; .venv/bin/pip install ." >&2
    exit 2
fi
srun --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" \
    .venv/bin/python -m jaxrecall.sweep --grid "${1:-sweeps/capacity.yaml}" --out "${2:-results/capacity}" "${@:3}"
code=$?

# a signal ended the sweep (130), and the user has not cancelled the task
if [ $code = 130 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt "$turns" ]; then
    job=$(scontrol show job "$task")
    [[ $job = *JobState=RUNNING* && $job = *Requeue=1* ]] && scontrol requeue "$task"
fi
exit $code

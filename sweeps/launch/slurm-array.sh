#!/bin/bash
# A Slurm array by hand: every task runs one share of the grid into one folder that all nodes see.
#
#     sbatch sweeps/launch/slurm-array.sh sweeps/capacity.yaml results/capacity
#
# A task reads its share from SLURM_ARRAY_TASK_ID and SLURM_ARRAY_TASK_COUNT, so --shard is not given. Submit the same line again
# to run what is missing; any number of tasks may share the folder.

#SBATCH --job-name=jaxrecall
#SBATCH --array=0-15               # 16 shares; from 0 or elsewhere, but without gaps
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@60           # a minute before the end: the batch in flight is finished and saved
#SBATCH --cpus-per-task=8          # on CPUs a run goes on each
##SBATCH --gpus-per-task=1         # on GPUs; one process uses all that it sees
##SBATCH --partition=YOURS
##SBATCH --account=YOURS

# compiled programs on the node's own disk: a home on the network is slow, and shared by all tasks
export JAXRECALL_CACHE=${TMPDIR:-/tmp}/jaxrecall-$USER

cd "$SLURM_SUBMIT_DIR" || exit
source .venv/bin/activate
srun python -m jaxrecall.sweep --grid ${1:-sweeps/capacity.yaml} --out ${2:-results/capacity}

"""Carries out a plan: in this process, in worker processes, on Ray or Slurm."""

"""The launch script for Slurm, in a real Slurm of one node."""

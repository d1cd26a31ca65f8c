"""The fast implementation of the model, which uses padded float32 arrays and streams
samples.

The module `program` compiles the model for batches of runs.
"""

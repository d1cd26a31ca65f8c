"""The fast implementation of the model: in float32, padded, with streamed samples.

Module `program` compiles the model for batches of runs.
"""

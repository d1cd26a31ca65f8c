"""The fast implementation of the model: float32, padded and streamed.

`program` compiles it for batches of runs.
"""

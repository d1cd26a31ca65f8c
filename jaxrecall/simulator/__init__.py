"""The fast implementation: float32, padded, streamed; the only place with jit, vmap and
devices.
"""

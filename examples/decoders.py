"""Decoders of the initial gradient from counts of tokens and labels alone, for the grid decoders.yaml: no samples, any N and L.

A sweep with `decoders: true` has the same columns from samples, and the three steps beside them.
"""

import jax
import numpy as np

import jaxrecall
from jaxrecall import theory


def decoded(point, key):
    model = theory.Model(V=point.V, d=point.d, L=point.L, trigger_in_value=point.trigger_in_value)
    seed = int(np.asarray(jax.random.key_data(key))[-1])
    return {name: value[0] for name, value in theory.surrogate.decoders(model, point.N, [seed]).items()}


simulator = jaxrecall.Simulator(
    decoded,
    fields={
        "V": (int, None, 2, 65536, "static"),
        "d": (int, None, 2, 65536, "static"),
        "L": (int, None, 1, 65536, "static"),
        "N": (int, None, 1, 2**30, "static"),
        "trigger_in_value": (bool, True, None, None, "static"),
    },
    columns={
        "matched_accuracy": (float, "fraction of the labels that the matched filter recovers"),
        "whitened_accuracy": (float, "fraction of the labels that whitened least squares recovers"),
        "assignment_accuracy": (float, "fraction of the labels that the best one-to-one assignment of it recovers"),
    },
    accuracy="assignment_accuracy",
    jit=False,
)

"""The settings in which the formulas were measured to be off by a factor of 2 or more.

docs/theory.md, section 5.4 has the measurements.
"""

from __future__ import annotations

from .model import Model, warn
from .noise import gains, has_score_noise

LEAST_KAPPA = 5.0
"""The smallest score of the trigger (nats, without samples' own noise) at which theory
was measured to hold.
"""

ASSUMED = (
    "eta near 0, three steps on the same samples, tokens equally frequent",
    "kappa at least 5 where attention matters, and d at least about 10",
    "measured critical N at theta = 0.5: within 8 % in the median cell and 40 % in the"
    " worst of 237; where accuracy levels off near theta, far worse",
)
"""What `critical_N` assumes, for whoever reads its result."""


def limits(model: Model) -> list[str]:
    """Returns sentences about the settings of a model in which the accuracy and the
    critical sizes of theory were measured to be off by a factor of 2 or more;
    docs/theory.md, section 5.4.

    The list is empty where no such setting is known.
    """
    if model.L == 1 or not has_score_noise(model):
        return []
    found = []
    score = model.kappa * gains(model).total / model.trigger_length**2
    if score < LEAST_KAPPA:
        of = "" if score == model.kappa else f", which acts like {score:.2g}"
        found.append(
            f"kappa: got {model.kappa:g}{of}; below {LEAST_KAPPA:g} attention stays"
            " open, and critical N was measured to be 2 to 3 times larger than theory's"
        )
    return found


def warn_of_limits(model: Model) -> None:
    """Warns with TheoryWarning of each of the `limits`."""
    for line in limits(model):
        warn(line)

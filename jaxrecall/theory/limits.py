"""The settings in which the formulas were measured to be off by a factor of 2 or more.

docs/theory-derivations.md, section 5.4 has the measurements.
"""

from __future__ import annotations

from .first_steps import are_drawn
from .model import Model, warn
from .noise import gains, has_score_noise

LEAST_KAPPA = 5.0
"""The smallest score of the trigger (nats, with many samples) at which theory was
measured to be within a factor of 2. Without an MLP the score is kappa.
"""

LEAST_WITH_COMMON = 10.0
"""The same, if all rows of the embeddings share a direction."""

FLAT = 0.03
"""The smallest rise of accuracy from N to 2 N at which critical N was measured to be
within a factor of 2. It is also the mean error of the predicted accuracy.
"""

AT_SMALL_ETA = (
    "assumed: three steps, eta near 0, equally frequent tokens, d at least about 10",
    "measured: at theta = 0.5, critical N of 237 configurations is off by 6 to 8 % in"
    " the median and 40 % in the worst",
)
AT_FINITE_ETA = (
    "assumed: predictions that stay nearly uniform, equally frequent tokens",
    "measured: at theta = 0.5, critical N of four configurations with several first"
    " steps and the trigger in the value is off by up to 6 %",
)
DRAWN = (
    "assumed: equally frequent tokens that are drawn, and the trigger in the key only",
    "measured: at theta = 0.5, critical N of 27 configurations with one last step is"
    " off by 6 % in the median and 33 % in the worst, and of 46 with 65 last steps by"
    " 13 % and 45 %",
)


def assumed(model: Model) -> tuple[str, ...]:
    """Returns lines about what `critical_N` assumes, and how far it was off."""
    if are_drawn(model):
        return DRAWN
    return AT_FINITE_ETA if model.eta else AT_SMALL_ETA


def warn_of_limits(model: Model) -> None:
    """Warns with TheoryWarning if no formula covers attention, or if kappa is so small
    that the accuracy and the critical sizes of theory were measured to be off by a
    factor of 2 or more; docs/theory-derivations.md, section 5.4.
    """
    if model.L == 1:
        return
    if not has_score_noise(model):
        warn(
            f"embedding: got '{model.embedding}' with m={model.m}; theory assumes that"
            " attention is locked"
        )
        return
    least, off = LEAST_KAPPA, "1.5 to 3 times larger than theory's, or more"
    if model.common_length:
        least, off = LEAST_WITH_COMMON, "up to 3 times smaller or larger than theory's"
    least *= model.trigger_length**2 / gains(model).total
    if model.kappa < least:
        warn(
            f"kappa: got {model.kappa:g}; theory holds from about {least:.2g} on."
            f" Below, critical N was measured to be {off}"
        )

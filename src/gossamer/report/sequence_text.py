"""Contraction of links that change from step to step, in words."""


def describe_sequence(period: int | None, contraction: float, symmetric: bool) -> str:
    """What a period, or a random round, does to the disagreement."""
    if period is None:
        how = f"random: rho(E[C^T C] - 11^T/m) {contraction:.6g}, of the expected squared disagreement in a round"
    else:
        how = f"period {period}: |product of C^t - 11^T/m| {contraction:.6g}"
    return f"{how}; C^t doubly stochastic{'' if symmetric else ', not symmetric'}"

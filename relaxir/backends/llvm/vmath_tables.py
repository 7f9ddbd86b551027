"""Coefficients of the polynomials in `vmath`, lowest power first unless stated.

``EXP`` and ``TANH`` are weighted minimax fits with each coefficient rounded to single precision before the next was
fitted; ``LOG``, ``SIN``, ``COS`` are Moshier's (Cephes); ``ERF_*`` are Juffa's.
"""

import struct
from typing import Final

LOG2E: Final = 1.4426950408889634
EXP_LN2_HIGH: Final = 0.693145751953125
EXP_LN2_LOW: Final = 1.428606765330187e-06
EXP: Final = (1.0, 1.0, 0.49999994, 0.166665211, 0.0416682623, 0.00836867001, 0.00138210249)
"""e^r for |r| <= ln(2)/2."""
EXP2: Final = (1.0, 0.693147004, 0.240222469, 0.0555071086, 0.0096712932, 0.00132695551)
"""2^f for |f| <= 1/2, to 9e-8."""
EXP_SHORT: Final = (1.0, 0.50001398, 0.16666971)
"""(e^r - 1)/r for |r| <= ln(2)/32."""
SIXTEENTHS: Final = tuple(struct.unpack("<16f", struct.pack("<16f", *(2.0 ** (k / 16) for k in range(16)))))
"""2^(k/16) in single precision."""
SIXTEENTHS_LOST: Final = tuple(2.0 ** (k / 16) / SIXTEENTHS[k] - 1.0 for k in range(16))
"""How much larger 2^(k/16) is, relatively."""

LOG: Final = (
    3.3333331174e-1, -2.4999993993e-1, 2.0000714765e-1, -1.6668057665e-1, 1.4249322787e-1,
    -1.2420140846e-1, 1.1676998740e-1, -1.1514610310e-1, 7.0376836292e-2,
)  # fmt: skip
"""(log(1 + f) - f + f^2/2) / f^3 for sqrt(1/2) <= 1 + f < sqrt(2)."""
LOG_LN2_HIGH: Final = 0.693359375
LOG_LN2_LOW: Final = -2.12194440e-4
LOG2E_LESS_1: Final = 0.44269504088896340735992

TANH: Final = (-0.333333284, 0.133327365, -0.053846173, 0.020974562, -0.006063197)
"""(tanh(x)/x - 1) / x^2 in x^2, for |x| < 0.625."""

ERF_SMALL: Final = (1.28379166e-1, -3.76125336e-1, 1.12819925e-1, -2.67681349e-2, 4.99119423e-3, -5.96761703e-4)
"""erf(x)/x - 1 in x^2, for |x| <= 0.921875."""
ERF_LARGE: Final = (-1.28717512e-1, -6.34846687e-1, -1.06777877e-1)
ERF_LARGE_EVEN: Final = (2.42546219e-2, -3.88396438e-3)
ERF_LARGE_ODD: Final = (3.83197126e-4, -1.72853470e-5)

NORMAL_TAIL: Final = (
    -1.0, -1.15110850334, -0.459173619747, -0.0526094809175, 0.00722671998665, -0.000252175639616, -0.000147680781083,
    3.5410495912e-05, -3.53091104444e-06, 1.37574744485e-07,
)  # fmt: skip
"""log2 of the standard normal's tail above a, for 0 <= a <= 7: a minimax fit that allows 5e-8 times the result and
more beyond 2.5, rounded as above."""

SIN: Final = (-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4)
"""(sin(r)/r - 1) / r^2 in r^2, for |r| <= pi/4."""
COS: Final = (4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5)
"""(cos(r) - 1 + r^2/2) / r^4 in r^2."""
TWO_OVER_PI: Final = 0.6366197723675814
HALF_PI_HIGH: Final = 1.57079632673412561417
HALF_PI_LOW: Final = 6.07710050650619224932e-11
TRIG_LIMIT: Final = 2.0**28
"""From here on arguments are reduced by the C library."""
TRIG_LIMIT_UNFUSED: Final = 2.0**20
"""The same without fused multiply-add: the product with the high part of pi/2 must be exact."""

LOG2_SERIES: Final = tuple(2.0 * LOG2E / (2 * k + 1) for k in range(9))
"""log2((1 + f)/(1 - f)) / f in f^2, double precision."""
EXP2_SERIES: Final = (
    1.0, 0.6931471805599453, 0.24022650695910072, 0.05550410866482158, 0.009618129107628477,
    0.0013333558146428443, 0.00015403530393381608, 1.525273380405984e-05, 1.3215486790144307e-06,
    1.0178086009239699e-07,
)  # fmt: skip
"""2^r for |r| <= 1/2, double precision."""

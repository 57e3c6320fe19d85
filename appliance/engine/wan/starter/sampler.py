"""Flow-matching samplers on Wan's grid: sigma = linspace(0.999, 0, N+1) without its end, shifted; UniPC of order 2."""
import math


def grid(steps, shift):
    raw = [.999 * (1 - i / steps) for i in range(steps)]
    return [shift * s / (1 + (shift - 1) * s) for s in raw] + [0.]


def half_log_snr(sigma):
    return math.log(1 - sigma) - math.log(sigma)


def unipc(x, velocity, steps, shift):
    """x: noise. velocity(x, t) with t = floor(1000 sigma). The "bh2" form, predicting x0, corrector on every step."""
    sigmas, older, m0, last, order = grid(steps, shift), None, None, None, 0
    for i, s in enumerate(sigmas[:-1]):
        m = x - s * velocity(x, float(int(s * 1000)))
        if i:
            x = correct(last, m, m0, older, sigmas, i, order)
        older, m0, last = m0, m, x
        order = min(2, steps - i, i + 1)
        x = predict(x, m0, older, sigmas, i, order)
    return x


def predict(x, m0, older, sigmas, i, order):
    s, t = sigmas[i], sigmas[i + 1]
    if t == 0:
        return m0
    h = half_log_snr(t) - half_log_snr(s)
    e = math.expm1(-h)
    y = (t / s) * x - (1 - t) * e * m0
    if order == 2:
        r = (half_log_snr(sigmas[i - 1]) - half_log_snr(s)) / h
        y = y - (1 - t) * e * .5 * (older - m0) / r
    return y


def correct(last, m, m0, older, sigmas, i, order):
    """x at sigmas[i] again, now with m, the x0 found there. order: that of the prediction that led here."""
    a, s = sigmas[i - 1], sigmas[i]
    h = half_log_snr(s) - half_log_snr(a)
    e = math.expm1(-h)
    base = (s / a) * last - (1 - s) * e * m0
    if order == 1:
        return base - (1 - s) * e * .5 * (m - m0)
    r = (half_log_snr(sigmas[i - 2]) - half_log_snr(a)) / h
    k1 = e / -h - 1
    k2 = k1 / -h - .5
    b1, b2 = k1 / e, 2 * k2 / e
    rho1 = (b1 - b2) / (1 - r)
    return base - (1 - s) * e * (rho1 * (older - m0) / r + (b1 - rho1) * (m - m0))


def euler(x, velocity, steps, shift):
    sigmas = grid(steps, shift)
    for s, t in zip(sigmas[:-1], sigmas[1:]):
        x = x + (t - s) * velocity(x, float(int(s * 1000)))
    return x

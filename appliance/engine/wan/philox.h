/* Counter-based noise that has the same bits on every machine: Philox4x32-10 and Box-Muller in
 * double with additions, multiplications, divisions and square roots alone, each correctly rounded
 * as IEEE 754 demands. Whoever compiles this must not contract a · b + c (-ffp-contract=off; nvcc:
 * -fmad=false) and, for a device, defines PHILOX_FN as its function qualifiers.
 *
 * Number i of a seed is element i % 4 of block i / 4. A block's four 32-bit numbers r become
 * u = (r + ½) · 2⁻³², and two of them a pair of normals:
 * √(−2 ln u₀) · cos 2πu₁ and √(−2 ln u₀) · sin 2πu₁.
 * source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011); Box and Muller (1958)
 */
#ifndef RL_ENGINE_WAN_PHILOX_H
#define RL_ENGINE_WAN_PHILOX_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef PHILOX_FN
#define PHILOX_FN static inline
#endif

#define PHILOX_ROUNDS 10

/* The bijection: counter [4] under key [2], in place. */
PHILOX_FN void philox_4x32(uint32_t counter[4], uint32_t key0, uint32_t key1)
{
    for (int i = 0; i < PHILOX_ROUNDS; i++) {
        uint64_t a = (uint64_t)0xD2511F53U * counter[0], b = (uint64_t)0xCD9E8D57U * counter[2];
        counter[0] = (uint32_t)(b >> 32) ^ counter[1] ^ key0;
        counter[1] = (uint32_t)b;
        counter[2] = (uint32_t)(a >> 32) ^ counter[3] ^ key1;
        counter[3] = (uint32_t)a;
        key0 += 0x9E3779B9U;
        key1 += 0xBB67AE85U;
    }
}

/* ln u for a normal u > 0: u = m · 2ᵉ with m in √½..√2, ln m = 2 artanh((m − 1) / (m + 1)) by its
 * series; the first term left out is below 2⁻⁵³ of the sum. */
PHILOX_FN double philox_ln(double u)
{
    uint64_t bits;
    memcpy(&bits, &u, sizeof bits);
    int e = (int)(bits >> 52) - 1023;
    bits = (bits & 0x000fffffffffffffU) | 0x3ff0000000000000U;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m = m * 0.5;
        e++;
    }
    const double term[] = {1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11,
                           1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21};
    double s = (m - 1) / (m + 1), q = s * s, sum = term[9];
    for (int i = 8; i >= 0; i--)
        sum = sum * q + term[i];
    sum = sum * q + 1;
    return (double)e * 0.69314718055994531 + 2 * s * sum;
}

/* cos and sin of 2πu, u in 0..1: a quarter turn and Taylor's series within ±π/4. */
PHILOX_FN void philox_turn(double u, double *ret_cos, double *ret_sin)
{
    double t = u * 4;
    int quarter = (int)(t + 0.5);
    const double cos_term[] = {1.0,
                               -1.0 / 2,
                               1.0 / 24,
                               -1.0 / 720,
                               1.0 / 40320,
                               -1.0 / 3628800,
                               1.0 / 479001600,
                               -1.0 / 87178291200,
                               1.0 / 20922789888000};
    const double sin_term[] = {1.0,
                               -1.0 / 6,
                               1.0 / 120,
                               -1.0 / 5040,
                               1.0 / 362880,
                               -1.0 / 39916800,
                               1.0 / 6227020800,
                               -1.0 / 1307674368000,
                               1.0 / 355687428096000};
    double x = (t - quarter) * 1.5707963267948966, q = x * x, c = cos_term[8], s = sin_term[8];
    for (int i = 7; i >= 0; i--) {
        c = c * q + cos_term[i];
        s = s * q + sin_term[i];
    }
    s = x * s;
    switch (quarter & 3) {
    case 0:
        *ret_cos = c;
        *ret_sin = s;
        break;
    case 1:
        *ret_cos = -s;
        *ret_sin = c;
        break;
    case 2:
        *ret_cos = -c;
        *ret_sin = -s;
        break;
    default:
        *ret_cos = s;
        *ret_sin = -c;
        break;
    }
}

/* Four normals of a seed: numbers 4 · block … 4 · block + 3. */
PHILOX_FN void philox_normal(float y[4], uint64_t seed, uint64_t block)
{
    uint32_t r[4] = {(uint32_t)block, (uint32_t)(block >> 32), 0, 0};
    philox_4x32(r, (uint32_t)seed, (uint32_t)(seed >> 32));
    for (int i = 0; i < 4; i += 2) {
        double cosine, sine;
        double radius = sqrt(-2 * philox_ln(((double)r[i] + 0.5) * 0x1p-32));
        philox_turn(((double)r[i + 1] + 0.5) * 0x1p-32, &cosine, &sine);
        y[i] = (float)(radius * cosine);
        y[i + 1] = (float)(radius * sine);
    }
}

#endif

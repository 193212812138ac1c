// SPDX-License-Identifier: Apache-2.0
//
// exp, sigmoid, tanh and softplus, once, as fixed sequences of correctly rounded steps. Every table
// instantiates them over its own vector, so every table returns the same bits. At most 2 ulp over
// all fp32 inputs, denormal results included; a NaN gives the quiet NaN 0x7fc00000.
//
// Ops is a struct of an anonymous namespace (so the instantiations stay local to its object file):
// types Float and Mask, and the static functions called below. max(a, b) is a > b ? a : b and
// min(a, b) is a < b ? a : b, also for NaN and signed zeros; scale_by_power(p, t) is p * 2^n in two
// steps, where n is the integer that fma(x, y, kRound) left in the low bits of t.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace penstock {

inline constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
inline constexpr int32_t kRoundBits = 0x4B400000;
inline constexpr int32_t kQuietNanBits = 0x7FC00000;

template <class Ops>
struct MathSteps {
  using Float = typename Ops::Float;

  static Float exp(Float x) { return keep_nan(x, exp_number(x)); }

  // 1 / (1 + z) or, below zero, z / (1 + z), with z = e^-|x|.
  static Float sigmoid(Float x) {
    const Float z = exp_number(Ops::negate(Ops::abs(x)));
    const Float one = Ops::set(1.0F);
    return keep_nan(x, over_one_plus(Ops::select(Ops::less(x, Ops::set(0.0F)), z, one), z));
  }

  // x + x^3 P(x^2) near zero, else 1 - 2 z / (1 + z) with z = e^-2|x|; the sign of x throughout.
  static Float tanh(Float x) {
    const Float a = Ops::abs(x);
    const Float a2 = Ops::mul(a, a);
    const Float small = Ops::fma(Ops::mul(a, a2), polynomial(kTanh, a2), a);
    const Float z = exp_number(Ops::mul(a, Ops::set(-2.0F)));
    const Float large = Ops::fma(over_one_plus(z, z), Ops::set(-2.0F), Ops::set(1.0F));
    const Float y = Ops::select(Ops::less(a, Ops::set(0.625F)), small, large);
    return keep_nan(x, Ops::copy_sign(y, x));
  }

  // max(x, 0) + log(1 + e^-|x|).
  static Float softplus(Float x) {
    const Float z = exp_number(Ops::negate(Ops::abs(x)));
    // log(1 + z) is taken at f = z, or at f = (z - 1) / 2 with ln 2 added: f in [-0.25, 0.5].
    const auto half = Ops::less(z, Ops::set(0.5F));
    const Float folded = Ops::mul(Ops::sub(z, Ops::set(1.0F)), Ops::set(0.5F));
    const Float f = Ops::select(half, z, folded);
    const Float base = Ops::select(half, Ops::set(0.0F), Ops::set(kLn2));
    const Float log = Ops::fma(Ops::mul(f, f), polynomial(kLog, f), f);
    return keep_nan(x, Ops::add(Ops::max(x, Ops::set(0.0F)), Ops::add(log, base)));
  }

 private:
  static constexpr float kLog2E = 1.44269504F;
  static constexpr float kLn2 = 0.693147182F;
  static constexpr float kLn2High = 0.693145751953125F;  // 15 bits: exact times any exponent
  static constexpr float kLn2Low = 1.42860677e-06F;
  // Chebyshev interpolants, rounded to fp32:
  // (e^r - 1 - r) / r^2 on |r| <= 0.3475,
  static constexpr float kExp[] = {0.5F, 0.166665763F, 0.0416665524F, 0.00836333353F,
                                   0.00139263761F};
  // (tanh(x) / x - 1) / x^2 in x^2 on [0, 0.3907],
  static constexpr float kTanh[] = {-0.333333343F, 0.133333042F,    -0.0539592542F,
                                    0.021768868F,  -0.00834378041F, 0.00229255762F};
  // (log(1 + f) - f) / f^2 on [-0.25, 0.5].
  static constexpr float kLog[] = {-0.5F,          0.333333343F, -0.25000152F, 0.199999258F,
                                   -0.16656667F,   0.142704621F, -0.12699309F, 0.11716111F,
                                   -0.0929186866F, 0.03944223F};

  template <size_t count>
  static Float polynomial(const float (&c)[count], Float x) {
    Float p = Ops::set(c[count - 1]);
    for (size_t i = count - 1; i > 0; --i) p = Ops::fma(p, x, Ops::set(c[i - 1]));
    return p;
  }

  static Float keep_nan(Float x, Float y) {
    return Ops::select(Ops::is_nan(x), Ops::from_bits(kQuietNanBits), y);
  }

  // e^x; a NaN counts as the lower bound. The bounds give 0 and infinity by ordinary rounding.
  static Float exp_number(Float x) {
    const Float c = Ops::min(Ops::max(x, Ops::set(-104.0F)), Ops::set(89.0F));
    const Float t = Ops::fma(c, Ops::set(kLog2E), Ops::set(kRound));
    const Float n = Ops::sub(t, Ops::set(kRound));
    const Float r = Ops::fma(n, Ops::set(-kLn2Low), Ops::fma(n, Ops::set(-kLn2High), c));
    const Float e = Ops::fma(Ops::mul(r, r), polynomial(kExp, r), r);
    return Ops::scale_by_power(Ops::add(e, Ops::set(1.0F)), t);
  }

  // y / (1 + z) for z in [0, 1]: the quotient by the rounded sum, corrected for both roundings.
  static Float over_one_plus(Float y, Float z) {
    const Float one = Ops::set(1.0F);
    const Float sum = Ops::add(one, z);
    const Float lost = Ops::sub(z, Ops::sub(sum, one));
    const Float inverse = Ops::div(one, sum);
    const Float q = Ops::mul(y, inverse);
    const Float minus_q = Ops::negate(q);
    return Ops::fma(Ops::fma(minus_q, lost, Ops::fma(minus_q, sum, y)), inverse, q);
  }
};

}  // namespace penstock

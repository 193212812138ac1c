// SPDX-License-Identifier: Apache-2.0
#include "common.h"

extern "C" {

// softmax cross entropy on bf16 logits, in place gradient; returns weighted loss sum.
void xent(int M, int V, bf* logits, const int* tgt, const float* w, float inv, float* loss,
          int* hit) {
#pragma omp parallel for schedule(static)
  for (int t = 0; t < M; t++) {
    bf* l = logits + (size_t)t * V;
    float mx = -1e30f;
    for (int i = 0; i < V; i++) mx = std::max(mx, ld(l[i]));
    float z = 0;
    for (int i = 0; i < V; i++) z += expf(ld(l[i]) - mx);
    float lt = ld(l[tgt[t]]);
    loss[t] = logf(z) + mx - lt;
    hit[t] = lt >= mx;
    float f = w[t] * inv, iz = f / z;
    for (int i = 0; i < V; i++) {
      float p = expf(ld(l[i]) - mx) * iz;
      l[i] = st(i == tgt[t] ? p - f : p);
    }
  }
}

// MXFP4: better of two power-of-two scales per 32 inputs; out = dequantised bf16 (exact); optional
// packed and scale.
static inline __m512 q4(__m512 x) {  // |x| -> nearest E2M1 magnitude, ties to even: quantum is half
                                     // the power of two below (at least 0.5)
  __m512 one = _mm512_set1_ps(1.f),
         e = _mm512_sub_ps(_mm512_max_ps(_mm512_getexp_ps(_mm512_max_ps(x, _mm512_set1_ps(1e-20f))),
                                         _mm512_setzero_ps()),
                           one);
  __m512 y = _mm512_scalef_ps(
      _mm512_roundscale_ps(_mm512_scalef_ps(x, _mm512_sub_ps(_mm512_setzero_ps(), e)), 0), e);
  return _mm512_min_ps(y, _mm512_set1_ps(6.f));
}

void mxfp4(long groups, const float* w, bf* out, uint8_t* packed, uint8_t* scale) {
#pragma omp parallel for schedule(static)
  for (long g = 0; g < groups; g++) {
    const float* a = w + g * 32;
    __m512 a0 = _mm512_loadu_ps(a), a1 = _mm512_loadu_ps(a + 16), x0 = _mm512_abs_ps(a0),
           x1 = _mm512_abs_ps(a1);
    float mx = std::max(_mm512_reduce_max_ps(_mm512_max_ps(x0, x1)), 1e-20f);
    uint32_t u;
    float f6 = mx / 6.f;
    memcpy(&u, &f6, 4);
    int e0 = (int)(u >> 23) - 127 + ((u & 0x7fffff) != 0);
    e0 = std::max(e0, -60);
    int be = e0;
    float best = 3e38f;
    __m512 b0 = x0, b1 = x1;
    for (int e = e0; e >= e0 - 1; e--) {
      __m512 s = _mm512_set1_ps((float)e), n = _mm512_set1_ps((float)-e),
             y0 = _mm512_scalef_ps(q4(_mm512_scalef_ps(x0, n)), s),
             y1 = _mm512_scalef_ps(q4(_mm512_scalef_ps(x1, n)), s);
      __m512 d0 = _mm512_sub_ps(x0, y0), d1 = _mm512_sub_ps(x1, y1);
      float err = _mm512_reduce_add_ps(_mm512_fmadd_ps(d0, d0, _mm512_mul_ps(d1, d1)));
      if (err < best) {
        best = err;
        be = e;
        b0 = y0;
        b1 = y1;
      }
    }
    float v[32];
    __m512i sg = _mm512_set1_epi32((int)0x80000000);
    _mm512_storeu_si512(
        v, _mm512_or_si512(_mm512_castps_si512(b0), _mm512_and_si512(_mm512_castps_si512(a0), sg)));
    _mm512_storeu_si512(v + 16, _mm512_or_si512(_mm512_castps_si512(b1),
                                                _mm512_and_si512(_mm512_castps_si512(a1), sg)));
    for (int i = 0; i < 32; i++) out[g * 32 + i] = st(v[i]);
    if (scale) scale[g] = (uint8_t)(be + 127);
    if (packed)
      for (int i = 0; i < 32; i += 2) {
        int code[2];
        for (int k = 0; k < 2; k++) {
          float m = fabsf(v[i + k]) * ldexpf(1.f, -be);
          code[k] = (m == 0      ? 0
                     : m == .5f  ? 1
                     : m == 1    ? 2
                     : m == 1.5f ? 3
                     : m == 2    ? 4
                     : m == 3    ? 5
                     : m == 4    ? 6
                                 : 7) |
                    (std::signbit(v[i + k]) ? 8 : 0);
        }
        packed[g * 16 + i / 2] = (uint8_t)(code[0] | code[1] << 4);
      }
  }
}

// Muon: momentum + Nesterov + normalise to bf16 before Newton-Schulz, and the update after it;
// `cnt` matrices of `len` values.
void muon_pre(int cnt, int len, const float** g, float** buf, float mom, bf* X) {
#pragma omp parallel for schedule(static)
  for (int m = 0; m < cnt; m++) {
    float q = 0;
    const float* a = g[m];
    float* b = buf[m];
    for (int i = 0; i < len; i++) {
      b[i] = mom * b[i] + a[i];
      float x = a[i] + mom * b[i];
      q += x * x;
    }
    float r = 1.f / (sqrtf(q) + 1e-20f);
    bf* o = X + (size_t)m * len;
    for (int i = 0; i < len; i++) o[i] = st((a[i] + mom * b[i]) * r);
  }
}

void muon_post(int cnt, int len, float** w, const bf* X, float decay, float lr) {
#pragma omp parallel for schedule(static)
  for (int m = 0; m < cnt; m++) {
    const bf* x = X + (size_t)m * len;
    float* a = w[m];
    for (int i = 0; i < len; i++) a[i] = a[i] * decay - lr * ld(x[i]);
  }
}

}  // extern "C"

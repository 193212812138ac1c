// SPDX-License-Identifier: Apache-2.0
#include "common.h"

extern "C" {

// Attention residual mix followed by RMSNorm.
// n sources s_j [N][H] fp32; wp[H] = norm_w*proj_w; p = softmax_j(sum_i s_j*r_j*wp); mix = sum p_j
// s_j; y = bf16(mix * rsqrt(mean mix^2+eps) * w).  n == 1 is a plain RMSNorm.  P [N][n], R [N][n],
// RO [N] are kept for backward.
void mixnorm_fwd(int N, int H, int n, const float** s, const float* wp, const float* w, float eps,
                 bf* y, float* P, float* R, float* RO) {
#pragma omp parallel for schedule(static)
  for (int t = 0; t < N; t++) {
    float sc[8];
    const float* S[8];
    float mx = -1e30f;
    for (int j = 0; j < n; j++) {
      const float* a = S[j] = s[j] + (size_t)t * H;
      float q = 0, d = 0;
      for (int i = 0; i < H; i++) {
        q += a[i] * a[i];
        d += a[i] * wp[i];
      }
      float r = 1.f / sqrtf(q / H + 1e-5f);
      R[t * n + j] = r;
      sc[j] = d * r;
      mx = std::max(mx, sc[j]);
    }
    float z = 0;
    for (int j = 0; j < n; j++) {
      sc[j] = expf(sc[j] - mx);
      z += sc[j];
    }
    float m[1024];
    for (int i = 0; i < H; i++) m[i] = 0;
    for (int j = 0; j < n; j++) {
      float p = sc[j] / z;
      P[t * n + j] = p;
      const float* a = S[j];
      for (int i = 0; i < H; i++) m[i] += p * a[i];
    }
    float q = 0;
    for (int i = 0; i < H; i++) q += m[i] * m[i];
    float r = 1.f / sqrtf(q / H + eps);
    RO[t] = r;
    bf* o = y + (size_t)t * H;
    for (int i = 0; i < H; i++) o[i] = st(m[i] * r * w[i]);
  }
}

void mixnorm_bwd(int N, int H, int n, const float** s, const float* wp, const float* w,
                 const bf* dy, const float* P, const float* R, const float* RO, float** ds,
                 float* dwp, float* dw) {
  int nt = omp_get_max_threads();
  std::vector<float> acc((size_t)nt * 2 * H, 0.f);
#pragma omp parallel
  {
    float* awp = &acc[(size_t)omp_get_thread_num() * 2 * H];
    float* aw = awp + H;
    float m[1024], dm[1024];
#pragma omp for schedule(static)
    for (int t = 0; t < N; t++) {
      const float* S[8];
      for (int i = 0; i < H; i++) m[i] = 0;
      for (int j = 0; j < n; j++) {
        float p = P[t * n + j];
        const float* a = S[j] = s[j] + (size_t)t * H;
        for (int i = 0; i < H; i++) m[i] += p * a[i];
      }
      float r = RO[t], dot = 0;
      const bf* g = dy + (size_t)t * H;
      for (int i = 0; i < H; i++) {
        float gi = ld(g[i]);
        aw[i] += gi * m[i] * r;
        dm[i] = gi * w[i];
        dot += dm[i] * m[i];
      }
      float c = dot * r * r * r / H;
      for (int i = 0; i < H; i++) dm[i] = dm[i] * r - m[i] * c;
      float dp[8], tot = 0;
      for (int j = 0; j < n; j++) {
        float d = 0;
        const float* a = S[j];
        for (int i = 0; i < H; i++) d += dm[i] * a[i];
        dp[j] = d;
        tot += d * P[t * n + j];
      }
      for (int j = 0; j < n; j++) {
        float p = P[t * n + j], rj = R[t * n + j];
        const float* a = S[j];
        float* o = ds[j] + (size_t)t * H;
        if (n == 1) {
          for (int i = 0; i < H; i++) o[i] = dm[i];
          continue;
        }
        float dsc = p * (dp[j] - tot), sw = 0;
        for (int i = 0; i < H; i++) sw += a[i] * wp[i];
        float k1 = dsc * rj, k2 = dsc * sw * rj * rj * rj / H;
        for (int i = 0; i < H; i++) {
          o[i] = p * dm[i] + k1 * wp[i] - k2 * a[i];
          awp[i] += k1 * a[i];
        }
      }
    }
  }
  for (int k = 0; k < nt; k++)
    for (int i = 0; i < H; i++) {
      dwp[i] += acc[(size_t)k * 2 * H + i];
      dw[i] += acc[(size_t)k * 2 * H + H + i];
    }
}

// RMSNorm on bf16 rows with a row stride (q_a / kv_a norms, routed_expert_norm).
void rms_fwd(int N, int H, int ldx, const bf* x, const float* w, float eps, bf* y, float* RO) {
#pragma omp parallel for schedule(static)
  for (int t = 0; t < N; t++) {
    const bf* a = x + (size_t)t * ldx;
    float q = 0;
    for (int i = 0; i < H; i++) {
      float v = ld(a[i]);
      q += v * v;
    }
    float r = 1.f / sqrtf(q / H + eps);
    RO[t] = r;
    bf* o = y + (size_t)t * H;
    for (int i = 0; i < H; i++) o[i] = st(ld(a[i]) * r * w[i]);
  }
}

void rms_bwd(int N, int H, int ldx, const bf* x, const float* w, const bf* dy, const float* RO,
             bf* dx, int lddx, float* dw) {
  int nt = omp_get_max_threads();
  std::vector<float> acc((size_t)nt * H, 0.f);
#pragma omp parallel
  {
    float* aw = &acc[(size_t)omp_get_thread_num() * H];
#pragma omp for schedule(static)
    for (int t = 0; t < N; t++) {
      const bf* a = x + (size_t)t * ldx;
      const bf* g = dy + (size_t)t * H;
      float r = RO[t], dot = 0;
      for (int i = 0; i < H; i++) {
        float gi = ld(g[i]), v = ld(a[i]);
        aw[i] += gi * v * r;
        dot += gi * w[i] * v;
      }
      float c = dot * r * r * r / H;
      bf* o = dx + (size_t)t * lddx;
      for (int i = 0; i < H; i++) o[i] = st(ld(g[i]) * w[i] * r - ld(a[i]) * c);
    }
  }
  for (int k = 0; k < nt; k++)
    for (int i = 0; i < H; i++) dw[i] += acc[(size_t)k * H + i];
}

// SiTU on a fused [gate | up] row: a = 4 tanh(g/4) sig(g) * 25 tanh(u/25).
static inline float tanh_(float x) {
  x = std::min(std::max(x, -9.f), 9.f);
  float e = expf(2 * x);
  return (e - 1) / (e + 1);
}

void situ_fwd(int N, int I, const bf* h, bf* a) {
#pragma omp parallel for schedule(static)
  for (int t = 0; t < N; t++) {
    const bf* g = h + (size_t)t * 2 * I;
    const bf* u = g + I;
    bf* o = a + (size_t)t * I;
    for (int i = 0; i < I; i++) {
      float x = ld(g[i]), y = ld(u[i]);
      o[i] = st(4 * tanh_(x * .25f) * sig(x) * 25 * tanh_(y * .04f));
    }
  }
}

void situ_bwd(int N, int I, const bf* h, const bf* da, bf* dh) {
#pragma omp parallel for schedule(static)
  for (int t = 0; t < N; t++) {
    const bf* g = h + (size_t)t * 2 * I;
    const bf* u = g + I;
    const bf* d = da + (size_t)t * I;
    bf* o = dh + (size_t)t * 2 * I;
    for (int i = 0; i < I; i++) {
      float x = ld(g[i]), y = ld(u[i]), dd = ld(d[i]), th = tanh_(x * .25f), s = sig(x),
            tu = tanh_(y * .04f);
      o[i] = st(dd * 25 * tu * ((1 - th * th) * s + 4 * th * s * (1 - s)));
      o[I + i] = st(dd * 4 * th * s * (1 - tu * tu));
    }
  }
}

}  // extern "C"

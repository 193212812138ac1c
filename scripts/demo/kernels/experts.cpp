// SPDX-License-Identifier: Apache-2.0
#include "common.h"

extern "C" {

// MoE routing.
// sel [N][K] expert, wt [N][K] weight, pos [N][K] row in the expert-sorted buffer; segments padded
// to `pad` rows; seg [E+1].
int route(int N, int E, int K, const float* logits, const float* bias, int pad, int* sel, float* wt,
          int* pos, int* seg, int* load) {
  for (int e = 0; e < E; e++) load[e] = 0;
#pragma omp parallel for schedule(static)
  for (int t = 0; t < N; t++) {
    float s[512], b[512];
    for (int e = 0; e < E; e++) {
      s[e] = sig(logits[(size_t)t * E + e]);
      b[e] = s[e] + bias[e];
    }
    float sum = 0;
    for (int k = 0; k < K; k++) {
      int m = 0;
      for (int e = 1; e < E; e++)
        if (b[e] > b[m]) m = e;
      sel[t * K + k] = m;
      b[m] = -1e30f;
      sum += s[m];
    }
    for (int k = 0; k < K; k++) wt[t * K + k] = s[sel[t * K + k]] / (sum + 1e-20f);
  }
  for (int i = 0; i < N * K; i++) load[sel[i]]++;
  int at = 0;
  std::vector<int> cur(E);
  for (int e = 0; e < E; e++) {
    seg[e] = cur[e] = at;
    at += (load[e] + pad - 1) / pad * pad;
  }
  seg[E] = at;
  for (int i = 0; i < N * K; i++) pos[i] = cur[sel[i]]++;
  return at;
}

void gather(int N, int K, int L, const bf* z, const int* pos, bf* zg) {
#pragma omp parallel for schedule(static)
  for (int t = 0; t < N; t++)
    for (int k = 0; k < K; k++) memcpy(zg + (size_t)pos[t * K + k] * L, z + (size_t)t * L, L * 2);
}

void combine(int N, int K, int L, const bf* y, const int* pos, const float* wt, bf* out) {
#pragma omp parallel for schedule(static)
  for (int t = 0; t < N; t++) {
    float o[512];
    for (int i = 0; i < L; i++) o[i] = 0;
    for (int k = 0; k < K; k++) {
      const bf* a = y + (size_t)pos[t * K + k] * L;
      float w = wt ? wt[t * K + k] : 1.f;
      for (int i = 0; i < L; i++) o[i] += w * ld(a[i]);
    }
    for (int i = 0; i < L; i++) out[(size_t)t * L + i] = st(o[i]);
  }
}

// dy rows in sorted order, and the gradient of the router logits
void combine_bwd(int N, int E, int K, int L, const bf* dout, const bf* y, const int* sel,
                 const int* pos, const float* wt, const float* logits, bf* dy, float* dlog) {
#pragma omp parallel for schedule(static)
  for (int t = 0; t < N; t++) {
    const bf* g = dout + (size_t)t * L;
    float dw[64], tot = 0, sum = 0;
    for (int k = 0; k < K; k++) {
      size_t r = (size_t)pos[t * K + k] * L;
      float w = wt[t * K + k], d = 0;
      for (int i = 0; i < L; i++) {
        float gi = ld(g[i]);
        dy[r + i] = st(w * gi);
        d += gi * ld(y[r + i]);
      }
      dw[k] = d;
      tot += d * w;
      sum += sig(logits[(size_t)t * E + sel[t * K + k]]);
    }
    for (int k = 0; k < K; k++) {
      size_t a = (size_t)t * E + sel[t * K + k];
      float s = sig(logits[a]);
      dlog[a] = (dw[k] - tot) / (sum + 1e-20f) * s * (1 - s);
    }
  }
}

}  // extern "C"

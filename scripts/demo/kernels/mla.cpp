// SPDX-License-Identifier: Apache-2.0
#include "common.h"

extern "C" {

// MLA core: causal attention inside each document, output gate.
static inline void axpy_block(int n, int L, int ld, const float* x, const float* KT,
                              float* out) {  // out[j] = sum_i x[i] * KT[i][j], 64 columns at a
                                             // time; ld and out are padded to 64
  for (int j = 0; j < L; j += 64) {
    v16 a0{}, a1{}, a2{}, a3{};
    for (int i = 0; i < n; i++) {
      const v16* k = (const v16*)(KT + (size_t)i * ld + j);
      float f = x[i];
      a0 += f * k[0];
      a1 += f * k[1];
      a2 += f * k[2];
      a3 += f * k[3];
    }
    v16* o = (v16*)(out + j);
    o[0] = a0;
    o[1] = a1;
    o[2] = a2;
    o[3] = a3;
  }
}

// q [N][n*(dn+dr)], kv [N][n*(dn+dv)], kr [N][dr] , gate [N][n*dv]; out [N][n*dv] =
// softmax(qk*scale) v * sig(gate)
void mla_fwd(int N, int ndoc, const int* off, int n, int dn, int dr, int dv, const bf* q,
             const bf* kv, const bf* kr, const bf* gate, bf* out, bf* raw) {
  int dq = dn + dr, dk = dn + dv;
  float scale = 1.f / sqrtf((float)dq);
  auto ord = longest_first(ndoc, off);
#pragma omp parallel
  {
    std::vector<float> KT, V, s;
#pragma omp for schedule(dynamic)
    for (int job = 0; job < ndoc * n; job++) {
      int h = job % n, dc = ord[job / n], t0 = off[dc], T = off[dc + 1] - t0;
      int ldt = (T + 63) / 64 * 64;
      KT.assign((size_t)dq * ldt, 0.f);
      V.resize((size_t)T * dv);
      s.resize(ldt);
      for (int t = 0; t < T; t++) {
        const bf* k = kv + (size_t)(t0 + t) * n * dk + h * dk;
        for (int i = 0; i < dn; i++) KT[(size_t)i * ldt + t] = ld(k[i]);
        for (int i = 0; i < dv; i++) V[(size_t)t * dv + i] = ld(k[dn + i]);
        const bf* r = kr + (size_t)(t0 + t) * dr;
        for (int i = 0; i < dr; i++) KT[(size_t)(dn + i) * ldt + t] = ld(r[i]);
      }
      for (int t = 0; t < T; t++) {
        int L = t + 1;
        const bf* qq = q + (size_t)(t0 + t) * n * dq + h * dq;
        float* sp = s.data();
        float qs[256];
        for (int i = 0; i < dq; i++) qs[i] = ld(qq[i]) * scale;
        axpy_block(dq, L, ldt, qs, KT.data(), sp);
        float mx = -1e30f;
        for (int j = 0; j < L; j++) mx = std::max(mx, sp[j]);
        float z = 0;
        for (int j = 0; j < L; j++) {
          sp[j] = expf(sp[j] - mx);
          z += sp[j];
        }
        float o[128];
        for (int i = 0; i < dv; i++) o[i] = 0;
        float iz = 1.f / z;
        for (int j = 0; j < L; j++) {
          float p = sp[j] * iz;
          const float* v = &V[(size_t)j * dv];
          for (int i = 0; i < dv; i++) o[i] += p * v[i];
        }
        size_t at = (size_t)(t0 + t) * n * dv + h * dv;
        for (int i = 0; i < dv; i++) {
          raw[at + i] = st(o[i]);
          out[at + i] = st(o[i] * sig(ld(gate[at + i])));
        }
      }
    }
  }
}

void mla_bwd(int N, int ndoc, const int* off, int n, int dn, int dr, int dv, const bf* q,
             const bf* kv, const bf* kr, const bf* gate, const bf* raw, const bf* dout, bf* dq_,
             bf* dkv, float* dkr, bf* dgate) {
  int dq = dn + dr, dk = dn + dv;
  float scale = 1.f / sqrtf((float)dq);
  auto ord = longest_first(ndoc, off);
#pragma omp parallel
  {
    std::vector<float> KT, K, VT, s, ds, gK, gV;
#pragma omp for schedule(dynamic)
    for (int job = 0; job < ndoc * n; job++) {
      int h = job % n, dc = ord[job / n], t0 = off[dc], T = off[dc + 1] - t0;
      int ldt = (T + 63) / 64 * 64;
      KT.assign((size_t)dq * ldt, 0.f);
      K.resize((size_t)dq * T);
      VT.assign((size_t)ldt * dv, 0.f);
      s.resize(ldt);
      ds.resize(ldt);
      gK.assign((size_t)T * dq, 0.f);
      gV.assign((size_t)T * dv, 0.f);
      for (int t = 0; t < T; t++) {
        const bf* k = kv + (size_t)(t0 + t) * n * dk + h * dk;
        for (int i = 0; i < dn; i++) KT[(size_t)i * ldt + t] = K[(size_t)t * dq + i] = ld(k[i]);
        for (int i = 0; i < dv; i++) VT[(size_t)i * ldt + t] = ld(k[dn + i]);
        const bf* r = kr + (size_t)(t0 + t) * dr;
        for (int i = 0; i < dr; i++)
          KT[(size_t)(dn + i) * ldt + t] = K[(size_t)t * dq + dn + i] = ld(r[i]);
      }
      for (int t = 0; t < T; t++) {
        int L = t + 1;
        const bf* qq = q + (size_t)(t0 + t) * n * dq + h * dq;
        float *sp = s.data(), *dp = ds.data();
        float qs[256];
        for (int i = 0; i < dq; i++) qs[i] = ld(qq[i]) * scale;
        axpy_block(dq, L, ldt, qs, KT.data(), sp);
        float mx = -1e30f;
        for (int j = 0; j < L; j++) mx = std::max(mx, sp[j]);
        float z = 0;
        for (int j = 0; j < L; j++) {
          sp[j] = expf(sp[j] - mx);
          z += sp[j];
        }
        float iz = 1.f / z;
        for (int j = 0; j < L; j++) sp[j] *= iz;
        size_t at = (size_t)(t0 + t) * n * dv + h * dv;
        float go[128], Dd = 0;
        for (int i = 0; i < dv; i++) {
          float g = sig(ld(gate[at + i])), y = ld(dout[at + i]), r = ld(raw[at + i]);
          dgate[at + i] = st(y * r * g * (1 - g));
          go[i] = y * g;
        }
        axpy_block(dv, L, ldt, go, VT.data(), dp);
        for (int j = 0; j < L; j++) Dd += sp[j] * dp[j];
        for (int j = 0; j < L; j++) dp[j] = sp[j] * (dp[j] - Dd) * scale;
        float gq[256], qf[256];
        for (int i = 0; i < dq; i++) {
          gq[i] = 0;
          qf[i] = ld(qq[i]);
        }
        for (int j = 0; j < L; j++) {
          float x = dp[j], p = sp[j];
          const float* k = &K[(size_t)j * dq];
          float *a = &gK[(size_t)j * dq], *v = &gV[(size_t)j * dv];
          for (int i = 0; i < dq; i++) {
            gq[i] += x * k[i];
            a[i] += x * qf[i];
          }
          for (int i = 0; i < dv; i++) v[i] += p * go[i];
        }
        bf* o = dq_ + (size_t)(t0 + t) * n * dq + h * dq;
        for (int i = 0; i < dq; i++) o[i] = st(gq[i]);
      }
      for (int t = 0; t < T; t++) {
        bf* o = dkv + (size_t)(t0 + t) * n * dk + h * dk;
        for (int i = 0; i < dn; i++) o[i] = st(gK[(size_t)t * dq + i]);
        for (int i = 0; i < dv; i++) o[dn + i] = st(gV[(size_t)t * dv + i]);
        float* r = dkr + (size_t)(t0 + t) * dr * n + h * dr;
        for (int i = 0; i < dr; i++) r[i] = gK[(size_t)t * dq + dn + i];
      }
    }
  }
}

}  // extern "C"

// SPDX-License-Identifier: Apache-2.0
#include "common.h"

constexpr int D = 64, DV = D / 16;  // head dim, in floats and registers
constexpr int CH = 16;              // steps between two states that are kept for the backward pass

extern "C" {

// KDA core: conv+SiLU, l2 norm, decay gate, delta rule, gated RMSNorm.
// pre [N][ldp] bf16: q0 | k0 | v0 | gate (each P = n*D) | beta logits (n);  z [N][P] bf16;  cw
// [3][P][4] fp32.
struct Kda {
  int n, ldp, P;
  const bf* pre;
  const bf* z;
  const float *cw, *dtb, *alog, *onw;
};

struct Buf {  // per (document, head) work space
  std::vector<float> c[3], x[3], q, k, a, s, o, do_, dq, dk, dv, dg;
  std::vector<float> beta, dbeta, ru[2], ck, sc, dc;
  void size(int T) {
    size_t m = (size_t)T * D;
    for (int j = 0; j < 3; j++) {
      c[j].resize(m);
      x[j].resize(m);
    }
    for (auto* v : {&q, &k, &a, &s, &o, &do_, &dq, &dk, &dv, &dg, &dc}) v->resize(m);
    for (auto* v : {&beta, &dbeta, &ru[0], &ru[1]}) v->resize(T);
    ck.resize((size_t)(T / CH + 1) * D * D);
    sc.resize((size_t)(CH + 1) * D * D);
  }
};

static void kda_prep(const Kda& m, int h, int t0, int T, Buf& b) {
  float eA = expf(m.alog[h]);
  for (int j = 0; j < 3; j++) {
    const float* w = m.cw + ((size_t)j * m.P + h * D) * 4;
    float wt[4][D];
    for (int i = 0; i < D; i++)
      for (int tap = 0; tap < 4; tap++) wt[tap][i] = w[i * 4 + tap];
    for (int t = 0; t < T; t++) {
      float acc[D];
      for (int i = 0; i < D; i++) acc[i] = 0;
      for (int tap = 0; tap < 4; tap++) {
        int tt = t - 3 + tap;
        if (tt < 0) continue;
        const bf* p = m.pre + (size_t)(t0 + tt) * m.ldp + j * m.P + h * D;
        const float* wv = wt[tap];
        for (int i = 0; i < D; i++) acc[i] += wv[i] * ld(p[i]);
      }
      float* c = &b.c[j][(size_t)t * D];
      float* x = &b.x[j][(size_t)t * D];
      for (int i = 0; i < D; i++) {
        c[i] = acc[i];
        x[i] = acc[i] * sig(acc[i]);
      }
    }
  }
  for (int t = 0; t < T; t++) {
    for (int j = 0; j < 2; j++) {
      const float* x = &b.x[j][(size_t)t * D];
      float q = 0;
      for (int i = 0; i < D; i++) q += x[i] * x[i];
      float r = 1.f / sqrtf(q + 1e-6f);
      b.ru[j][t] = r;
      float f = j == 0 ? r * 0.125f : r;
      float* o = j == 0 ? &b.q[(size_t)t * D] : &b.k[(size_t)t * D];
      for (int i = 0; i < D; i++) o[i] = x[i] * f;
    }
    const bf* z = m.z + (size_t)(t0 + t) * m.P + h * D;
    float *a = &b.a[(size_t)t * D], *s = &b.s[(size_t)t * D];
    for (int i = 0; i < D; i++) {
      s[i] = sig(eA * (ld(z[i]) + m.dtb[h * D + i]));
      a[i] = expf(-5.f * s[i]);
    }
    b.beta[t] = sig(ld(m.pre[(size_t)(t0 + t) * m.ldp + 4 * m.P + h]));
  }
}

static inline void kda_step(const float* Sp, float* S, const float* q, const float* k,
                            const float* v, const float* a, float beta, float* o) {
  v16 u[DV], d[DV], oo[DV];
  for (int j = 0; j < DV; j++) u[j] = oo[j] = v16{};
  for (int i = 0; i < D; i++) {
    float f = a[i] * k[i];
    const v16* p = (const v16*)(Sp + i * D);
    for (int j = 0; j < DV; j++) u[j] += f * p[j];
  }
  for (int j = 0; j < DV; j++) d[j] = beta * (((const v16*)v)[j] - u[j]);
  for (int i = 0; i < D; i++) {
    float ai = a[i], ki = k[i], qi = q[i];
    const v16* p = (const v16*)(Sp + i * D);
    v16* r = (v16*)(S + i * D);
    for (int j = 0; j < DV; j++) {
      v16 x = p[j] * ai + ki * d[j];
      r[j] = x;
      oo[j] += qi * x;
    }
  }
  if (o)
    for (int j = 0; j < DV; j++) ((v16*)o)[j] = oo[j];
}

void kda_fwd(int N, int ndoc, const int* off, int n, int ldp, const bf* pre, const bf* z,
             const float* cw, const float* dtb, const float* alog, const float* onw, bf* out) {
  Kda m{n, ldp, n * D, pre, z, cw, dtb, alog, onw};
  auto ord = longest_first(ndoc, off);
#pragma omp parallel
  {
    Buf b;
    std::vector<float> S(D * D);
#pragma omp for schedule(dynamic)
    for (int job = 0; job < ndoc * n; job++) {
      int h = job % n, dc = ord[job / n], t0 = off[dc], T = off[dc + 1] - t0;
      b.size(T);
      kda_prep(m, h, t0, T, b);
      std::fill(S.begin(), S.end(), 0.f);
      for (int t = 0; t < T; t++) {
        float* o = &b.o[(size_t)t * D];
        kda_step(S.data(), S.data(), &b.q[(size_t)t * D], &b.k[(size_t)t * D],
                 &b.x[2][(size_t)t * D], &b.a[(size_t)t * D], b.beta[t], o);
        float q = 0;
        for (int i = 0; i < D; i++) q += o[i] * o[i];
        float r = 1.f / sqrtf(q / D + 1e-5f);
        const bf* g = pre + (size_t)(t0 + t) * ldp + 3 * m.P + h * D;
        bf* y = out + (size_t)(t0 + t) * m.P + h * D;
        for (int i = 0; i < D; i++) y[i] = st(o[i] * r * onw[i] * sig(ld(g[i])));
      }
    }
  }
}

void kda_bwd(int N, int ndoc, const int* off, int n, int ldp, const bf* pre, const bf* z,
             const float* cw, const float* dtb, const float* alog, const float* onw, const bf* dout,
             bf* dpre, bf* dz, float* dcw, float* ddtb, float* dalog, float* donw) {
  Kda m{n, ldp, n * D, pre, z, cw, dtb, alog, onw};
  int P = m.P;
  auto ord = longest_first(ndoc, off);
#pragma omp parallel
  {
    Buf b;
    std::vector<float> S(D * D), dS(D * D), gcw((size_t)3 * P * 4, 0.f), gdt(P, 0.f), ga(n, 0.f),
        gon(D, 0.f);
#pragma omp for schedule(dynamic)
    for (int job = 0; job < ndoc * n; job++) {
      int h = job % n, dc = ord[job / n], t0 = off[dc], T = off[dc + 1] - t0;
      b.size(T);
      kda_prep(m, h, t0, T, b);
      std::fill(S.begin(), S.end(), 0.f);
      for (int t = 0; t < T; t++) {
        if (t % CH == 0) memcpy(&b.ck[(size_t)(t / CH) * D * D], S.data(), D * D * 4);
        kda_step(S.data(), S.data(), &b.q[(size_t)t * D], &b.k[(size_t)t * D],
                 &b.x[2][(size_t)t * D], &b.a[(size_t)t * D], b.beta[t], &b.o[(size_t)t * D]);
      }
      for (int t = 0; t < T; t++) {  // gated norm backward
        const float* o = &b.o[(size_t)t * D];
        float* go = &b.do_[(size_t)t * D];
        float q = 0, dot = 0;
        for (int i = 0; i < D; i++) q += o[i] * o[i];
        float r = 1.f / sqrtf(q / D + 1e-5f);
        const bf* g = pre + (size_t)(t0 + t) * ldp + 3 * P + h * D;
        const bf* dy = dout + (size_t)(t0 + t) * P + h * D;
        bf* dgt = dpre + (size_t)(t0 + t) * ldp + 3 * P + h * D;
        for (int i = 0; i < D; i++) {
          float s = sig(ld(g[i])), y = ld(dy[i]), nn = o[i] * r;
          dgt[i] = st(y * nn * onw[i] * s * (1 - s));
          gon[i] += y * nn * s;
          go[i] = y * onw[i] * s;
          dot += go[i] * o[i];
        }
        float c = dot * r * r * r / D;
        for (int i = 0; i < D; i++) go[i] = go[i] * r - o[i] * c;
      }
      std::fill(dS.begin(), dS.end(), 0.f);
      for (int c0 = (T - 1) / CH * CH; c0 >= 0; c0 -= CH) {
        int c1 = std::min(T, c0 + CH);
        memcpy(b.sc.data(), &b.ck[(size_t)(c0 / CH) * D * D], D * D * 4);
        for (int t = c0; t < c1; t++)
          kda_step(&b.sc[(size_t)(t - c0) * D * D], &b.sc[(size_t)(t - c0 + 1) * D * D],
                   &b.q[(size_t)t * D], &b.k[(size_t)t * D], &b.x[2][(size_t)t * D],
                   &b.a[(size_t)t * D], b.beta[t], nullptr);
        for (int t = c1 - 1; t >= c0; t--) {
          const float* Sp = &b.sc[(size_t)(t - c0) * D * D];
          const float* Sn = Sp + D * D;
          const float *q = &b.q[(size_t)t * D], *k = &b.k[(size_t)t * D],
                      *v = &b.x[2][(size_t)t * D], *a = &b.a[(size_t)t * D],
                      *go = &b.do_[(size_t)t * D];
          float *dq = &b.dq[(size_t)t * D], *dk = &b.dk[(size_t)t * D], *dv = &b.dv[(size_t)t * D],
                *dg = &b.dg[(size_t)t * D];
          float be = b.beta[t];
          v16 u[DV], d[DV], dd[DV], du[DV], G[DV];
          const v16* V = (const v16*)v;
          for (int j = 0; j < DV; j++) {
            u[j] = dd[j] = v16{};
            G[j] = ((const v16*)go)[j];
          }
          for (int i = 0; i < D; i++) {
            float f = a[i] * k[i];
            const v16* p = (const v16*)(Sp + i * D);
            for (int j = 0; j < DV; j++) u[j] += f * p[j];
          }
          for (int j = 0; j < DV; j++) d[j] = be * (V[j] - u[j]);
          for (int i = 0; i < D; i++) {
            v16* g = (v16*)&dS[i * D];
            const v16* s = (const v16*)(Sn + i * D);
            v16 sq{}, sk{};
            float qi = q[i], ki = k[i];
            for (int j = 0; j < DV; j++) {
              v16 x = g[j] + qi * G[j];
              g[j] = x;
              sq += s[j] * G[j];
              sk += x * d[j];
              dd[j] += x * ki;
            }
            dq[i] = hsum(sq);
            dk[i] = hsum(sk);
          }
          v16 db{};
          for (int j = 0; j < DV; j++) {
            db += dd[j] * (V[j] - u[j]);
            ((v16*)dv)[j] = be * dd[j];
            du[j] = -be * dd[j];
          }
          b.dbeta[t] = hsum(db);
          for (int i = 0; i < D; i++) {
            v16* g = (v16*)&dS[i * D];
            const v16* s = (const v16*)(Sp + i * D);
            v16 sk{}, sa{};
            float ki = k[i], ai = a[i];
            for (int j = 0; j < DV; j++) {
              v16 x = g[j] + ki * du[j];
              sk += s[j] * du[j];
              sa += x * s[j];
              g[j] = ai * x;
            }
            dk[i] += hsum(sk) * ai;
            dg[i] = hsum(sa) * ai;
          }
        }
      }
      float eA = expf(alog[h]);
      for (int t = 0; t < T; t++) {  // decay gate and beta backward
        const float *s = &b.s[(size_t)t * D], *dg = &b.dg[(size_t)t * D];
        const bf* zz = z + (size_t)(t0 + t) * P + h * D;
        bf* o = dz + (size_t)(t0 + t) * P + h * D;
        float aa = 0;
        for (int i = 0; i < D; i++) {
          float x = dg[i] * -5.f * s[i] * (1 - s[i]) * eA;
          o[i] = st(x);
          gdt[h * D + i] += x;
          aa += x * (ld(zz[i]) + dtb[h * D + i]);
        }
        ga[h] += aa;
        dpre[(size_t)(t0 + t) * ldp + 4 * P + h] = st(b.dbeta[t] * b.beta[t] * (1 - b.beta[t]));
      }
      for (int j = 0; j < 3; j++) {  // l2 norm, SiLU, conv backward
        const float* w = cw + ((size_t)j * P + h * D) * 4;
        float* gw = &gcw[((size_t)j * P + h * D) * 4];
        float wt[4][D], gt[4][D];
        for (int i = 0; i < D; i++)
          for (int tap = 0; tap < 4; tap++) {
            wt[tap][i] = w[i * 4 + tap];
            gt[tap][i] = 0;
          }
        for (int t = 0; t < T; t++) {
          const float *x = &b.x[j][(size_t)t * D], *c = &b.c[j][(size_t)t * D];
          float* o = &b.dc[(size_t)t * D];
          float dx[D];
          if (j < 2) {
            const float* g = j == 0 ? &b.dq[(size_t)t * D] : &b.dk[(size_t)t * D];
            float r = b.ru[j][t], f = j == 0 ? r * 0.125f : r, dot = 0;
            for (int i = 0; i < D; i++) dot += x[i] * g[i];
            float e = dot * r * r;
            for (int i = 0; i < D; i++) dx[i] = f * (g[i] - x[i] * e);
          } else {
            const float* g = &b.dv[(size_t)t * D];
            for (int i = 0; i < D; i++) dx[i] = g[i];
          }
          for (int i = 0; i < D; i++) {
            float s = sig(c[i]);
            o[i] = dx[i] * (s + c[i] * s * (1 - s));
          }
        }
        for (int t = 0; t < T; t++) {
          float acc[D];
          for (int i = 0; i < D; i++) acc[i] = 0;
          for (int tap = 0; tap < 4; tap++) {
            int tt = t + 3 - tap;
            if (tt >= T) continue;
            const float* g = &b.dc[(size_t)tt * D];
            const bf* p = pre + (size_t)(t0 + t) * ldp + j * P + h * D;
            const float* wv = wt[tap];
            float* gv = gt[tap];
            for (int i = 0; i < D; i++) {
              acc[i] += wv[i] * g[i];
              gv[i] += g[i] * ld(p[i]);
            }
          }
          bf* o = dpre + (size_t)(t0 + t) * ldp + j * P + h * D;
          for (int i = 0; i < D; i++) o[i] = st(acc[i]);
        }
        for (int i = 0; i < D; i++)
          for (int tap = 0; tap < 4; tap++) gw[i * 4 + tap] += gt[tap][i];
      }
    }
#pragma omp critical
    {
      for (int i = 0; i < 3 * P * 4; i++) dcw[i] += gcw[i];
      for (int i = 0; i < P; i++) ddtb[i] += gdt[i];
      for (int i = 0; i < n; i++) dalog[i] += ga[i];
      for (int i = 0; i < D; i++) donw[i] += gon[i];
    }
  }
}

}  // extern "C"

# SPDX-License-Identifier: Apache-2.0
"""The C++ kernels of kernels/, built on first use, called through ctypes."""

import ctypes
import os
import pathlib
import subprocess

import torch


BF = torch.bfloat16
SOURCES = pathlib.Path(__file__).with_name("kernels")
# Outside the source tree's history; DEMO_LIB names another place.
LIBRARY = pathlib.Path(
    os.environ.get("DEMO_LIB", SOURCES.parents[2] / "build" / "demo-trainer" / "libkernels.so")
)
FLAGS = "-O3 -march=native -mprefer-vector-width=512 -ffast-math -fopenmp -shared -fPIC".split()

newest = max(file.stat().st_mtime for file in SOURCES.iterdir())
if not LIBRARY.exists() or LIBRARY.stat().st_mtime < newest:
    LIBRARY.parent.mkdir(parents=True, exist_ok=True)
    subprocess.check_call(["g++", *FLAGS, *map(str, SOURCES.glob("*.cpp")), "-o", str(LIBRARY)])
lib = ctypes.CDLL(str(LIBRARY))


def p(t):
    """A tensor's memory; None is a null pointer."""
    return ctypes.c_void_p(t.data_ptr() if t is not None else 0)


def f32(x):
    return ctypes.c_float(x)


def parr(ts):
    """An array of pointers to tensors' memory."""
    return (ctypes.c_void_p * len(ts))(*[t.data_ptr() for t in ts])


def mxfp4(w, pack=False):
    """The bf16 tensor of the weights as MXFP4 holds them; with `pack`, packed bytes and scales too."""
    w = w.detach().contiguous()
    out = torch.empty(w.shape, dtype=BF)
    pk = sc = None
    if pack:
        pk = torch.empty(*w.shape[:-1], w.shape[-1] // 2, dtype=torch.uint8)
        sc = torch.empty(*w.shape[:-1], w.shape[-1] // 32, dtype=torch.uint8)
    lib.mxfp4(ctypes.c_long(w.numel() // 32), p(w), p(out), p(pk), p(sc))
    return (out, pk, sc) if pack else out

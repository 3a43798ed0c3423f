"""NVIDIA GPUs: found and measured through NVML, MPS, `CUDA_VISIBLE_DEVICES`."""

from tests.nvml_stub import loaded_nvml_stub, nvml_stub, nvml_stub_library

__all__ = ["loaded_nvml_stub", "nvml_stub", "nvml_stub_library"]

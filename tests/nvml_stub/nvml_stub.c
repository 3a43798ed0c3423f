/* A stand-in for NVIDIA's NVML library: the functions that the tuner calls, with the names
 * that pynvml asks for. Every call reads the text file named by FAKE_NVML again, so a test
 * changes the machine while the program under test runs. No file: no driver.
 *
 *   init CODE                                           nvmlInit fails with this code
 *   gpu UUID TOTAL_MIB USED_MIB RESERVED_MIB UTIL_PCT POWER_MW TEMP_C FLAGS NAME...
 *   mig UUID COMPUTE_SLICES GPU_SLICES TOTAL_MIB USED_MIB NAME...   of the gpu above
 *   near NODES CORES PCI_DOMAIN PCI_BUS PCI_DEVICE      of the gpu above, in hexadecimal: masks of
 *                                                       memory nodes and of cores; its address
 *   link GPU                                            NVLink from the gpu above to that number
 *   more SM_MHZ MEMORY_MHZ PCIE_RX PCIE_TX NVLINK_RX NVLINK_TX   of the gpu above: clocks; counters
 *                                                       in bytes (PCIe) and KiB (NVLink)
 *   proc PID MIB UTIL_PCT IS_MPS                        on the gpu or mig above; a client of MPS
 *                                                       has no utilization of its own
 *
 * A figure of -1 is "not supported" (for a process: not known), and so is a mask of 0. FLAGS is
 * words joined by commas: lost, unknown (the error 999), no_memory_v2, no_processes, no_p2p,
 * no_counters (of PCIe; a rate of RX or TX bytes a second is given in their place), old_driver (which
 * has none of the functions that tell where a GPU is), or "-" for none.
 * Where FAKE_NVML_DEVICES names a folder, GPU n is there only for who may open nvidia<n> in it, as
 * a device cgroup hides GPUs from the real library.
 * A handle is (gpu + 1) | (slice + 1) << 8, with slice -1 for the whole gpu.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7,
       NO_DRIVER = 9, NO_FUNCTION = 13, LOST = 15, UNKNOWN = 999 };
enum { MAX_ENTRIES = 64, MAX_PROCESSES = 32, MAX_LINKS = 256 };
enum { CLOCK_SM = 1, CLOCK_MEMORY = 2, PCIE_TX_BYTES = 0, TYPE_ULL = 3 };
enum { FIELD_NVLINK_TX = 138, FIELD_NVLINK_RX = 139, FIELD_PCIE_TX = 197, FIELD_PCIE_RX = 198 };
enum { P2P_NVLINK = 2, P2P_OK = 0, P2P_NOT_SUPPORTED = 5 };

typedef struct { int pid; long mib; int util, is_mps; } process_t;
typedef struct {
    int gpu, slice;
    char uuid[96], name[96], flags[96];
    long total, used, reserved;
    int util, power_mw, temp, compute_slices, gpu_slices, n_processes;
    process_t processes[MAX_PROCESSES];
    unsigned long nodes, cores;
    unsigned pci_domain, pci_bus, pci_device;
    int sm_mhz, memory_mhz;
    long long traffic[4];
} entry_t;
typedef struct { int from, to; } link_t;
typedef struct {
    int init, n_gpus, n_entries, n_links;
    entry_t entries[MAX_ENTRIES];
    link_t links[MAX_LINKS];
} machine_t;

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2_t;
typedef struct { unsigned gpu, memory; } utilization_t;
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } process_info_t;
typedef struct {
    unsigned multiprocessors, copy, decoder, encoder, jpeg, ofa, gpu_slices, compute_slices;
    unsigned long long memory_mib;
} attributes_t;
typedef struct { unsigned pid; unsigned long long at_us; unsigned sm, memory, enc, dec; } process_use_t;
typedef struct {
    unsigned field, scope;
    long long at_us, latency_us;
    int type, code;
    unsigned long long value;
} field_t;
typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} pci_t;

static void read_gpu(machine_t *m, entry_t *e, const char *line) {
    sscanf(line, "gpu %95s %ld %ld %ld %d %d %d %95s %95[^\n]", e->uuid, &e->total, &e->used,
           &e->reserved, &e->util, &e->power_mw, &e->temp, e->flags, e->name);
    e->gpu = m->n_gpus++;
    e->slice = -1;
}

static void read_slice(entry_t *e, const char *line) {
    const entry_t *above = e - 1;
    sscanf(line, "mig %95s %d %d %ld %ld %95[^\n]", e->uuid, &e->compute_slices, &e->gpu_slices,
           &e->total, &e->used, e->name);
    e->gpu = above->gpu;
    e->slice = above->slice + 1;
    e->util = -1;
    memcpy(e->flags, above->flags, sizeof e->flags);
}

static void read_near(entry_t *e, const char *line) {
    sscanf(line, "near %lx %lx %x %x %x", &e->nodes, &e->cores, &e->pci_domain, &e->pci_bus,
           &e->pci_device);
}

static void read_more(entry_t *e, const char *line) {
    sscanf(line, "more %d %d %lld %lld %lld %lld", &e->sm_mhz, &e->memory_mhz, &e->traffic[0],
           &e->traffic[1], &e->traffic[2], &e->traffic[3]);
}

static int is_hidden(int number) {
    const char *folder = getenv("FAKE_NVML_DEVICES");
    if (!folder) return 0;
    char path[512];
    snprintf(path, sizeof path, "%s/nvidia%d", folder, number);
    int file = open(path, O_RDWR | O_CLOEXEC), error = errno;
    if (file >= 0) close(file);
    return file < 0 && error == EPERM;
}

static int load(machine_t *m) {
    memset(m, 0, sizeof *m);
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return NO_DRIVER;
    char line[512];
    int number = 0, hidden = 0;
    while (fgets(line, sizeof line, file) && m->n_entries < MAX_ENTRIES) {
        entry_t *next = &m->entries[m->n_entries], *last = m->n_entries ? next - 1 : NULL;
        if (!strncmp(line, "init ", 5)) m->init = atoi(line + 5);
        if (!strncmp(line, "gpu ", 4)) hidden = is_hidden(number++);
        if (hidden) continue;
        if (!strncmp(line, "gpu ", 4)) read_gpu(m, next, line), m->n_entries++;
        if (last && !strncmp(line, "mig ", 4)) read_slice(next, line), m->n_entries++;
        if (last && !strncmp(line, "near ", 5)) read_near(last, line);
        if (last && !strncmp(line, "more ", 5)) read_more(last, line);
        if (last && !strncmp(line, "link ", 5) && m->n_links < MAX_LINKS)
            m->links[m->n_links++] = (link_t){last->gpu, atoi(line + 5)};
        if (last && !strncmp(line, "proc ", 5) && last->n_processes < MAX_PROCESSES) {
            process_t *process = &last->processes[last->n_processes++];
            sscanf(line, "proc %d %ld %d %d", &process->pid, &process->mib, &process->util,
                   &process->is_mps);
        }
    }
    fclose(file);
    return m->init;
}

static int find(int gpu, int slice, entry_t *found) {
    machine_t m;
    int code = load(&m);
    if (code) return code;
    for (int i = 0; i < m.n_entries; i++) {
        if (m.entries[i].gpu != gpu || m.entries[i].slice != slice) continue;
        *found = m.entries[i];
        if (strstr(found->flags, "lost")) return LOST;
        return strstr(found->flags, "unknown") ? UNKNOWN : OK;
    }
    return slice >= 0 ? NOT_FOUND : INVALID;
}

static int entry_of(void *handle, entry_t *found) {
    size_t bits = (size_t)handle;
    int code = find((int)(bits & 0xff) - 1, (int)(bits >> 8) - 1, found);
    return code == NOT_FOUND ? INVALID : code;
}

#define ENTRY(handle) entry_t e; int code = entry_of(handle, &e); if (code) return code

int nvmlInitWithFlags(unsigned flags) { (void)flags; machine_t m; return load(&m); }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return OK; }

const char *nvmlErrorString(int code) { (void)code; return "an error of the stub"; }

int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    snprintf(text, size, "550.00.stub");
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned *n) {
    machine_t m;
    int code = load(&m);
    *n = (unsigned)m.n_gpus;
    return code;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    entry_t e;
    int code = find((int)index, -1, &e);
    *handle = (void *)(size_t)(index + 1);
    return code;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    machine_t m;
    int code = load(&m);
    if (code) return code;
    for (int i = 0; i < m.n_entries; i++) {
        if (strcmp(m.entries[i].uuid, uuid)) continue;
        *handle = (void *)((size_t)(m.entries[i].gpu + 1) | (size_t)(m.entries[i].slice + 1) << 8);
        return strstr(m.entries[i].flags, "lost") ? LOST : OK;
    }
    return NOT_FOUND;
}

int nvmlDeviceGetIndex(void *handle, unsigned *index) { ENTRY(handle); *index = e.gpu; return OK; }

int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
    ENTRY(handle);
    snprintf(text, size, "%s", e.uuid);
    return OK;
}

int nvmlDeviceGetName(void *handle, char *text, unsigned size) {
    ENTRY(handle);
    snprintf(text, size, "%s", e.name);
    return OK;
}

int nvmlDeviceGetMemoryInfo(void *handle, memory_t *memory) {
    ENTRY(handle);
    if (e.used < 0) return NOT_SUPPORTED;
    memory->total = (unsigned long long)e.total << 20;
    memory->used = (unsigned long long)(e.used + e.reserved) << 20;
    memory->free = memory->total - memory->used;
    return OK;
}

int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2_t *memory) {
    ENTRY(handle);
    if (e.used < 0 || strstr(e.flags, "no_memory_v2")) return NOT_SUPPORTED;
    memory->total = (unsigned long long)e.total << 20;
    memory->reserved = (unsigned long long)e.reserved << 20;
    memory->used = (unsigned long long)e.used << 20;
    memory->free = memory->total - memory->used - memory->reserved;
    return OK;
}

int nvmlDeviceGetUtilizationRates(void *handle, utilization_t *rates) {
    ENTRY(handle);
    if (e.util < 0) return NOT_SUPPORTED;
    rates->gpu = (unsigned)e.util;
    rates->memory = e.total > 0 ? (unsigned)(100 * e.used / e.total) : 0;
    return OK;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) {
    ENTRY(handle);
    if (e.power_mw < 0 || e.slice >= 0) return NOT_SUPPORTED;
    *milliwatts = (unsigned)e.power_mw;
    return OK;
}

int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *celsius) {
    ENTRY(handle);
    if (sensor != 0 || e.temp < 0 || e.slice >= 0) return NOT_SUPPORTED;
    *celsius = (unsigned)e.temp;
    return OK;
}

int nvmlDeviceGetClockInfo(void *handle, int clock, unsigned *mhz) {
    ENTRY(handle);
    int found = clock == CLOCK_SM ? e.sm_mhz : clock == CLOCK_MEMORY ? e.memory_mhz : -1;
    if (found < 0 || e.slice >= 0) return NOT_SUPPORTED;
    *mhz = (unsigned)found;
    return OK;
}

static long long counter_of(const entry_t *e, unsigned field) {
    if (e->slice >= 0) return -1;
    int has_pcie = !strstr(e->flags, "no_counters");
    switch (field) {
    case FIELD_PCIE_RX: return has_pcie ? e->traffic[0] : -1;
    case FIELD_PCIE_TX: return has_pcie ? e->traffic[1] : -1;
    case FIELD_NVLINK_RX: return e->traffic[2];
    case FIELD_NVLINK_TX: return e->traffic[3];
    default: return -1;
    }
}

int nvmlDeviceGetFieldValues(void *handle, int n, field_t *fields) {
    ENTRY(handle);
    if (strstr(e.flags, "old_driver")) return NO_FUNCTION;
    for (int i = 0; i < n; i++) {
        long long counter = counter_of(&e, fields[i].field);
        fields[i].code = counter < 0 ? NOT_SUPPORTED : OK;
        fields[i].type = TYPE_ULL;
        fields[i].value = (unsigned long long)counter;
    }
    return OK;
}

int nvmlDeviceGetPcieThroughput(void *handle, int counter, unsigned *kib_s) {
    ENTRY(handle);
    long long rate = counter == PCIE_TX_BYTES ? e.traffic[1] : e.traffic[0];
    if (rate < 0 || e.slice >= 0) return NOT_SUPPORTED;
    *kib_s = (unsigned)(rate / 1024);
    return OK;
}

int nvmlDeviceGetProcessUtilization(void *handle, process_use_t *uses, unsigned *n,
                                    unsigned long long since_us) {
    ENTRY(handle);
    if (e.slice >= 0 || strstr(e.flags, "no_processes")) return NOT_SUPPORTED;
    if (!e.n_processes) return NOT_FOUND;
    unsigned room = *n, used = 0;
    *n = (unsigned)e.n_processes;
    if (!uses || room < *n) return TOO_SMALL;
    for (int i = 0; i < e.n_processes; i++) {
        if (e.processes[i].is_mps) continue;
        memset(&uses[used], 0, sizeof uses[used]);
        uses[used].pid = (unsigned)e.processes[i].pid;
        uses[used].at_us = since_us + 1;
        uses[used++].sm = (unsigned)e.processes[i].util;
    }
    *n = used;
    return OK;
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *handle, unsigned *n, process_info_t *infos) {
    ENTRY(handle);
    unsigned room = *n, used = 0;
    *n = (unsigned)e.n_processes;
    if (room < *n) return TOO_SMALL;
    for (int i = 0; i < e.n_processes; i++) {
        if (!e.processes[i].is_mps) continue;
        infos[used].pid = (unsigned)e.processes[i].pid;
        infos[used].used = (unsigned long long)e.processes[i].mib << 20;
        infos[used].gi = infos[used].ci = ~0u;
        used++;
    }
    *n = used;
    return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *n, process_info_t *infos) {
    ENTRY(handle);
    if (strstr(e.flags, "no_processes")) return NOT_SUPPORTED;
    unsigned room = *n;
    *n = (unsigned)e.n_processes;
    if (room < *n) return TOO_SMALL;
    for (unsigned i = 0; i < *n; i++) {
        long mib = e.processes[i].mib;
        infos[i].pid = (unsigned)e.processes[i].pid;
        infos[i].used = mib < 0 ? ~0ULL : (unsigned long long)mib << 20;
        infos[i].gi = infos[i].ci = ~0u;
    }
    return OK;
}

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    ENTRY(handle);
    entry_t slice;
    if (find(e.gpu, 0, &slice) == NOT_FOUND) return NOT_SUPPORTED;
    *current = *pending = 1;
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *n) { ENTRY(handle); *n = 7; return OK; }

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **slice_handle) {
    ENTRY(handle);
    entry_t slice;
    *slice_handle = (void *)((size_t)(e.gpu + 1) | (size_t)(index + 1) << 8);
    return find(e.gpu, (int)index, &slice);
}

int nvmlDeviceIsMigDeviceHandle(void *handle, unsigned *is_slice) {
    ENTRY(handle);
    *is_slice = e.slice >= 0;
    return OK;
}

int nvmlDeviceGetAttributes_v2(void *handle, attributes_t *attributes) {
    ENTRY(handle);
    if (e.slice < 0) return NOT_SUPPORTED;
    memset(attributes, 0, sizeof *attributes);
    attributes->gpu_slices = (unsigned)e.gpu_slices;
    attributes->compute_slices = (unsigned)e.compute_slices;
    attributes->memory_mib = (unsigned long long)e.total;
    return OK;
}

int nvmlDeviceGetP2PStatus(void *handle, void *other, int capability, int *status) {
    ENTRY(handle);
    entry_t e2;
    if ((code = entry_of(other, &e2))) return code;
    if (strstr(e.flags, "old_driver")) return NO_FUNCTION;
    if (capability != P2P_NVLINK || strstr(e.flags, "no_p2p")) return NOT_SUPPORTED;
    machine_t m;
    if ((code = load(&m))) return code;
    *status = P2P_NOT_SUPPORTED;
    for (int i = 0; i < m.n_links; i++) {
        link_t l = m.links[i];
        if ((l.from == e.gpu && l.to == e2.gpu) || (l.from == e2.gpu && l.to == e.gpu))
            *status = P2P_OK;
    }
    return OK;
}

static int give_mask(const entry_t *e, unsigned long mask, unsigned n_words, unsigned long *words) {
    if (strstr(e->flags, "old_driver")) return NO_FUNCTION;
    if (!mask) return NOT_SUPPORTED;
    memset(words, 0, n_words * sizeof *words);
    words[0] = mask;
    return OK;
}

int nvmlDeviceGetMemoryAffinity(void *handle, unsigned n_words, unsigned long *words, int scope) {
    ENTRY(handle);
    return scope ? NOT_SUPPORTED : give_mask(&e, e.nodes, n_words, words);
}

int nvmlDeviceGetCpuAffinity(void *handle, unsigned n_words, unsigned long *words) {
    ENTRY(handle);
    return give_mask(&e, e.cores, n_words, words);
}

int nvmlDeviceGetPciInfo_v3(void *handle, pci_t *pci) {
    ENTRY(handle);
    if (strstr(e.flags, "old_driver")) return NO_FUNCTION;
    memset(pci, 0, sizeof *pci);
    pci->domain = e.pci_domain, pci->bus = e.pci_bus, pci->device = e.pci_device;
    return OK;
}

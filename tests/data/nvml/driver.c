/* A driver's library, built by the tests as libnvidia-ml.so.1: eight H100, of which the fourth has fallen off
   the bus and the sixth is divided by MIG into instances at slots 0 and 2. DRIVER_COUNT and DRIVER_INIT
   change how many boards it counts and what it answers when it is started. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, LOST = 15 };
enum { LOST_BOARD = 3, DIVIDED_BOARD = 5, SLOTS = 7, FIRST_INSTANCE = 100 };

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int multiprocessors, others[7]; unsigned long long memory_mb; } attributes_t;

static unsigned int from_environment(const char *name, unsigned int otherwise) {
    const char *value = getenv(name);
    return value ? (unsigned int)atoi(value) : otherwise;
}

static int index_of(void *device) { return (int)(uintptr_t)device - 1; }
static int is_instance(void *device) { return index_of(device) >= FIRST_INSTANCE; }

static int write_text(char *text, unsigned int length, const char *value) {
    if (strlen(value) + 1 > length) return INSUFFICIENT_SIZE;
    strcpy(text, value);
    return SUCCESS;
}

const char *nvmlErrorString(int code) { return code == LOST ? "GPU is lost" : "refused"; }
int nvmlInit_v2(void) { return (int)from_environment("DRIVER_INIT", SUCCESS); }
int nvmlInitWithFlags(unsigned int flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = from_environment("DRIVER_COUNT", 8); return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) {
    if (index == LOST_BOARD) return LOST;
    *device = (void *)(uintptr_t)(index + 1);
    return SUCCESS;
}

int nvmlDeviceGetName(void *device, char *name, unsigned int length) {
    return write_text(name, length, is_instance(device) ? "NVIDIA H100 80GB HBM3 MIG 3g.40gb" : "NVIDIA H100 80GB HBM3");
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int length) {
    char text[64];
    const char *format = is_instance(device) ? "MIG-%08d-5afc-978f" : "GPU-%08d-45b0-95c0";
    snprintf(text, sizeof text, format, index_of(device) % FIRST_INSTANCE);
    return write_text(uuid, length, text);
}

int nvmlDeviceGetMemoryInfo(void *device, memory_t *memory) {
    memory->total = is_instance(device) ? 42412802048ULL : 85520809984ULL;
    memory->used = 1ULL << 30;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    (void)device;
    *major = 9;
    *minor = 0;
    return SUCCESS;
}

int nvmlDeviceGetNumGpuCores(void *device, unsigned int *cores) {
    if (is_instance(device)) return NOT_SUPPORTED;
    *cores = 16896;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(void *device, unsigned int *current, unsigned int *pending) {
    if (is_instance(device)) return NOT_SUPPORTED;
    *current = *pending = index_of(device) == DIVIDED_BOARD;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned int *count) {
    (void)device;
    *count = SLOTS;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned int slot, void **instance) {
    (void)device;
    if (slot != 0 && slot != 2) return NOT_FOUND;
    *instance = (void *)(uintptr_t)(FIRST_INSTANCE + slot + 1);
    return SUCCESS;
}

int nvmlDeviceGetAttributes_v2(void *device, attributes_t *attributes) {
    if (!is_instance(device)) return NOT_SUPPORTED;
    memset(attributes, 0, sizeof *attributes);
    attributes->multiprocessors = 60;
    attributes->memory_mb = 40448;
    return SUCCESS;
}

/* A driver's library, built by the tests as libnvidia-ml.so.1: eight H100, of which the fourth has fallen off
   the bus and the sixth is divided by MIG into instances at slots 0 and 2. DRIVER_COUNT and DRIVER_INIT
   change how many boards it counts and what it answers when it is started. Whoever loads it can have it refuse
   a question, report an XID error, and has one board too old for any question: see the functions fake_*. */

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10, LOST = 15 };
enum { BOARDS = 8, LOST_BOARD = 3, DIVIDED_BOARD = 5, SLOTS = 7, FIRST_INSTANCE = 100, LINKS = 18, EVENTS = 64 };

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } memory_v2_t;
typedef struct { unsigned int multiprocessors, others[7]; unsigned long long memory_mb; } attributes_t;
typedef struct { unsigned int gpu, memory; } utilization_t;
typedef struct {
    uint32_t field, scope;
    int64_t timestamp, latency;
    uint32_t type, code;
    union { double number; unsigned int whole; unsigned long long large; } value;
} field_t;
typedef struct { unsigned int pid; unsigned long long memory; unsigned int gpu_instance, compute_instance; } process_t;
typedef struct { void *device; unsigned long long type, data; unsigned int gpu_instance, compute_instance; } event_t;

static char refused[64], asked[8192];
static int refused_code, refused_after, field_code, old_board, says_zero, event_count, waits, generation;
static unsigned long long energy_mj, reasons;
static process_t processes[8];
static unsigned int process_count;
static event_t events[EVENTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static unsigned int from_environment(const char *name, unsigned int otherwise) {
    const char *value = getenv(name);
    return value ? (unsigned int)atoi(value) : otherwise;
}

static int index_of(void *device) { return (int)(uintptr_t)device - 1; }
static int is_instance(void *device) { return index_of(device) >= FIRST_INSTANCE; }

/* What a question is answered instead of an answer; 0 where it is answered. */
static int refusal(const char *function, void *device) {
    char entry[80];
    snprintf(entry, sizeof entry, "%s ", function);
    pthread_mutex_lock(&lock);
    if (!strstr(asked, entry) && strlen(asked) + strlen(entry) < sizeof asked) strcat(asked, entry);
    pthread_mutex_unlock(&lock);
    if (!strcmp(function, refused) && refused_after-- <= 0) return refused_code;
    if (device && !is_instance(device) && index_of(device) == LOST_BOARD) return LOST;
    if (device && !is_instance(device) && index_of(device) == old_board - 1) return NOT_SUPPORTED;
    return SUCCESS;
}
#define ANSWER(device) do { int code_ = refusal(__func__, device); if (code_) return code_; } while (0)
#define NUMBER(function, type, number) \
    int function(void *device, type *answer) { ANSWER(device); *answer = (type)(number); return SUCCESS; }

/* Everything as it was when the library was loaded, and whoever waits told that it is over. */
void fake_reset(void) {
    pthread_mutex_lock(&lock);
    refused[0] = asked[0] = 0;
    refused_code = refused_after = field_code = old_board = says_zero = event_count = waits = 0;
    energy_mj = reasons = 0;
    process_count = 0;
    generation++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}
/* Refuse a question with a code, once it was answered so many times. */
void fake_refuse(const char *function, int code, int after) {
    snprintf(refused, sizeof refused, "%s", function);
    refused_code = code;
    refused_after = after;
}
void fake_field(int code) { field_code = code; }
void fake_old(int index) { old_board = index + 1; }
/* A divided board says that it is not busy, which says nothing of its instances. */
void fake_zero(void) { says_zero = 1; }
void fake_energy(unsigned long long millijoules) { energy_mj = millijoules; }
void fake_reasons(unsigned long long bits) { reasons = bits; }
void fake_process(unsigned int pid, unsigned long long memory) {
    processes[process_count++] = (process_t){pid, memory, 0xffffffff, 0xffffffff};
}
const char *fake_asked(void) { return asked; }
void fake_event(int index, unsigned long long type, unsigned long long data) {
    pthread_mutex_lock(&lock);
    if (event_count < EVENTS) events[event_count++] = (event_t){(void *)(uintptr_t)(index + 1), type, data, 0, 0};
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}
/* Until somebody waits, and nothing is left to be told: all events are with the one who waits. */
void fake_until_heard(void) {
    pthread_mutex_lock(&lock);
    while (!waits || event_count) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

const char *nvmlErrorString(int code) { return code == LOST ? "GPU is lost" : "refused"; }
int nvmlInit_v2(void) { ANSWER(NULL); return (int)from_environment("DRIVER_INIT", SUCCESS); }
int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    ANSWER(NULL);
    return (int)from_environment("DRIVER_INIT", SUCCESS);
}
int nvmlShutdown(void) { ANSWER(NULL); return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned int *count) {
    ANSWER(NULL);
    *count = from_environment("DRIVER_COUNT", BOARDS);
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) {
    ANSWER(NULL);
    if (index == LOST_BOARD) return LOST;
    *device = (void *)(uintptr_t)(index + 1);
    return SUCCESS;
}

static int write_text(char *text, unsigned int length, const char *value) {
    if (strlen(value) + 1 > length) return INSUFFICIENT_SIZE;
    strcpy(text, value);
    return SUCCESS;
}

int nvmlDeviceGetName(void *device, char *name, unsigned int length) {
    int code = refusal(__func__, NULL);
    if (code) return code;
    if (index_of(device) == old_board - 1) return write_text(name, length, "Tesla K20m");
    return write_text(name, length, is_instance(device) ? "NVIDIA H100 80GB HBM3 MIG 3g.40gb" : "NVIDIA H100 80GB HBM3");
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int length) {
    char text[64];
    const char *format = is_instance(device) ? "MIG-%08d-5afc-978f" : "GPU-%08d-45b0-95c0";
    int code = refusal(__func__, NULL);
    if (code) return code;
    snprintf(text, sizeof text, format, index_of(device) % FIRST_INSTANCE);
    return write_text(uuid, length, text);
}

int nvmlDeviceGetMemoryInfo(void *device, memory_t *memory) {
    ANSWER(device);
    memory->total = is_instance(device) ? 42412802048ULL : 85520809984ULL;
    memory->used = 1ULL << 30;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

/* Of the 1 GiB that the older answer calls used, a quarter is reserved. */
int nvmlDeviceGetMemoryInfo_v2(void *device, memory_v2_t *memory) {
    memory_t older;
    ANSWER(device);
    if (memory->version != 0x02000028 || sizeof *memory != 0x28) return 25;
    memory->total = is_instance(device) ? 42412802048ULL : 85520809984ULL;
    older.used = 1ULL << 30;
    memory->reserved = older.used / 4;
    memory->used = older.used - memory->reserved;
    memory->free = memory->total - older.used;
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    ANSWER(device);
    *major = 9;
    *minor = 0;
    return SUCCESS;
}

int nvmlDeviceGetNumGpuCores(void *device, unsigned int *cores) {
    ANSWER(device);
    if (is_instance(device)) return NOT_SUPPORTED;
    *cores = 16896;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(void *device, unsigned int *current, unsigned int *pending) {
    ANSWER(device);
    if (is_instance(device)) return NOT_SUPPORTED;
    *current = *pending = index_of(device) == DIVIDED_BOARD;
    return SUCCESS;
}

NUMBER(nvmlDeviceGetMaxMigDeviceCount, unsigned int, SLOTS)

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned int slot, void **instance) {
    ANSWER(device);
    if (slot != 0 && slot != 2) return NOT_FOUND;
    *instance = (void *)(uintptr_t)(FIRST_INSTANCE + slot + 1);
    return SUCCESS;
}

int nvmlDeviceGetAttributes_v2(void *device, attributes_t *attributes) {
    ANSWER(device);
    if (!is_instance(device)) return NOT_SUPPORTED;
    memset(attributes, 0, sizeof *attributes);
    attributes->multiprocessors = 60;
    attributes->memory_mb = 40448;
    return SUCCESS;
}

NUMBER(nvmlDeviceGetGpuInstanceId, unsigned int, index_of(device) - FIRST_INSTANCE + 1)
NUMBER(nvmlDeviceGetPowerUsage, unsigned int, 100500 + index_of(device) * 1000)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned int, 700000)
NUMBER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, energy_mj * (unsigned)(index_of(device) + 1))
NUMBER(nvmlDeviceGetPcieReplayCounter, unsigned int, index_of(device))
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, reasons)

int nvmlDeviceGetUtilizationRates(void *device, utilization_t *rates) {
    int divided = index_of(device) == DIVIDED_BOARD;
    ANSWER(device);
    if (divided && !says_zero) return NOT_SUPPORTED;
    rates->gpu = divided ? 0 : 90 + (unsigned)index_of(device);
    rates->memory = divided ? 0 : 30 + (unsigned)index_of(device);
    return SUCCESS;
}

int nvmlDeviceGetEncoderUtilization(void *device, unsigned int *percent, unsigned int *period) {
    ANSWER(device);
    if (index_of(device) == DIVIDED_BOARD && !says_zero) return NOT_SUPPORTED;
    *percent = 5;
    *period = 1000;
    return SUCCESS;
}

int nvmlDeviceGetDecoderUtilization(void *device, unsigned int *percent, unsigned int *period) {
    ANSWER(device);
    if (index_of(device) == DIVIDED_BOARD && !says_zero) return NOT_SUPPORTED;
    *percent = 6;
    *period = 1000;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned int *degrees) {
    ANSWER(device);
    if (sensor != 0) return INVALID_ARGUMENT;
    *degrees = 40 + (unsigned)index_of(device);
    return SUCCESS;
}

int nvmlDeviceGetFieldValues(void *device, int count, field_t *fields) {
    ANSWER(device);
    for (int number = 0; number < count; number++) {
        fields[number].code = (uint32_t)(fields[number].field == 82 ? field_code : NOT_SUPPORTED);
        fields[number].type = 1;
        fields[number].value.whole = 60 + (unsigned)index_of(device);
    }
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(void *device, int clock, unsigned int *megahertz) {
    ANSWER(device);
    if (clock != 1 && clock != 2) return INVALID_ARGUMENT;
    *megahertz = clock == 1 ? 1980 : 2619;
    return SUCCESS;
}

/* Corrected 12, uncorrected 1 since the driver was loaded; a hundred more of each in the board's life. */
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *errors) {
    ANSWER(device);
    *errors = (kind == 0 ? 12ULL : 1ULL) + (counter == 1 ? 100 : 0);
    return SUCCESS;
}

int nvmlDeviceGetRemappedRows(void *device, unsigned int *correctable, unsigned int *uncorrectable,
                              unsigned int *pending, unsigned int *failed) {
    ANSWER(device);
    *correctable = 2;
    *uncorrectable = 3;
    *pending = index_of(device) == 1;
    *failed = index_of(device) == 2;
    return SUCCESS;
}

/* Of eighteen links the last is down, and each of the others has had an error of each kind. */
int nvmlDeviceGetNvLinkState(void *device, unsigned int link, unsigned int *active) {
    ANSWER(device);
    if (link >= LINKS) return INVALID_ARGUMENT;
    *active = link != LINKS - 1;
    return SUCCESS;
}

int nvmlDeviceGetNvLinkErrorCounter(void *device, unsigned int link, int counter, unsigned long long *errors) {
    ANSWER(device);
    if (link >= LINKS - 1) return NOT_SUPPORTED;
    *errors = 1 + (unsigned)counter;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, process_t *listed) {
    unsigned int room = *count;
    ANSWER(device);
    *count = index_of(device) == 0 || index_of(device) == FIRST_INSTANCE ? process_count : 0;
    if (*count > room) return INSUFFICIENT_SIZE;
    memcpy(listed, processes, *count * sizeof *listed);
    return SUCCESS;
}

/* A set is of the driver that made it: whoever still listens after a reset hears nothing of the next one. */
int nvmlEventSetCreate(void **set) {
    ANSWER(NULL);
    pthread_mutex_lock(&lock);
    *set = (void *)(uintptr_t)(generation + 1);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}
int nvmlEventSetFree(void *set) { (void)set; ANSWER(NULL); return SUCCESS; }
int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set) {
    (void)set;
    ANSWER(device);
    return types == 8 ? SUCCESS : NOT_SUPPORTED;
}

int nvmlEventSetWait_v2(void *set, event_t *event, unsigned int milliseconds) {
    struct timespec until;
    int code = SUCCESS, mine = (int)(uintptr_t)set - 1;
    ANSWER(NULL);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += milliseconds / 1000;
    pthread_mutex_lock(&lock);
    if (mine == generation) waits++;
    pthread_cond_broadcast(&changed);
    while (!event_count && mine == generation && !code)
        code = pthread_cond_timedwait(&changed, &lock, &until);
    if (mine != generation) {
        code = UNINITIALIZED;
    } else {
        waits--;
        code = event_count ? SUCCESS : TIMEOUT;
        if (event_count) {
            *event = events[0];
            memmove(events, events + 1, (size_t)--event_count * sizeof *events);
        }
    }
    pthread_mutex_unlock(&lock);
    return code;
}

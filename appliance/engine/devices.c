/* The places where a run can happen, asked of the engines once, and what fits into their memory.
 * The list is read-only after engines_open and so free to any thread. */
#include "engine/catalogue.h"

#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/machine.h"

static bool listed(const struct engine_device *devices, size_t count, const char *id)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(devices[i].id, id) == 0)
            return true;
    return false;
}

/* Add the devices that one engine reports and that no engine before it reported. */
static void probe(struct engines *engines, const struct engine *engine)
{
    struct engine_device found[ENGINE_DEVICES_MAX];
    size_t n = 0;
    char text[256];
    struct rl_err why = {0};
    memset(found, 0, sizeof(found));
    if (engine->probe(found, RL_ARRAY_LEN(found), &n, &why) != RL_OK) {
        rl_log(RL_LOG_WARN, "engine_probe_failed", "engine=%s code=%s reason=%s", engine->name,
               rl_code_name(why.code), rl_log_quote(why.reason, text, sizeof(text)));
        return;
    }
    for (size_t i = 0; i < n && i < RL_ARRAY_LEN(found); i++) {
        if (listed(engines->devices, engines->device_count, found[i].id))
            continue;
        if (engines->device_count == ENGINE_DEVICES_MAX) {
            rl_log(RL_LOG_WARN, "device_left_out", "engine=%s device=%s", engine->name,
                   found[i].id);
            continue;
        }
        engines->devices[engines->device_count++] = found[i];
    }
}

/* Each gets its share of the memory, for they may all run at once. */
static void add_cpu_slots(struct engines *engines)
{
    for (int slot = 0; slot < engines->cpu_slots; slot++) {
        struct engine_device cpu = {
            .index = slot, .mem_bytes = rl_machine_memory() / engines->cpu_slots, .backend = "cpu"};
        (void)snprintf(cpu.id, sizeof(cpu.id), "cpu%d", slot); /* fits */
        (void)snprintf(cpu.name, sizeof(cpu.name), "CPU, %ld cores",
                       sysconf(_SC_NPROCESSORS_ONLN)); /* fits */
        if (engines->device_count < ENGINE_DEVICES_MAX &&
            !listed(engines->devices, engines->device_count, cpu.id))
            engines->devices[engines->device_count++] = cpu;
    }
}

void engines_probe(struct engines *engines)
{
    bool gpu = false;
    for (size_t i = 0; i < engines->count; i++)
        if (engines->list[i]->probe)
            probe(engines, engines->list[i]);
    for (size_t i = 0; i < engines->device_count; i++)
        gpu = gpu || engines->devices[i].gpu;
    if (!gpu)
        add_cpu_slots(engines);
    if (engines->device_count > 0)
        engines->host_bytes = rl_machine_memory() / (int64_t)engines->device_count;
}

const struct engine_device *engines_devices(const struct engines *engines, size_t *ret_count)
{
    *ret_count = engines->device_count;
    return engines->devices;
}

void engines_usage(const struct engines *engines, const struct engine_device *device,
                   struct engine_usage *ret_usage)
{
    static const struct engine_usage unknown = {
        .mem_total_bytes = -1, .mem_free_bytes = -1, .utilisation = -1};
    *ret_usage = unknown;
    for (size_t i = 0; i < engines->count; i++) {
        struct engine_usage usage = unknown;
        if (engines->list[i]->usage && engines->list[i]->usage(device, &usage, NULL) == RL_OK) {
            *ret_usage = usage;
            return;
        }
    }
}

bool engine_runs_on(const struct engine *engine, const struct engine_device *device)
{
    struct engine_device found[ENGINE_DEVICES_MAX];
    size_t n = 0;
    if (!engine->probe)
        return true;
    memset(found, 0, sizeof(found));
    if (engine->probe(found, RL_ARRAY_LEN(found), &n, NULL) != RL_OK)
        return false;
    return listed(found, n < RL_ARRAY_LEN(found) ? n : RL_ARRAY_LEN(found), device->id);
}

/* An engine without devices of its own works in the machine's memory, whoever's thread it is on. */
static int64_t memory_of(const struct engines *engines, const struct engine *engine,
                         const struct engine_device *device)
{
    return engine->probe ? device->mem_bytes : engines->host_bytes;
}

bool engines_fit_on(const struct engines *engines, const struct engine *engine,
                    const struct engine_device *device, const struct engine_request *request)
{
    int64_t need = engine->memory_bytes ? engine->memory_bytes(engine, request) : 0;
    int64_t have = memory_of(engines, engine, device);
    return have <= 0 || need <= have;
}

static void amount(int64_t bytes, char text[32])
{
    bool giga = bytes >= 1000000000;
    (void)snprintf(text, 32, "%.1f %s", (double)bytes / (giga ? 1e9 : 1e6),
                   giga ? "GB" : "MB"); /* fits */
}

enum rl_rc engines_fit(const struct engines *engines, const struct engine *engine,
                       const struct engine_request *request, struct rl_err *err)
{
    const struct engine_device *largest = NULL;
    char need[32], have[32];
    for (size_t i = 0; i < engines->device_count; i++) {
        const struct engine_device *device = &engines->devices[i];
        if (engines_fit_on(engines, engine, device, request))
            return RL_OK;
        if (!largest || device->mem_bytes > largest->mem_bytes)
            largest = device;
    }
    if (!largest)
        return RL_OK; /* nothing runs here at all, which others tell */
    amount(engine->memory_bytes(engine, request), need);
    amount(memory_of(engines, engine, largest), have);
    return rl_fail(err, engine->probe ? RL_OUT_OF_GPU_MEMORY : RL_NO_MEMORY,
                   "%d frames of %d x %d by model %s need %s of memory, and %s has %s",
                   request->frames, request->width, request->height, request->model, need,
                   largest->id, have);
}

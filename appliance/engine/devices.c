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

void engines_probe(struct engines *engines)
{
    bool gpu = false;
    for (size_t i = 0; i < engines->count; i++)
        if (engines->list[i]->probe)
            probe(engines, engines->list[i]);
    for (size_t i = 0; i < engines->device_count; i++)
        gpu = gpu || engines->devices[i].gpu;
    for (int slot = 0; !gpu && slot < engines->cpu_slots; slot++) {
        struct engine_device cpu = {
            .index = slot, .mem_bytes = rl_machine_memory(), .backend = "cpu"};
        (void)snprintf(cpu.id, sizeof(cpu.id), "cpu%d", slot); /* fits */
        (void)snprintf(cpu.name, sizeof(cpu.name), "CPU, %ld cores",
                       sysconf(_SC_NPROCESSORS_ONLN)); /* fits */
        if (engines->device_count < ENGINE_DEVICES_MAX &&
            !listed(engines->devices, engines->device_count, cpu.id))
            engines->devices[engines->device_count++] = cpu;
    }
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
    struct engine_device found[64];
    size_t n = 0;
    if (!engine->probe)
        return true;
    memset(found, 0, sizeof(found));
    if (engine->probe(found, RL_ARRAY_LEN(found), &n, NULL) != RL_OK)
        return false;
    return listed(found, n < RL_ARRAY_LEN(found) ? n : RL_ARRAY_LEN(found), device->id);
}

bool engine_fits(const struct engine *engine, const struct engine_device *device,
                 const struct engine_request *request)
{
    int64_t need = engine->memory_bytes ? engine->memory_bytes(engine, request) : 0;
    return device->mem_bytes <= 0 || need <= device->mem_bytes;
}

enum rl_rc engines_fit(const struct engines *engines, const struct engine *engine,
                       const struct engine_request *request, struct rl_err *err)
{
    const struct engine_device *largest = NULL;
    for (size_t i = 0; i < engines->device_count; i++) {
        const struct engine_device *device = &engines->devices[i];
        if (engine_fits(engine, device, request))
            return RL_OK;
        if (!largest || device->mem_bytes > largest->mem_bytes)
            largest = device;
    }
    if (!largest)
        return RL_OK; /* nothing runs here at all, which others tell */
    return rl_fail(err, RL_OUT_OF_GPU_MEMORY,
                   "%d frames of %d x %d by model %s need %.1f GB of memory, and %s has %.1f GB",
                   request->frames, request->width, request->height, request->model,
                   (double)engine->memory_bytes(engine, request) / 1e9, largest->id,
                   (double)largest->mem_bytes / 1e9);
}

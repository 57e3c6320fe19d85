/* Flow-matching samplers: from noise to latents in `steps` evaluations of the network, by Euler or
 * by UniPC (order 2, "bh2", predicting x0). x(σ) = (1 − σ)·x0 + σ·noise; the network gives the
 * velocity v = noise − x0. One thread. Source: Zhao et al. 2023 (UniPC); the grids are those of the
 * Wan 2.1 release and of diffusers. */
#ifndef RL_ENGINE_WAN_SAMPLER_H
#define RL_ENGINE_WAN_SAMPLER_H

#include "engine/wan/ops.h"

#define SAMPLER_STEPS 1000 /* at most */

enum sampler_method { SAMPLER_UNIPC, SAMPLER_EULER };
/* WAN: σ from 0.999 to 0; DIFFUSERS: from 1 to 0; both in equal parts, then shifted: shift·σ / (1 +
 * (shift − 1)·σ). The time given to the network is ⌊1000·σ⌋, at most 999. */
enum sampler_grid { SAMPLER_WAN, SAMPLER_DIFFUSERS };

struct sampler;

/* "unipc" or "euler"; "wan" or "diffusers". false: another word. */
bool sampler_method_parse(const char *name, enum sampler_method *ret_method);
bool sampler_grid_parse(const char *name, enum sampler_grid *ret_grid);

/* n: elements of the latents; steps 1..SAMPLER_STEPS; shift > 0. Keeps three buffers of n f32 on
 * the context's device. errors: RL_NO_MEMORY, RL_OUT_OF_GPU_MEMORY. Returns new. */
enum rl_rc sampler_new(const struct ops *ops, struct ops_ctx *ctx, enum sampler_method method,
                       enum sampler_grid grid, int steps, double shift, int64_t n,
                       struct sampler **ret_sampler, struct rl_err *err) RL_NODISCARD;
void sampler_free(struct sampler *sampler); /* NULL allowed */

int sampler_step(const struct sampler *sampler); /* steps done */
/* What the network is told for the next step: 0..999. */
int sampler_time(const struct sampler *sampler);
double sampler_sigma(const struct sampler *sampler); /* of the next step; 0 after the last */
/* One step: v f32 [n], the network's answer at sampler_time for x f32 [n]; x moves on. v is used as
 * room. */
void sampler_advance(struct sampler *sampler, float *x, float *v);

/* The state between two steps, for a checkpoint: the three buffers one after the other. */
size_t sampler_state_bytes(const struct sampler *sampler);
enum rl_rc sampler_save(const struct sampler *sampler, void *bytes, struct rl_err *err)
    RL_NODISCARD;
/* step: as sampler_step was; bytes: as saved by a sampler made with the same arguments. */
enum rl_rc sampler_restore(struct sampler *sampler, int step, const void *bytes, struct rl_err *err)
    RL_NODISCARD;

#endif

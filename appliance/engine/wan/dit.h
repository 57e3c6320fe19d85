/* The diffusion transformer of Wan: latents of noise level σ and a prompt to a velocity. Three
 * lifetimes: the network (a model), a clip (one size; all memory that the steps need), a prompt
 * (keys and values of the cross-attention, which do not depend on the step). One thread.
 * Source: Wan 2.1 report, section 4; Wan-Video/Wan2.1 wan/modules/model.py. */
#ifndef RL_ENGINE_WAN_DIT_H
#define RL_ENGINE_WAN_DIT_H

#include "engine/wan/model.h"
#include "engine/wan/ops.h"
#include "engine/wan/watch.h"

#define DIT_PROMPTS 2 /* evaluated at once: with and without the prompt */

struct dit;
struct dit_clip;
struct dit_prompt;

/* Borrows model during the call. Beats before each tensor; watch may be NULL. Returns new. errors:
 * RL_CANCELED and those of params_ok. */
enum rl_rc dit_new(const struct ops *ops, struct ops_ctx *ctx, const struct wan_model *model,
                   const struct watch *watch, struct dit **ret_dit, struct rl_err *err)
    RL_NODISCARD;
void dit_free(struct dit *dit); /* NULL allowed */

/* f, h, w: of the latents; h and w even. prompts: how many dit_forward will take, 1..DIT_PROMPTS.
 * Borrows dit. Returns new. */
enum rl_rc dit_clip_new(const struct dit *dit, int f, int h, int w, int prompts,
                        struct dit_clip **ret_clip, struct rl_err *err) RL_NODISCARD;
void dit_clip_free(struct dit_clip *clip); /* NULL allowed */

/* text act [n, text_dim] as of text_encode, on the device, n in 1..text_len. The text_len − n rows
 * of padding are equal, and so are their keys: one of them stands for all. Returns new. */
enum rl_rc dit_prompt_new(const struct dit *dit, const void *text, int n,
                          struct dit_prompt **ret_prompt, struct rl_err *err) RL_NODISCARD;
void dit_prompt_free(struct dit_prompt *prompt); /* NULL allowed */

/* The noise level of the next dit_forward: 0..1000 (sampler_time). */
enum rl_rc dit_time(struct dit_clip *clip, double time, struct rl_err *err) RL_NODISCARD;
/* x f32 [c, f, h, w] with each of the clip's prompts; v[i] f32 [c, f, h, w] for prompts[i].
 * Allocates nothing. Beats before each attention of each prompt and each piece of the
 * feed-forward: of a large model on a small machine a whole step takes many minutes. watch may be
 * NULL. errors: RL_CANCELED (v is of no use then, x is as it was). */
enum rl_rc dit_forward(struct dit_clip *clip, const float *x,
                       const struct dit_prompt *const *prompts, const struct watch *watch,
                       float *const *v, struct rl_err *err) RL_NODISCARD;

/* cos and sin [f·h·w, head/2] of a grid of f·h·w tokens. */
void dit_rope(int f, int h, int w, int head, float *cos, float *sin);

#endif

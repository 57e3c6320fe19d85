/* The decoder of Wan's causal video VAE, one latent frame at a time: every convolution keeps the
 * two frames before the present one, so the result is that of the whole clip at once. The first
 * latent frame gives one frame, every other 2 per temporal doubling (4 with two). One thread.
 * Source: Wan 2.1 report, section 3; Wan-Video/Wan2.1 wan/modules/vae.py. */
#ifndef RL_ENGINE_WAN_VAE_H
#define RL_ENGINE_WAN_VAE_H

#include "engine/wan/model.h"
#include "engine/wan/ops.h"
#include "engine/wan/watch.h"

struct vae;
struct vae_clip;

/* Borrows model during the call. Beats before each tensor; watch may be NULL. Returns new. errors:
 * RL_CANCELED and those of params_ok. */
enum rl_rc vae_new(const struct ops *ops, struct ops_ctx *ctx, const struct wan_model *model,
                   const struct watch *watch, struct vae **ret_vae, struct rl_err *err)
    RL_NODISCARD;
void vae_free(struct vae *vae); /* NULL allowed */

/* The streams of one clip, before its first frame. h, w: of the latents. Borrows vae. Returns new.
 */
enum rl_rc vae_clip_new(const struct vae *vae, int h, int w, struct vae_clip **ret_clip,
                        struct rl_err *err) RL_NODISCARD;
void vae_clip_free(struct vae_clip *clip); /* NULL allowed */

struct vae_sink {
    void *user;
    /* frame act [h, w, 3] on the device, −1..1 and somewhat beyond; valid during the call. */
    enum rl_rc (*frame)(void *user, const void *frame, int h, int w, struct rl_err *err);
    const struct watch *watch; /* beats before each layer; NULL allowed */
};

/* The next latent frame z f32 [h, w, c] in host memory, as the transformer makes them (mean 0,
 * deviation 1). Gives frames to the sink in order; its error ends the call. */
enum rl_rc vae_decode(struct vae_clip *clip, const float *z, const struct vae_sink *sink,
                      struct rl_err *err) RL_NODISCARD;

#endif

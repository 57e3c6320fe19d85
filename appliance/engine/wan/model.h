/* A Wan 2.1 text-to-video model: three weight files (transformer, text encoder, VAE) under one set
 * of names, and the configuration that their shapes and metadata give. Everything that a network
 * will ask for is checked at open: there, numeric, of the right shape, with its scale. Read-only
 * after open; any thread.
 *
 * Names are the published ones: Wan's own for the transformer and the VAE, Hugging Face's T5 names
 * for the text encoder (as in the safetensors of the release). Files may use them (also behind
 * `model.diffusion_model.` and the like), or diffusers' names, or Wan's own T5 names. */
#ifndef RL_ENGINE_WAN_MODEL_H
#define RL_ENGINE_WAN_MODEL_H

#include "engine/wan/numbers.h"
#include "engine/wan/safetensors.h"

#define WAN_VAE_LEVELS   8
#define WAN_VAE_CHANNELS 64

struct wan_model;
struct tokenizer;

enum wan_part { WAN_DIT, WAN_TEXT, WAN_VAE, WAN_PARTS };

struct wan_text_config {
    int vocab, dim, ffn, layers;
    int heads, inner; /* inner: of all heads together */
    int buckets;      /* of relative positions, both signs */
};

struct wan_dit_config {
    int dim, ffn, heads, layers;
    int channels; /* of the latents, in and out */
    int text_dim; /* of the text encoder's rows */
    int text_len; /* rows of text, padding included: 512 */
    int freq_dim; /* of the time features: 256 */
};

/* The decoder: conv2, conv1, middle, then per level `blocks` residual blocks and, but for the last
 * level, an upsampling (twice the space, half the channels; twice the frames where temporal). The
 * input of level l > 0 has width[l - 1] / 2 channels. decoder.upsamples.K counts them all:
 * K = level * (blocks + 1) + block. */
struct wan_vae_config {
    int channels; /* of the latents */
    int levels, blocks;
    int width[WAN_VAE_LEVELS];
    bool temporal[WAN_VAE_LEVELS]; /* after this level */
    int scale_space, scale_time;   /* 8, 4: pixels and frames per latent (the first frame: one) */
    float mean[WAN_VAE_CHANNELS], std[WAN_VAE_CHANNELS]; /* z = latent * std + mean */
};

/* What a request gets that does not say. */
struct wan_defaults {
    int width, height, frames, fps, steps; /* px; frames = 4n + 1 */
    double shift, guidance;
    char method[16], grid[16];   /* sampler_method_parse, sampler_grid_parse */
    const char *negative_prompt; /* borrowed from the model */
};

struct wan_config {
    char name[64]; /* "starter", "Wan2.1-T2V-1.3B", … */
    struct wan_text_config text;
    struct wan_dit_config dit;
    struct wan_vae_config vae;
    struct wan_defaults defaults;
};

/* Paths of the parts: .safetensors, or the .index.json of several. tokenizer: a spiece.model;
 * NULL: it is in the text encoder's file (`spiece_model`). */
struct wan_files {
    const char *part[WAN_PARTS];
    const char *tokenizer;
};

/* The same, owned. */
struct wan_paths {
    char *part[WAN_PARTS], *tokenizer;
};

/* Where a folder keeps the files of a model; none is opened. errors: RL_NOT_FOUND,
 * RL_INVALID_FIELD (several to choose from), RL_NO_MEMORY. Filled by success only. */
enum rl_rc wan_folder_paths(const char *folder, struct wan_paths *ret_paths, struct rl_err *err)
    RL_NODISCARD;
void wan_paths_free(struct wan_paths *paths); /* what it owns, not the struct */

/* folder: in ComfyUI's layout (diffusion_models, text_encoders, vae) or in diffusers'
 * (transformer, text_encoder, vae, tokenizer), with one model in each. Returns new.
 * errors: RL_NOT_FOUND, RL_INVALID_FIELD (file and tensor named), RL_IO_ERROR, RL_NO_MEMORY. */
enum rl_rc wan_model_open(const char *folder, struct wan_model **ret_model, struct rl_err *err)
    RL_NODISCARD;
enum rl_rc wan_model_open_files(const struct wan_files *files, struct wan_model **ret_model,
                                struct rl_err *err) RL_NODISCARD;
/* A model whose parts are in memory, borrowed until close; its tokenizer is in the text encoder's.
 */
enum rl_rc wan_model_open_bytes(const struct safetensors_bytes parts[WAN_PARTS],
                                struct wan_model **ret_model, struct rl_err *err) RL_NODISCARD;
void wan_model_close(struct wan_model *model); /* NULL allowed */
const struct wan_config *wan_model_config(const struct wan_model *model);
/* The tokenizer of the text encoder. Returns new. */
enum rl_rc wan_model_tokenizer(const struct wan_model *model, struct tokenizer **ret_tokenizer,
                               struct rl_err *err) RL_NODISCARD;

/* By published name; NULL: no such tensor. Borrowed until close. */
const struct tensor *wan_model_find(const struct wan_model *model, enum wan_part part,
                                    const char *name);
/* A tensor of rows * cols elements whose first dimension is rows, with its scale: ready for
 * ops->weight_new. Convolutions lie as in the file: [co, ci, kt, kh, kw].
 * errors: RL_INVALID_FIELD (missing, other size; file and tensor named). */
enum rl_rc wan_model_matrix(const struct wan_model *model, enum wan_part part, const char *name,
                            int64_t rows, int64_t cols, struct ops_source *ret_source,
                            struct rl_err *err) RL_NODISCARD;
/* Elements first … first + n - 1 of a tensor of `total` elements, as f32 with its scale.
 * errors: as wan_model_matrix. */
enum rl_rc wan_model_values(const struct wan_model *model, enum wan_part part, const char *name,
                            int64_t total, int64_t first, int64_t n, float *ret_values,
                            struct rl_err *err) RL_NODISCARD;
/* Row `row` of a matrix of `cols` columns, as f32 with its scale: a token's embedding.
 * errors: as wan_model_matrix. */
enum rl_rc wan_model_row(const struct wan_model *model, enum wan_part part, const char *name,
                         int64_t row, int64_t cols, float *ret_values, struct rl_err *err)
    RL_NODISCARD;

#define WAN_WHOLE_PART (-2)
/* Tell the kernel that a layer of the part is read soon, or not again for a while: what was brought
 * to a device leaves the process, and an encoder that is streamed reads ahead. */
void wan_model_want(const struct wan_model *model, enum wan_part part, int layer, bool soon);

/* Parameters that the networks use (of the VAE: the decoder's). */
int64_t wan_model_parameters(const struct wan_model *model, enum wan_part part);
/* Bytes of a part's parameters on a device: matrices in act_bytes per element, the rest in f32; the
 * table of embeddings stays in the file. resident: false counts one layer of the text encoder at a
 * time (the other parts are always resident). */
int64_t wan_config_bytes(const struct wan_config *config, enum wan_part part, size_t act_bytes,
                         bool resident);

#endif

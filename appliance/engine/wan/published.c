/* The table. To add a model: its files, with sizes and digests as their publisher's Git LFS
 * pointers have them; a digest that cannot be found is NULL, never made up. Constants only. */
#include "engine/wan/published.h"

#include <string.h>

#define COMFY "Comfy-Org/Wan_2.1_ComfyUI_repackaged/resolve/main/split_files/"

/* clang-format off */
#define DIT_1_3B                                                                                   \
    {WAN_DIT, "diffusion_models/wan2.1_t2v_1.3B_bf16.safetensors",                                 \
     COMFY "diffusion_models/wan2.1_t2v_1.3B_bf16.safetensors", INT64_C(2838104528),               \
     "6f999b0d6cb9a72b3d98ac386ed96f57f8cecae13994a69232514ea4974ad5fd"}
#define DIT_1_3B_FP16                                                                              \
    {WAN_DIT, "diffusion_models/wan2.1_t2v_1.3B_fp16.safetensors",                                 \
     COMFY "diffusion_models/wan2.1_t2v_1.3B_fp16.safetensors", INT64_C(2838303560),               \
     "be531024cd9018cb5b48c40cfbb6a6191645b1c792eb8bf4f8c1c6e10f924dc5"}
#define UMT5_FP16                                                                                  \
    {WAN_TEXT, "text_encoders/umt5_xxl_fp16.safetensors",                                          \
     COMFY "text_encoders/umt5_xxl_fp16.safetensors", INT64_C(11366399385),                        \
     "7b8850f1961e1cf8a77cca4c964a358d303f490833c6c087d0cff4b2f99db2af"}
#define UMT5_FP8                                                                                   \
    {WAN_TEXT, "text_encoders/umt5_xxl_fp8_e4m3fn_scaled.safetensors",                             \
     COMFY "text_encoders/umt5_xxl_fp8_e4m3fn_scaled.safetensors", INT64_C(6735906897),            \
     "c3355d30191f1f066b26d93fba017ae9809dce6c627dda5f6a66eaa651204f68"}
#define VAE_2_1                                                                                    \
    {WAN_VAE, "vae/wan_2.1_vae.safetensors", COMFY "vae/wan_2.1_vae.safetensors",                  \
     INT64_C(253815318), "2fc39d31359a4b0a64f55876d8ff7fa8d780956ae2cb13463b0223e15148976b"}

const struct published_model published_models[] = {
    {"wan2.1-t2v-1.3b",
     "Wan 2.1 text to video, 1.3 billion parameters, 480p; the text encoder in 16 bits",
     "Apache-2.0", INT64_C(6600000000), {DIT_1_3B, UMT5_FP16, VAE_2_1}},
    {"wan2.1-t2v-1.3b-fp8",
     "the same with the text encoder in 8 bits: 4.6 GB less to fetch and to keep",
     "Apache-2.0", INT64_C(6600000000), {DIT_1_3B, UMT5_FP8, VAE_2_1}},
    {"wan2.1-t2v-1.3b-fp16",
     "the transformer as it was first published, in fp16; for comparisons",
     "Apache-2.0", INT64_C(6600000000), {DIT_1_3B_FP16, UMT5_FP16, VAE_2_1}},
};
/* clang-format on */

const size_t published_count = RL_ARRAY_LEN(published_models);

const struct published_model *published_find(const char *name)
{
    for (size_t i = 0; i < published_count; i++)
        if (strcmp(published_models[i].name, name) == 0)
            return &published_models[i];
    return NULL;
}

int64_t published_bytes(const struct published_model *model)
{
    int64_t bytes = 0;

    for (int k = 0; k < WAN_PARTS; k++)
        bytes += model->files[k].bytes;
    return bytes;
}

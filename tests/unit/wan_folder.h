/* A folder with a model's three files in it, as a test wants them. */
#ifndef WAN_FOLDER_H
#define WAN_FOLDER_H

#include "engine/wan/model.h"

#include "wan_files.h"

static char folder[64];
static struct wan_file dit;
static struct wan_file text;
static struct wan_file vae;

static inline void make_dir(const char *sub)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", folder, sub);
    assert_int_equal(mkdir(path, 0700), 0);
}

static inline void write_to(const struct wan_file *file, const char *place)
{
    char path[160];

    (void)snprintf(path, sizeof(path), "%s/%s", folder, place);
    wan_file_write(file, path);
}

static inline void write_comfy(void)
{
    write_to(&dit, "diffusion_models/dit.safetensors");
    write_to(&text, "text_encoders/text.safetensors");
    write_to(&vae, "vae/vae.safetensors");
}

static inline void fill(const struct wan_sizes *sizes, const char *dtype)
{
    dit.count = text.count = vae.count = 0;
    dit.metadata = text.metadata = vae.metadata = NULL;
    wan_file_dit(&dit, sizes, dtype);
    wan_file_text(&text, sizes, dtype, dtype);
    wan_file_vae(&vae, sizes, dtype);
}

static inline int setup(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/wan_model.XXXXXX");
    assert_non_null(mkdtemp(folder));
    make_dir("diffusion_models");
    make_dir("text_encoders");
    make_dir("vae");
    fill(&wan_tiny, "F32");
    return 0;
}

static inline int teardown(void **state)
{
    char command[96];

    (void)state;
    (void)snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command);
}

static inline struct wan_model *opened(void)
{
    struct wan_model *model = NULL;
    struct rl_err err = {0};

    if (wan_model_open(folder, &model, &err) != RL_OK)
        fail_msg("%s", err.reason);
    return model;
}

/* The model as the three files now stand is refused, with all of these words. */
static inline void refused(const char *word, const char *word2)
{
    struct wan_model *model = NULL;
    struct rl_err err = {0};
    enum rl_rc rc = wan_model_open(folder, &model, &err);

    if (rc != RL_INVALID_FIELD || !strstr(err.reason, word) || !strstr(err.reason, word2))
        fail_msg("gave %d: %s, expected: %s … %s", rc, err.reason, word, word2);
    assert_null(model);
}

static inline struct wan_file_tensor *named(struct wan_file *file, const char *name)
{
    for (size_t i = 0; i < file->count; i++) {
        if (strcmp(file->tensors[i].name, name) == 0)
            return &file->tensors[i];
    }
    fail_msg("no %s", name);
    return NULL;
}

#endif

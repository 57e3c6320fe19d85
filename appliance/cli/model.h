/* Inside the model commands: the models' folder and what a model's own folder says of itself. A
 * model is complete or hidden: it is put together in ".NAME.part" and appears by one rename. */
#ifndef RL_CLI_MODEL_H
#define RL_CLI_MODEL_H

#include "base/crypto.h"
#include "cli/commands.h"
#include "cli/meter.h"
#include "engine/wan/library.h"
#include "engine/wan/published.h"

#define MODEL_NAME      64  /* bytes of a model's name, with its end */
#define MODEL_FILES     256 /* of one model: 3, or the shards of an index */
#define MODEL_SHA256    (2 * RL_SHA256_BYTES + 1)
#define MODEL_PATH      4096
#define MODEL_MAX       64 /* models in the folder; more are passed over */
#define MODEL_MANIFEST  "model.json"
#define MODEL_BF16      ((size_t)2)         /* bytes of a number on a GPU */
#define MODEL_ROOM_STEP ((int64_t)64 << 20) /* bytes of a copy between two looks at the disk */

/* The catalogue: this program's own and that of model.catalogue. */
struct model_catalogue;
/* errors: RL_INVALID_FIELD, RL_MALFORMED_JSON, RL_NOT_FOUND, RL_IO_ERROR, RL_NO_MEMORY. */
enum rl_rc model_catalogue_open(const struct config *cfg, struct model_catalogue **ret_catalogue,
                                struct rl_err *err) RL_NODISCARD;
void model_catalogue_free(struct model_catalogue *catalogue); /* NULL allowed */
/* NULL behind the last one. */
const struct published_model *model_catalogue_at(const struct model_catalogue *catalogue, size_t i);
const struct published_model *model_catalogue_find(const struct model_catalogue *catalogue,
                                                   const char *name); /* NULL: none */
/* The file of these bytes, whatever it is called; NULL: not one of the catalogue's. */
const struct published_file *model_catalogue_file(const struct model_catalogue *catalogue,
                                                  const char *sha256, int64_t bytes);
/* The model that a manifest's files are, by their digests; NULL: none. */
struct model_manifest;
const struct published_model *model_catalogue_match(const struct model_catalogue *catalogue,
                                                    const struct model_manifest *manifest);

/* One command on the models' folder. */
struct model_job {
    struct config *cfg;                /* owned */
    struct model_catalogue *catalogue; /* owned */
    char *dir;                         /* owned: where all models are */
    bool json;                         /* JSON lines instead of sentences */
    bool interrupted;                  /* Ctrl-C: set once, then everything stops */
    int lock;                          /* -1 = not held */
    struct cli_meter meter;
};

/* Reads the configuration; complains. Exit status. */
int model_job_open(const struct cli_call *call, const char *command, struct model_job *ret_job);
void model_job_close(struct model_job *job);
#define AUTO_JOB __attribute__((cleanup(model_job_close)))
/* Make the folder when it is missing and be the only one who changes it. RL_LOCKED. */
enum rl_rc model_job_lock(struct model_job *job, struct rl_err *err) RL_NODISCARD;
/* Has Ctrl-C been pressed (signals are held)? */
bool model_job_stopped(struct model_job *job);
/* A sentence about a file while a meter runs: to stderr, or {"event","file","text"}. */
void model_say(struct model_job *job, const char *event, const char *file, const char *text);
/* Complains, and chooses the exit status of an error. */
int model_fail(struct model_job *job, const struct rl_err *err);
/* The options of every model command: --state-dir, --config, --set, --json. */
extern const struct cli_option model_options[];

/* 1 to 63 of A-Z a-z 0-9 . _ -, not beginning with a dot: fit for a folder, a URL and a log. */
bool model_name_ok(const char *name);
/* "<dir>/<name>" or "<dir>/.<name>.part", with "/<below>" unless NULL. RL_INVALID_FIELD: too long.
 */
enum rl_rc model_path(const struct model_job *job, const char *name, bool part, const char *below,
                      char path[MODEL_PATH], struct rl_err *err) RL_NODISCARD;

struct model_file {
    char path[300]; /* below the model's folder */
    int64_t bytes;
    char sha256[MODEL_SHA256]; /* "" = not known */
};

/* model.json: what was put there, by whom and when. */
struct model_manifest {
    char name[MODEL_NAME];
    char origin[512]; /* "catalogue NAME", "copied", "linked" */
    char licence[64]; /* "" = not known */
    int64_t added_at_ms;
    size_t count;
    struct model_file files[MODEL_FILES];
};

/* RL_NOT_FOUND without one: a folder that somebody put there. */
enum rl_rc model_manifest_read(const char *folder, struct model_manifest *ret_manifest,
                               struct rl_err *err) RL_NODISCARD;
/* What a folder without a manifest holds: names and sizes, no digests. */
enum rl_rc model_manifest_guess(const char *folder, struct model_manifest *ret_manifest,
                                struct rl_err *err) RL_NODISCARD;
/* The model in ".NAME.part" is complete: sync, check by opening it, write the manifest, rename. */
enum rl_rc model_publish(const struct model_job *job, const struct model_manifest *manifest,
                         struct rl_err *err) RL_NODISCARD;
/* How many bytes of a catalogue's model its hidden folder has; -1 = there is no such folder. */
int64_t model_pulled_bytes(const struct model_job *job, const struct published_model *model);
/* Does a model of that name stand in the folder? */
bool model_exists(const struct model_job *job, const char *name);
int64_t model_manifest_bytes(const struct model_manifest *manifest);
/* Remove a folder and all in it. */
enum rl_rc model_remove_tree(const char *path, struct rl_err *err);
/* Are `bytes` more free, store.min_free_bytes left over? RL_DISK_FULL with the numbers. */
enum rl_rc model_check_room(const struct model_job *job, int64_t bytes, struct rl_err *err)
    RL_NODISCARD;

/* Digest of a file, with the meter running; to: where to copy it meanwhile, NULL = nowhere.
 * RL_CANCELED after Ctrl-C, RL_DISK_FULL as soon as a copy leaves less than store.min_free_bytes.
 */
enum rl_rc model_digest(struct model_job *job, const char *path, const char *label, const char *to,
                        char sha256[MODEL_SHA256], int64_t *ret_bytes, struct rl_err *err)
    RL_NODISCARD;

/* Get one file of the catalogue into the model's ".part" folder, or what is missing of it.
 * errors: RL_CANCELED, RL_DISK_FULL, RL_NETWORK_ERROR, RL_NOT_FOUND, RL_FORBIDDEN,
 * RL_OUTPUT_INVALID (other bytes than the catalogue's), RL_IO_ERROR. */
enum rl_rc model_fetch(struct model_job *job, const char *path, const struct published_file *file,
                       char sha256[MODEL_SHA256], struct rl_err *err) RL_NODISCARD;

#endif

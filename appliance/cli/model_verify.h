/* Inside `reeld model verify`: one line per thing that was looked at, for people, for scripts and
 * for the report that the owner of a model can send. */
#ifndef RL_CLI_MODEL_VERIFY_H
#define RL_CLI_MODEL_VERIFY_H

#include "base/buf.h"
#include "cli/model.h"
#include "engine/wan/inspect.h"

enum verify_verdict { VERIFY_OK, VERIFY_WARN, VERIFY_FAIL };

struct verify {
    struct model_job *job;
    struct rl_buf text; /* JSON, when job->json */
    struct rl_jw w;
    struct rl_buf report; /* of --report; grows always, is written when asked for */
    size_t failed;
};

/* A finding: to the terminal or the JSON, and to the report. */
void verify_say(struct verify *v, enum verify_verdict verdict, const char *name, const char *fmt,
                ...) RL_PRINTF(4, 5);
/* What is in the tensors of an open model: dtypes, numbers that are none, the first block. */
enum rl_rc verify_numbers(struct verify *v, const struct wan_model *model, struct rl_err *err)
    RL_NODISCARD;
/* Versions, CPU, memory, devices: the report's beginning. */
void verify_machine(struct verify *v);
/* Take out of the report what tells of its owner: paths, and names that are not the catalogue's. */
void verify_scrub(struct rl_buf *report, const char *what, const char *instead);

#endif

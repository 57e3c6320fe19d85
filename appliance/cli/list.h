/* Reading lists page by page. */
#ifndef RL_CLI_LIST_H
#define RL_CLI_LIST_H

#include "cli/client.h"
#include "cli/commands.h"

#define CLI_PAGE 40 /* tasks per request when the answer is parsed: RL_JSON_MAX_VALUES a tree */

/* A list that comes page by page. */
struct cli_list_kind {
    const char *base; /* "/api/v1/tasks", with or without a query */
    const char *header, *none;
    void (*put_row)(const struct rl_json *row); /* a line of the table */
};
/* The list as --status, --limit, --after and --all want it: a table, or the server's JSON. */
int cli_list_run(const struct cli_call *call, const struct cli_list_kind *kind);
extern const struct cli_option cli_page_options[]; /* all of these but --status */

/* The page of `base` ("/api/v1/tasks") after the cursor `after` (NULL = the first), with `data` in
 * ret_reply->json; complains unless it returns CLI_OK. status_filter: "A,B", NULL = none. Halves
 * *limit when an answer has more values than a tree may hold. */
int cli_list_page(const struct cli_client *client, const char *base, const char *status_filter,
                  int64_t *limit, const char *after, struct cli_reply *ret_reply);
/* One answer as a whole: a table to the terminal, row by row (header NULL: without one; `none` when
 * it is empty), or as the server wrote it. Complains unless it returns CLI_OK. */
int cli_list_whole(const struct cli_args *args, const char *path, const char *header,
                   const char *none, void (*put)(const struct rl_json *row));
/* Can this text stand in a query or a path as it is? */
bool cli_query_word(const char *text);

#endif

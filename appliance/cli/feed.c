/* The commands of feeds: list, read, ack, extend, seek, rm. People get tables, pipes get the
 * server's JSON. One thread; no state. */
#include "base/buf.h"
#include "base/clock.h"
#include "cli/api.h"
#include "cli/list.h"
#include "cli/send.h"
#include "cli/term.h"

#include <ctype.h>
#include <string.h>

#define NAME_BYTES 64
#define LEASE_TEXT 48
#define SLACK_S    30 /* beyond the wait that the server was asked for */

/* "/api/v1/feeds/<first word><tail>" into `path`; false when it is no feed's name (complains). */
static bool feed_path(const struct cli_call *call, const char *tail, struct rl_buf *path)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    const char *name = call->args->words[0];
    struct rl_err err;

    rl_buf_init(path, 4096);
    rl_buf_fmt(path, API_FEEDS "/%.*s%s", NAME_BYTES, name, tail);
    if (isalnum((unsigned char)*name) && strlen(name) <= NAME_BYTES &&
        name[strspn(name, plain)] == '\0' && rl_buf_ok(path, &err) == RL_OK)
        return true;
    (void)rl_fail(&err, RL_BAD_REQUEST, "'%.70s' is no name of a feed", name);
    (void)cli_usage_error(call->command->name, &err);
    return false;
}

/* A change of the feed, and what is said of it. */
static int tell_feed(const struct cli_call *call, const char *tail, cli_write_fn write,
                     cli_put_fn put)
{
    AUTO_BUF struct rl_buf path = {0};

    return feed_path(call, tail, &path) ? cli_tell(call, "POST", path.data, write, put) : CLI_USAGE;
}

/* "<separator>name=value" of a query, escaped. */
static void add_query(struct rl_buf *path, const char *name, const char *value)
{
    rl_buf_fmt(path, "%s%s=", strchr(path->data, '?') ? "&" : "?", name);
    for (const char *p = value; *p; p++)
        rl_buf_fmt(path, isalnum((unsigned char)*p) || strchr("._-,", *p) ? "%c" : "%%%02X",
                   (unsigned char)*p);
}

/* ---- list ---- */

static void put_feed(const struct rl_json *feed)
{
    char updated[32];

    cli_local_time(cli_member(feed, "updated_at"), updated);
    cli_put_cell(cli_member(feed, "name"), 24);
    cli_put_cell(cli_member(feed, "scope"), 5);
    int64_t lag = cli_member_int(feed, "lag_at_least", 0);
    printf("%9lld  %6lld%c %6lld  %s\n", (long long)cli_member_int(feed, "cursor", 0),
           (long long)lag, cli_member_int(feed, "lag", -1) < 0 ? '+' : ' ',
           (long long)cli_member_int(feed, "leases", 0), updated);
}

static int run_list(const struct cli_call *call)
{
    return cli_list_whole(call->args, API_FEEDS,
                          "FEED                      SCOPE     CURSOR     LAG  LEASES  MOVED",
                          "no feeds", put_feed);
}

/* ---- ack and extend ---- */

static const struct cli_option ack_options[] = {
    {"to", 0, "SEQ", "only up to this event; the next reader gets the rest at once"},
    {"json", 0, NULL, "JSON also on a terminal"},
    {0},
};

static const struct cli_option extend_options[] = {
    {"lease", 0, "SECONDS", "from now, 0 to 43200 (the server's feed.lease_s); 0 gives it back"},
    {"json", 0, NULL, "JSON also on a terminal"},
    {0},
};

/* {"lease": …, "<name>": <number of the option>} */
static enum rl_rc write_lease(const struct cli_args *args, struct rl_jw *w, const char *option,
                              int64_t least, int64_t most, const char *name, struct rl_err *err)
{
    int64_t number = -1;

    if (!rl_utf8_valid(args->words[1], strlen(args->words[1])))
        return rl_fail(err, RL_BAD_REQUEST, "the lease is not UTF-8 text");
    rl_jw_str(w, "lease", args->words[1]);
    enum rl_rc rc = cli_args_int(args, option, least, most, -1, &number, err);
    if (number >= 0)
        rl_jw_i64(w, name, number);
    return rc;
}

static enum rl_rc write_ack(const struct cli_args *args, struct rl_jw *w, struct rl_err *err)
{
    return write_lease(args, w, "to", 1, RL_JSON_MAX_INT, "to", err);
}

static bool put_ack(const struct cli_call *call, const struct rl_json *answer)
{
    (void)call;
    printf("acknowledged %lld to %lld; the cursor is at %lld\n",
           (long long)cli_member_int(answer, "from", 0), (long long)cli_member_int(answer, "to", 0),
           (long long)cli_member_int(answer, "cursor", 0));
    return true;
}

static int run_ack(const struct cli_call *call)
{
    return tell_feed(call, "/ack", write_ack, put_ack);
}

static enum rl_rc write_extend(const struct cli_args *args, struct rl_jw *w, struct rl_err *err)
{
    return write_lease(args, w, "lease", 0, 43200, "lease_s", err);
}

static bool put_extend(const struct cli_call *call, const struct rl_json *answer)
{
    char until[32];

    cli_local_time(cli_member(answer, "expires_at"), until);
    printf("lease %s is yours until %s\n", call->args->words[1], until);
    return true;
}

static int run_extend(const struct cli_call *call)
{
    return tell_feed(call, "/extend", write_extend, put_extend);
}

/* ---- read ---- */

static const struct cli_option read_options[] = {
    {"max", 'n', "N", "at most N events, 1 to 1000 (100)"},
    {"wait", 'w', "SECONDS", "wait so long for something, 0 to 60 (0)"},
    {"ack", 'a', NULL, "acknowledge the range once it is printed"},
    {"lease", 0, "SECONDS", "how long the range is yours (the server's feed.lease_s)"},
    {"from", 0, "WHERE",
     "a new feed begins at: earliest (default), latest, a seq, an RFC 3339 time"},
    {"status", 's', "A,B", "a new feed tells of moves into these states only"},
    {"json", 0, NULL, "JSON also on a terminal"},
    {0},
};

static void put_event(const struct rl_json *event)
{
    char time[32];

    cli_local_time(cli_member(event, "timestamp"), time);
    printf("%9lld  %s  ", (long long)cli_member_int(event, "seq", 0), time);
    cli_put_cell(cli_member(event, "task_id"), 19);
    cli_put_cell(cli_member(event, "to_status"), 10);
    cli_put(stdout, cli_member(event, "reason"));
    putchar('\n');
}

/* The lease stands first in the answer, which may have more events than a parsed tree can hold. */
static bool find_lease(const struct cli_reply *reply, char *lease)
{
    return reply->http.body && sscanf(reply->http.body, "{\"lease\":\"%47[0-9.]\"", lease) == 1;
}

static int put_range(const struct cli_args *args, const struct cli_reply *reply, const char *lease)
{
    const struct rl_json *events = rl_json_get(reply->json, "events");

    if (cli_wants_json(args) || (!reply->json && reply->http.status == 200)) {
        cli_put_json(reply->http.body, reply->http.body_len);
    } else if (!events) {
        return cli_not_understood();
    } else if (!lease) {
        puts("nothing new");
    } else {
        const struct rl_json *gap = rl_json_get(reply->json, "gap");
        if (gap && rl_json_type(gap) == RL_JSON_OBJECT)
            puts("history is missing here: retention has removed it");
        for (const struct rl_json *e = rl_json_child(events); e; e = rl_json_next(e))
            put_event(e);
        printf("lease %s: events %lld to %lld\n", lease,
               (long long)cli_member_int(reply->json, "from", 0),
               (long long)cli_member_int(reply->json, "to", 0));
    }
    if (fflush(stdout) != 0) {
        fputs("reeld: standard output cannot be written; nothing is acknowledged\n", stderr);
        return CLI_FAILED;
    }
    return CLI_OK;
}

/* The options as a query; the exit status. */
static int read_query(const struct cli_args *args, struct rl_buf *path, int64_t *ret_wait_s)
{
    static const struct {
        const char *option, *name;
        int64_t least, most;
    } numbers[] = {
        {"max", "max", 1, 1000}, {"wait", "wait", 0, 60}, {"lease", "lease_s", 1, 43200}};
    static const char *const texts[] = {"from", "status"};
    struct rl_err err;
    int64_t value;

    *ret_wait_s = 0;
    for (size_t i = 0; i < RL_ARRAY_LEN(numbers); i++) {
        if (cli_args_int(args, numbers[i].option, numbers[i].least, numbers[i].most, -1, &value,
                         &err))
            return cli_usage_error("feed read", &err);
        if (value < 0)
            continue;
        char text[24];
        (void)snprintf(text, sizeof(text), "%lld", (long long)value); /* fits */
        add_query(path, numbers[i].name, text);
        if (strcmp(numbers[i].name, "wait") == 0)
            *ret_wait_s = value;
    }
    for (size_t i = 0; i < RL_ARRAY_LEN(texts); i++) {
        const char *text = cli_args_text(args, texts[i]);
        if (text)
            add_query(path, texts[i], text);
    }
    return rl_buf_ok(path, &err) == RL_OK ? CLI_OK : cli_usage_error("feed read", &err);
}

static int run_read(const struct cli_call *call)
{
    const struct cli_args *args = call->args;
    AUTO_CLIENT struct cli_client client = {0};
    AUTO_REPLY struct cli_reply reply = {0}, done = {0};
    AUTO_BUF struct rl_buf path = {0}, ack_path = {0};
    char lease[LEASE_TEXT] = "", body[LEASE_TEXT + 16];
    int64_t wait_s;

    if (!feed_path(call, "", &path))
        return CLI_USAGE;
    int status = read_query(args, &path, &wait_s);
    if (status == CLI_OK)
        status = cli_client_open(args, &client);
    if (status == CLI_OK)
        status = cli_call(
            &client,
            &(struct cli_request){.path = path.data, .timeout_ms = (wait_s + SLACK_S) * 1000},
            &reply);
    if (status != CLI_OK)
        return status;
    bool given = find_lease(&reply, lease);
    status = put_range(args, &reply, given ? lease : NULL);
    if (status != CLI_OK || !given || !cli_args_has(args, "ack"))
        return status;
    (void)snprintf(body, sizeof(body), "{\"lease\":\"%s\"}", lease); /* digits and dots; fits */
    if (!feed_path(call, "/ack", &ack_path))
        return CLI_USAGE;
    return cli_call(&client,
                    &(struct cli_request){.method = "POST", .path = ack_path.data, .body = body},
                    &done);
}

/* ---- seek ---- */

static enum rl_rc write_seek(const struct cli_args *args, struct rl_jw *w, struct rl_err *err)
{
    const char *where = args->words[1];
    int64_t time;
    bool word = strcmp(where, "earliest") == 0 || strcmp(where, "latest") == 0;
    size_t digits = strspn(where, "0123456789");
    bool seq = digits > 0 && digits <= 16 && where[digits] == '\0';

    if (!word && !seq && rl_time_parse(where, &time, NULL) != RL_OK)
        return rl_fail(err, RL_BAD_REQUEST,
                       "'%.60s' is neither earliest, latest, a seq nor an RFC 3339 time", where);
    if (seq)
        rl_jw_i64(w, "seq", strtoll(where, NULL, 10));
    else
        rl_jw_str(w, word ? "from" : "time", where);
    return RL_OK;
}

static bool put_seek(const struct cli_call *call, const struct rl_json *answer)
{
    printf("feed %s: the next event is the first after %lld\n", call->args->words[0],
           (long long)cli_member_int(answer, "cursor", 0));
    return true;
}

static int run_seek(const struct cli_call *call)
{
    return tell_feed(call, "/seek", write_seek, put_seek);
}

/* ---- rm ---- */

static int run_remove(const struct cli_call *call)
{
    AUTO_BUF struct rl_buf path = {0};

    if (!feed_path(call, "", &path))
        return CLI_USAGE;
    return cli_steer(call, "DELETE", path.data, "feed", "is gone; the history stays");
}

/* ---- the table's entries ---- */

const struct cli_command cli_feed_list = {
    .name = "feed list",
    .synopsis = "",
    .summary = "list your feeds: cursor, lag, ranges that are out",
    .options = cli_json_option,
    .client = true,
    .run = run_list,
};
const struct cli_command cli_feed_read = {
    .name = "feed read",
    .synopsis = "NAME",
    .summary = "take the next range of a feed; made by its first read",
    .details = "Readers share a feed: each gets another range and has some time to acknowledge\n"
               "it, by `feed ack` or --ack. Otherwise the next reader gets it, so every event\n"
               "is seen at least once.\n",
    .options = read_options,
    .client = true,
    .min_words = 1,
    .max_words = 1,
    .run = run_read,
};
const struct cli_command cli_feed_ack = {
    .name = "feed ack",
    .synopsis = "NAME LEASE",
    .summary = "acknowledge a range of a feed",
    .options = ack_options,
    .client = true,
    .min_words = 2,
    .max_words = 2,
    .run = run_ack,
};
const struct cli_command cli_feed_extend = {
    .name = "feed extend",
    .synopsis = "NAME LEASE",
    .summary = "take more time for a range of a feed, or give it back",
    .options = extend_options,
    .client = true,
    .min_words = 2,
    .max_words = 2,
    .run = run_extend,
};
const struct cli_command cli_feed_seek = {
    .name = "feed seek",
    .synopsis = "NAME earliest|latest|SEQ|TIME",
    .summary = "read on from elsewhere; ranges that are out are lost",
    .options = cli_json_option,
    .client = true,
    .min_words = 2,
    .max_words = 2,
    .run = run_seek,
};
const struct cli_command cli_feed_rm = {
    .name = "feed rm",
    .synopsis = "NAME",
    .summary = "delete a feed; the history stays",
    .options = cli_json_option,
    .client = true,
    .min_words = 1,
    .max_words = 1,
    .run = run_remove,
};

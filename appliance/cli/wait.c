/* Waiting for a task: polls as often as the server advises, draws the progress line on a terminal,
 * forgives a server that restarts. Signals are held and looked at between polls, so nothing runs in
 * a handler. */
#include "cli/submit.h"

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/term.h"

#include <string.h>
#include <unistd.h>

#define PATIENCE_MS      60000 /* a restart, or a replacement after a GPU fault, is much shorter */
#define LOOPBACK_POLL_MS 500

bool cli_is_terminal(const char *status)
{
    static const char *const ends[] = {"SUCCEEDED", "FAILED", "TIMEOUT", "CANCELED"};

    for (size_t i = 0; status && i < RL_ARRAY_LEN(ends); i++)
        if (strcmp(status, ends[i]) == 0)
            return true;
    return false;
}

int64_t cli_poll_ms(const struct cli_client *client, const struct rl_json *task)
{
    int64_t ms = cli_member_int(task, "poll_after_ms", 1000);

    if (client->loopback && ms > LOOPBACK_POLL_MS)
        ms = LOOPBACK_POLL_MS;
    return ms < 100 ? 100 : ms > 30000 ? 30000 : ms;
}

int cli_poll(const struct cli_client *client, const char *path, int64_t *patience_until,
             bool *ret_again, struct cli_reply *ret_reply)
{
    struct cli_request request = {.path = path, .timeout_ms = 10000};
    int status = cli_call_quiet(client, &request, ret_reply);
    int http = ret_reply->http.status;

    *ret_again = false;
    if (status == CLI_OK) {
        *patience_until = 0;
        return ret_reply->json ? CLI_OK : cli_not_understood();
    }
    int64_t now = rl_mono_ms();
    if (*patience_until == 0)
        *patience_until = now + PATIENCE_MS;
    if ((status == CLI_UNREACHABLE || http == 503 || http == 429) && now < *patience_until)
        *ret_again = true;
    else
        cli_explain(client, ret_reply, stderr);
    return status;
}

void cli_draw(const struct rl_json *task, int64_t started_ms, const char *note)
{
    char line[1024];
    struct cli_progress p = {
        .status = cli_member(task, "status"),
        .phase = cli_member(task, "phase"),
        .step = cli_member_int(task, "step", 0),
        .total = cli_member_int(task, "total_steps", 0),
        .percent = cli_member_real(task, "progress", -1),
        .eta_s = (int64_t)cli_member_real(task, "eta_seconds", -1),
        .queue_position = cli_member_int(task, "queue_position", 0),
        .elapsed_s = (rl_mono_ms() - started_ms) / 1000,
        .note = note,
    };

    if (!isatty(STDERR_FILENO))
        return;
    if (!p.status)
        p.status = "WAITING";
    if (strcmp(p.status, "PROCESSING") != 0)
        p.percent = -1; /* nothing of it is done yet */
    cli_progress_line(&p, cli_columns(STDERR_FILENO) - 1, cli_utf8(), line, sizeof(line));
    fprintf(stderr, "\r%s\033[K", line);
    fflush(stderr);
}

void cli_draw_clear(void)
{
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
}

static void put_line(const char *name, const char *text)
{
    if (!text || !*text)
        return;
    printf("%-16s", name);
    cli_put(stdout, text);
    putchar('\n');
}

static void put_video(const struct cli_client *client, const struct rl_json *video)
{
    char size[32], address[2048];
    const char *url = cli_member(video, "url");

    if (!url)
        return;
    cli_size_text(cli_member_int(video, "bytes", 0), size);
    printf("%-16s%lldx%lld, %lld frames at %lld fps, %s\n", "video",
           (long long)cli_member_int(video, "width", 0),
           (long long)cli_member_int(video, "height", 0),
           (long long)cli_member_int(video, "frames", 0),
           (long long)cli_member_int(video, "fps", 0), size);
    /* the server names it relative to itself */
    (void)snprintf(address, sizeof(address), "%s%s", *url == '/' ? client->url : "",
                   url); /* a long one is cut */
    put_line("url", address);
}

void cli_put_task(const struct cli_client *client, const struct rl_json *task)
{
    static const char *const times[] = {"created_at", "started_at", "finished_at"};
    char text[64];

    put_line("task_id", cli_member(task, "task_id"));
    put_line("status", cli_member(task, "status"));
    put_line("phase", cli_member(task, "phase"));
    double progress = cli_member_real(task, "progress", -1);
    if (progress >= 0 && !cli_is_terminal(cli_member(task, "status"))) {
        (void)snprintf(text, sizeof(text), "%d%%", (int)progress);
        put_line("progress", text);
    }
    int64_t position = cli_member_int(task, "queue_position", 0);
    if (position > 0) {
        (void)snprintf(text, sizeof(text), "%lld", (long long)position);
        put_line("queue_position", text);
    }
    put_line("label", cli_member(task, "label"));
    put_line("prompt", cli_member(task, "prompt"));
    for (size_t i = 0; i < RL_ARRAY_LEN(times); i++) {
        cli_local_time(cli_member(task, times[i]), text);
        put_line(times[i], strcmp(text, "-") == 0 ? NULL : text);
    }
    put_line("error", cli_member(task, "error_code"));
    put_line("reason", cli_member(task, "error_msg"));
    put_line("callback", cli_member(task, "callback_status"));
    put_line("explain", cli_member(task, "explain"));
    put_video(client, rl_json_get(task, "video"));
}

/* The end of the task, to stdout. Returns the exit status. */
static int finish(const struct cli_client *client, const struct cli_reply *reply,
                  const char *output)
{
    const char *status = cli_member(reply->json, "status");
    int result = strcmp(status, "SUCCEEDED") == 0 ? CLI_OK : CLI_FAILED;

    cli_draw_clear();
    cli_signals_release(); /* a download may be broken off: it is resumed by `reeld video` */
    if (result == CLI_OK && output)
        result = cli_download_video(client, reply->json, output);
    if (!isatty(STDOUT_FILENO)) {
        cli_put_json(reply->http.body, reply->http.body_len);
        return result;
    }
    cli_put_task(client, reply->json);
    if (result == CLI_OK && output)
        put_line("saved", output);
    return result;
}

static int interrupted(const char *task_id)
{
    cli_draw_clear();
    fprintf(stderr,
            "reeld: task %s goes on without you; `reeld watch %s` follows it, `reeld cancel %s` "
            "stops it\n",
            task_id, task_id, task_id);
    return CLI_INTERRUPTED;
}

int cli_wait_task(const struct cli_client *client, const char *task_id, const char *output)
{
    char path[64];
    int64_t patience = 0, started_ms = rl_mono_ms();

    if (!cli_task_path(task_id, "", path, sizeof(path)))
        return CLI_USAGE;
    cli_signals_hold();
    for (;;) {
        AUTO_REPLY struct cli_reply reply = {0};
        bool again;
        int status = cli_poll(client, path, &patience, &again, &reply);
        if (status != CLI_OK && !again)
            return status;
        if (status == CLI_OK && cli_is_terminal(cli_member(reply.json, "status")))
            return finish(client, &reply, output);
        cli_draw(reply.json, started_ms, again ? "the server does not answer, trying again" : NULL);
        if (cli_wait(again ? 1000 : cli_poll_ms(client, reply.json)))
            return interrupted(task_id);
    }
}

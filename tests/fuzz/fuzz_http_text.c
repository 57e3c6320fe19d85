/* The small languages inside a request, of any bytes: whatever is read lies inside the text or the
 * file that it was read from, and what is refused is named. */
#include "fuzz.h"

#include "base/json.h"
#include "http/address.h"
#include "http/head.h"
#include "http/range.h"
#include "http/text.h"

#define FIELDS 6

static void check_query(const char *text)
{
    AUTO_QUERY struct query query = {0};
    struct rl_err err = {0};
    enum rl_rc rc = query_parse(text, &query, &err);

    require(rc == RL_OK || rc == RL_BAD_REQUEST || rc == RL_INVALID_FIELD);
    if (rc)
        return;
    require(query.count <= QUERY_PARAMS);
    for (size_t i = 0; i < query.count; i++) {
        require(rl_utf8_valid(query.params[i].value, strlen(query.params[i].value)));
        require(query_get(&query, query.params[i].name) == query.params[i].value);
    }
}

static void check_range(const char *text, const char *etag)
{
    struct conditions sent = {
        .range = text, .if_none_match = etag, .if_range = etag, .if_modified_since = text};
    struct file_facts file = {.etag = "\"a\"", .modified_s = 1700000000, .size = 1000};
    int64_t first = -1, last = -1;

    switch (range_parse(text, file.size, &first, &last)) {
    case RANGE_PART:
        require(first >= 0 && first <= last && last < file.size);
        break;
    case RANGE_WHOLE:
    case RANGE_REFUSED:
        require(first == -1 && last == -1);
        break;
    }
    if (file_decide(&sent, &file, true, &first, &last) == FILE_PART)
        require(first >= 0 && first <= last && last < file.size);
    require(file_decide(&sent, &file, false, &first, &last) != FILE_PART);
}

static void check_words(const char *text, const char *other)
{
    char small[8], host[256], date[HTTP_DATE];
    int64_t unix_s = 0, again = 0;

    if (cookie_find(text, "c", small, sizeof small))
        require(strlen(small) < sizeof small && strstr(text, small));
    const char *token = bearer_token(text);
    require(!token || (token >= text && token <= text + strlen(text)));
    require(!request_id_valid(text) || strlen(text) <= 64);
    require(!idempotency_key_valid(text) || strlen(text) <= 255);
    if (host_name(text, host, sizeof host))
        require(strlen(host) <= strlen(text));
    if (http_date_parse(text, &unix_s)) {
        http_date_format(unix_s, date);
        require(http_date_parse(date, &again) && again == unix_s);
    }
    /* these only must not read beyond */
    (void)media_is_json(text);
    (void)accepts_gzip(text);
    (void)etag_listed(text, "\"a\"");
    if (other) {
        (void)origin_matches(text, other);
        (void)host_allowed(text, "127.0.0.1", other);
    }
}

static void check_addresses(const char *text, const char *list, const struct head_field *fields,
                            size_t count)
{
    struct address_list trusted = {0};
    struct address address, peer;
    struct rl_err err = {0};

    if (address_parse(text, strlen(text), &address))
        address_client(&address);
    require(address_parse("192.0.2.1", 9, &peer));
    enum rl_rc rc = address_list_parse(list ? list : "", "trusted_proxies", &trusted, &err);
    require(rc == RL_OK || rc == RL_INVALID_FIELD);
    if (rc)
        return;
    address_of_client(&trusted, "192.0.2.1", fields, count, &address);
    if (!address_listed(&trusted, &peer)) /* a stranger's words about others do not count */
        require(memcmp(&address, &peer, sizeof peer) == 0);
    address_list_free(&trusted);
}

static void check_head(const struct head_field *fields, size_t count)
{
    struct head_facts facts = {0};
    struct rl_err err = {0};

    if (head_check(fields, count, "1.1", &facts, &err)) {
        require(err.code == RL_BAD_REQUEST && *err.reason);
        return;
    }
    require(facts.host && facts.length >= 0 && !(facts.chunked && facts.length > 0));
    (void)head_keep_alive(fields, count, "1.1");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *texts[2 * FIELDS];
    struct head_field fields[FIELDS];
    struct rl_err err = {0};
    size_t count = 0;

    fuzz_texts(data, size, texts, RL_ARRAY_LEN(texts));
    for (size_t i = 0; i + 1 < RL_ARRAY_LEN(texts) && texts[i + 1]; i += 2)
        fields[count++] = (struct head_field){texts[i], texts[i + 1]};
    check_head(fields, count);
    for (size_t i = 0; i < RL_ARRAY_LEN(texts) && texts[i]; i++) {
        const char *other = i + 1 < RL_ARRAY_LEN(texts) ? texts[i + 1] : NULL;
        check_query(texts[i]);
        check_range(texts[i], other);
        check_words(texts[i], other);
        check_addresses(texts[i], other, fields, count);
        if (head_check_path(texts[i], &err) == RL_OK)
            require(texts[i][0] == '/');
    }
    fuzz_texts_free(texts, RL_ARRAY_LEN(texts));
    return 0;
}

/* What the fuzz targets share. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void require(bool holds)
{
    if (!holds)
        abort(); /* how a fuzz target reports a finding */
}

/* The input cut at its NUL bytes into `count` texts, in a heap block of the exact size each; those
 * that are not there are NULL. Free each. */
static inline void fuzz_texts(const uint8_t *data, size_t size, char **texts, size_t count)
{
    size_t at = 0;

    for (size_t i = 0; i < count; i++) {
        texts[i] = NULL;
        if (at >= size)
            continue;
        size_t len = strnlen((const char *)data + at, size - at);
        texts[i] = malloc(len + 1);
        require(texts[i] != NULL);
        memcpy(texts[i], data + at, len);
        texts[i][len] = '\0';
        at += len + 1;
    }
}

static inline void fuzz_texts_free(char **texts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(texts[i]);
}

#endif

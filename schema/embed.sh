#!/bin/sh
# embed.sh SCHEMA_DIR OUT_DIR: turns schema/*.sql into C.
#   store_sql.h       enum store_sql, one name per statement
#   store_sql_text.h  the texts, whether each only reads, and the migrations in order
# Migrations begin with their number; every other file holds statements, each of which follows
# a line `-- read: name` or `-- write: name`.
set -eu
schema=$1 out=$2
mkdir -p "$out"
quote='{ gsub(/\\/, "\\\\"); gsub(/"/, "\\\""); printf "    \"%s\\n\"\n", $0 }'
{
    echo '/* Generated from schema. */'
    echo '#ifndef STORE_SQL_H'
    echo '#define STORE_SQL_H'
    echo 'enum store_sql {'
    awk '/^-- (read|write): /{ printf "    SQL_%s,\n", toupper($3) }' "$schema"/[a-z]*.sql
    echo '    SQL_COUNT'
    echo '};'
    echo '#endif'
} > "$out/store_sql.h.new"
{
    echo '/* Generated from schema. */'
    echo 'static const struct { const char *name; int reads; const char *text; } store_statements[] = {'
    awk '/^-- (read|write): /{ if (open) print "    },"; printf "    { \"%s\", %d,\n", $3, ($2 == "read:"); open = 1; next }
         /^[ \t]*--/ || /^[ \t]*$/ { next }
         '"$quote"'
         END { if (open) print "    }," }' "$schema"/[a-z]*.sql
    echo '};'
    echo 'static const char *const store_migrations[] = {'
    for f in "$schema"/[0-9]*.sql; do
        awk '/^[ \t]*--/ || /^[ \t]*$/ { next } { sub(/[ \t]+-- .*$/, "") } '"$quote" "$f"
        echo '    ,'
    done
    echo '};'
} > "$out/store_sql_text.h.new"
for f in store_sql.h store_sql_text.h; do
    mv "$out/$f.new" "$out/$f"
done

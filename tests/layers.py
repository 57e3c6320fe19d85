#!/usr/bin/env python3
"""Checks the source tree against tests/layers.txt: includes, owners of libraries, SQL outside
schema/, exits outside main, length of files.

usage: layers.py [ROOT]         the tree to check (default: the one this file is in)
       layers.py --self-test    every rule refuses the breach it is there for
"""
import fnmatch
import os
import re
import sys
import tempfile

TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)
SQL = re.compile(r'\b(SELECT\s+\S|INSERT\s+(OR|INTO)\b|REPLACE\s+INTO\b|UPDATE\s+\w+\s+SET\b|'
                 r'DELETE\s+FROM\b|(CREATE|DROP|ALTER)\s+(TABLE|INDEX|TRIGGER|VIEW)\b)')
EXIT = re.compile(r'(?<![\w.>])(_?exit|_Exit|quick_exit|abort)\s*\(')
SOURCES = ('.c', '.h', '.cu', '.cuh', '.cc')
COUNTED = SOURCES + ('.sql', '.ts', '.tsx', '.mjs', '.py', '.sh')


class Table:
    """The rules of layers.txt. An unknown or malformed line is an error, never skipped."""

    def __init__(self, path):
        self.modules, self.symbols, self.headers, self.generated = {}, {}, [], {}
        self.exits, self.sql, self.lines = [], [], []
        with open(path, encoding='utf-8') as file:
            for number, line in enumerate(file, 1):
                line = line.split('#')[0].strip()
                if line:
                    self.rule(line, f'{path}:{number}')

    def rule(self, line, where):
        left, colon, right = line.partition(':')
        words, values = left.split(), right.split()
        if not colon or not words:
            sys.exit(f'{where}: not a rule: {line}')
        kind = words[0]
        if kind == 'module' and len(words) == 2:
            self.modules[words[1]] = values
        elif kind == 'symbols' and len(words) == 4 and words[2] == 'of':
            self.symbols[(words[1], words[3])] = values
        elif kind == 'header' and len(words) == 2:
            self.headers.append((words[1], values))
        elif kind == 'generated' and len(words) == 2 and len(values) == 1:
            self.generated[words[1]] = values[0]
        elif kind == 'exits' and len(words) == 1:
            self.exits = values
        elif kind == 'sql' and len(words) == 1:
            self.sql = values
        elif kind == 'lines' and len(words) == 2:
            self.lines.append((int(words[1]), values))
        else:
            sys.exit(f'{where}: not a rule: {line}')


def files(root, folder, endings):
    for at, folders, names in os.walk(os.path.join(root, folder)):
        folders[:] = sorted(f for f in folders if f not in ('node_modules', 'dist', 'out'))
        for name in sorted(names):
            if name.endswith(endings):
                yield os.path.relpath(os.path.join(at, name), root)


def blank(text, what):
    """Text with comments (and, for 'code', strings) blanked; line numbers stay."""
    def replace(match):
        token = match.group(0)
        keep = token[0] == '"' and what == 'strings' or token[0] == "'"
        return token if keep else re.sub(r'[^\n]', ' ', token)
    return TOKEN.sub(replace, text)


def allowed(path, module, owners):
    return any(path == o or module == o or path.startswith(o + '/') for o in owners)


def line_of(text, offset):
    return text.count('\n', 0, offset) + 1


def check_includes(table, path, module, text, report):
    for match in INCLUDE.finditer(blank(text, 'strings')):
        name, where = match.group(2), line_of(text, match.start())
        if match.group(1) == '<':
            for pattern, owners in table.headers:
                if fnmatch.fnmatchcase(name, pattern) and not allowed(path, module, owners):
                    report(path, where, f'<{name}> belongs to {" ".join(owners) or "nobody"}')
            continue
        if name in table.generated:
            target = table.generated[name]
        elif '/' in name:
            target = name.split('/')[0]
        else:
            report(path, where, f'"{name}": write the module, as in "base/buf.h"')
            continue
        may = table.modules[module]
        if target not in table.modules:
            report(path, where, f'"{name}": no module {target} in layers.txt')
        elif target != module and target not in may and may != ['*']:
            report(path, where, f'{module} may not include {target} ("{name}")')


def check_file(table, root, rel, report):
    path = rel[len('appliance/'):]
    module = path.split('/')[0] if '/' in path else path.rsplit('.', 1)[0]
    with open(os.path.join(root, rel), encoding='utf-8') as file:
        text = file.read()
    if module not in table.modules:
        report(path, 1, f'no module {module} in layers.txt')
        return
    check_includes(table, path, module, text, report)
    code, strings = blank(text, 'code'), blank(text, 'strings')
    for (user, owner), names in table.symbols.items():
        if module == user:
            for match in re.finditer(rf'\b{owner}_\w+(?=\s*\()', code):
                if match.group(0) not in names:
                    report(path, line_of(text, match.start()),
                           f'{user} may use only {" ".join(names)} of {owner}, not {match.group(0)}')
    if not allowed(path, module, table.exits):
        for match in EXIT.finditer(code):
            report(path, line_of(text, match.start()),
                   f'{match.group(1)}() outside {" ".join(table.exits)}')
    if not allowed(path, module, table.sql):
        for match in TOKEN.finditer(strings):
            if match.group(0)[0] == '"' and SQL.search(match.group(0)):
                report(path, line_of(text, match.start()), 'SQL belongs in schema/')


def check(root, table):
    found = []

    def report(path, line, what):
        found.append(f'appliance/{path}:{line}: {what}')
    count = 0
    for rel in files(root, 'appliance', SOURCES):
        count += 1
        check_file(table, root, rel, report)
    for limit, folders in table.lines:
        for folder in folders:
            for rel in files(root, folder, COUNTED):
                with open(os.path.join(root, rel), 'rb') as file:
                    length = file.read().count(b'\n')
                if length > limit:
                    found.append(f'{rel}: {length} lines, more than {limit}')
    return count, found


BREACHES = {  # file -> (text, word of the complaint)
    'appliance/base/a.c': ('#include "config/config.h"\n', 'base may not include config'),
    'appliance/events/a.c': ('#include "store/store.h"\n', 'events may not include store'),
    'appliance/http/a.c': ('#include <sqlite3.h>\n', '<sqlite3.h> belongs to store'),
    'appliance/http/b.c': ('#include "video/video.h"\n', 'http may not include video'),
    'appliance/http/c.c': ('#include "net/net.h"\n', 'http may not include net'),
    'appliance/pool/a.c': ('#include <libavcodec/avcodec.h>\n', 'belongs to video'),
    'appliance/base/b.c': ('#include <cjson/cJSON.h>\n', 'belongs to base/json.c'),
    'appliance/store/a.c': ('#include <sodium.h>\n', 'belongs to base/crypto.c'),
    'appliance/video/a.c': ('#include <cuda_runtime.h>\n', 'belongs to engine'),
    'appliance/outbox/a.c': ('#include <curl/curl.h>\n', 'belongs to net'),
    'appliance/task/a.c': ('int f(void) { return net_multi_new(); }\n', 'only net_url_check'),
    'appliance/task/b.c': ('const char *q = "SELECT a FROM b";\n', 'SQL belongs in schema/'),
    'appliance/task/c.c': ('const char *q = "x" "DELETE FROM task";\n', 'SQL belongs in schema/'),
    'appliance/pool/b.c': ('void f(void) { abort(); }\n', 'abort() outside'),
    'appliance/pool/c.c': ('void f(void) { _exit(1); }\n', '_exit() outside'),
    'appliance/pool/d.c': ('#include "pool.h"\n', 'write the module'),
    'appliance/extra/a.c': ('int x;\n', 'no module extra'),
    'appliance/task/long.c': ('\n' * 601, '601 lines'),
    'appliance/main.c': ('#include "http/http.h"\n', 'main may not include http'),
}
FINE = {
    'appliance/cli/fine.c': '#include "http/http.h"\n#include "net/net.h"\nint f(void){return 2;}\n',
    'appliance/task/fine.c': '#include "base/buf.h"\n#include "store_sql.h"\n/* SELECT x, exit() */\n'
                             'const char *m = "DELETE /api"; int g(void) { return net_url_check(); }\n'
                             'void h(struct s *p) { p->exit(1); on_exit_do(); }\n',
    'appliance/base/json.c': '#include <cjson/cJSON.h>\n#include <stdlib.h>\n',
}


def self_test(table):
    wrong = 0
    with tempfile.TemporaryDirectory() as root:
        for rel, text in list(FINE.items()) + [(r, t) for r, (t, _) in BREACHES.items()]:
            os.makedirs(os.path.dirname(os.path.join(root, rel)), exist_ok=True)
            with open(os.path.join(root, rel), 'w', encoding='utf-8') as file:
                file.write(text)
        _, found = check(root, table)
        for rel, (_, word) in BREACHES.items():
            if not any(f.startswith(rel + ':') and word in f for f in found):
                print(f'not refused: {rel}: {word}')
                wrong += 1
        for rel in FINE:
            for complaint in (f for f in found if f.startswith(rel + ':')):
                print(f'refused without reason: {complaint}')
                wrong += 1
    print(f'layers self-test: {len(BREACHES) + len(FINE) - wrong} of '
          f'{len(BREACHES) + len(FINE)} as expected')
    return wrong


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    table = Table(os.path.join(here, 'layers.txt'))
    if sys.argv[1:] == ['--self-test']:
        return 1 if self_test(table) else 0
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(here)
    count, found = check(root, table)
    for line in found:
        print(line)
    print(f'layers: {count} files, {len(found)} breaches')
    if count == 0:
        print('layers: nothing was read')
    return 1 if found or count == 0 else 0


sys.exit(main())

// openapi.mjs FILE.yaml OUT.h: turns the API description into JSON inside a C array.
// Reads the part of YAML 1.2 that the file uses: block maps and lists, flow [a, b] and {k: v}, plain and
// double-quoted scalars, comments on their own lines. Anything else is an error, never a guess.
import { readFileSync, renameSync, writeFileSync } from "node:fs";

const fail = (line, what) => {
  throw new Error(`line ${line.number}: ${what}: ${line.text}`);
};

const scalar = (text, line) => {
  if (text.startsWith('"')) return JSON.parse(text);
  if (/^(true|false|null)$/.test(text)) return JSON.parse(text);
  if (/^-?(0|[1-9]\d*)(\.\d+)?$/.test(text)) return Number(text);
  if (text === "" || /^[&*!|>%@`'#]/.test(text) || /: |\s#|:$/.test(text)) fail(line, "unsupported scalar");
  return text;
};

// One flow value from s.text at s.at.
const flow = (s, line) => {
  const skip = () => {
    while (s.text[s.at] === " ") s.at++;
  };
  const piece = (stops) => {
    skip();
    const from = s.at;
    if (s.text[s.at] === '"') {
      s.at++;
      while (s.at < s.text.length && s.text[s.at] !== '"') s.at += s.text[s.at] === "\\" ? 2 : 1;
      s.at++;
    } else {
      while (s.at < s.text.length && !stops.includes(s.text[s.at])) s.at++;
    }
    return scalar(s.text.slice(from, s.at).trim(), line);
  };
  const items = (close, one) => {
    s.at++;
    for (skip(); s.text[s.at] !== close; skip()) {
      one();
      skip();
      if (s.text[s.at] === ",") s.at++;
      else if (s.text[s.at] !== close) fail(line, "broken flow value");
    }
    s.at++;
  };
  skip();
  if (s.text[s.at] === "[") {
    const list = [];
    items("]", () => list.push(flow(s, line)));
    return list;
  }
  if (s.text[s.at] === "{") {
    const map = {};
    items("}", () => {
      const key = String(piece(":"));
      if (s.text[s.at] !== ":") fail(line, "a flow map wants key: value");
      s.at++;
      if (key in map) fail(line, "duplicate key");
      map[key] = flow(s, line);
    });
    return map;
  }
  return piece(",]}");
};

const inline = (text, line) => {
  if (!/^[[{]/.test(text)) return scalar(text, line);
  const s = { text, at: 0 };
  const value = flow(s, line);
  if (s.at !== text.length) fail(line, "text after a flow value");
  return value;
};

const KEY = /^("(?:[^"\\]|\\.)*"|[^\s"'[{#&*!|>%@`-][^:]*|\/[^:]*):(?: +(.*))?$/;

const block = (lines, indent) => {
  const is_list = lines[0].text.startsWith("- ");
  const result = is_list ? [] : {};
  while (lines.length && lines[0].indent === indent) {
    const line = lines[0];
    if (line.text.startsWith("- ") !== is_list) fail(line, "list and map mixed");
    if (is_list) {
      const rest = line.text.slice(2);
      if (KEY.test(rest)) {
        lines[0] = { ...line, indent: indent + 2, text: rest };
        result.push(block(lines, indent + 2));
      } else {
        lines.shift();
        result.push(inline(rest, line));
      }
      continue;
    }
    const match = KEY.exec(line.text);
    if (!match) fail(line, "not key: value");
    const key = String(scalar(match[1], line));
    if (key in result) fail(line, "duplicate key");
    lines.shift();
    if (match[2] !== undefined) result[key] = inline(match[2].trim(), line);
    else if (lines.length && lines[0].indent > indent) result[key] = block(lines, lines[0].indent);
    else fail(line, "no value");
  }
  if (lines.length && lines[0].indent > indent) fail(lines[0], "wrong indentation");
  return result;
};

const [source, out] = process.argv.slice(2);
const lines = readFileSync(source, "utf8")
  .split("\n")
  .map((raw, i) => ({ number: i + 1, indent: raw.length - raw.trimStart().length, text: raw.trim() }))
  .filter((line) => line.text !== "" && !line.text.startsWith("#"));
const json = JSON.stringify(block(lines, 0));
if (lines.length) fail(lines[0], "wrong indentation");
if (!out) {
  process.stdout.write(`${json}\n`);
} else {
  const bytes = Buffer.from(json, "utf8");
  const rows = [];
  for (let i = 0; i < bytes.length; i += 24) rows.push(`${[...bytes.subarray(i, i + 24)].join(",")},`);
  writeFileSync(
    `${out}.new`,
    `/* Generated from schema/openapi.yaml. */\nstatic const unsigned char openapi_json[] = {\n${rows.join("\n")}\n};\n`,
  );
  renameSync(`${out}.new`, out);
}

// Callbacks as their receiver checks them.

import { ReeldError, type Status } from "./shapes";

/** The body of a callback: what became of a task, or the test that `reeld endpoint test` sends. */
export type Callback = TaskCallback | EndpointTest;

export interface EndpointTest {
  type: "endpoint.test";
  timestamp: string;
  task_id: null;
  endpoint_id: string;
}

export interface TaskCallback {
  type: "task.succeeded" | "task.failed" | "task.timeout";
  timestamp: string;
  task_id: string;
  status: Status;
  result_url: string | null;
  download_url: string | null;
  error_code: string | null;
  error_msg: string | null;
  attempt: number;
  round: number;
  metadata: Record<string, unknown> | null;
}

export type HeaderBag = { get(name: string): string | null } | Record<string, string | string[] | undefined>;

const TOLERANCE_S = 300;

/**
 * The callback in a request's raw body, once its signature holds and it is not older or newer than
 * 5 minutes; else a ReeldError with status 401. A `secret` that begins with whsec_ is base64, another
 * one is its own bytes. Delivery is at least once: remember the header webhook-id. source: Standard Webhooks 1.0.
 */
export async function verifyWebhook(
  headers: HeaderBag,
  body: string | Uint8Array | ArrayBuffer,
  secret: string,
): Promise<Callback> {
  const bad = (why: string): ReeldError => new ReeldError(401, "BAD_SIGNATURE", why);
  const id = header(headers, "webhook-id");
  const time = header(headers, "webhook-timestamp");
  const signatures = header(headers, "webhook-signature");
  if (!id || !time || !signatures) throw bad("A webhook header is missing.");
  if (!/^[0-9]{1,12}$/.test(time) || Math.abs(Date.now() / 1000 - Number(time)) > TOLERANCE_S) {
    throw bad("The callback is too old or too new.");
  }
  const raw = secret_key(secret.trim());
  if (!raw?.length) throw new TypeError("the secret is empty, or no base64 follows its whsec_");
  const { subtle } = await web_crypto();
  const key = await subtle.importKey("raw", raw, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
  const bytes = typeof body === "string" ? new TextEncoder().encode(body) : new Uint8Array(body);
  const head = new TextEncoder().encode(`${id}.${time}.`);
  const signed = new Uint8Array(head.length + bytes.length);
  signed.set(head);
  signed.set(bytes, head.length);
  for (const token of signatures.split(" ")) {
    const given = token.startsWith("v1,") ? from_base64(token.slice(3)) : null;
    if (!given || !(await subtle.verify("HMAC", key, given, signed))) continue;
    try {
      return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes)) as Callback;
    } catch {
      throw bad("The body is not JSON.");
    }
  }
  throw bad("No signature fits.");
}

function header(headers: HeaderBag, name: string): string | undefined {
  if (typeof headers.get === "function") return headers.get(name) ?? undefined;
  for (const [given, value] of Object.entries(headers)) {
    if (given.toLowerCase() === name) return typeof value === "string" ? value : value?.join(" ");
  }
  return undefined;
}

const secret_key = (secret: string): Uint8Array<ArrayBuffer> | null =>
  secret.startsWith("whsec_") ? from_base64(secret.slice(6)) : new TextEncoder().encode(secret);

function from_base64(text: string): Uint8Array<ArrayBuffer> | null {
  try {
    return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  } catch {
    return null;
  }
}

/** WebCrypto, wherever it is. @internal */
export async function web_crypto(): Promise<Crypto> {
  if (globalThis.crypto) return globalThis.crypto;
  const name = "node:crypto"; // Node 18 has it, but not among its globals
  return ((await import(name)) as { webcrypto: Crypto }).webcrypto;
}

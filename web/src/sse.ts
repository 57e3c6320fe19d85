// Server-sent events: bytes in, events of reeld out.

import { ReeldError, type Progress, type StreamEvent, type Task, type TaskEvent } from "./shapes";

const EVENT_CHARS = 4 << 20; // longest event; a task with a long prompt and metadata stays far below

export interface Frame {
  event: string;
  id: string;
  data: string;
}

/** Bytes in whatever pieces they come → events. source: HTML standard, section 9.2.6. */
export class FrameParser {
  private readonly decoder = new TextDecoder();
  private rest = "";
  private after_cr = false; // the last piece ended in CR: an LF now belongs to it
  private event = "";
  private id = "";
  private data: string[] = [];
  private size = 0;

  *feed(bytes: Uint8Array): Generator<Frame> {
    let text = this.decoder.decode(bytes, { stream: true });
    if (!text) return;
    if (this.after_cr && text.startsWith("\n")) text = text.slice(1);
    this.after_cr = text.endsWith("\r");
    const lines = text.split(/\r\n|\r|\n/);
    lines[0] = this.rest + lines[0];
    this.rest = lines.pop()!;
    for (const line of lines) {
      if (line) this.field(line);
      else if (this.data.length || this.id) yield this.take();
      else this.event = "";
    }
    if (this.size + this.rest.length > EVENT_CHARS) throw broken();
  }

  private take(): Frame {
    const frame = { event: this.event || "message", id: this.id, data: this.data.join("\n") };
    this.event = this.id = "";
    this.data = [];
    this.size = 0;
    return frame;
  }

  private field(line: string): void {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon); // "" is a comment
    const value = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
    if (name === "event") this.event = value;
    else if (name === "id" && !value.includes("\0")) this.id = value;
    else if (name === "data") {
      this.data.push(value);
      this.size += value.length;
    }
  }
}

/** null: a kind of event that this client does not know, or only a new position. */
export function read_frame(frame: Frame): StreamEvent | null {
  const { event, data } = frame;
  if (event === "gap") return { ...parsed(data || "{}"), type: "gap" };
  if (!data || !["status", "snapshot", "progress"].includes(event)) return null;
  const value = parsed(data);
  if (event === "snapshot") {
    // Of one task it is that task, of all a page of them.
    const tasks = (Array.isArray(value.data) ? value.data : [value]) as Task[];
    return { type: "snapshot", tasks };
  }
  if (event === "progress") return { ...(value as unknown as Progress), type: "progress" };
  const seq = position(value.seq as string);
  if (seq === null) throw broken();
  return { ...(value as unknown as TaskEvent), type: "status", seq };
}

function parsed(text: string): Record<string, unknown> {
  try {
    const value = JSON.parse(text) as unknown;
    if (typeof value === "object" && value) return value as Record<string, unknown>;
  } catch {
    /* said below */
  }
  throw broken();
}

const broken = (): ReeldError => new ReeldError(0, "NO_ANSWER", "The stream is damaged.");

/** A seq as a number; null when it is none. */
export function position(seq: number | string | undefined): number | null {
  return seq !== undefined && /^[0-9]{1,16}$/.test(String(seq)) ? Number(seq) : null;
}

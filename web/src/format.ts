// Numbers and times as people read them.

export function bytes(n: number): string {
  if (n < 1000) return `${n} B`;
  for (const unit of ["kB", "MB", "GB"]) {
    n /= 1000;
    if (n < 999.5 || unit === "GB") return `${n < 10 ? n.toFixed(1) : Math.round(n)} ${unit}`;
  }
  return "";
}

export const whole = (n: number): string => n.toLocaleString("en");

/** 0.4 → "0.4 s", 75 → "1 min 15 s", 4000 → "1 h 7 min", 7190 → "2 h" */
export function duration(seconds: number): string {
  if (seconds < 9.95) return `${Number(seconds.toFixed(1))} s`;
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return s % 60 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${s / 60} min`;
  const minutes = Math.round(s / 60);
  const hours = Math.floor(minutes / 60);
  return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
}

export function ago(time: string, now_ms: number): string {
  const s = Math.floor((now_ms - Date.parse(time)) / 1000);
  if (!(s >= 3)) return "just now"; // clocks differ: never "in 2 seconds"
  if (s < 60) return `${s} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ago`;
  if (s < 7 * 86_400) return `${Math.floor(s / 86_400)} d ago`;
  return new Date(time).toLocaleDateString(undefined, { dateStyle: "medium" });
}

export const clock = (time: string): string =>
  new Date(time).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** A time to come: today's without the date. */
export function coming(time: string, now_ms: number): string {
  const date = new Date(time);
  const today = date.toDateString() === new Date(now_ms).toDateString();
  return today ? date.toLocaleTimeString(undefined, { timeStyle: "medium" }) : clock(time);
}

/** Seconds from one time to the other; null when one is unknown. */
export function between(from: string | null, to: string | null): number | null {
  return from && to ? Math.max(0, (Date.parse(to) - Date.parse(from)) / 1000) : null;
}

/** Length in UTF-8, which is what the server counts. */
export const byte_length = (s: string): number => new TextEncoder().encode(s).length;

/** Ids are decimal texts of up to 19 digits: beyond what a number can hold. */
export const compare_ids = (a: string, b: string): number =>
  a.length - b.length || (a < b ? -1 : a > b ? 1 : 0);

/** 128 random bits; crypto.randomUUID is missing on plain http beyond loopback. */
export function random_id(): string {
  const raw = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(raw, (b) => b.toString(16).padStart(2, "0")).join("");
}

// What the page knows, and what keeps it true: one live stream while somebody looks, and a poller
// that stands in for it. One instance; components subscribe.

import {
  Client,
  ReeldError,
  UNFINISHED,
  isFinished,
  is_final,
  is_refusal,
  type ProgressEvent,
  type Session,
  type Status,
  type Submit,
  type Task,
  type TaskEvent,
} from "./api";
import { EMPTY, type Draft } from "./draft";
import { type Choice, read_engines } from "./engines";
import { compare_ids, random_id } from "./format";

export interface Filter {
  name: string;
  status: readonly Status[]; // empty = any
}

export const FILTERS: readonly Filter[] = [
  { name: "All", status: [] },
  { name: "Waiting", status: ["CREATED", "QUEUED"] },
  { name: "Running", status: ["PROCESSING"] },
  { name: "Succeeded", status: ["SUCCEEDED"] },
  { name: "Failed", status: ["FAILED", "TIMEOUT"] },
  { name: "Canceled", status: ["CANCELED"] },
];

export interface Detail {
  id: string;
  task: Task | null; // null while loading or when there is none
  events: TaskEvent[];
  error: string;
}

export interface State {
  session: Session | null | "unknown"; // null = signed out
  link: "connecting" | "live" | "polling" | "lost";
  engines: Choice[] | null;
  filter: Filter;
  tasks: Task[] | null; // newest first; null before the first answer
  next: string | null;
  loading_more: boolean;
  canceling: ReadonlySet<string>;
  detail: Detail | null;
  trouble: string; // an answer that nobody expected
  refused: string; // what came of the last thing that the user asked for, when it was not done
  spoken: string; // for the live region, by say()
  recoveries: number; // how often the server was there again: what failed to load is worth a try
  now_ms: number;
}

const FAST_MS = 1000;
const SLOW_MS = 10_000;
const NUDGE_MS = 100; // events often come in pairs
const TRY_MS = 2000; // how long a stream may take to open before the lamp says that there is none
const PAGE = 50;
const SINGLES = 10; // most tasks asked for one by one in a round

export class Store {
  readonly api: Client;
  draft: Draft = EMPTY; // survives a session that ends, not a sign out
  state: State = {
    session: "unknown",
    link: "connecting",
    engines: null,
    filter: FILTERS[0]!,
    tasks: null,
    next: null,
    loading_more: false,
    canceling: new Set(),
    detail: null,
    trouble: "",
    refused: "",
    spoken: "",
    recoveries: 0,
    now_ms: Date.now(),
  };
  private extra = 0; // rows that "Load more" has brought beyond the first page
  private told: string[] = []; // the tasks and states that were announced last
  private pending = { key: "", body: "" }; // what was submitted and may have become a task
  private readonly listeners = new Set<() => void>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private running = false;
  private again = false;
  private failures = 0;
  private active = false; // something is unfinished, shown or not
  private detail_version = "";
  private watching: AbortController | null = null; // kept when there is no stream to be had
  private live: "no" | "trying" | "yes" = "no";
  private nudged: ReturnType<typeof setTimeout> | undefined;
  private puts = 0; // answers shown out of turn: an older list must not undo them
  private readonly moved = new Set<string>(); // tasks whose state has changed since the last look
  private user = ""; // the last one who was signed in
  private away = false; // the page was hidden, or the server gone: who and what is there may differ

  constructor(api: Client) {
    this.api = api;
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  set(change: Partial<State>): void {
    this.state = { ...this.state, ...change };
    this.listeners.forEach((listener) => listener());
  }

  start(): void {
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.unwatch(); // a browser has few connections to give
      this.away = true;
      this.poke();
    });
    window.addEventListener("online", () => this.poke());
    window.addEventListener("hashchange", () => this.follow_hash());
    this.follow_hash();
    this.poke();
  }

  /** Look now, and again when a look is already under way. */
  poke(): void {
    clearTimeout(this.timer);
    if (this.running) this.again = true;
    else if (!document.hidden) void this.round();
  }

  private async round(): Promise<void> {
    this.running = true;
    this.again = false;
    try {
      const back = this.away || this.failures > 0;
      this.away = false;
      if (this.state.session === "unknown" || (back && this.state.session)) {
        this.meet(await this.api.session());
      }
      if (this.state.session) {
        if (!this.state.engines || back) {
          this.set({ engines: read_engines((await this.api.engines()).data) });
        }
        await this.refresh();
        await this.refresh_detail();
        if (this.failures) this.unwatch(); // it may be in a long pause
        void this.watch();
      }
      this.failures = 0;
      const recoveries = this.state.recoveries + (back ? 1 : 0);
      this.set({ link: this.lamp(), trouble: "", recoveries, now_ms: Date.now() });
    } catch (error) {
      this.failed(error);
    }
    this.running = false;
    if (this.again) this.poke();
    else this.schedule();
  }

  private schedule(): void {
    clearTimeout(this.timer);
    if (document.hidden || this.state.session === null) return;
    const wait = this.failures
      ? Math.min(SLOW_MS, FAST_MS * 2 ** (this.failures - 1))
      : this.active && this.live !== "yes"
        ? FAST_MS
        : SLOW_MS;
    this.timer = setTimeout(() => this.poke(), wait);
  }

  private failed(error: unknown): void {
    if (is_refusal(error) && error.status === 401) {
      this.failures = 0;
      this.signed_out();
      return;
    }
    this.failures++;
    if (error instanceof ReeldError && error.lost) this.set({ link: "lost", now_ms: Date.now() });
    else this.set({ link: this.lamp(), trouble: String((error as Error).message ?? error) });
  }

  /** An action failed. Whether the server is there is another matter: only that is the poller's. */
  private refuse(what: string, error: unknown): void {
    const { status, lost } = error instanceof ReeldError ? error : { status: 0, lost: false };
    if (status === 401 || lost) this.failed(error);
    if (status !== 401) this.set({ refused: `${what}: ${(error as Error).message}` });
  }

  dismiss(): void {
    if (this.state.refused) this.set({ refused: "" });
  }

  /** Follow the stream of all events. Progress is shown as it is; all else is a reason to look. */
  private async watch(): Promise<void> {
    if (this.watching || document.hidden || !this.state.session) return;
    const { signal } = (this.watching = new AbortController());
    this.live = "trying";
    setTimeout(() => {
      const trying = !signal.aborted && this.live === "trying";
      if (trying && this.state.link !== "lost") this.set({ link: "polling" });
    }, TRY_MS);
    const onState = (state: "live" | "lost"): void => {
      this.live = state === "live" ? "yes" : "no";
      if (state === "live") this.set({ link: "live" });
      else this.lost_stream();
    };
    try {
      for await (const event of this.api.events({ progress: true, signal, onState })) {
        if (event.type === "status") this.moved.add(event.task_id);
        if (event.type === "progress") this.show_progress(event);
        else this.nudge();
      }
    } catch (error) {
      // No stream to be had here: until the page is shown again the poller does alone. Whatever is
      // wrong beyond that, it meets too.
      if (!signal.aborted && !(error instanceof ReeldError)) throw error;
    }
    if (signal.aborted) return;
    this.live = "no";
    this.poke();
  }

  private unwatch(): void {
    this.watching?.abort();
    this.watching = null;
    this.live = "no";
  }

  /** What the lamp shows while the server answers. */
  private lamp(): State["link"] {
    if (this.live === "yes") return "live";
    const { link } = this.state;
    return this.live === "trying" && link !== "lost" ? link : "polling";
  }

  private lost_stream(): void {
    this.away = true; // is it the stream or the server? It may be another one now
    this.poke();
  }

  private nudge(): void {
    this.nudged ??= setTimeout(() => {
      this.nudged = undefined;
      this.poke();
    }, NUDGE_MS);
  }

  private show_progress({ type: _, ...part }: ProgressEvent): void {
    const { tasks, detail } = this.state;
    const move = (t: Task): Task => (t.task_id === part.task_id && t.status === "PROCESSING" ? { ...t, ...part } : t);
    this.set({
      tasks: tasks && tasks.map(move),
      detail: detail?.task ? { ...detail, task: move(detail.task) } : detail,
      now_ms: Date.now(),
    });
  }

  /** Bring the list up to date: its first page, then whatever older rows may still change. */
  private async refresh(): Promise<void> {
    const { filter } = this.state;
    const { puts } = this;
    const { session } = this.state;
    const stale = (): boolean =>
      filter !== this.state.filter || puts !== this.puts || session !== this.state.session;
    const moved = new Set(this.moved);
    const page = await this.api.list({ status: filter.status, limit: PAGE });
    if (stale()) return; // another round is due
    const known = this.state.tasks ?? [];
    const last = page.data[page.data.length - 1];
    let older: Task[] = [];
    let next = page.next;
    if (last && page.next !== null && known.some((t) => compare_ids(t.task_id, last.task_id) >= 0)) {
      const beyond = known.filter((t) => compare_ids(t.task_id, last.task_id) < 0);
      older = beyond.slice(0, this.extra); // new tasks push rows out of the page: not for ever
      const end = older[older.length - 1];
      if (end) next = older.length < beyond.length ? end.task_id : this.state.next;
    }
    let left: Task[] = []; // what ended and so is no longer among those that the filter shows
    let unfinished = page.data.some(unfinished_task);
    const may_change = (t: Task): boolean => unfinished_task(t) || moved.has(t.task_id);
    const late = new Set<string>(); // too many to ask for at once: the next look does
    const hides_active = filter.status.length > 0 || older.some(may_change);
    if (hides_active) {
      const active = await this.api.list({ status: UNFINISHED, limit: 200 });
      unfinished = active.data.length > 0;
      older = await this.update_older(older, active.data, may_change, late);
      if (filter.status.length) {
        const there = new Set([...page.data, ...older].map((t) => t.task_id));
        const missing = known.filter((t) => unfinished_task(t) && !there.has(t.task_id));
        left = await this.update_older(missing, active.data, may_change, late);
      }
    }
    if (stale()) return;
    moved.forEach((id) => late.has(id) || this.moved.delete(id));
    this.active = unfinished;
    const tasks = [...page.data, ...older.filter((t) => shown(filter, t))];
    this.announce(known, [...page.data, ...older, ...left]);
    this.set({ tasks, next });
    if (late.size) this.nudge();
  }

  private async update_older(
    older: Task[],
    active: Task[],
    may_change: (t: Task) => boolean,
    late: Set<string>,
  ): Promise<Task[]> {
    const fresh = new Map(active.map((t) => [t.task_id, t]));
    const gone = new Set<string>();
    const ended = older.filter((t) => may_change(t) && !fresh.has(t.task_id));
    for (const task of ended.splice(SINGLES)) late.add(task.task_id);
    for (const task of ended) {
      try {
        fresh.set(task.task_id, await this.api.get(task.task_id));
      } catch (error) {
        if (!is_refusal(error) || error.status !== 404) throw error;
        gone.add(task.task_id);
      }
    }
    return older.filter((t) => !gone.has(t.task_id)).map((t) => fresh.get(t.task_id) ?? t);
  }

  private announce(before: Task[], after: Task[]): void {
    const was = new Map(before.map((t) => [t.task_id, t]));
    const ended = after.filter((t) => {
      const old = was.get(t.task_id);
      return old && !isFinished(old) && isFinished(t);
    });
    this.tell(ended.slice(0, 3));
  }

  /** What became of tasks: once, though the answer to a cancel and the list both bring it. */
  private tell(tasks: Task[]): void {
    const key = (t: Task): string => `${t.task_id} ${news_of(t)}`;
    const fresh = tasks.filter((t) => !this.told.includes(key(t)));
    if (!fresh.length) return;
    this.told = fresh.map(key);
    this.say(fresh.map(news_of).join(". "));
  }

  /** A live region that is given the text it holds already would stay silent. */
  private say(text: string): void {
    this.set({ spoken: text === this.state.spoken ? `${text}\u00a0` : text });
  }

  async load_more(): Promise<void> {
    const { next, filter, loading_more } = this.state;
    if (!next || loading_more) return;
    this.set({ loading_more: true, refused: "" });
    try {
      const page = await this.api.list({ status: filter.status, limit: PAGE, after: next });
      if (filter === this.state.filter) {
        const tasks = this.state.tasks ?? [];
        const have = new Set(tasks.map((t) => t.task_id));
        const more = page.data.filter((t) => !have.has(t.task_id));
        this.extra += page.data.length;
        this.puts++;
        this.set({ tasks: [...tasks, ...more], next: page.next });
        if (!this.active && more.some(unfinished_task)) {
          this.active = true;
          this.schedule();
        }
      }
    } catch (error) {
      this.refuse("No more tasks were loaded", error);
    }
    this.set({ loading_more: false });
    this.poke(); // a look that was under way was in vain
  }

  choose(filter: Filter): void {
    if (filter === this.state.filter) return;
    this.extra = 0;
    this.set({ filter, tasks: null, next: null, refused: "" });
    this.poke();
  }

  /** Throws what the server said, for the form to show. The same body again is the same task. */
  async submit(body: Submit): Promise<Task> {
    const text = JSON.stringify(body);
    if (!this.pending.key || this.pending.body !== text) {
      this.pending = { key: random_id(), body: text };
    }
    const { pending } = this;
    this.dismiss();
    try {
      const task = await this.api.submit({ ...body, idempotency_key: pending.key });
      pending.key = "";
      if (!shown(this.state.filter, task)) this.choose(FILTERS[0]!);
      this.put(task);
      this.say("Task submitted");
      this.poke();
      return task;
    } catch (error) {
      if (is_refusal(error) && error.status === 401) this.failed(error); // an earlier try may have got in
      else if (is_final(error)) pending.key = "";
      throw error;
    }
  }

  async cancel(id: string): Promise<void> {
    this.set({ canceling: new Set([...this.state.canceling, id]), refused: "" });
    try {
      // Hard, whatever it looked like here: it may have begun to run since.
      const task = await this.api.cancel(id, { mode: "hard" });
      this.put(task);
      this.tell([task]);
    } catch (error) {
      // Finished in the meantime: the next look shows how.
      if (!is_refusal(error) || error.status !== 409) this.refuse("Not canceled", error);
    }
    const canceling = new Set(this.state.canceling);
    canceling.delete(id);
    this.set({ canceling });
    this.poke();
  }

  /** Show a task that the server has just answered with. */
  private put(task: Task): void {
    const { filter, tasks, detail } = this.state;
    this.puts++;
    if (!isFinished(task)) this.active = true;
    if (tasks) {
      const others = tasks.filter((t) => t.task_id !== task.task_id);
      const kept = shown(filter, task) ? [...others, task] : others;
      kept.sort((a, b) => compare_ids(b.task_id, a.task_id));
      this.set({ tasks: kept });
    }
    if (detail?.id === task.task_id) this.set({ detail: { ...detail, task } });
  }

  open(id: string): void {
    const hash = `#task-${id}`;
    if (location.hash === hash) this.follow_hash();
    else location.hash = hash;
  }

  close(): void {
    if (location.hash) history.pushState(null, "", location.pathname + location.search);
    this.follow_hash();
  }

  private follow_hash(): void {
    const id = /^#task-([0-9]{1,19})$/.exec(location.hash)?.[1];
    if (id === this.state.detail?.id) return;
    this.detail_version = "";
    const task = this.state.tasks?.find((t) => t.task_id === id) ?? null;
    this.set({ detail: id ? { id, task, events: [], error: "" } : null });
    if (id) this.poke();
  }

  private async refresh_detail(): Promise<void> {
    const id = this.state.detail?.id;
    if (!id) return;
    try {
      const known = this.state.tasks?.find((t) => t.task_id === id);
      const task = known ?? (await this.api.get(id));
      if (!isFinished(task)) this.active = true;
      this.set_detail(id, { task, error: "" });
      const version = `${id}/${task.version}`;
      if (version === this.detail_version) return;
      const events: TaskEvent[] = [];
      let after: string | undefined;
      for (let pages = 0; pages < 5; pages++) {
        const page = await this.api.history(id, after);
        events.push(...page.data);
        if (!page.next) break;
        after = page.next;
      }
      this.set_detail(id, { events });
      this.detail_version = version;
    } catch (error) {
      if (!is_refusal(error) || error.status === 401) throw error;
      this.set_detail(id, { error: error.message });
    }
  }

  private set_detail(id: string, change: Partial<Detail>): void {
    const { detail } = this.state;
    if (detail?.id === id) this.set({ detail: { ...detail, ...change } });
  }

  /** Throws what the server said. */
  async sign_in(key: string): Promise<void> {
    await this.api.sign_in(key);
    this.set({ session: "unknown" });
    this.poke();
  }

  async sign_out(): Promise<void> {
    this.dismiss();
    try {
      await this.api.sign_out();
      this.signed_out();
    } catch (error) {
      this.refuse("Not signed out", error);
    }
    if (this.state.session === null) this.forget();
  }

  /** Who is signed in, here or by another tab: what was somebody else's is put away first. */
  private meet(session: Session | null): void {
    const { session: before } = this.state;
    const known = before !== null && before !== "unknown";
    if (known && session?.user_id === before.user_id) return;
    if (known) this.signed_out();
    if (session && this.user && this.user !== session.user_id) this.forget();
    if (session) this.user = session.user_id;
    this.set({ session });
    this.follow_hash(); // it may have waited for the sign in
  }

  private forget(): void {
    this.draft = EMPTY;
    this.pending.key = "";
  }

  private signed_out(): void {
    clearTimeout(this.timer);
    this.unwatch();
    this.active = false;
    this.extra = 0;
    this.moved.clear();
    this.detail_version = "";
    this.set({
      session: null,
      link: "connecting",
      engines: null,
      tasks: null,
      next: null,
      detail: null,
      trouble: "",
      refused: "",
      spoken: "",
    });
  }
}

const news_of = (task: Task): string =>
  `${task.prompt.slice(0, 60)}: ${is_stopping(task) ? "Stopping" : status_word(task.status)}`;

/** A hard cancel was asked for, and the run has not ended yet. */
export const is_stopping = (task: Task): boolean =>
  task.status === "PROCESSING" && task.cancel_mode === "hard";

const unfinished_task = (task: Task): boolean => !isFinished(task);

const shown = (filter: Filter, task: Task): boolean =>
  filter.status.length === 0 || filter.status.includes(task.status);

const WORDS: Record<Status, string> = {
  CREATED: "Created",
  QUEUED: "Queued",
  PROCESSING: "Running",
  SUCCEEDED: "Succeeded",
  FAILED: "Failed",
  TIMEOUT: "Timed out",
  CANCELED: "Canceled",
};
export const status_word = (status: Status): string => WORDS[status] ?? status;

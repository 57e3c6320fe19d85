// One task in full, in a dialog: the player, what it was made with, and its history.

import { useEffect, useRef, useState } from "preact/hooks";
import { isFinished, poster_path, video_path, type Task, type TaskEvent } from "./api";
import type { Settings } from "./form";
import { between, bytes, clock, duration } from "./format";
import { useStore } from "./hooks";
import { CancelButton } from "./list";
import { Badge, Progress, Refused, Troubles, waiting_text } from "./parts";
import { status_word, type Detail } from "./store";

export function DetailDialog({ use }: { use: (settings: Settings) => void }) {
  const [state, store] = useStore();
  const { detail, spoken } = state;
  const dialog = useRef<HTMLDialogElement>(null);
  const open = detail !== null;
  useEffect(() => {
    if (open && !dialog.current?.open) dialog.current?.showModal();
    if (!open && dialog.current?.open) dialog.current.close();
  }, [open]);
  return (
    <dialog
      ref={dialog}
      aria-labelledby="detail-title"
      onClose={() => store.close()}
      onClick={(e) => {
        if (e.target === dialog.current) dialog.current?.close();
      }}
    >
      {/* All of the page but this is out of reach now, for screen readers, too. */}
      <div class="notices" role="status" aria-live="polite">
        {detail && <Troubles />}
      </div>
      <p class="unseen" role="status" aria-live="polite">
        {detail && spoken}
      </p>
      {detail && (
        <div class="detail">
          <header>
            <h2 id="detail-title">
              Task <span class="mono">{detail.id}</span>
            </h2>
            <button type="button" class="close" aria-label="Close" onClick={() => dialog.current?.close()}>
              ×
            </button>
          </header>
          <div role="alert">
            <Refused class="error" />
          </div>
          {detail.error && (
            <p class="error" role="alert">
              {detail.error}
            </p>
          )}
          {detail.task ? (
            <Body
              detail={detail}
              task={detail.task}
              use={(settings) => {
                dialog.current?.close();
                use(settings);
              }}
            />
          ) : (
            !detail.error && <p class="empty">Loading…</p>
          )}
        </div>
      )}
    </dialog>
  );
}

function Body(props: { detail: Detail; task: Task; use: (settings: Settings) => void }) {
  const { task, detail, use } = props;
  const made = task.status === "SUCCEEDED" && task.video;
  return (
    <>
      {made && <Player key={`${task.task_id}/${task.round}`} task={task} />}
      <div class="detail-state">
        <Badge task={task} />
        {task.status === "PROCESSING" && <Progress task={task} />}
        {(task.status === "CREATED" || task.status === "QUEUED") && <span>{waiting_text(task)}</span>}
        {task.error_code && (
          <p class="bad">
            <code>{task.error_code}</code> {task.error_msg}
          </p>
        )}
      </div>
      <p class="detail-prompt">{task.prompt}</p>
      <div class="actions">
        {made && (
          <a class="button primary" href={video_path(task.task_id)} download={`reeld-${task.task_id}.mp4`}>
            Download {task.video && `(${bytes(task.video.bytes)})`}
          </a>
        )}
        <button
          type="button"
          onClick={() => use({ prompt: task.prompt, priority: task.priority, params: task.params })}
        >
          Use these settings
        </button>
        {!isFinished(task) && <CancelButton task={task} />}
      </div>
      <h3>Parameters</h3>
      <Facts rows={parameters(task)} />
      <h3>History</h3>
      <History events={detail.events} />
    </>
  );
}

function Player({ task }: { task: Task }) {
  const [{ recoveries }] = useStore();
  const [broken, set_broken] = useState(false);
  useEffect(() => set_broken(false), [recoveries]);
  if (broken) {
    return (
      <p class="error">
        The video could not be loaded: the connection broke, or it was removed.{" "}
        <button type="button" class="quiet" onClick={() => set_broken(false)}>
          Try again
        </button>
      </p>
    );
  }
  return (
    <video
      controls
      playsInline
      preload="metadata"
      src={video_path(task.task_id)}
      poster={poster_path(task.task_id)}
      style={task.video ? { aspectRatio: `${task.video.width} / ${task.video.height}` } : {}}
      aria-label={`Video: ${task.prompt.slice(0, 80)}`}
      onError={() => set_broken(true)}
    />
  );
}

type Fact = [name: string, value: string];

const PRIORITY: Record<number, string> = { 1: "Low", 5: "Normal", 10: "High" };

function parameters(task: Task): Fact[] {
  const { params: p, video } = task;
  const size = video ?? p;
  const rows: [string, unknown][] = [
    ["Model", [...new Set([p.engine, p.model])].filter(Boolean).join(" · ")],
    ["Size", size.width && size.height ? `${size.width} × ${size.height} px` : null],
    ["Frames", size.frames],
    ["Frames per second", size.fps],
    ["Length", size.frames && size.fps ? duration(size.frames / size.fps) : null],
    ["Steps", p.steps || null],
    ["Seed", p.seed],
    ["Guidance scale", p.guidance_scale || null],
    ["Flow shift", p.flow_shift || null],
    ["Avoid", p.negative_prompt],
    ["Options", p.options && Object.keys(p.options).length ? JSON.stringify(p.options) : null],
    ["Priority", PRIORITY[task.priority] ?? task.priority],
    ["Label", task.label],
    ["Worker", task.worker_id],
    ["Reused from", task.reused_from],
    ["Callback", task.callback_status ? status_text(task.callback_status) : null],
  ];
  const waited = between(task.queued_at, task.started_at);
  const ran = between(task.started_at, task.finished_at);
  if (waited !== null) rows.push(["Waited", duration(waited)]);
  if (ran !== null) rows.push(["Ran", duration(ran)]);
  rows.push(["SHA-256", video?.sha256]);
  return rows
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => [name, String(value)]);
}

const status_text = (s: string): string => s.charAt(0) + s.slice(1).toLowerCase();

const Facts = ({ rows }: { rows: Fact[] }) => (
  <dl class="facts">
    {rows.map(([name, value]) => (
      <div key={name} class={value.length > 28 ? "wide" : ""}>
        <dt>{name}</dt>
        <dd>{value}</dd>
      </div>
    ))}
  </dl>
);

const History = ({ events }: { events: TaskEvent[] }) => (
  <ol class="history">
    {events.map((e) => (
      <li key={String(e.seq)}>
        <time dateTime={e.timestamp}>{clock(e.timestamp)}</time>
        <span class={`badge badge-${e.to_status.toLowerCase()}`}>{status_word(e.to_status)}</span>
        <span class="history-note">
          {[e.reason, e.worker_id && `on ${e.worker_id}`, e.attempt > 1 && `attempt ${e.attempt}`]
            .filter(Boolean)
            .join(" · ")}
        </span>
      </li>
    ))}
  </ol>
);

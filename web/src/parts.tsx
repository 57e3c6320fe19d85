// The small pieces that the list and the detail share.

import { useEffect, useState } from "preact/hooks";
import { poster_path, type Task } from "./api";
import { coming, duration } from "./format";
import { keep_focus, useStore } from "./hooks";
import { is_stopping, status_word } from "./store";

export const Reel = () => (
  <svg class="reel" viewBox="0 0 24 24" aria-hidden="true">
    <path
      fill="currentColor"
      fill-rule="evenodd"
      d="M12 2a10 10 0 1 0 0 20h10v-2.9h-3A10 10 0 0 0 12 2Zm0 2.7a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5ZM4.7 12a2.5 2.5 0 1 1 5 0 2.5 2.5 0 0 1-5 0Zm9.6 0a2.5 2.5 0 1 1 5 0 2.5 2.5 0 0 1-5 0ZM12 14.3a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5Z"
    />
  </svg>
);

/** Whether the server can be reached, and what else nobody expected. */
export function Troubles() {
  const [{ link, trouble }] = useStore();
  return (
    <>
      {link === "lost" && (
        <p class="banner">
          The server does not answer. Tasks are safe there; this page tries again by itself.
        </p>
      )}
      {trouble && <p class="banner">{trouble}</p>}
    </>
  );
}

/** Why the last action was not done; in front of whatever is open. */
export function Refused({ class: name }: { class: string }) {
  const [{ refused }, store] = useStore();
  if (!refused) return null;
  return (
    <p class={`${name} refused`}>
      {refused}
      <button
        type="button"
        class="close"
        aria-label="Close this message"
        onClick={() => {
          store.dismiss();
          keep_focus();
        }}
      >
        ×
      </button>
    </p>
  );
}

export const Badge = ({ task }: { task: Task }) => (
  <span class={`badge badge-${task.status.toLowerCase()}`}>
    {is_stopping(task) ? "Stopping" : status_word(task.status)}
  </span>
);

const PHASES: Record<string, string> = {
  load: "Loading the model",
  encode_text: "Reading the prompt",
  denoise: "Denoising",
  decode: "Decoding frames",
  mux: "Writing the video",
};

const phase_word = (phase: string | null): string =>
  phase === null ? "Starting" : (PHASES[phase] ?? phase);

/** "Denoising, step 12 of 30 · about 14 s left" */
export function progress_text(task: Task): string {
  const parts = [phase_word(task.phase)];
  if (task.step !== null && task.total_steps) parts[0] += `, step ${task.step} of ${task.total_steps}`;
  if (task.eta_seconds) parts.push(`about ${duration(Math.ceil(task.eta_seconds))} left`);
  return parts.join(" · ");
}

export function waiting_text(task: Task): string {
  if (task.status === "CREATED") return "Waiting for its inputs";
  const now_ms = Date.now();
  if (task.not_before && Date.parse(task.not_before) > now_ms) {
    const what = task.retry_count > 0 ? "Tries again" : "Starts";
    return `${what} at ${coming(task.not_before, now_ms)}`;
  }
  const parts = [
    task.queue_position ? `Number ${task.queue_position} in the queue` : "In the queue",
  ];
  if (task.retry_count > 0) parts.push(`try ${task.attempt + 1}`);
  if (task.eta_seconds) parts.push(`about ${duration(Math.ceil(task.eta_seconds))}`);
  return parts.join(" · ");
}

export const Progress = ({ task }: { task: Task }) => (
  <div class="progress">
    <progress max={100} value={task.progress} aria-label="Progress" />
    <span class="progress-text">{progress_text(task)}</span>
  </div>
);

/** The poster between two rows of sprocket holes; before there is one, the leader of the film. */
export function Strip({ task }: { task: Task }) {
  const [{ recoveries }] = useStore();
  const [broken, set_broken] = useState(false);
  const src = task.status === "SUCCEEDED" && task.video ? poster_path(task.task_id) : null;
  useEffect(() => set_broken(false), [src, recoveries]);
  return (
    <span class="strip" aria-hidden="true">
      {src && !broken ? (
        <img src={src} alt="" loading="lazy" onError={() => set_broken(true)} />
      ) : (
        <Leader task={task} />
      )}
    </span>
  );
}

function Leader({ task }: { task: Task }) {
  const running = task.status === "PROCESSING";
  const mark = running
    ? Math.floor(task.progress)
    : task.status === "QUEUED"
      ? (task.queue_position ?? "")
      : task.status === "FAILED" || task.status === "TIMEOUT"
        ? "!"
        : "";
  return (
    <span
      class={`leader leader-${task.status.toLowerCase()}`}
      style={{ "--turn": `${running ? task.progress * 3.6 : 0}deg` }}
    >
      <span>{mark}</span>
    </span>
  );
}

/** "512×512 · 33 frames · 16 fps": what was made, or what was asked for. */
export function shape_text(task: Task): string {
  const { width, height, frames, fps } = task.video ?? task.params;
  const parts: string[] = [];
  if (width && height) parts.push(`${width}×${height}`);
  if (frames && fps) parts.push(duration(frames / fps), `${fps} fps`);
  else if (frames) parts.push(`${frames} frames`);
  return parts.join(" · ");
}

// The live list of tasks.

import { useLayoutEffect, useRef } from "preact/hooks";
import { isFinished, type Task } from "./api";
import { ago, between, duration } from "./format";
import { keep_focus, useStore } from "./hooks";
import { Badge, Progress, Strip, shape_text, waiting_text } from "./parts";
import { FILTERS, is_stopping } from "./store";

export function TaskList() {
  const [state, store] = useStore();
  const { tasks, filter } = state;
  const load_more = async (): Promise<void> => {
    const last = tasks?.[tasks.length - 1];
    await store.load_more();
    keep_focus(`[data-task="${last?.task_id}"] + .row .row-open`);
  };
  return (
    <section class="tasks" aria-labelledby="tasks-title">
      <div class="tasks-head">
        <h2 id="tasks-title">Tasks</h2>
        <div class="chips" role="group" aria-label="Show">
          {FILTERS.map((f) => (
            <button
              key={f.name}
              type="button"
              aria-pressed={f === filter}
              onClick={() => store.choose(f)}
            >
              {f.name}
            </button>
          ))}
        </div>
      </div>
      {tasks === null ? (
        <p class="empty">Loading…</p>
      ) : tasks.length === 0 ? (
        <p class="empty">
          {filter.status.length ? "No task has this state." : "Nothing here yet. The first prompt makes the first video."}
        </p>
      ) : (
        <ul class="rows">
          {tasks.map((task) => (
            <Row key={task.task_id} task={task} />
          ))}
        </ul>
      )}
      {state.next && tasks && (
        <button type="button" class="more" onClick={() => void load_more()}>
          {state.loading_more ? "Loading…" : "Load more"}
        </button>
      )}
    </section>
  );
}

function Row({ task }: { task: Task }) {
  const [state, store] = useStore();
  return (
    <li class={`row row-${task.status.toLowerCase()}`} data-task={task.task_id}>
      <Strip task={task} />
      <div class="row-main">
        <button type="button" class="row-open" onClick={() => store.open(task.task_id)}>
          {task.prompt}
        </button>
        <p class="row-meta">
          <Badge task={task} />
          <time dateTime={task.created_at}>{ago(task.created_at, state.now_ms)}</time>
          <span class="mono">{shape_text(task)}</span>
        </p>
        <RowState task={task} />
      </div>
      {!isFinished(task) && <CancelButton task={task} />}
    </li>
  );
}

function RowState({ task }: { task: Task }) {
  switch (task.status) {
    case "CREATED":
    case "QUEUED":
      return <p class="row-note">{waiting_text(task)}</p>;
    case "PROCESSING":
      return <Progress task={task} />;
    case "FAILED":
    case "TIMEOUT":
      return <p class="row-note bad">{task.error_msg ?? task.error_code}</p>;
    case "SUCCEEDED": {
      const ran = between(task.started_at, task.finished_at);
      return <p class="row-note">{ran === null ? "" : `Made in ${duration(ran)}`}</p>;
    }
    default:
      return null;
  }
}

export function CancelButton({ task }: { task: Task }) {
  const [state, store] = useStore();
  const button = useRef<HTMLButtonElement>(null);
  // A layout effect: the others are undone when the button has gone.
  useLayoutEffect(() => {
    const here = button.current;
    return () => pass_focus(here);
  }, []);
  const stopping = is_stopping(task) || state.canceling.has(task.task_id);
  return (
    <button
      ref={button}
      type="button"
      class="cancel"
      aria-disabled={stopping}
      aria-label={`Cancel: ${task.prompt.slice(0, 80)}`}
      onClick={() => !stopping && void store.cancel(task.task_id)}
    >
      {stopping ? "Stopping…" : "Cancel"}
    </button>
  );
}

/** Whoever is on a button that goes continues beside it, or at the filter when its row goes too. */
function pass_focus(button: HTMLElement | null): void {
  if (!button || document.activeElement !== button) return;
  button.closest(".row, .actions")?.querySelector<HTMLElement>("a, button")?.focus();
  keep_focus();
}

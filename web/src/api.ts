// The published client, and the few requests that only the page makes.

import { Reeld, ReeldError, type Page, type TaskEvent } from "./client";

export {
  ReeldError,
  UNFINISHED,
  isFinished,
  type FieldError,
  type Params,
  type ProgressEvent,
  type Status,
  type Submit,
  type Task,
  type TaskEvent,
} from "./client";

export interface Session {
  user_id: string;
  owner: boolean;
  expires_at: string | null;
}

/** What a model takes and what it does when nothing is asked for; knobs it has not are left out. */
export interface EngineModel {
  name: string;
  doc: string;
  limits: {
    min_px: number;
    max_px: number;
    px_step: number;
    min_frames: number;
    max_frames: number;
    frame_step: number;
    min_fps: number;
    max_fps: number;
    max_pixels: number;
    min_steps?: number;
    max_steps?: number;
  };
  defaults: { width: number; height: number; frames: number; fps: number; steps?: number };
}

export interface Engine {
  name: string;
  doc: string;
  default: boolean;
  models: EngineModel[]; // its default first
}

export class Client extends Reeld {
  constructor() {
    // No second tries behind the scenes: the page shows what happens and asks again by itself.
    super({ retries: 0, timeout: 15_000 });
  }

  session(): Promise<Session> {
    return this.request("GET", "/api/v1/session");
  }
  sign_in(key: string): Promise<unknown> {
    return this.request("POST", "/api/v1/session", { body: { key } });
  }
  sign_out(): Promise<unknown> {
    return this.request("DELETE", "/api/v1/session");
  }
  engines(): Promise<{ data: Engine[] }> {
    return this.request("GET", "/api/v1/engines");
  }
  history(id: string, after?: string): Promise<Page<TaskEvent>> {
    const more = after ? `&after=${encodeURIComponent(after)}` : "";
    return this.request("GET", `${task_path(id)}/events?limit=200&order=asc${more}`);
  }
}

const task_path = (id: string): string => `/api/v1/tasks/${encodeURIComponent(id)}`;

/** Same-origin addresses of a task's files: the page's own policy allows no other. */
export const video_path = (id: string): string => `${task_path(id)}/video`;
export const poster_path = (id: string): string => `${task_path(id)}/poster`;

/** Nothing came of the request, for certain: another one like it would be a new one. */
export const is_final = (error: unknown): error is ReeldError =>
  is_refusal(error) && error.status < 500;

/** The server answered, and the answer is no. */
export const is_refusal = (error: unknown): error is ReeldError =>
  error instanceof ReeldError && error.status >= 400 && !error.lost;

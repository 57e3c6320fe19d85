// What is typed into the form: kept by the store, so that it outlives the form.

export const NUMBERS = ["width", "height", "frames", "fps", "steps", "seed"] as const;
export type NumberField = (typeof NUMBERS)[number];
type Numbers = Record<NumberField, string>;

export type Draft = Numbers & {
  prompt: string;
  negative_prompt: string;
  choice: string; // "engine/model"; "" = the server's default
  priority: number;
  carried: Record<string, unknown>; // settings that the form has no control for
};

export const EMPTY: Draft = {
  prompt: "",
  negative_prompt: "",
  choice: "",
  priority: 5,
  width: "",
  height: "",
  frames: "",
  fps: "",
  steps: "",
  seed: "",
  carried: {},
};

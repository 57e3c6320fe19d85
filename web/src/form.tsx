// The form that submits a task.

import { useEffect, useRef, useState } from "preact/hooks";
import { is_final, type FieldError, type Params, type Submit } from "./api";
import { EMPTY, NUMBERS, type Draft, type NumberField } from "./draft";
import { type Choice, type Range, range_text } from "./engines";
import { byte_length, duration, whole } from "./format";
import { keep_focus, useStore } from "./hooks";

const PROMPT_LIMIT = 32_768; // bytes, the server's default; it has the last word

const PRIORITIES = [
  { value: 1, name: "Low" },
  { value: 5, name: "Normal" },
  { value: 10, name: "High" },
] as const;

/** What another task hands over with "Use these settings". */
export interface Settings {
  prompt: string;
  priority: number;
  params: Params;
}

const choice_key = (engine: string, model: string): string => `${engine}/${model}`;

function from_settings({ prompt, priority, params }: Settings, choices: Choice[]): Draft {
  const values: Draft = { ...EMPTY, prompt, priority };
  values.negative_prompt = params.negative_prompt ?? "";
  for (const name of NUMBERS) values[name] = params[name] ? String(params[name]) : "";
  if (params.seed === 0) values.seed = "0";
  const match = choices.find(
    (c) => c.engine === params.engine && (!params.model || c.model === params.model),
  );
  if (match) values.choice = choice_key(match.engine, match.model);
  const { guidance_scale, flow_shift, options } = params;
  if (guidance_scale) values.carried.guidance_scale = guidance_scale;
  if (flow_shift) values.carried.flow_shift = flow_shift;
  if (options && Object.keys(options).length) values.carried.options = options;
  return { ...values, carried: { ...values.carried } };
}

/** What the form can tell by itself; everything else is the server's to judge. */
function check(values: Draft, choices: Choice[]): FieldError[] {
  const errors: FieldError[] = [];
  const bad = (field: string, detail: string) => errors.push({ field, code: "", detail });
  if (!values.prompt.trim()) bad("prompt", "Write what the video should show.");
  if (values.choice && !selected(choices, values.choice)) {
    bad("choice", `The server has no ${values.choice.replace("/", " · ")} now. Choose another model.`);
  }
  for (const { name } of number_fields(effective(choices, values.choice))) {
    if (values[name].trim() && !/^[0-9]+$/.test(values[name].trim())) {
      bad(name, "This must be a whole number.");
    }
  }
  return errors;
}

function body_of(values: Draft, choices: Choice[]): Submit {
  const choice = effective(choices, values.choice);
  const body: Record<string, unknown> & { prompt: string } = {
    ...values.carried,
    prompt: values.prompt,
    priority: values.priority,
  };
  if (values.negative_prompt.trim()) body.negative_prompt = values.negative_prompt;
  if (values.choice && choice) {
    body.engine = choice.engine;
    if (choice.model) body.model = choice.model;
  }
  for (const { name } of number_fields(choice)) {
    const text = values[name].trim();
    // A seed may be longer than a number holds: the server takes a text as well.
    if (text) body[name] = name === "seed" ? text : Number(text);
  }
  return body;
}

export function Composer({ settings }: { settings: Settings | null }) {
  const [state, store] = useStore();
  const choices = state.engines ?? [];
  const [values, show_values] = useState<Draft>(store.draft);
  const set_values = (draft: Draft): void => show_values((store.draft = draft));
  const [errors, set_errors] = useState<FieldError[]>([]);
  const [trouble, set_trouble] = useState("");
  const [refusals, count_refusal] = useState(0);
  const [busy, set_busy] = useState(false);
  const [made, set_made] = useState(""); // the task that the last submit made
  const [more, set_more] = useState(false);
  const form = useRef<HTMLFormElement>(null);
  const prompt = useRef<HTMLTextAreaElement>(null);

  useEffect(() => {
    if (!settings) return;
    set_values(from_settings(settings, choices));
    set_errors([]);
    set_trouble("");
    set_made("");
    set_more(true);
    prompt.current?.focus();
    form.current?.scrollIntoView({ block: "start" });
  }, [settings]);

  // The first wrong field gets the focus, once it is on the page; who mends one of several stays there.
  useEffect(() => {
    form.current?.querySelector<HTMLElement>("[aria-invalid=true]")?.focus();
  }, [refusals]);

  const change = (part: Partial<Draft>): void => {
    set_values({ ...store.draft, ...part });
    set_made("");
    const changed = Object.keys(part);
    const left = errors.filter((e) => !changed.includes(control_of(e.field) ?? ""));
    if (left.length !== errors.length) set_errors(left);
  };

  const fail = (list: FieldError[], message: string): void => {
    count_refusal((n) => n + 1);
    set_errors(list.filter((e) => control_of(e.field)));
    const others = list.filter((e) => !control_of(e.field)).map((e) => `${e.field}: ${e.detail}`);
    set_trouble(list.length ? others.join(" ") : message);
    if (list.some((e) => OPTION_FIELDS.includes(control_of(e.field) ?? ""))) set_more(true);
  };

  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (busy) return;
    const own = check(values, choices);
    if (own.length) return fail(own, "");
    set_busy(true);
    set_made("");
    set_trouble("");
    set_errors([]);
    try {
      const task = await store.submit(body_of(values, choices));
      set_made(task.task_id);
      // The next one may be there already.
      if (store.draft.prompt === values.prompt) set_values({ ...store.draft, prompt: "" });
      prompt.current?.focus();
    } catch (error) {
      if (is_final(error)) {
        fail(error.errors, error.message);
      } else {
        const why = (error as Error).message;
        fail([], `${why} Nothing is lost: press the button again, and the task is made only once.`);
      }
    }
    set_busy(false);
  };

  const choice = effective(choices, values.choice);
  const error_of = (name: string): string =>
    errors
      .filter((e) => control_of(e.field) === name)
      .map((e) => e.detail)
      .join(" ");
  const size = byte_length(values.prompt);

  return (
    <form class="card composer" ref={form} onSubmit={submit} noValidate aria-labelledby="composer-title">
      <h2 id="composer-title">New video</h2>
      <div class="field">
        <label for="prompt">Prompt</label>
        <textarea
          id="prompt"
          ref={prompt}
          rows={5}
          placeholder="A red circle moving left"
          value={values.prompt}
          {...invalid("prompt", error_of("prompt"), "prompt-count")}
          onInput={(e) => change({ prompt: e.currentTarget.value })}
          onKeyDown={(e) => {
            if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) form.current?.requestSubmit();
          }}
        />
        <ErrorText name="prompt" text={error_of("prompt")} />
        <p id="prompt-count" class={size > PROMPT_LIMIT ? "hint over" : "hint"}>
          {whole(size)} of {whole(PROMPT_LIMIT)} bytes
        </p>
      </div>

      <div class="field">
        <label for="choice">Model</label>
        <select
          id="choice"
          value={values.choice}
          {...invalid("choice", error_of("choice"), "choice-doc")}
          onChange={(e) => change({ choice: e.currentTarget.value })}
        >
          <option value="">
            {default_choice(choices) ? `Default (${choice_name(default_choice(choices)!)})` : "Default"}
          </option>
          {choices.map((c) => (
            <option key={choice_key(c.engine, c.model)} value={choice_key(c.engine, c.model)}>
              {choice_name(c)}
            </option>
          ))}
        </select>
        <ErrorText name="choice" text={error_of("choice")} />
        <p id="choice-doc" class="hint">
          {choice?.doc}
        </p>
      </div>

      <fieldset class="field">
        <legend>Priority</legend>
        <div class="segments">
          {PRIORITIES.map(({ value, name }) => (
            <label key={value}>
              <input
                type="radio"
                name="priority"
                value={value}
                checked={values.priority === value}
                onChange={() => change({ priority: value })}
              />
              <span>{name}</span>
            </label>
          ))}
        </div>
        <ErrorText name="priority" text={error_of("priority")} />
      </fieldset>

      <details open={more} onToggle={(e) => set_more(e.currentTarget.open)}>
        <summary>Options</summary>
        <div class="grid">
          {number_fields(choice).map(({ name, label, range }) => (
            <div class="field" key={name}>
              <label for={name}>{label}</label>
              <input
                id={name}
                inputMode="numeric"
                autocomplete="off"
                value={values[name]}
                placeholder={range ? String(range.fallback) : ""}
                {...invalid(name, error_of(name), `${name}-hint`)}
                onInput={(e) => change({ [name]: e.currentTarget.value } as Partial<Draft>)}
              />
              <ErrorText name={name} text={error_of(name)} />
              <p id={`${name}-hint`} class="hint">
                {name === "seed" ? "Empty: a new one each time" : range && range_text(range)}
              </p>
            </div>
          ))}
        </div>
        <p class="hint length">{length_text(values, choice)}</p>
        <div class="field">
          <label for="negative_prompt">Avoid</label>
          <textarea
            id="negative_prompt"
            rows={2}
            placeholder="What the video should not show"
            value={values.negative_prompt}
            {...invalid("negative_prompt", error_of("negative_prompt"))}
            onInput={(e) => change({ negative_prompt: e.currentTarget.value })}
          />
          <ErrorText name="negative_prompt" text={error_of("negative_prompt")} />
        </div>
        {Object.keys(values.carried).length > 0 && (
          <div class="carried">
            <p class="hint">Also used, from the task these settings came from:</p>
            <code>{JSON.stringify(values.carried)}</code>
            <button
              type="button"
              class="quiet"
              onClick={() => {
                change({ carried: {} });
                keep_focus(".composer details > button");
              }}
            >
              Leave out
            </button>
          </div>
        )}
        <button type="button" class="quiet" onClick={() => change({ ...EMPTY, prompt: values.prompt })}>
          Back to the defaults
        </button>
      </details>

      <div role="alert">{trouble && <p class="error">{trouble}</p>}</div>
      <button type="submit" class="primary" aria-disabled={busy}>
        {busy ? "Submitting…" : "Make the video"}
      </button>
      {made && (
        <p class="hint made">
          Submitted · <a href={`#task-${made}`}>show it</a>
        </p>
      )}
    </form>
  );
}

const OPTION_FIELDS: readonly string[] = [...NUMBERS, "negative_prompt"];

/** The control that a field of the API belongs to, if the form has one. */
function control_of(field: string): string | undefined {
  if (field === "engine" || field === "model" || field === "choice") return "choice";
  if (field === "prompt" || field === "priority" || OPTION_FIELDS.includes(field)) return field;
  return undefined;
}

const choice_name = (c: Choice): string =>
  c.model && c.model !== c.engine ? `${c.engine} · ${c.model}` : c.engine;

const selected = (choices: Choice[], key: string): Choice | undefined =>
  choices.find((c) => choice_key(c.engine, c.model) === key);

const default_choice = (choices: Choice[]): Choice | undefined =>
  choices.find((c) => c.preferred) ?? choices[0];

/** What runs when this is chosen. */
const effective = (choices: Choice[], key: string): Choice | undefined =>
  selected(choices, key) ?? default_choice(choices);

interface NumberSpec {
  name: NumberField;
  label: string;
  range: Range | undefined;
}

const LABELS: Record<NumberField, string> = {
  width: "Width, px",
  height: "Height, px",
  frames: "Frames",
  fps: "Frames per second",
  steps: "Denoise steps",
  seed: "Seed",
};

/** The controls that this model has. */
const number_fields = (choice: Choice | undefined): NumberSpec[] =>
  NUMBERS.filter((name) => name !== "steps" || choice?.ranges.steps).map((name) => ({
    name,
    label: LABELS[name],
    range: choice?.ranges[name],
  }));

function length_text(values: Draft, choice: Choice | undefined): string {
  const frames = Number(values.frames.trim() || choice?.ranges.frames?.fallback);
  const fps = Number(values.fps.trim() || choice?.ranges.fps?.fallback);
  return frames > 0 && fps > 0 ? `Length: ${duration(frames / fps)}` : "";
}

function invalid(name: string, error: string, hint?: string) {
  const described = [error && `${name}-error`, hint].filter(Boolean).join(" ");
  return {
    "aria-invalid": error ? ("true" as const) : ("false" as const),
    ...(described ? { "aria-describedby": described } : {}),
  };
}

const ErrorText = ({ name, text }: { name: string; text: string }) =>
  text ? (
    <p id={`${name}-error`} class="error">
      {text}
    </p>
  ) : null;

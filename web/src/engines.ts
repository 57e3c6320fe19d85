// The published engines, as the form needs them: one entry per engine and model.

import type { Engine, EngineRange } from "./api";

export interface Choice {
  engine: string;
  model: string;
  doc: string;
  preferred: boolean; // the one that runs when nothing is named
  ranges: Partial<Record<string, EngineRange>>;
}

export function read_engines(engines: Engine[]): Choice[] {
  return engines.flatMap((engine) =>
    engine.models.map(({ name, doc, default: preferred, width, height, frames, fps, steps }) => ({
      engine: engine.name,
      model: name,
      doc: doc || engine.doc,
      preferred: engine.default && preferred,
      ranges: { width, height, frames, fps, ...(steps ? { steps } : {}) },
    })),
  );
}

/** "16 to 1,024, in steps of 16" */
export function range_text({ min, max, step }: EngineRange): string {
  const text = `${min.toLocaleString("en")} to ${max.toLocaleString("en")}`;
  return step > 1 ? `${text}, in steps of ${step}` : text;
}

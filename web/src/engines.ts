// The published engines, as the form needs them: one entry per engine and model.

import type { Engine, EngineModel } from "./api";
import { whole } from "./format";

export interface Range {
  min: number;
  max: number;
  step: number;
  fallback: number; // what the model takes when nothing is asked for
}

export interface Choice {
  engine: string;
  model: string;
  doc: string;
  preferred: boolean; // the one that runs when nothing is named
  ranges: Partial<Record<string, Range>>;
}

export function read_engines(engines: Engine[]): Choice[] {
  return engines.flatMap((engine) =>
    engine.models.map((model, i) => ({
      engine: engine.name,
      model: model.name,
      doc: model.doc || engine.doc,
      preferred: engine.default && i === 0,
      ranges: read_ranges(model),
    })),
  );
}

function read_ranges({ limits, defaults }: EngineModel): Choice["ranges"] {
  const side = { min: limits.min_px, max: limits.max_px, step: limits.px_step };
  const ranges: Choice["ranges"] = {
    width: { ...side, fallback: defaults.width },
    height: { ...side, fallback: defaults.height },
    frames: {
      min: limits.min_frames,
      max: limits.max_frames,
      step: limits.frame_step,
      fallback: defaults.frames,
    },
    fps: { min: limits.min_fps, max: limits.max_fps, step: 1, fallback: defaults.fps },
  };
  const { min_steps: min, max_steps: max } = limits;
  if (min !== undefined && max !== undefined) {
    ranges.steps = { min, max, step: 1, fallback: defaults.steps ?? min };
  }
  return ranges;
}

/** "16 to 1,024, in steps of 16" */
export function range_text({ min, max, step }: Range): string {
  if (min === max) return `always ${whole(min)}`;
  const text = `${whole(min)} to ${whole(max)}`;
  return step > 1 ? `${text}, in steps of ${step}` : text;
}

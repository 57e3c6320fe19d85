import { createContext } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";
import type { State, Store } from "./store";

export const StoreContext = createContext<Store | null>(null);

export function useStore(): [State, Store] {
  const store = useContext(StoreContext)!;
  const [state, set_state] = useState(store.state);
  useEffect(() => {
    set_state(store.state);
    return store.subscribe(() => set_state(store.state));
  }, [store]);
  return [state, store];
}

const ELSEWHERE = ["dialog[open] .close", ".chips [aria-pressed=true]"];

/** When what was focused has gone: the first of these that is there has the focus next. */
export function keep_focus(...selectors: string[]): void {
  setTimeout(() => {
    const { activeElement } = document;
    if (activeElement !== document.body && activeElement?.tagName !== "DIALOG") return;
    for (const selector of [...selectors, ...ELSEWHERE]) {
      const next = document.querySelector<HTMLElement>(selector);
      if (next) return next.focus();
    }
  });
}

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

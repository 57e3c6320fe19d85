// The page: header, sign-in or work area, and the one store behind them.

import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Client, is_refusal } from "./api";
import "./app.css";
import { DetailDialog } from "./detail";
import { Composer, type Settings } from "./form";
import { StoreContext, keep_focus, useStore } from "./hooks";
import { TaskList } from "./list";
import { Reel, Refused, Troubles } from "./parts";
import { Store } from "./store";

const LINK_WORDS = { connecting: "Connecting", live: "Live", polling: "Polling", lost: "Offline" } as const;

function Header() {
  const [{ session, link }, store] = useStore();
  const signed_in = session !== null && session !== "unknown";
  return (
    <header class="top">
      <h1>
        <Reel />
        reeld
      </h1>
      {(session !== null || link === "lost") && <p class={`link link-${link}`}>{LINK_WORDS[link]}</p>}
      {signed_in && (
        <>
          <p class="who">{session.user_id}</p>
          <button type="button" class="quiet" onClick={() => void store.sign_out()}>
            Sign out
          </button>
        </>
      )}
    </header>
  );
}

function SignIn() {
  const [, store] = useStore();
  const [error, set_error] = useState("");
  const [busy, set_busy] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    const key = input.current?.value.trim() ?? "";
    if (busy) return;
    if (!key) {
      set_error("Paste a key first.");
      input.current?.focus();
      return;
    }
    set_busy(true);
    set_error("");
    try {
      await store.sign_in(key);
    } catch (e) {
      const refused = is_refusal(e) && e.status === 401;
      set_error(refused ? "The server does not know this key." : (e as Error).message);
      input.current?.focus();
    }
    set_busy(false);
  };
  return (
    <main class="sign-in">
      <form class="card" onSubmit={submit} noValidate>
        <h2>Sign in</h2>
        <p>
          On the machine that runs reeld, <code>reeld link</code> prints a link that signs this
          browser in with one click. Or paste an API key:
        </p>
        <div class="field">
          <label for="key">API key</label>
          <input
            id="key"
            ref={input}
            type="password"
            autocomplete="current-password"
            spellcheck={false}
            aria-invalid={error ? "true" : "false"}
            aria-describedby={error ? "key-error" : "key-hint"}
          />
          <div role="alert">
            {error && (
              <p id="key-error" class="error">
                {error}
              </p>
            )}
          </div>
          <p id="key-hint" class="hint">
            <code>reeld key add --user NAME</code> makes one.
          </p>
        </div>
        <button type="submit" class="primary" aria-disabled={busy}>
          {busy ? "Signing in…" : "Sign in"}
        </button>
      </form>
    </main>
  );
}

function Work() {
  const [settings, set_settings] = useState<Settings | null>(null);
  return (
    <main class="work">
      <Composer settings={settings} />
      <TaskList />
      <DetailDialog use={(s) => set_settings({ ...s })} />
    </main>
  );
}

function Page() {
  const [{ session, spoken, detail }] = useStore();
  const signed_in = session === "unknown" ? null : session !== null;
  const before = useRef<boolean | null>(null);
  useEffect(() => {
    if (signed_in === null) return; // not known yet, or between the two
    if (before.current === !signed_in) keep_focus("#prompt", "#key");
    before.current = signed_in;
  }, [signed_in]);
  const covered = signed_in === true && detail !== null; // the dialog says it
  return (
    <>
      <Header />
      <div class="notices" role="status" aria-live="polite">
        {!covered && (
          <>
            <Troubles />
            <Refused class="banner" />
          </>
        )}
      </div>
      <p class="unseen" role="status" aria-live="polite">
        {!covered && spoken}
      </p>
      {session === null ? <SignIn /> : session === "unknown" ? null : <Work key={session.user_id} />}
    </>
  );
}

const store = new Store(new Client());
render(
  <StoreContext.Provider value={store}>
    <Page />
  </StoreContext.Provider>,
  document.getElementById("app")!,
);
store.start();
